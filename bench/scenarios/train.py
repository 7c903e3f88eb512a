"""A small training job of jax, in which something happens to rank 3 at step 30.

usage: train.py WHAT

It prints "INJECT" and the time when it happens.
"""

import ctypes
import os
import signal
import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEP = 30


def compile_much():
  def many(x):
    for i in range(4000):
      x = x * (1.0 + i) + x
    return x
  jax.jit(many)(np.float32(1)).block_until_ready()


def write_much():
  with open('checkpoint.bin', 'wb', buffering=0) as f:
    while True:
      f.write(b'x' * 4096)
      os.fsync(f.fileno())
      if f.tell() > 64 << 20:
        f.seek(0)


def loop():
  while True:
    pass


def inject(what):
  sys.stdout.write('INJECT %.3f\n' % time.time())
  sys.stdout.flush()
  if what == 'segv':
    os.kill(os.getpid(), signal.SIGSEGV)
  elif what == 'kill':
    os.kill(os.getpid(), signal.SIGKILL)
  elif what == 'raise':
    raise ValueError('bad sample 17 in shard 3')
  elif what == 'exit':
    sys.exit(0)
  elif what == 'hard-exit':
    os._exit(0)
  elif what == 'sleep':
    time.sleep(3600)
  elif what == 'stop':
    os.kill(os.getpid(), signal.SIGSTOP)
  elif what == 'gil':
    ctypes.PyDLL(None).sleep(3600)
  elif what == 'loop':
    loop()
  elif what == 'compile':
    compile_much()
  elif what == 'write':
    write_much()


def load_batch(rank, step, what):
  if rank == 3 and step == STEP:
    inject(what)
  return np.ones((1,), np.float32)


def main(what):
  jax.config.update('jax_platforms', 'cpu')
  jax.distributed.initialize()
  mesh = Mesh(jax.devices(), ('x',))
  total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
  for step in range(10 * STEP):
    batch = load_batch(jax.process_index(), step, what)
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec('x')), batch)
    total(x).block_until_ready()


main(sys.argv[1])
