"""A rank of a peer: torch's Gloo, Open MPI, or jax.

usage: peer.py gloo RANK RANKS STORE
       mpirun peer.py mpi
       peer.py jax RANK RANKS ADDRESS

Rank 0 reads commands, a line each: OPERATION BYTES COUNT. All ranks run the operation COUNT times back to back,
between two barriers, and check the result. Rank 0 prints the seconds that one operation took at the slowest rank,
or "-" and why not. An empty line ends all.

The data is in place. It begins as ones at rank 0 and zeros at the others, so that after COUNT sums each element is
RANKS to the power of COUNT-1, which float32 holds exactly if the count is not too large.
"""

import mmap
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

    def reduce(self, out, data):
        self.dist.reduce(data, dst=0)  # in place: the sources are not rewritten between two runs

    def gather(self, outs, part):
        self.dist.gather(part, outs, dst=0)

    def scatter(self, part, parts):
        self.dist.scatter(part, parts, src=0)

    def permute(self, out, data, to, source):
        ops = [self.dist.P2POp(self.dist.isend, data, to), self.dist.P2POp(self.dist.irecv, out, source)]
        for work in self.dist.batch_isend_irecv(ops):
            work.wait()

    def send(self, data, to):
        self.dist.send(data, to)

    def recv(self, data, source):
        self.dist.recv(data, source)

    def ragged(self, out, data, received, sent):
        self.dist.all_to_all_single(out, data, received, sent)


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

    def reduce(self, out, data):
        self.comm.Reduce(data, out if self.rank == 0 else None)

    def gather(self, outs, part):
        self.comm.Gather(part, outs)

    def scatter(self, part, parts):
        self.comm.Scatter(parts, part)

    def permute(self, out, data, to, source):
        self.comm.Sendrecv(data, to, recvbuf=out, source=source)

    def send(self, data, to):
        self.comm.Send(data, to)

    def recv(self, data, source):
        self.comm.Recv(data, source)

    def ragged(self, out, data, received, sent):
        self.comm.Alltoallv([data, sent], [out, received])


class Jax:
    """All-reduces of jax, with what it takes to call them. The array is the result of the one before."""

    def __init__(self, rank, ranks, address):
        import jax

        jax.distributed.initialize(address, ranks, rank)
        from jax.experimental import multihost_utils
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        self.jax, self.utils, self.rank, self.ranks = jax, multihost_utils, rank, ranks
        self.spec = PartitionSpec("p")
        self.sharding = NamedSharding(Mesh(np.array(jax.devices()), ("p",)), self.spec)
        total = lambda x: jax.lax.psum(x, "p")
        self.sum = jax.jit(jax.shard_map(total, mesh=self.sharding.mesh, in_specs=self.spec, out_specs=self.spec), donate_argnums=0)

    def command(self, text):
        box = np.zeros(64, np.uint8)
        box[: len(text or "")] = list((text or "").encode())
        return bytes(np.asarray(self.utils.broadcast_one_to_all(box))).rstrip(b"\0").decode()

    def slowest(self, seconds):
        return float(np.max(self.utils.process_allgather(np.float32(seconds))))

    def barrier(self):
        self.utils.sync_global_devices("bench")

    def wrap(self, array):
        self.value = self.jax.make_array_from_process_local_data(self.sharding, array)
        self.data = array
        return None

    def allreduce(self, _):
        self.value = self.sum(self.value)
        self.value.block_until_ready()

    def take(self):
        self.data[:] = np.asarray(self.value.addressable_shards[0].data)


