"""One process of a jax job that outlives the loss of others.

usage: live.py PROCESSES PROCESS

Prints the devices of the whole job when it has joined, then does what the
lines on stdin say:

  live   runs an empty block under live_devices; prints who was in it, or, if
         somebody was lost, whom it lost
  sum    sums over all devices; prints the sum or the first line of the error
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils


def say(*words):
  print('serry:', *words, flush=True)


def ids(devices):
  return ','.join(str(d.id) for d in sorted(devices, key=lambda d: d.id))


def live():
  try:
    with multihost_utils.live_devices(jax.devices()) as devices:
      among = ids(devices)
    say('live', among)
  except multihost_utils.ProcessFailureError as failure:
    say('lost', ids(failure.failed_devices))


def total():
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ('all',))
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('all'))
  array = jax.make_array_from_process_local_data(sharding, np.ones((1,), np.float32))
  try:
    say('sum', int(jax.jit(jnp.sum)(array)))
  except jax.errors.JaxRuntimeError as error:
    say('error', str(error).splitlines()[0])


def main(processes, me):
  jax.distributed.initialize(num_processes=processes, process_id=me)
  say('devices', ids(jax.devices()))
  for line in sys.stdin:
    {'live': live, 'sum': total}[line.strip()]()


main(*map(int, sys.argv[1:]))
