"""One process of a jax job that steps for a while.

Its environment says what to do: SERRY_TASK and SERRY_TASKS which process it is
of how many, JOB_SECONDS how long it steps, JOB_CPUS on which processors.

Each step computes across all processes, counts, hands a key from process 0 to
the others, and meets them in a barrier. Process 0 prints a line when all have
joined, and at the end how many steps there were, with the median and the 99th
percentile of their milliseconds. It fails where the count is not exact.
"""

import os
import time

if os.environ.get('JOB_CPUS'):
  os.sched_setaffinity(0, {int(n) for n in os.environ['JOB_CPUS'].split(',')})

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
    print('JOB steps', flush=True)
  end, took = time.monotonic() + seconds, []
  while True:
    step = len(took)
    began = time.monotonic()
    float(total(array))
    client.key_value_increment('count', 1)
    if me == 0:
      client.key_value_set(f'step/{step}', 'on' if began < end else 'over')
    word = client.blocking_key_value_get(f'step/{step}', WAIT_MS)
    client.wait_at_barrier('step', WAIT_MS)
    took.append(1000 * (time.monotonic() - began))
    if me == 0 and step:
      client.key_value_delete(f'step/{step - 1}')
    if word == 'over':
      break
  count = client.key_value_increment('count', 0)
  if count != processes * len(took):
    raise ValueError(f'the count is {count} after {len(took)} steps of {processes} processes')
  if me == 0:
    print('JOB took', len(took), *np.quantile(took, [0.5, 0.99]), flush=True)


main(int(os.environ['SERRY_TASKS']), int(os.environ['SERRY_TASK']), float(os.environ['JOB_SECONDS']))
