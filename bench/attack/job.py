"""One process of a jax job of four that steps for a while.

usage: job.py PROCESSES PROCESS SECONDS

Each step computes across all processes, hands a key from process 0 to the
others, and meets them in a barrier. Process 0 prints one line when all have
joined, then the milliseconds of every step in one line, after the word steps.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed

WAIT_MS = 60_000


def main(processes, me, seconds):
  jax.distributed.initialize(num_processes=processes, process_id=me)
  client = distributed.global_state.client
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ('all',))
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('all'))
  mine = np.full((jax.local_device_count(), 256), me, np.float32)
  array = jax.make_array_from_process_local_data(sharding, mine)
  total = jax.jit(jnp.sum)
  float(total(array))
  if me == 0:
    print('stepping', flush=True)
  end, step, took = time.monotonic() + seconds, 0, []
  while True:
    began = time.monotonic()
    float(total(array))
    if me == 0:
      client.key_value_set(f'step/{step}', 'on' if began < end else 'over')
    word = client.blocking_key_value_get(f'step/{step}', WAIT_MS)
    client.wait_at_barrier(f'step/{step}', WAIT_MS)
    took.append(1000 * (time.monotonic() - began))
    if me == 0 and step:
      client.key_value_delete(f'step/{step - 1}')
    if word == 'over':
      break
    step += 1
  if me == 0:
    print('steps', *(f'{t:.3f}' for t in took), flush=True)


main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
