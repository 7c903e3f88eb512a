"""Runs the clients of jaxlib, all in one process, as told by lines.

usage: real.py PORT CLIENTS CONNECTIONS

With as many connections as clients each client dials another loopback address:
gRPC shares one connection among all channels of a process with equal targets.
Lines on stdin, each answered by one line once all is done:

  connect
  barriers COUNT ID        all clients meet COUNT times; milliseconds of each
  keys CALLERS SECONDS     calls made
"""

import sys
import threading
import time

from jaxlib import _jax

WAIT_MS = 120_000
VALUE = 'v' * 64


class Fleet:

  def __init__(self, port, clients, connections):
    self.clients = [
        _jax.get_distributed_runtime_client(
            f'127.0.{1 + i % connections // 250}.{1 + i % connections % 250}:{port}',
            i, init_timeout=120, heartbeat_timeout=3600, use_compression=True)
        for i in range(clients)
    ]

  def each(self, body, clients):
    """Runs body(client, number) in a thread for each, and ends with the program if one fails."""
    failed = []

    def run(client, number):
      try:
        body(client, number)
      except BaseException as error:
        failed.append(error)
        raise

    threads = [threading.Thread(target=run, args=(c, i)) for i, c in enumerate(clients)]
    for t in threads:
      t.start()
    for t in threads:
      t.join()
    if failed:
      sys.exit(f'{len(failed)} clients failed, the first with {failed[0]}')

  def connect(self):
    self.each(lambda client, _: client.connect(), self.clients)
    return ''

  def barriers(self, count, name):
    count = int(count)
    ready = threading.Barrier(len(self.clients))
    starts = [[0.0] * len(self.clients) for _ in range(count)]
    ends = [[0.0] * len(self.clients) for _ in range(count)]

    def meet(client, number):
      for wave in range(count):
        ready.wait()
        starts[wave][number] = time.monotonic()
        client.wait_at_barrier(f'{name}-{wave}', WAIT_MS)
        ends[wave][number] = time.monotonic()

    self.each(meet, self.clients)
    return ' '.join(f'{1e3 * (max(e) - min(s)):.3f}' for s, e in zip(starts, ends))

  def keys(self, callers, seconds):
    until = time.monotonic() + float(seconds)
    calls = [0] * int(callers)

    def work(client, number):
      key = f'key-{number}'
      while time.monotonic() < until:
        client.key_value_set(key, VALUE, True)
        client.key_value_try_get(key)
        calls[number] += 2

    self.each(work, self.clients[:int(callers)])
    return sum(calls)


def main():
  threading.stack_size(256 << 10)
  fleet = Fleet(*(int(a) for a in sys.argv[1:]))
  for line in sys.stdin:
    method, *args = line.split()
    print(getattr(fleet, method)(*args), flush=True)


main()
