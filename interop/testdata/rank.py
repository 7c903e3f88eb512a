"""Says which process of the job it is, without having been told a number."""

import os
import sys

import jax

jax.distributed.initialize()
ids = [d.id for d in jax.local_devices()]
# One write: print makes another one of the end of the line, and libraries write lines of their own between two.
sys.stdout.write(f"machine {os.environ['SERRY_MACHINE_ID']} is process {jax.process_index()} of {jax.process_count()} with devices {ids}\n")
