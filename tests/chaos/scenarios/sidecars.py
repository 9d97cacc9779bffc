"""Programs that only know local files, and the sidecars that ship and copy for them.

Invariant: every sidecar and node that is killed or paused is started or resumed by `Field.heal`.
"""

from __future__ import annotations

import time

from tests.chaos.field import Field, LoadProcess
from tests.chaos.load import TOPIC
from tests.chaos.nodes import wait
from tests.chaos.registry import scenario
from tests.chaos.sidecars import SidecarProcess

RATE = 500.0
PAUSES_S = (0.1, 0.5, 2.0, 6.0)


def programs(field: Field) -> None:
    """Programs write and read local files only."""
    field.publishers = [LoadProcess(field, "program", load.name, RATE) for load in field.publishers]
    field.subscriber = LoadProcess(field, "reader", field.subscriber.name, 0)
    copies = field.subscriber.directory / field.subscriber.name
    copies.mkdir(parents=True)
    field.sidecars = [
        SidecarProcess("publisher", field.client_file, field.publishers[0].directory),
        SidecarProcess("subscriber", field.client_file, copies, "--topic", TOPIC),
    ]


@scenario("sidecars", prepare=programs)
def sidecars(field: Field) -> None:
    """Sidecars are killed or paused at random, and now and then a node or a program, too."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        victim = field.random.choice(field.sidecars)
        if field.random.random() < 0.5:
            victim.kill()
        else:
            victim.pause()
        if field.random.random() < 0.3:
            field.random.choice(field.nodes).kill()
        if field.random.random() < 0.3:
            program = field.random.choice(field.publishers)
            program.kill()
            field.begin(program)
            field.wait_for(program.has_notes, f"{program.name} appends")
        wait(field.random.choice(PAUSES_S) * min(1.0, field.seconds / 20))
        victim.heal()
        for node in field.nodes:
            if node.pid is None:
                node.start()
        wait(field.random.uniform(0, 3))
