"""A jax program as README shows it.

usage: train.py                      under serry run, which tells jax everything
       train.py PROCESSES PROCESS    where something else starts the processes
"""
import sys

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

if len(sys.argv) == 3:
    jax.distributed.initialize(num_processes=int(sys.argv[1]), process_id=int(sys.argv[2]))
else:
    jax.distributed.initialize()
present = multihost_utils.process_allgather(jnp.ones(1)).sum()
print(f"rank {jax.process_index()}: {present:.0f} of {jax.process_count()} ranks are here", flush=True)
