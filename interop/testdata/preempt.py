"""One process of a jax job that asks at every step whether to save and stop.

usage: preempt.py PROCESSES PROCESS

Lines on stdin:

  to N     takes steps up to and with N; prints the step to save at if it was
           among them, else "none"
  notice   returns when every process has written down its step, so that the
           next step knows the agreed one
"""

import sys

import jax
from jax._src import distributed
from jax.experimental import multihost_utils


def say(*words):
  print('serry:', *words, flush=True)


def main(processes, me):
  jax.distributed.initialize(num_processes=processes, process_id=me)
  client = distributed.global_state.client
  say('joined')
  step, save_at = 0, 'none'
  for line in sys.stdin:
    command, *args = line.split()
    if command == 'notice':
      when = client.blocking_key_value_get('RECEIVED_PREEMPTION_NOTICE', 60_000)
      # These keys differ in name between the dialects, so list instead of wait.
      while len(client.key_value_dir_get('PREEMPTION_CURRENT_COUNTER/')) < processes:
        pass
      say('notice', when)
      continue
    while step < int(args[0]):
      step += 1
      if multihost_utils.reached_preemption_sync_point(step):
        save_at = step
    say(save_at)


main(*map(int, sys.argv[1:]))
