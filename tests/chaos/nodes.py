"""Node processes that can be started with another environment, in another place, and are watched.

Invariant: a node is bootstrapped once, unless a scenario asks for it again; a data directory that
is empty later is that of a node that lost its memory.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from samelog.cli.local_cluster import LocalNode
from samelog.config.load import load_node
from samelog.config.schema.render import to_toml
from samelog.config.tables.node import NodeConfig
from samelog.config.values import Address
from tests.chaos import programs

_DETECTED = re.compile(
    r"damage|corrupt|checksum at offset|halted|lost|torn|is not valid|unreadable"
)


_ELECTED = re.compile(r"a leader is elected.*\bterm=(\d+)")


class ChaosNode(LocalNode):
    """A node of a cluster under faults."""

    def __init__(
        self, directory: str, name: str, address: Address, *, kafka: Address | None
    ) -> None:
        super().__init__(directory, name, address, kafka=kafka)
        self.environment: dict[str, str] = {}
        self.prefix: tuple[str, ...] = ()
        """What the command is run by, as `ip netns exec NAME`."""
        self.starts = 0
        self._is_bootstrapped = os.path.exists(os.path.join(self.data, "node.json"))
        self._log_read = 0

    def change(self, edit: Callable[[NodeConfig], NodeConfig]) -> None:
        """Rewrite the node's configuration; it counts from the next start."""
        config = edit(load_node(self.config_file))
        Path(self.config_file).write_text(to_toml(config), encoding="utf-8")
        self.data, self.address = config.data, config.listen

    def start(self, *, bootstrap: bool = False) -> None:
        """Start the process; the very first start is its bootstrap."""
        flags = ["--bootstrap"] if bootstrap or not self._is_bootstrapped else []
        self._is_bootstrapped = True
        self.starts += 1
        with open(self.log_file, "ab") as log:
            self._process = programs.start(
                ["samelog", "node", "--config", self.config_file, *flags],
                log,
                prefix=self.prefix,
                environment=self.environment,
            )

    def kill(self) -> None:
        """End the process with SIGKILL; also one that is stopped."""
        if self.pid is not None:
            super().kill()

    def wait_end(self, timeout_s: float) -> bool:
        """Wait for the process to end by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def pause(self) -> None:
        """Stop the process where it is."""
        if self.pid is not None:
            self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on; nothing for one that runs or has ended."""
        if self.pid is not None:
            self.signal(signal.SIGCONT)

    def begin_log(self) -> None:
        """What was logged before does not count for `alarms`."""
        self._log_read = self._log_size()

    def _log_size(self) -> int:
        return os.path.getsize(self.log_file) if os.path.exists(self.log_file) else 0

    def alarms(self) -> list[str]:
        """Lines that speak of damage, since `begin_log`."""
        if not os.path.exists(self.log_file):
            return []
        with open(self.log_file, encoding="utf-8", errors="replace") as log:
            log.seek(self._log_read)
            return [line.strip() for line in log if _DETECTED.search(line)]

    def terms(self) -> set[int]:
        """The terms whose leader the node has logged."""
        with open(self.log_file, encoding="utf-8", errors="replace") as log:
            return {int(found[1]) for line in log if (found := _ELECTED.search(line))}

    def quarantined(self) -> list[Path]:
        """Files that the node set aside."""
        return sorted(Path(self.data).rglob("*.quarantined-*"))


def wait(seconds: float) -> None:
    """Let a fault last: the one place where a scenario passes time without a condition."""
    threading.Event().wait(seconds)
