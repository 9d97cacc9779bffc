"""The Python of Spark's workers in tests: it connects to Spark before it imports anything.

Spark gives a worker that it starts by itself 10 s to connect, however busy the machine is, and a
worker imports PySpark first. On a machine with 20 busy processes that took longer. Once the
connection exists, Spark waits without a limit.

Run as a program, in place of `python -m MODULE`, where the environment has PORT.
"""

from __future__ import annotations

import _socket
import os
import sys

HOST = "127.0.0.1"
PORT = "PYTHON_WORKER_FACTORY_PORT"


def connected() -> _socket.socket:
    """Return a connection to Spark."""
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    connection.connect((HOST, int(os.environ[PORT])))
    return connection


def hand_over(connection: _socket.socket) -> None:
    """Have the worker's own connection, the first one it makes to that address, be this one."""
    import socket

    connect = socket.socket.connect
    address = connection.getpeername()

    def take(own: socket.socket, wanted: object) -> None:
        if wanted != address:
            connect(own, wanted)  # type: ignore[arg-type]
            return
        socket.socket.connect = connect  # type: ignore[method-assign]
        os.dup2(connection.fileno(), own.fileno(), inheritable=False)
        connection.close()

    socket.socket.connect = take  # type: ignore[method-assign,assignment]


def main() -> None:
    """Run the module that follows `-m`, as `python -m` does."""
    connection = connected()
    import runpy
    import site

    site.main()
    sys.path[0] = os.getcwd()
    hand_over(connection)
    module = sys.argv[2]
    sys.argv[1:] = sys.argv[3:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
