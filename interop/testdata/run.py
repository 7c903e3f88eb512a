"""A jax program under serry run, as a user would write it.

usage: run.py [own|victim|none]

It computes across all processes and says what it saw. own: it passes ids of
its own, in the opposite order. victim: in the first attempt process 2 dies
before the second computation.
"""

import os
import signal
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils


def write(*words):
  # One write: print makes one of each word under serry run, and libraries write lines of their own between two.
  sys.stdout.write(' '.join(map(str, words)) + '\n')


def gathered():
  return multihost_utils.process_allgather(np.array([jax.process_index()], np.int32)).ravel().tolist()


def main(what):
  if what == 'own':
    jax.distributed.initialize(num_processes=4, process_id=3 - int(os.environ['SERRY_TASK']))
  else:
    jax.distributed.initialize()
  say = lambda *words: write('attempt', os.environ['SERRY_ATTEMPT'], *words)
  say('process', jax.process_index(), 'of', jax.process_count(),
      'devices', jax.local_device_count(), 'of', jax.device_count())
  say('gathered', gathered())
  if what == 'victim' and jax.process_index() == 2 and os.environ['SERRY_ATTEMPT'] == '1':
    write('these are my last words')
    os.kill(os.getpid(), signal.SIGKILL)
  say('again', gathered())


main(sys.argv[1])
