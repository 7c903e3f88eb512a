"""One of two tasks that use every call of a jaxlib client once or twice.

usage: task.py ADDRESS TASK
"""

import sys
import time

from jaxlib import _jax

WAIT_MS = 60_000


def fails(method, *args):
  try:
    method(*args)
  except RuntimeError:
    return
  sys.exit(f'{method.__name__}{args} did not fail')


def main(address, task):
  c = _jax.get_distributed_runtime_client(
      address, task, init_timeout=60, heartbeat_timeout=2, use_compression=True)
  c.connect()

  # One waits for the value of the other.
  if task == 0:
    c.key_value_set('dir/text', 'hello')
    c.key_value_set_bytes('dir/zeros', bytes(100_000))
    fails(c.key_value_set, 'dir/text', 'again')
    c.key_value_set('dir/text', 'again', True)
  else:
    c.blocking_key_value_get('dir/zeros', WAIT_MS)
    c.blocking_key_value_get_bytes('dir/zeros', WAIT_MS)
  c.wait_at_barrier('keys', WAIT_MS)

  c.key_value_try_get('dir/text')
  c.key_value_dir_get('dir')
  c.key_value_dir_get_bytes('dir')
  fails(c.key_value_try_get, 'nowhere')
  fails(c.blocking_key_value_get, 'nowhere', 200)
  c.key_value_increment(f'count/{task}', 2)
  c.get_live_nodes([0, 1])

  # One comes too late: both learn who was missing.
  if task == 1:
    time.sleep(0.5)
  fails(c.wait_at_barrier, 'late', 200)
  c.wait_at_barrier('beats', WAIT_MS)
  time.sleep(2.5)
  c.wait_at_barrier('end', WAIT_MS)
  if task == 0:
    c.key_value_delete('dir/')
  c.shutdown()


main(sys.argv[1], int(sys.argv[2]))
