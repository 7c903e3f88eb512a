"""A jax program under serry run that lives on keys, barriers and live sets, and
so outlives the loss of a process, which comes back.

usage: run_live.py
"""

import os
import signal
import sys

import jax
from jax._src import distributed

FOREVER = 600_000  # milliseconds; only a test that fails waits so long


def write(*words):
  # One write: print makes one of each word under serry run, and libraries write lines of their own between two.
  sys.stdout.write(' '.join(map(str, words)) + '\n')


def main():
  jax.distributed.initialize()
  client, me, everybody = distributed.global_state.client, int(os.environ['SERRY_TASK']), [0, 1, 2, 3]
  returned = os.environ['SERRY_LIFE'] != '1'
  if not returned:
    client.wait_at_barrier('all are here', FOREVER)
    if me == 2:
      os.kill(os.getpid(), signal.SIGKILL)
    # Who is alive is agreed upon by those who are: first without process 2, later with it.
    alive = sorted(client.get_live_nodes(everybody))
    write('task', me, 'goes on with', alive)
    while alive != everybody:
      alive = sorted(client.get_live_nodes(everybody))
  else:
    client.get_live_nodes(everybody)
  client.key_value_set(f'back/{me}', 'yes')
  for other in everybody:
    client.blocking_key_value_get(f'back/{other}', FOREVER)
  client.wait_at_barrier('all are back', FOREVER)
  write('task', me, 'life', os.environ['SERRY_LIFE'], 'is done')


main()
