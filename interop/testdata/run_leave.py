"""A jax program of which one process does not come to the last computation.

usage: run_leave.py raise|exit|hang

Process 2 raises an exception, calls sys.exit(0) or sleeps while the others wait
for it in a collective.
"""

import sys
import time

import jax
import numpy as np
from jax.experimental import multihost_utils


def load_batch(what):
  sys.stdout.write('leaving at %.3f\n' % time.time())  # one write, between those of libraries
  if what == 'raise':
    raise ValueError('bad sample 17 in shard 2')
  if what == 'exit':
    sys.exit(0)
  time.sleep(3600)


def main(what):
  jax.distributed.initialize()
  for step in range(3):
    if step == 2 and jax.process_index() == 2:
      load_batch(what)
    multihost_utils.process_allgather(np.array([step], np.int32))


main(sys.argv[1])
