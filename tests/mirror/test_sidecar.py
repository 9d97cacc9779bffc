"""The sidecar's rounds: schemas first, lags that are not known, ends that stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from samelog.admin.mirror_requests import LeaveGap
from samelog.config.tables.mirror import MirrorConfig
from samelog.mirror import sidecar as module
from samelog.mirror.rounds import SchemaGate
from samelog.mirror.sidecar import MirrorSidecar
from samelog.mirror.stops import FILE, MirrorStop, read_stops
from samelog.runtime.clock import SystemClock
from tests.mirror.fakes import FakeDestination, FakeSource, batches, odd
from tests.patience import PATIENCE_S


def config(path: Path, **keys: object) -> MirrorConfig:
    given = {
        "name": "x",
        "directory": str(path),
        "destination": "d",
        "source": "s",
        "topics": ("t",),
        "named": "eu.{topic}",
        **keys,
    }
    return MirrorConfig(**given)  # type: ignore[arg-type]


class Run:
    """A sidecar between fakes."""

    def __init__(
        self, path: Path, source: FakeSource, destination: FakeDestination, **keys: object
    ) -> None:
        self.sidecar = MirrorSidecar(
            config(path, **keys),
            source,
            lambda: destination,  # type: ignore[arg-type,return-value]
            SystemClock(),
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run so long."""
        running = asyncio.ensure_future(self.sidecar.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition() and not running.done():
                    await asyncio.wait([running], timeout=0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "SOON_S", "RETRY_S"):
        monkeypatch.setattr(module, name, 0.02)


def test_schemas_are_there_before_records_that_came_after_them(tmp_path: Path) -> None:
    """Also where the schema was set between a look and the batches."""
    source, destination = FakeSource(*batches(3)), FakeDestination()
    order: list[str] = []
    write, copy = destination.write, destination.copy_schema

    async def noted_write(*given: object) -> None:
        order.append("records")
        await write(*given)  # type: ignore[arg-type]

    async def noted_copy(*given: object) -> None:
        order.append("schema")
        await copy(*given)  # type: ignore[arg-type]

    destination.write = noted_write  # type: ignore[assignment,method-assign]
    destination.copy_schema = noted_copy  # type: ignore[assignment,method-assign]
    read = source.read

    async def read_after_the_schema(*given: object) -> object:
        source.texts.append("{}")
        return await read(*given)  # type: ignore[arg-type]

    source.read = read_after_the_schema  # type: ignore[assignment,method-assign]
    run = Run(tmp_path, source, destination)
    asyncio.run(run.until(lambda: destination.here.next_offset == 3))
    assert order[:2] == ["schema", "records"]


def test_a_lag_that_is_not_known_is_no_number(tmp_path: Path) -> None:
    source, destination = FakeSource(*batches(3)), FakeDestination()
    run = Run(tmp_path, source, destination)
    progress = run.sidecar.progress

    def is_mirrored() -> bool:
        if progress.of("eu.t", 0).lag == 0:
            source.is_away = True
        return source.is_away and bool(progress.source_fault)

    asyncio.run(run.until(is_mirrored))
    assert progress.of("eu.t", 0).lag is None
    assert "it is away" in progress.problems()[0]


def test_a_restore_has_one_end(tmp_path: Path) -> None:
    """Taken before the first byte, and kept over a restart."""
    source, destination = FakeSource(*batches(3)), FakeDestination()
    write = destination.write

    async def grows(*given: object) -> None:
        source.add(*batches(2, first=3))
        await write(*given)  # type: ignore[arg-type]

    destination.write = grows  # type: ignore[assignment,method-assign]
    run = Run(tmp_path, source, destination, until="end")
    asyncio.run(run.until(lambda: False))
    assert run.sidecar.progress.is_over
    assert destination.here.next_offset == 3
    again = Run(tmp_path, source, destination, until="end")
    asyncio.run(again.until(lambda: False))
    assert destination.here.next_offset == 3
    assert again.sidecar._ends.of("t", 0) == 3
    for other in ({"until": "2026-01-01T00:00:00+00:00"}, {"topics": ("t*",)}):
        begun = Run(tmp_path, source, destination, **{"until": "end", **other})
        assert not begun.sidecar._ends.are_known, "another restore in the same directory"


def test_a_restore_ends_before_a_batch_that_spans_its_end(tmp_path: Path) -> None:
    """A time may lie within a batch."""
    source, destination = FakeSource(*batches(3, 4)), FakeDestination()
    source.moment = 5
    until = "2026-01-01T00:00:00+00:00"
    for _ in range(2):  # a restart goes on to the same end
        run = Run(tmp_path, source, destination, until=until)
        asyncio.run(run.until(lambda: False))
        assert run.sidecar.progress.is_over
        assert destination.here.next_offset == 3


def test_a_restore_waits_for_all_topics_before_it_takes_their_ends(tmp_path: Path) -> None:
    """It would end without those that nobody has just now."""
    source, destination = FakeSource(*batches(3)), FakeDestination()
    source.placed = {"tocks": 2}
    run = Run(tmp_path, source, destination, until="end", topics=("t*",))
    asyncio.run(run.until(lambda: "tocks" in run.sidecar.progress.source_fault))
    assert not destination.is_made
    assert not run.sidecar._ends.are_known
    source.placed = {}
    again = Run(tmp_path, source, destination, until="end", topics=("t*",))
    asyncio.run(again.until(lambda: False))
    assert again.sidecar.progress.is_over


def test_a_restore_of_nothing_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path, FakeSource(), FakeDestination(), until="end", topics=("u",))
    asyncio.run(run.until(lambda: "none of the topics" in run.sidecar.progress.source_fault))
    assert not run.sidecar.progress.is_over


