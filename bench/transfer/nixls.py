"""Two processes with NIXL, one of which reads memory of the other. UCX_TLS in the environment says by which transports.

usage: nixls.py pull|serve

Each line on stdin of the reader is COUNT BYTES: so many bytes are read COUNT times, and it answers "seconds S". The other process is
a child of the reader.
"""

import base64
import subprocess
import sys
import time

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config


def start(name):
  return nixl_agent(name, nixl_agent_config(backends=['UCX']))


def register(agent, data):
  where = [(data.ctypes.data, data.nbytes, 0)]
  agent.register_memory([(data.ctypes.data, data.nbytes, 0, '')], 'DRAM')
  return where


def serve():
  agent = start('server')
  kept = {}
  for line in sys.stdin:
    size = int(line)
    if size not in kept:
      kept[size] = np.full(size, 7, np.uint8)
      register(agent, kept[size])
    print('memory', kept[size].ctypes.data, base64.b64encode(agent.get_agent_metadata()).decode(), flush=True)


def pull():
  child = subprocess.Popen([sys.executable, sys.argv[0], 'serve'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

  def answer(word):
    for line in child.stdout:
      if line.startswith(word):
        return line.split()[1:]
    raise SystemExit('the server ended')

  agent = start('reader')
  kept = {}
  for line in sys.stdin:
    count, size = map(int, line.split())
    child.stdin.write(f'{size}\n')
    child.stdin.flush()
    address, metadata = answer('memory')
    if size not in kept:
      into = np.zeros(size, np.uint8)
      here = register(agent, into)
      peer = agent.add_remote_agent(base64.b64decode(metadata))
      local = agent.get_xfer_descs(here, 'DRAM')
      remote = agent.get_xfer_descs([(int(address), size, 0)], 'DRAM')
      kept[size] = into, agent.initialize_xfer('READ', local, remote, peer)
    into, handle = kept[size]
    into[0] = into[-1] = 0
    begun = time.perf_counter()
    for _ in range(count):
      state = agent.transfer(handle)
      while state not in ('DONE', 'ERR'):
        state = agent.check_xfer_state(handle)
      if state == 'ERR':
        raise SystemExit('a read failed')
    took = time.perf_counter() - begun
    if into[0] != 7 or into[-1] != 7:
      raise SystemExit('other bytes came')
    print('seconds', took, flush=True)


if __name__ == '__main__':
  {'serve': serve, 'pull': pull}[sys.argv[1]]()
