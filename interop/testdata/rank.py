"""Says which process of the job it is, without having been told a number."""

import os

import jax

jax.distributed.initialize()
ids = [d.id for d in jax.local_devices()]
print(f"machine {os.environ['SERRY_MACHINE_ID']} is process {jax.process_index()} of {jax.process_count()} with devices {ids}", flush=True)
