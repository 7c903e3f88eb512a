"""One process of a jax job that a test drives by lines.

usage: member.py PROCESSES PROCESS SECONDS

Joins within so many seconds, with the address and the certificates from the
environment, and then speaks as client.py does: a line on stdin is
{"call": method, "args": [...]}, the answer on stdout is {"value": ...} or
{"error": text}. Methods are those of jax's own client, and the few of Extra.
The end of stdin ends the process, by the exit hook of jax.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils


class Extra:
  """Calls that are jax's rather than its client's."""

  def __init__(self):
    self.step = 0

  def devices(self):
    return [[d.id, d.process_index] for d in jax.devices()]

  def total(self, ids):
    """Sums one for each of some devices, across the processes that have them."""
    devices = np.array([d for d in jax.devices() if d.id in ids])
    sharding = jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, ('some',)), jax.sharding.PartitionSpec('some'))
    ones = jax.make_array_from_callback((len(devices),), sharding, lambda _: np.ones((1,)))
    return int(jax.jit(jnp.sum)(ones))

  def steps_to(self, last):
    """Takes steps up to last; returns the one to save at if it was among them."""
    save_at = None
    while self.step < last:
      self.step += 1
      if multihost_utils.reached_preemption_sync_point(self.step):
        save_at = self.step
    return save_at

  def bytes_of(self, key):
    value = distributed.global_state.client.blocking_key_value_get_bytes(key, 60_000)
    return value.decode('latin-1')


def main(processes, me, seconds):
  jax.distributed.initialize(
      num_processes=processes, process_id=me, initialization_timeout=seconds)
  print('serry:', json.dumps({'value': 'joined'}), flush=True)
  extra = Extra()
  for line in sys.stdin:
    request = json.loads(line)
    owner = extra if hasattr(Extra, request['call']) else distributed.global_state.client
    try:
      answer = {'value': getattr(owner, request['call'])(*(request['args'] or []))}
    except RuntimeError as error:
      answer = {'error': str(error)}
    print('serry:', json.dumps(answer), flush=True)


main(*map(int, sys.argv[1:]))
