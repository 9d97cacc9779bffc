"""Clients that send every API of every protocol its worst request, beside publishers and
subscribers.

Invariant: the process of the clients is ended when the scenario heals.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.chaos.field import Field, NotInTime
from tests.chaos.nodes import wait
from tests.chaos.notes import Kind, longest_gap_ms, read_notes
from tests.chaos.registry import scenario

SETTLE_S = 5.0
"""In which the client makes its requests."""
GAP_MAX_S = 3.0
"""Of one publisher, without an acknowledgement."""


@scenario("hostile-requests")
def hostile_requests(field: Field) -> None:
    """The worst request of each API of Kafka's protocol, samelog's own and HTTP, 64 at once on two
    connections of each to each node: no election, and no publisher waits longer than 3 s for an
    acknowledgement.
    """
    field.wait_for(
        lambda: all(load.is_acknowledged() for load in field.publishers), "everybody ships"
    )
    command = [sys.executable, "-m", "tests.hostile_clients", str(field.client_file)]
    client = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    field.on_heal(client.wait)
    field.on_heal(client.kill)
    wait(SETTLE_S)
    before, began = field.elections(), time.monotonic()
    wait(field.seconds)
    elections = field.elections() - before
    told = [
        [note.at_s for note in read_notes(path) if note.kind is Kind.ACKNOWLEDGED]
        for path in field.past_notes.values()
    ]
    gap_s = max(longest_gap_ms(each, began, time.monotonic()) for each in told if each) / 1000
    field.remarks.append(f"{elections} elections, {gap_s:.1f} s without an acknowledgement")
    if elections:
        raise NotInTime(f"{elections} elections in {field.seconds:.0f} s")
    if gap_s > GAP_MAX_S:
        raise NotInTime(f"a publisher waited {gap_s:.1f} s for an acknowledgement")
