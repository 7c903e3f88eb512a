"""Two processes with JAX's transfer server, one of which pulls from the other.

usage: pulls.py pull|serve LANES CHUNK_BYTES
       pulls.py fetch LANES CHUNK_BYTES ADDRESS

Each line on stdin of the puller is COUNT BYTES: so many arrays of so many bytes are pulled, and it answers "seconds S". The
server is a child of the puller. A chunk of 0 bytes means the default of JAX. By fetch it pulls from another server, under a number
that comes first in each line; by serve it is the server alone, and lines are the same.
"""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
from jax.experimental import transfer


def start(lanes, chunk):
  more = {'transfer_size': chunk} if chunk else {}
  return transfer.start_transfer_server(jax.devices()[0].client, '127.0.0.1:0', ['127.0.0.1:0'] * lanes, **more)


def serve(lanes, chunk):
  server = start(lanes, chunk)
  print('address', server.address(), flush=True)
  kept = {}
  for line in sys.stdin:
    uuid, count, size = map(int, line.split())
    if (count, size) not in kept:
      kept[count, size] = jax.block_until_ready([jnp.full((size,), i % 251, jnp.uint8) for i in range(count)])
    server.await_pull(uuid, kept[count, size])
    print('offered', flush=True)


def pull(lanes, chunk):
  command = [sys.executable, sys.argv[0], 'serve', str(lanes), str(chunk)]
  child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

  def answer(word):
    for line in child.stdout:
      if line.startswith(word):
        return line.split()
    raise SystemExit('the server ended')

  server = start(lanes, chunk)
  connection = server.connect(answer('address')[1])
  for uuid, line in enumerate(sys.stdin):
    count, size = map(int, line.split())
    child.stdin.write(f'{uuid} {count} {size}\n')
    child.stdin.flush()
    answer('offered')
    timed(connection, uuid, count, size)


def fetch(lanes, chunk, address):
  server = start(lanes, chunk)
  connection = server.connect(address)
  for line in sys.stdin:
    timed(connection, *map(int, line.split()))


def timed(connection, uuid, count, size):
  device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  like = [jax.ShapeDtypeStruct((size,), jnp.uint8, sharding=device)] * count
  begun = time.perf_counter()
  jax.block_until_ready(connection.pull(uuid, like))
  print('seconds', time.perf_counter() - begun, flush=True)


if __name__ == '__main__':
  {'serve': serve, 'pull': pull, 'fetch': fetch}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