def zeros(peer, n):
    """Makes a vector: of Open MPI as it likes best, aligned and in huge pages."""
    if not isinstance(peer, MPI) or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(n, np.float32)
    page = 2 << 20
    room = mmap.mmap(-1, 4 * n + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(room, np.uint8)
    skip = -whole.ctypes.data % page
    return whole[skip : skip + 4 * n].view(np.float32)


def full(peer, n, value):
    data = zeros(peer, n)
    data[:] = value
    return data


def prepare(peer, op, n):
    """Returns a function that runs op once on n elements, and one that says whether COUNT runs gave the right result."""
    if isinstance(peer, Jax) and op != "allreduce":
        raise NotImplementedError("not measured")
    mine = full(peer, n, peer.rank + 1)
    if op == "allreduce":
        data = full(peer, n, 1 if peer.rank == 0 else 0)
        t = peer.wrap(data)
        return lambda: peer.allreduce(t), lambda count: (data == float(peer.ranks) ** (count - 1)).all()
    if op == "broadcast":
        t = peer.wrap(mine)
        return lambda: peer.broadcast(t), lambda count: (mine == 1).all()
    part = n // peer.ranks
    if op == "allgather":
        whole, own = zeros(peer, part * peer.ranks), mine[:part]
        a, b = peer.wrap(whole), peer.wrap(own)
        return lambda: peer.allgather(a, b), lambda count: (whole == np.repeat(np.arange(1, peer.ranks + 1), part)).all()
    if op == "reducescatter":
        whole, own = mine[: part * peer.ranks], zeros(peer, part)
        a, b = peer.wrap(own), peer.wrap(whole)
        return lambda: peer.reducescatter(a, b), lambda count: (own == peer.ranks * (peer.ranks + 1) / 2).all()
    if op == "alltoall":
        whole, out = mine[: part * peer.ranks], zeros(peer, part * peer.ranks)
        a, b = peer.wrap(out), peer.wrap(whole)
        return lambda: peer.alltoall(a, b), lambda count: (out == np.repeat(np.arange(1, peer.ranks + 1), part)).all()
    return prepare_other(peer, op, n, mine)


def prepare_other(peer, op, n, mine):
    """Is prepare for the operations that are measured with a few sizes."""
    rank, ranks = peer.rank, peer.ranks
    part = n // ranks
    ordered = lambda whole: (whole == np.repeat(np.arange(1, ranks + 1), part)).all()
    parts = lambda whole: [peer.wrap(p) for p in np.split(whole, ranks)] if isinstance(peer, Gloo) else whole
    if op == "barrier":
        return peer.barrier, lambda count: True
    if op == "reduce":
        out = zeros(peer, n)
        a, b = peer.wrap(out), peer.wrap(mine)
        if isinstance(peer, Gloo):  # root 0 adds the others to its vector in each run
            return lambda: peer.reduce(a, b), lambda count: rank > 0 or count > 1 or (mine == ranks * (ranks + 1) / 2).all()
        return lambda: peer.reduce(a, b), lambda count: rank > 0 or (out == ranks * (ranks + 1) / 2).all()
    if op == "gather":
        whole, own = zeros(peer, part * ranks), mine[:part]
        a, b = parts(whole) if rank == 0 else None, peer.wrap(own)
        return lambda: peer.gather(a, b), lambda count: rank > 0 or ordered(whole)
    if op == "scatter":
        whole, own = mine[: part * ranks], zeros(peer, part)
        a, b = peer.wrap(own), parts(whole) if rank == 0 else None
        return lambda: peer.scatter(a, b), lambda count: (own == 1).all()
    out = zeros(peer, n)
    a, b = peer.wrap(out), peer.wrap(mine)
    if op == "permute":
        source = (rank - 1) % ranks
        return lambda: peer.permute(a, b, (rank + 1) % ranks, source), lambda count: (out == source + 1).all()
    if op == "sendrecv":
        return there(peer, a, b), lambda count: 0 < rank < ranks - 1 or (out == (1 if rank else ranks)).all()
    if op == "raggedalltoall":  # the rows that gauge exchanges
        row = max(n // (ranks * (ranks + 1) // 2), 1)
        counts = [((rank + i) % ranks + 1) * row for i in range(ranks)]  # both ways
        whole, out = full(peer, sum(counts), rank + 1), zeros(peer, sum(counts))
        a, b = peer.wrap(out), peer.wrap(whole)
        return lambda: peer.ragged(a, b, counts, counts), lambda count: (out == np.repeat(np.arange(1, ranks + 1), counts)).all()
    raise ValueError("no operation " + op)


def there(peer, out, data):
    """Returns a function that sends a vector from rank 0 to the last rank, which sends its own back."""
    last = peer.ranks - 1

    def run():
        if peer.rank == 0:
            peer.send(data, last)
            peer.recv(out, last)
        elif peer.rank == last:
            peer.recv(out, 0)
            peer.send(data, 0)

    return run


def measure(peer, op, size, count):
    run, right = prepare(peer, op, size // 4)
    peer.barrier()
    begun = time.perf_counter()
    for _ in range(count):
        run()
    took = time.perf_counter() - begun
    peer.barrier()
    if isinstance(peer, Jax):
        peer.take()
    if not right(count):
        raise ValueError("wrong result at rank %d" % peer.rank)
    return peer.slowest(took / count)


def main():
    # Libraries write to stdout, too: answers go where it went, and it goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.argv[1] == "mpi":
        peer = MPI()
    else:
        peer = (Jax if sys.argv[1] == "jax" else Gloo)(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    if peer.rank == 0:
        print("ready", file=answers, flush=True)
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
            print(answer, file=answers, flush=True)


main()
