"""One jaxlib client that a test drives by lines.

usage: client.py ADDRESS TASK OPTIONS

A line on stdin is a JSON object {"call": method, "args": [...]}; the answer on
stdout, after the mark, is {"value": ...} or {"error": text}. Methods are those of jaxlib's
DistributedRuntimeClient, and the few of Extra. Bytes travel as strings of one
character a byte. Only jaxlib is imported, so a process starts fast. The end of
stdin ends the process.
"""

import hashlib
import json
import sys

from jaxlib import _jax


class Extra:
  """Calls that a test could not make over a pipe."""

  def __init__(self, client):
    self.client = client

  def set_noise(self, key, size):
    """Sets size bytes that do not compress; returns their digest."""
    value = hashlib.shake_128(key.encode()).digest(size)
    self.client.key_value_set_bytes(key, value)
    return hashlib.blake2b(value).hexdigest()

  def get_digest(self, key, timeout_in_ms):
    value = self.client.blocking_key_value_get_bytes(key, timeout_in_ms)
    return hashlib.blake2b(value).hexdigest()

  def dir_sizes(self, key):
    return {k: len(v) for k, v in self.client.key_value_dir_get_bytes(key)}


def new_client(address, task, options):
  arguments = dict(
      init_timeout=max(0, options['init'] or 300),
      heartbeat_timeout=options['heartbeat'] or 100,
      use_compression=not options['plain'],
  )
  if options['recoverable'] and 'recoverable' in _jax.get_distributed_runtime_client.__doc__:
    arguments['recoverable'] = True
  return _jax.get_distributed_runtime_client(address, task, **arguments)


def pack(value):
  if isinstance(value, bytes):
    return value.decode('latin-1')
  if isinstance(value, (list, tuple)):
    return [pack(v) for v in value]
  return value


def call(client, method, args):
  if hasattr(Extra, method):
    return getattr(Extra(client), method)(*args)
  if method == 'key_value_set_bytes':
    args[1] = args[1].encode('latin-1')
  return pack(getattr(client, method)(*args))


def main():
  client = new_client(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
  for line in sys.stdin:
    request = json.loads(line)
    try:
      answer = {'value': call(client, request['call'], request['args'] or [])}
    except RuntimeError as error:
      answer = {'error': str(error)}
    print('serry:', json.dumps(answer), flush=True)


main()
