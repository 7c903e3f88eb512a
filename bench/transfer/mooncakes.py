"""Two processes with Mooncake's transfer engine over TCP, one of which reads memory of the other.

usage: mooncakes.py pull|serve

Each line on stdin of the reader is COUNT BYTES: so many bytes are read COUNT times, and it answers "seconds S". The other process is
a child of the reader.
"""

import subprocess
import sys
import time

import numpy as np
from mooncake.engine import TransferEngine


def start():
  engine = TransferEngine()
  if engine.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', ''):
    raise SystemExit('the engine does not start')
  return engine


def register(engine, data):
  if engine.register_memory(data.ctypes.data, data.nbytes):
    raise SystemExit('memory cannot be registered')
  return data


def serve():
  engine = start()
  print('address', f'127.0.0.1:{engine.get_rpc_port()}', flush=True)
  kept = {}
  for line in sys.stdin:
    size = int(line)
    if size not in kept:
      kept[size] = register(engine, np.full(size, 7, np.uint8))
    print('memory', kept[size].ctypes.data, flush=True)


def pull():
  child = subprocess.Popen([sys.executable, sys.argv[0], 'serve'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

  def answer(word):
    for line in child.stdout:
      if line.startswith(word):
        return line.split()[1]
    raise SystemExit('the server ended')

  engine = start()
  address = answer('address')
  kept = {}
  for line in sys.stdin:
    count, size = map(int, line.split())
    child.stdin.write(f'{size}\n')
    child.stdin.flush()
    memory = int(answer('memory'))
    if size not in kept:
      kept[size] = register(engine, np.zeros(size, np.uint8))
    into = kept[size]
    into[0] = into[-1] = 0
    begun = time.perf_counter()
    for _ in range(count):
      if engine.transfer_sync_read(address, into.ctypes.data, memory, size):
        raise SystemExit('a read failed')
    took = time.perf_counter() - begun
    if into[0] != 7 or into[-1] != 7:
      raise SystemExit('other bytes came')
    print('seconds', took, flush=True)


if __name__ == '__main__':
  {'serve': serve, 'pull': pull}[sys.argv[1]]()
