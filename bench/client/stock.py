"""The client that ships in jaxlib, as one side of the comparison.

usage: stock.py ADDRESS TASK

It joins, says "ready", and makes the calls that each line of stdin asks for:
which call, how many callers, for how many seconds. The answer is how many calls
there were, and how long that took. Only jaxlib's extension module is imported.
Requests are not compressed; calls release the interpreter while they wait.
"""

import sys
import threading
import time

from jaxlib import _jax


def call_all(client, call, crowd, seconds):
    counts = [0] * crowd
    value = bytes(64)
    start = time.monotonic()

    def caller(i):
        # Keys of its own: two clients share the store.
        key, counter = "bench/stock/value/%d" % i, "bench/stock/count/%d" % i
        once = {
            "put": lambda: client.key_value_set_bytes(key, value, allow_overwrite=True),
            "get": lambda: client.key_value_try_get_bytes(key),
            "add": lambda: client.key_value_increment(counter, 1),
        }[call]
        n = 0
        while time.monotonic() - start < seconds:
            once()
            n += 1
        counts[i] = n

    if crowd == 1:
        caller(0)
    else:
        threads = [threading.Thread(target=caller, args=(i,)) for i in range(crowd)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    return sum(counts), time.monotonic() - start


def main():
    client = _jax.get_distributed_runtime_client(
        sys.argv[1], int(sys.argv[2]), heartbeat_timeout=3600, init_timeout=300, use_compression=False)
    client.connect()
    print("ready", flush=True)
    for line in sys.stdin:
        call, crowd, seconds = line.split()
        print(*call_all(client, call, int(crowd), float(seconds)), flush=True)


main()
