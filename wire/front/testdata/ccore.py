"""Calls the test service of the front with grpcio, a client of the C core."""

import sys
import threading
import time

import grpc

address = sys.argv[1]
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
S = "/test.Service/"


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got!r}; want {want!r}")
    print("ok", what)


def code_of(call):
    try:
        call()
        return grpc.StatusCode.OK
    except grpc.RpcError as e:
        return e.code()


for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
    with grpc.insecure_channel(address, options, compression) as channel:
        echo, fail, wait, release, size, count = (
            channel.unary_unary(S + m) for m in ("Echo", "Fail", "Wait", "Release", "Size", "Count"))

        for n in (0, 1, 1000, 100_000, 16 << 20):
            body = bytes(i * 31 & 0xFF for i in range(256)) * (n // 256 + 1)
            check(f"{compression} echo {n}", echo(body[:n]) == body[:n], True)
        check("32 MiB back", len(size((32 << 20).to_bytes(8, "big"))), 32 << 20)
        check("32 MiB there", int.from_bytes(count(bytes(32 << 20)), "big"), 32 << 20)

        try:
            fail(b"\x05text with % and \xc3\xb6")
        except grpc.RpcError as e:
            check("code", e.code(), grpc.StatusCode.NOT_FOUND)
            check("text", e.details(), "text with % and ö")
            check("details", dict(e.trailing_metadata())["grpc-status-details-bin"], b"\x00\x01\x02\xff")
        check("too large", code_of(lambda: size(bytes(9))), grpc.StatusCode.RESOURCE_EXHAUSTED)
        check("unknown", code_of(lambda: channel.unary_unary(S + "None")(b"")), grpc.StatusCode.UNIMPLEMENTED)

        for timeout in (0.001, 0.3):
            check(f"deadline {timeout}", code_of(lambda: wait(b"", timeout=timeout)), grpc.StatusCode.DEADLINE_EXCEEDED)
        call = wait.future(b"")
        time.sleep(0.05)
        call.cancel()
        check("cancel", code_of(call.result) if not call.cancelled() else "cancelled", "cancelled")

        waiting = [wait.future(b"", timeout=60) for _ in range(500)]
        done = threading.Event()
        waiting[-1].add_done_callback(lambda _: done.set())
        while not done.wait(0.05):
            release(b"go")
        check("released", {f.result() for f in waiting}, {b"go"})
        for i in range(2000):
            echo(b"%d" % i)
        print("ok 2000 calls")