def test_one_cluster_is_not_mirrored_onto_itself(tmp_path: Path) -> None:
    source, destination = FakeSource(*batches(3)), FakeDestination()
    destination.cluster_id = "there"
    run = Run(tmp_path, source, destination)
    asyncio.run(run.until(lambda: "same cluster" in run.sidecar.progress.destination_fault))
    assert not destination.is_made


def test_a_promoted_mirror_is_left_alone(tmp_path: Path) -> None:
    source, destination = FakeSource(*batches(3)), FakeDestination()
    destination.is_made, destination.promoted_ms = True, 5
    run = Run(tmp_path, source, destination)
    asyncio.run(run.until(lambda: "promoted" in run.sidecar.progress.topics.get("t", "")))
    assert destination.log == b""


def test_a_gate_lets_through_who_came_before_a_look_began() -> None:
    async def check() -> tuple[bool, bool]:
        gate = SchemaGate()
        early = asyncio.ensure_future(gate.passed())
        await asyncio.sleep(0)
        look = gate.begin()
        late = asyncio.ensure_future(gate.passed())
        await asyncio.sleep(0)
        for each in look:
            each.set_result(None)
        await asyncio.wait([early, late], timeout=0.05)
        found = early.done(), late.done()
        late.cancel()
        return found

    assert asyncio.run(check()) == (True, False)


def test_a_stop_is_written_down_and_forgotten_once_a_gap_leads_on(tmp_path: Path) -> None:
    source = FakeSource(*batches(3, 2), odd(5), *batches(4, first=7))
    destination = FakeDestination()
    run = Run(tmp_path, source, destination)
    known = run.sidecar.progress.of("eu.t", 0)

    def stop() -> MirrorStop | None:
        return read_stops(str(tmp_path)).get("eu.t/0")

    def is_told() -> bool:
        return (told := stop()) is not None and told.is_at("id", "log", 5) and known.is_stopped

    async def main() -> None:
        await run.until(is_told)
        told = stop()
        assert told is not None
        assert "the batch at offset 5 cannot be held" in told.reason
        assert "samelog mirror skip eu.t/0 --to 7 --config mirror.toml" in told.reason
        assert known.problem == told.reason
        await destination.leave_gap(LeaveGap("eu.t", 0, 5, 7, 7))
        await run.until(lambda: known.mirrored == 11)

    asyncio.run(main())
    assert (known.is_stopped, known.problem) == (False, "")


def test_a_stop_that_cannot_be_written_down_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    source, destination = FakeSource(*batches(3), odd(3)), FakeDestination()
    run = Run(tmp_path, source, destination)
    known = run.sidecar.progress.of("eu.t", 0)

    async def main() -> None:
        await run.until(lambda: known.is_stopped and known.mirrored == 3)
        await destination.leave_gap(LeaveGap("eu.t", 0, 3, 5, 5))
        source.add(*batches(4, first=5))
        await run.until(lambda: known.mirrored == 9)

    asyncio.run(main())
    assert not known.is_stopped
