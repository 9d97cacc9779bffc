"""Certificates and clocks that go wrong under load.

Invariant: after `Field.heal` every certificate is valid and every clock right.
"""

from __future__ import annotations

import time
from pathlib import Path

from samelog.config.pki.authority import CertificateRole
from tests.chaos.faults.certificates import rotate
from tests.chaos.faults.proxy import Network, put_between
from tests.chaos.faults.shim import Shims, need_compiler, preload
from tests.chaos.field import Field
from tests.chaos.nodes import wait
from tests.chaos.registry import scenario
from tests.chaos.scenarios.kafka import need_client
from tests.chaos.sleepers import Sleepers, look_often

LIFETIME_S = 4.0
JUMPS_S = (-86_400, -3_600, -5, 5, 3_600, 86_400, 10 * 365 * 86_400)
SECOND_NS = 1_000_000_000
TOLD_S = 1.0
"""So often nodes tell each other their clocks."""


def _pki(field: Field) -> Path:
    return Path(field.cluster.directory, "pki")


def _rotate_all(field: Field, *, lifetime_s: float | None = None) -> None:
    for node in field.nodes:
        rotate(_pki(field), CertificateRole.NODE, node.name, lifetime_s=lifetime_s)
    rotate(_pki(field), CertificateRole.CLIENT, "local", lifetime_s=lifetime_s)


@scenario("certificates-rotate", prepare=put_between)
def certificates_rotate(field: Field) -> None:
    """New certificates for all nodes and clients every 2 s; connections are reset in between."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        _rotate_all(field)
        wait(1.0)
        field.tool(Network).reset()
        wait(1.0)


@scenario("certificate-expires", prepare=put_between)
def certificate_expires(field: Field) -> None:
    """One node's certificate expires; it is renewed after half of the time."""
    name = field.leader().name
    rotate(_pki(field), CertificateRole.NODE, name, lifetime_s=LIFETIME_S)
    wait(LIFETIME_S + 1)
    field.tool(Network).reset()
    wait(field.seconds / 2)
    rotate(_pki(field), CertificateRole.NODE, name)


@scenario("certificates-expire", prepare=put_between)
def certificates_expire(field: Field) -> None:
    """All certificates expire, of nodes and clients; they are renewed after half of the time."""
    _rotate_all(field, lifetime_s=LIFETIME_S)
    wait(LIFETIME_S + 1)
    field.tool(Network).reset()
    wait(field.seconds / 2)
    _rotate_all(field)


def preload_and_look(field: Field) -> None:
    """Nodes get wrong clocks, and look often for what expires."""
    look_often(field)
    preload(field)


@scenario("clock-jumps", prepare=preload_and_look, needs=(need_compiler, need_client))
def clock_jumps(field: Field) -> None:
    """Half of the time one clock is wrong, the leader's first, and nothing of clients that sleep
    expires. Then every second the wall clock of another node jumps, by up to a day back or ten
    years ahead.
    """
    shims, sleepers = field.tool(Shims), Sleepers(field)
    end = time.monotonic() + field.seconds
    while time.monotonic() < end - field.seconds / 2:
        jump = field.random.choice(JUMPS_S) * SECOND_NS
        shims[field.leader().name].set("clock_offset_ns", jump)
        wait(2 * TOLD_S)
        shims.clear_all()
        wait(2 * TOLD_S)
    sleepers.check()
    while time.monotonic() < end:
        jump = field.random.choice(JUMPS_S) * SECOND_NS
        field.random.choice(list(shims.values())).set("clock_offset_ns", jump)
        wait(1.0)


@scenario("clock-jumps-and-kills", prepare=preload, needs=(need_compiler,))
def clock_jumps_and_kills(field: Field) -> None:
    """Clocks jump by up to a day, and the leader is killed and comes back in the wrong time."""
    shims = field.tool(Shims)
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        leader = field.leader()
        for shim in shims.values():
            shim.set("clock_offset_ns", field.random.choice(JUMPS_S[1:-1]) * SECOND_NS)
        leader.kill()
        wait(field.random.uniform(0, 2))
        leader.start()
        shims.clear_all()  # or a clock an hour behind would not accept certificates made today
        field.wait_live()
