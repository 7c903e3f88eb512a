"""Runs the coordination service that ships in jaxlib, until it is killed.

usage: stock.py TASKS [CERTIFICATE KEY]

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
    tasks = int(sys.argv[1])
    tls = {}
    if len(sys.argv) > 2:
        cert, key = sys.argv[2:]
        tls = dict(mtls_cert_file=cert, mtls_key_file=key, mtls_ca_file=cert)
    # gRPC binds with SO_REUSEPORT, so a socket that is bound but does not
    # listen keeps the port for it.
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % holder.getsockname()[1]
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
