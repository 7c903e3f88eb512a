"""A healthy training job of jax whose ranks compile, save, wait for data and compute at random, each at its own times.

usage: healthy.py SEED SECONDS LONGEST

No wait of a rank that does nothing is longer than LONGEST seconds. It ends when SECONDS have passed on any rank; rank 0 then
prints how many steps were made.
"""

import os
import random
import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def compile_some(rng):
  """Compiles a function that has never been seen before."""
  scale, count = rng.random(), rng.randrange(50, 1500)

  def many(x):
    for i in range(count):
      x = x * (scale + i) + x
    return x

  jax.jit(many)(np.float32(1)).block_until_ready()


def save_checkpoint(rng, rank):
  """Writes a file, as slowly as a disk may be."""
  name = f'checkpoint-{rank}.bin'
  with open(name, 'wb') as f:
    for _ in range(rng.randrange(1, 32)):
      f.write(os.urandom(1 << 20))
      f.flush()
      os.fsync(f.fileno())
      time.sleep(rng.random() * 0.2)
  os.remove(name)


def load_batch(rng, longest):
  """Waits for data now and then."""
  if rng.random() < 0.01:
    time.sleep(rng.random() * longest)


def compute(rng):
  end = time.monotonic() + rng.random() * 2
  while time.monotonic() < end:
    np.dot(np.ones((200, 200)), np.ones((200, 200)))


def main(seed, seconds, longest):
  jax.config.update('jax_platforms', 'cpu')
  jax.distributed.initialize()
  rank = jax.process_index()
  rng = random.Random(f'{seed}/{rank}')
  mesh = Mesh(jax.devices(), ('x',))
  total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
  client = jax._src.distributed.global_state.client
  end = time.monotonic() + seconds
  step, over = 0, 0
  while not over:
    step += 1
    load_batch(rng, longest)
    what = rng.random()
    if what < 0.02:
      compile_some(rng)
    elif what < 0.10:
      compute(rng)
    else:
      time.sleep(rng.random() * 0.05)
    if step % 50 == 0:
      save_checkpoint(rng, rank)
      client.wait_at_barrier(f'save-{step}', 3600 * 1000)
    mine = np.full((1,), time.monotonic() > end, np.float32)
    over = total(jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec('x')), mine)).block_until_ready() > 0
  if rank == 0:
    print(f'STEPS {step}', flush=True)


main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
