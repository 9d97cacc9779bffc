"""A network namespace for each node, and packets that are dropped between them.

Nodes sit on one bridge; clients are in the machine's own namespace, at the bridge's address.

Invariant: whatever was made is removed when the field is left.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from dataclasses import replace
from functools import cache

from samelog.config.tables.node import NodeConfig
from samelog.config.values import Address
from tests.chaos.field import Field, is_root
from tests.chaos.nodes import ChaosNode

NETWORK = "10.231.77"
PORT = 7400
_numbers = itertools.count()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@cache
def need_namespaces() -> str | None:
    """Why there can be no namespaces; None if there can."""
    if not is_root():
        return "needs root, to make network namespaces"
    missing = [name for name in ("ip", "iptables") if shutil.which(name) is None]
    if missing:
        return f"needs {missing[0]}, Debian's {'iproute2' if missing == ['ip'] else 'iptables'}"
    name = f"chaos-try-{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted: {error.stderr.decode().strip()}"
    try:
        _run("ip", "netns", "exec", name, "iptables", "-L", "-n")
    except subprocess.CalledProcessError:
        return "iptables does not work in a network namespace here"
    finally:
        _run("ip", "netns", "del", name)
    return None


class Namespaces:
    """The namespaces of a field."""

    def __init__(self, field: Field) -> None:
        # A number of its own: the kernel takes its time to let go of the names of the one before.
        self._tag = f"c{os.getpid() % 100_000}x{next(_numbers) % 1000}"
        self._hosts = {node.name: number for number, node in enumerate(field.nodes)}
        field.on_leave(self.remove)
        field.on_heal(self.clear)
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "address", "add", f"{NETWORK}.1/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for name in self._hosts:
            self._add(name)

    @property
    def _bridge(self) -> str:
        return f"{self._tag}b"

    def namespace(self, name: str) -> str:
        """A node's namespace."""
        return f"{self._tag}n{self._hosts[name]}"

    def host(self, name: str) -> str:
        """A node's address."""
        return f"{NETWORK}.{10 + self._hosts[name]}"

    def _add(self, name: str) -> None:
        inside, outside = self.namespace(name), f"{self._tag}v{self._hosts[name]}"
        _run("ip", "netns", "add", inside)
        peer = ("peer", "name", "eth0", "netns", inside)
        _run("ip", "link", "add", outside, "type", "veth", *peer)
        _run("ip", "link", "set", outside, "master", self._bridge, "up")
        _run("ip", "-n", inside, "address", "add", f"{self.host(name)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run("ip", "-n", inside, "link", "set", device, "up")

    def remove(self) -> None:
        """Take everything away, as far as it was made."""
        for name in self._hosts:
            command = ["ip", "netns", "del", self.namespace(name)]
            subprocess.run(command, check=False, capture_output=True)
        command = ["ip", "link", "del", self._bridge]
        subprocess.run(command, check=False, capture_output=True)

    def drop(self, name: str, *match: str) -> None:
        """Drop the matching packets that come in at a node."""
        rule = ("iptables", "-A", "INPUT", "!", "-i", "lo", *match, "-j", "DROP")
        _run("ip", "netns", "exec", self.namespace(name), *rule)

    def clear(self) -> None:
        """Drop nothing any more."""
        for name in self._hosts:
            rule = ["iptables", "-F", "INPUT"]
            command = ["ip", "netns", "exec", self.namespace(name), *rule]
            subprocess.run(command, check=False, capture_output=True)


def separate(field: Field) -> None:
    """Put every node of a field into a namespace of its own."""
    spaces = Namespaces(field)
    for node in field.nodes:
        _move(spaces, node)
    field.client = field.cluster.client_config()
    field.equip(spaces)


def _move(spaces: Namespaces, node: ChaosNode) -> None:
    def edit(config: NodeConfig) -> NodeConfig:
        own = Address(spaces.host(config.name), PORT)
        peers = tuple(
            replace(peer, address=Address(spaces.host(peer.name), PORT)) for peer in config.peers
        )
        return replace(config, listen=own, advertise=own, peers=peers)

    node.change(edit)
    node.prefix = ("ip", "netns", "exec", spaces.namespace(node.name))
