"""Lets "serry stacks --signal" ask this process where it is.

serry run puts the folder of this file first in PYTHONPATH, so that Python runs it at its start. It has faulthandler write the
stacks of all threads to a file in memory when a signal comes, and then runs the sitecustomize that it hides. Nothing in it may
break a start: what fails only means that this process cannot be asked. "serry run --no-shim" leaves it out.
"""

import os
import sys

_file = None
_stat = None  # what os.fstat has said of _file


def _same(file):
  """A program may have closed all its files; then the number is that of another one now, which is not ours to close."""
  if file is None:
    return False
  try:
    return os.path.samestat(os.fstat(file), _stat)
  except OSError:
    return False


def _arm():
  """Answers the signal from now on. A child needs a file of its own."""
  global _file, _stat
  import _signal  # signal itself takes long to import
  import faulthandler
  number = int(os.environ['SERRY_STACK_SIGNAL'])
  if callable(_signal.getsignal(number)):
    return  # the program has taken the signal for itself, before a fork
  former, _file = _file if _same(_file) else None, os.memfd_create('serry-stacks')
  try:
    import fcntl
    # Out of the way of programs that expect to get low numbers.
    high = fcntl.fcntl(_file, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(_file)
    _file = high
  except Exception:
    pass
  _stat = os.fstat(_file)
  faulthandler.register(number, file=_file, all_threads=True, chain=False)
  if former is not None:
    os.close(former)


def _arm_quietly():
  try:
    _arm()
  except Exception:
    pass


def _run_hidden():
  """Runs the sitecustomize that would have run without this one, and puts it in its place."""
  here = os.path.dirname(os.path.abspath(__file__))
  sys.path[:] = [p for p in sys.path if p != here]
  mine = sys.modules.pop('sitecustomize')
  try:
    import sitecustomize
  except ImportError as e:
    if getattr(e, 'name', None) != 'sitecustomize':
      raise  # Python says what is wrong with it, in its own words
    sys.modules['sitecustomize'] = mine


_arm_quietly()
try:
  os.register_at_fork(after_in_child=_arm_quietly)
except Exception:
  pass
_run_hidden()
