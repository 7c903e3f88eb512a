"""A small training job of jax, in which something happens to a rank, at step 30 unless at the start.

"idle" does nothing but join, for what happens to hosts and servers: it prints "READY".

usage: train.py WHAT

It prints "INJECT" and the time when it happens.
"""

import ctypes
import errno
import json
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
  """Compiles functions of 2,000 operations for half a minute. With 4,000 the compiler of jaxlib 0.9.2 runs out of stack."""
  end = time.monotonic() + 30
  while time.monotonic() < end:
    def many(x, scale=time.monotonic()):
      for i in range(2000):
        x = x * (scale + i) + x
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


def join_group():
  """Moves this process to the control group that the benchmark has made."""
  with open(os.environ['SCENARIO_GROUP'] + '/cgroup.procs', 'w') as f:
    f.write(str(os.getpid()))


def start_former():
  """Starts a process with the variables of the first attempt."""
  with open('former.json') as f:
    env = json.load(f)
  subprocess.Popen([sys.executable, '-c', 'import jax; jax.distributed.initialize()'], env=env)


def crash_in_turn(rank):
  """Crashes rank 0, and rank 2 right after it."""
  while rank != 0 and not os.path.exists('crashed'):
    time.sleep(0.005)
  if rank == 0:
    say()
    open('crashed', 'w').close()
  elif rank == 2:
    time.sleep(0.05)
  else:
    time.sleep(3600)
  os.kill(os.getpid(), signal.SIGSEGV)


def say():
  sys.stdout.write('INJECT %.3f\n' % time.time())
  sys.stdout.flush()


def inject(what):
  if what == 'memory':
    time.sleep(4)  # the launcher sees which group it is in
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
  elif what == 'memory':
    _ = b'x' * (300 << 20)
  elif what == 'stale':
    start_former()


def meet(rank, step, what):
  """Meets at barriers of the service, as a program does before it saves."""
  wait = jax._src.distributed.global_state.client.wait_at_barrier
  if what == 'slow':
    work(rank, step)
    wait('step-%d' % step, 3600 * 1000)
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


def work(rank, step):
  """Works for a while, on rank 3 for a quarter longer from step 30 on."""
  time.sleep(0.2 if rank == 3 and step >= STEP else 0.16)


def load_batch(rank, step, what):
  if rank == 3 and step == STEP:
    inject(what)
  return np.ones((1,), np.float32)


def main(what):
  jax.config.update('jax_platforms', 'cpu')
  if what == 'slow-start' and os.environ['SERRY_TASK'] == '3':
    say()
    time.sleep(3600)
  if what == 'stale' and os.environ['SERRY_ATTEMPT'] == '1' and os.environ['SERRY_TASK'] == '3':
    with open('former.json', 'w') as f:
      json.dump(dict(os.environ), f)
    os._exit(1)
  jax.distributed.initialize()
  rank = jax._src.distributed.global_state.process_id
  if what == 'idle':
    print('READY', flush=True)
    time.sleep(3600)
  if what == 'skew':
    crash_in_turn(rank)
  if what == 'no-device' and rank == 1:
    say()
    time.sleep(3600)
  mesh = Mesh(jax.devices(), ('x',))
  total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
  if what == 'memory' and rank == 3:
    join_group()
  for step in range(10 * STEP):
    meet(jax.process_index(), step, what)
    if what == 'exit':
      time.sleep(0.1)  # the launcher looks once a second
      with open(os.environ['SERRY_STEP_FILE'], 'w') as f:
        f.write(str(step))
    if what in ('program', 'world', 'stale'):
      time.sleep(0.2)  # nothing happens to it, and it must not end too soon
    batch = load_batch(jax.process_index(), step, what)
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec('x')), batch)
    total(x).block_until_ready()


main(sys.argv[1])
