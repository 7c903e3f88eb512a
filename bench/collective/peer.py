"""A rank of a peer: torch's Gloo or Open MPI.

usage: peer.py gloo RANK RANKS STORE
       mpirun peer.py mpi

Rank 0 reads commands, a line each: OPERATION BYTES COUNT. All ranks run the operation COUNT times back to back,
between two barriers, and check the result. Rank 0 prints the seconds that one operation took at the slowest rank,
or "-" and why not. An empty line ends all.

The data is in place. It begins as ones at rank 0 and zeros at the others, so that after COUNT sums each element is
RANKS to the power of COUNT-1, which float32 holds exactly if the count is not too large.
"""

import os
import sys
import time

import numpy as np


class Gloo:
    def __init__(self, rank, ranks, store):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank, self.ranks = torch, dist, rank, ranks
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)

    def command(self, text):
        box = [text]
        self.dist.broadcast_object_list(box, src=0)
        return box[0]

    def slowest(self, seconds):
        t = self.torch.tensor([seconds], dtype=self.torch.float64)
        self.dist.all_reduce(t, op=self.dist.ReduceOp.MAX)
        return float(t[0])

    def barrier(self):
        self.dist.barrier()

    def wrap(self, array):
        return self.torch.from_numpy(array)

    def allreduce(self, data):
        self.dist.all_reduce(data)

    def broadcast(self, data):
        self.dist.broadcast(data, src=0)

    def allgather(self, whole, part):
        self.dist.all_gather_into_tensor(whole, part)

    def reducescatter(self, part, whole):
        self.dist.reduce_scatter_tensor(part, whole)

    def alltoall(self, out, data):
        self.dist.all_to_all_single(out, data)


class MPI:
    def __init__(self):
        from mpi4py import MPI as mpi

        self.mpi, self.comm = mpi, mpi.COMM_WORLD
        self.rank, self.ranks = self.comm.Get_rank(), self.comm.Get_size()

    def command(self, text):
        # A rank that waits in an operation spins, and would take a processor from the peers that are measured meanwhile.
        if self.rank == 0:
            for rank in range(1, self.ranks):
                self.comm.send(text, rank)
            return text
        while not self.comm.iprobe(source=0):
            time.sleep(0.001)
        return self.comm.recv(source=0)

    def slowest(self, seconds):
        return self.comm.allreduce(seconds, op=self.mpi.MAX)

    def barrier(self):
        self.comm.Barrier()

    def wrap(self, array):
        return array

    def allreduce(self, data):
        self.comm.Allreduce(self.mpi.IN_PLACE, data)

    def broadcast(self, data):
        self.comm.Bcast(data)

    def allgather(self, whole, part):
        self.comm.Allgather(part, whole)

    def reducescatter(self, part, whole):
        self.comm.Reduce_scatter_block(whole, part)

    def alltoall(self, out, data):
        self.comm.Alltoall(data, out)


def prepare(peer, op, n):
    """Returns a function that runs op once on n elements, and one that says whether COUNT runs gave the right result."""
    mine = np.full(n, peer.rank + 1, np.float32)
    if op == "allreduce":
        data = np.full(n, 1 if peer.rank == 0 else 0, np.float32)
        t = peer.wrap(data)
        return lambda: peer.allreduce(t), lambda count: (data == float(peer.ranks) ** (count - 1)).all()
    if op == "broadcast":
        t = peer.wrap(mine)
        return lambda: peer.broadcast(t), lambda count: (mine == 1).all()
    part = n // peer.ranks
    if op == "allgather":
        whole, own = np.zeros(part * peer.ranks, np.float32), mine[:part]
        a, b = peer.wrap(whole), peer.wrap(own)
        return lambda: peer.allgather(a, b), lambda count: (whole == np.repeat(np.arange(1, peer.ranks + 1), part)).all()
    if op == "reducescatter":
        whole, own = mine[: part * peer.ranks], np.zeros(part, np.float32)
        a, b = peer.wrap(own), peer.wrap(whole)
        return lambda: peer.reducescatter(a, b), lambda count: (own == peer.ranks * (peer.ranks + 1) / 2).all()
    if op == "alltoall":
        whole, out = mine[: part * peer.ranks], np.zeros(part * peer.ranks, np.float32)
        a, b = peer.wrap(out), peer.wrap(whole)
        return lambda: peer.alltoall(a, b), lambda count: (out == np.repeat(np.arange(1, peer.ranks + 1), part)).all()
    raise ValueError("no operation " + op)


def measure(peer, op, size, count):
    run, right = prepare(peer, op, size // 4)
    peer.barrier()
    begun = time.perf_counter()
    for _ in range(count):
        run()
    took = time.perf_counter() - begun
    peer.barrier()
    if not right(count):
        raise ValueError("wrong result at rank %d" % peer.rank)
    return peer.slowest(took / count)


def main():
    if sys.argv[1] == "mpi":
        peer = MPI()
    else:
        peer = Gloo(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    if peer.rank == 0:
        print("ready", flush=True)
    while True:
        text = peer.command(sys.stdin.readline().strip() if peer.rank == 0 else None)
        if not text:
            return
        op, size, count = text.split()
        try:
            answer = "%.9f" % measure(peer, op, int(size), int(count))
        except (RuntimeError, NotImplementedError) as e:  # an operation that the peer lacks, at all ranks
            answer = "- " + str(e).split("\n")[0]
        if peer.rank == 0:
            print(answer, flush=True)


main()
