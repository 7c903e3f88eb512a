"""One process of a jax job, as a user would write it.

usage: job.py PROCESSES PROCESS ROUNDS

The coordinator comes by environment alone. Each round joins, computes across
all processes, talks through keys and barriers, and leaves; what it saw is one
JSON line. The last round leaves by the exit hook of jax.
"""

import json
import sys

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils


def total_over_all(value):
  """Sums one number per device over the whole job."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ('all',))
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('all'))
  mine = np.full((jax.local_device_count(),), value, np.float32)
  array = jax.make_array_from_process_local_data(sharding, mine)
  return float(jax.jit(jnp.sum)(array))


def round_trip(processes, me):
  jax.distributed.initialize(num_processes=processes, process_id=me)
  client = distributed.global_state.client
  gathered = multihost_utils.process_allgather(np.array([me], np.int32))
  client.key_value_set(f'from/{me}', f'hello from {me}')
  neighbour = client.blocking_key_value_get(f'from/{(me + 1) % processes}', 60_000)
  client.wait_at_barrier('all-have-set', 60_000)
  return {
      'gathered': gathered.ravel().tolist(),
      'sum': total_over_all(me + 1),
      'neighbour': neighbour,
      'keys': sorted(key for key, _ in client.key_value_dir_get('from/')),
      'alive': sorted(client.get_live_nodes(list(range(processes)))),
  }


def main(processes, me, rounds):
  for left in reversed(range(rounds)):
    print('serry:', json.dumps(round_trip(processes, me)), flush=True)
    if left:
      jax.extend.backend.clear_backends()
      jax.distributed.shutdown()


main(*map(int, sys.argv[1:]))
