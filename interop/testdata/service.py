"""The coordination service that comes with jaxlib, alone in a process.

usage: service.py TASKS [OPTION NUMBER]...

Says where it serves in the words of serry's own first line, and ends with stdin.
"""

import socket
import sys

from jaxlib import _jax


def main(tasks, *options):
  # The service does not tell its port. A socket that is bound but does not
  # listen keeps one for it that nobody else gets.
  keeper = socket.socket()
  keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
  keeper.bind(('127.0.0.1', 0))
  address = '127.0.0.1:%d' % keeper.getsockname()[1]
  service = _jax.get_distributed_runtime_service(
      address, int(tasks), **dict(zip(options[::2], map(int, options[1::2]))))
  print('serry: serving', tasks, 'tasks on', address, flush=True)
  sys.stdin.read()
  service.shutdown()


main(*sys.argv[1:])
