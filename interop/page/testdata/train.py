# A training of four processes in which rank 3 falls asleep in step 5.
import time

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()


def load_batch(step):
    if step == 5 and jax.process_index() == 3:
        print("asleep at", time.time(), flush=True)
        time.sleep(3600)


for step in range(1_000_000):
    load_batch(step)
    multihost_utils.process_allgather(jnp.ones(4))
    time.sleep(0.1)
