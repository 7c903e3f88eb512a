"""A task under torchrun, as worker.go is one: it goes to barriers as it is told, until it is killed.
They are barriers of the store that torchrun keeps for its tasks."""
import os
import socket

from torch.distributed import TCPStore

store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
tasks = int(os.environ["WORLD_SIZE"])

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["SERRY_BENCH_SOCKET"])
    commands = connection.makefile("rw", buffering=1)
    print(os.getpid(), file=commands)
    for line in commands:
        barrier = "bench/" + line.split()[1]
        if store.add(barrier, 1) == tasks:
            store.set(barrier + "/open", "yes")
        store.wait([barrier + "/open"])
        print("passed", file=commands)
