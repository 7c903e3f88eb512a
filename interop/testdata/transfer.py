"""A JAX process with a transfer server, which a test drives by lines.

usage: transfer.py LANES CHUNK_BYTES

The first line on stdout is {"value": address}. A line on stdin is {"call": method, "args": [...]}, the answer on
stdout is {"value": ...} or {"error": text}. Methods are those of Process. Arrays are described as [type, shape, seed];
their bytes follow from that, so a test need not send them.
"""

import gc
import hashlib
import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import transfer

jax.config.update('jax_enable_x64', True)


def say(answer):
  """Writes one whole line: other threads print, too."""
  sys.stdout.write('serry: ' + json.dumps(answer) + '\n')
  sys.stdout.flush()


def content(dtype, shape, seed):
  """The bytes of an array: a pattern that no shift by a chunk repeats."""
  dtype = jnp.dtype(dtype)
  size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
  row = (np.arange(min(size, 1_000_003), dtype=np.uint64) * (2 * seed + 1) >> 3).astype(np.uint8)
  data = np.resize(row, size)
  if dtype == np.bool_:
    data &= 1
  return data.view(dtype).reshape(shape)


class Process:
  """What a test may ask for."""

  def __init__(self, lanes, chunk):
    self.device = jax.devices()[0]
    self.server = transfer.start_transfer_server(
        self.device.client, '127.0.0.1:0', ['127.0.0.1:0'] * lanes,
        max_num_parallel_copies=8, transfer_size=chunk)
    self.connections = {}
    self.offers = []

  def offer(self, uuid, arrays):
    made = [jax.device_put(content(*a), self.device) for a in arrays]
    jax.block_until_ready(made)
    self.server.await_pull(uuid, made)
    self.offers.append(made)

  def pull(self, address, uuid, arrays):
    if address not in self.connections:
      self.connections[address] = self.server.connect(address)
    sharding = jax.sharding.SingleDeviceSharding(self.device)
    like = [jax.ShapeDtypeStruct(tuple(a[1]), jnp.dtype(a[0]), sharding=sharding) for a in arrays]
    got = jax.block_until_ready(self.connections[address].pull(uuid, like))
    return [hashlib.sha256(np.asarray(g).tobytes()).hexdigest() for g in got]

  def drop(self, address):
    del self.connections[address]
    gc.collect()

  def sums(self, arrays):
    return [hashlib.sha256(content(*a).tobytes()).hexdigest() for a in arrays]

  def forget(self):
    self.offers.clear()


def main(lanes, chunk):
  process = Process(lanes, chunk)
  say({'value': process.server.address()})
  for line in sys.stdin:
    request = json.loads(line)
    try:
      say({'value': getattr(process, request['call'])(*request['args'])})
    except Exception as e:  # pylint: disable=broad-except
      say({'error': str(e)})
  os._exit(0)


main(int(sys.argv[1]), int(sys.argv[2]))
