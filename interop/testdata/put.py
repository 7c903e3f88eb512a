"""Process 0 of a JAX program of two processes, whose arrays cross processes by way of transfer servers.

usage: put.py SERVICE_ADDRESS TRANSFER_ADDRESS

It says "ready", and how many devices there are, when it has the devices of both, then puts arrays on the device of process 1, and takes one from there.
"""

import sys

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

jax.config.update('jax_cross_host_transfer_socket_address', sys.argv[2])
jax.config.update('jax_cross_host_transport_addresses', '127.0.0.1:0,127.0.0.1:0')
jax.config.update('jax_force_dcn_cross_host_transfers', True)
jax.distributed.initialize(sys.argv[1], 2, 0)
mine, theirs = (SingleDeviceSharding(d) for d in jax.devices())
print('serry: ready', len(jax.devices()), flush=True)

one = jax.device_put(np.arange(1000, dtype=np.float32), mine)
jax.device_put(one, theirs)
jax.device_put([one + 1, one.astype(np.int32) * 2], theirs)
away = jax.make_array_from_single_device_arrays((50_000,), theirs, [], dtype=np.int32)
back = jax.device_put(away, mine)
print('serry: sum', int(np.asarray(back).sum()), flush=True)
sys.stdin.readline()
jax.distributed.shutdown()
