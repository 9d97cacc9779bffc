"""A node whose calls are counted: `samelog` with a counter installed before it starts.

Run as `python -m tests.hops.node FLAG SOCKET ARGUMENT...`. Each connection to SOCKET is answered
with what was counted since the last one, as one JSON object.
"""

from __future__ import annotations

import json
import socket
import sys
import threading

from samelog.cli.main import main
from tests.hops.counting import CallCounter, Flag, disks_are_fast, timers_wait_for


def answer(server: socket.socket, counter: CallCounter) -> None:
    """Tell whoever connects what was counted, for ever."""
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(json.dumps(counter.take()).encode())


if __name__ == "__main__":
    flag, counter = Flag(sys.argv[1]), None
    counter = CallCounter(flag)
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[2])
    server.listen()
    threading.Thread(target=answer, args=(server, counter), daemon=True).start()
    timers_wait_for(flag)
    disks_are_fast()
    counter.install()
    main(sys.argv[3:])
