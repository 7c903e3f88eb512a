"""Several tasks in one process, which then share one connection.

usage: many.py ADDRESS TASK...

Joins as all the tasks, says so, and leaves as all of them when stdin ends.
"""

import sys
from concurrent import futures

from jaxlib import _jax


def main(address, *tasks):
  clients = [_jax.get_distributed_runtime_client(address, int(task)) for task in tasks]
  with futures.ThreadPoolExecutor(len(clients)) as pool:
    list(pool.map(lambda client: client.connect(), clients))
    list(pool.map(lambda client: client.wait_at_barrier('all', 60_000), clients))
    print('serry: joined', flush=True)
    sys.stdin.read()
    list(pool.map(lambda client: client.shutdown(), clients))


main(*sys.argv[1:])
