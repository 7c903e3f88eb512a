"""A small training job of jax, in which something happens to a rank, at step 30 unless at the start.

usage: train.py WHAT

It prints "INJECT" and the time when it happens.
"""

import ctypes
import errno
import os
import signal
import subprocess
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


def claim_rank_2():
  """Starts a second process that calls itself rank 2."""
  code = """
import jax, os
jax.distributed.initialize(os.environ['SERRY_ADDRESS'], 4, 2)
"""
  env = {k: v for k, v in os.environ.items() if not k.startswith('OMPI_')}
  subprocess.run([sys.executable, '-c', code], env=env, check=False)


def say():
  sys.stdout.write('INJECT %.3f\n' % time.time())
  sys.stdout.flush()


def inject(what):
  say()
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
  elif what == 'disk-full':
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'checkpoint.bin')
  elif what == 'two-ids':
    claim_rank_2()


def meet(rank, step, what):
  """Meets at barriers of the service, as a program does before it saves."""
  wait = jax._src.distributed.global_state.client.wait_at_barrier
  if step != STEP:
    return
  if what == 'barrier':
    if rank == 3:
      say()
      time.sleep(3600)
    wait('save-100', 3600 * 1000)
  elif what == 'crossed':
    if rank == 3:
      say()
    wait('a' if rank < 2 else 'b', 3600 * 1000)


def load_batch(rank, step, what):
  if rank == 3 and step == STEP:
    inject(what)
  return np.ones((1,), np.float32)


def main(what):
  jax.config.update('jax_platforms', 'cpu')
  if what == 'slow-start' and os.environ['SERRY_TASK'] == '3':
    say()
    time.sleep(3600)
  jax.distributed.initialize()
  if what == 'no-device' and jax._src.distributed.global_state.process_id == 1:
    say()
    time.sleep(3600)
  mesh = Mesh(jax.devices(), ('x',))
  total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
  for step in range(10 * STEP):
    meet(jax.process_index(), step, what)
    if what in ('program', 'world'):
      time.sleep(0.2)  # nothing happens to it, and it must not end too soon
    batch = load_batch(jax.process_index(), step, what)
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec('x')), batch)
    total(x).block_until_ready()


main(sys.argv[1])
