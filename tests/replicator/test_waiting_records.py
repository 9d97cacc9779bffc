"""Records that were continued when their topic was deleted, and that no topic takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.config.tables.client import OnRecreate
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.push import recreation
from samelog.wire.errors import FaultCode
from samelog.wire.holds import HeldPart
from tests.replicator.session_files import FLIGHTS, batch
from tests.replicator.test_recreation import scene
from tests.runtime.peers import in_loop, until


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("decision", [OnRecreate.CONTINUE, OnRecreate.DISCARD])
def test_records_that_continue_and_that_no_topic_takes_are_reported_and_can_be_discarded(
    tmp_path: Path, decision: OnRecreate, *, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next topic has fewer partitions than the deleted one."""
    monkeypatch.setattr(recreation, "UNKNOWN_S", 0.0)
    refusal = RequestRefused(FaultCode.UNKNOWN_TOPIC, "the topic has one partition")

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            for node in made.made.nodes:
                node.intake.refusal = refusal
            made.decide(OnRecreate.CONTINUE)
            assert not made.client.beside.recreation.held
            await made.append(b"c")
            if restarts:
                made.files.end()
                made.files.begin()
                await made.restart()
            size = len(batch(b"b") + batch(b"c"))
            told = HeldPart(*FLIGHTS, made.ids[0], size, 0)
            await until(lambda: made.client.beside.recreation.told() == (told,))
            assert not made.client.beside.recreation.is_settled
            continues = decision is OnRecreate.CONTINUE
            made.client.on_holds_decided([made.ids[0]], continues=continues)
            made.client.on_holds_decided(["another"], continues=False)
            for node in made.made.nodes:
                node.intake.refusal = None
            await made.append(b"d")
            await made.reaches(*[b"b", b"c"] * continues, b"d")
            await until(lambda: not made.client.beside.recreation.told())
            assert made.client.beside.recreation.is_settled, "it costs nothing any more"
            assert made.client.status.lost == ()

    in_loop(main)
