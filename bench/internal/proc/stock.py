"""Runs the coordination service that ships in jaxlib, until it is killed.

usage: stock.py HOST TASKS [CERTIFICATE KEY]

With a certificate it serves mutual TLS, and the certificate is also the root
that clients must chain to.

Only jaxlib's extension module is imported, not jax: the smallest process that
can host the service.
"""

import signal
import socket
import sys

from jaxlib import _jax


def main() -> None:
    host, tasks = sys.argv[1], int(sys.argv[2])
    tls = {}
    if len(sys.argv) > 3:
        cert, key = sys.argv[3:]
        tls = dict(mtls_cert_file=cert, mtls_key_file=key, mtls_ca_file=cert)
    # gRPC binds with SO_REUSEPORT, so a socket that is bound but does not
    # listen keeps the port for it.
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((host, 0))
    address = "%s:%d" % (host, holder.getsockname()[1])
    service = _jax.get_distributed_runtime_service(
        address=address,
        num_nodes=tasks,
        heartbeat_timeout=3600,
        cluster_register_timeout=3600,
        shutdown_timeout=3600,
        **tls,
    )
    print("stock: serving %d tasks on %s" % (tasks, address), flush=True)
    while service:
        signal.pause()


main()
