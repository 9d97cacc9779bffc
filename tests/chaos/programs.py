"""Starts the processes of a scenario, at a low priority: they are many, and who judges them must
not starve.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from samelog.cli.local_cluster import Process
from tests import forking

NICE = 10

Command = Sequence[str]
"""A module, as `python -m` runs it, and its arguments."""


forks = False
"""Whether what need not be a program of its own is a fork of a process that has imported it. That
saves half of the processor time of a short scenario.
"""


def start(
    command: Command,
    log: BinaryIO,
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Run a command in a session of its own; it writes to `log`. `prefix`: what it is run by.
    `environment`: more variables.
    """
    if forks and not (prefix or environment):
        return _fork(command, log)
    return subprocess.Popen(
        [*prefix, "nice", "-n", str(NICE), sys.executable, "-m", *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )


def _fork(command: Command, log: BinaryIO) -> Process:
    module, *arguments = command
    process = forking.fork(arguments, log, module=module)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    return process
