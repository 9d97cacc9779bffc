"""Scenarios of the planner: what it proposes of the bytes that a majority holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.format.dedup import dedup_producer_id
from samelog.format.positions import SessionPosition
from samelog.sequencer.state.instructions import Merge, Verdict
from samelog.sequencer.state.tables.sessions import CloseRun
from tests import scenario_files
from tests.sequencer.test_planner import World, records


class PlannerScript(scenario_files.Commands):
    """A state machine with one topic, a planner, and the bytes of some sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World("")
        self.under_way: list[list[Merge]] = []

    def do_world(self, sessions: str, *limits: str) -> None:
        """`world ab [input_bytes=N] [entry_bytes=N]`: fresh, with these sessions (inputs 1, 2…)."""
        given = dict(limit.split("=") for limit in limits)
        self.under_way.clear()
        self.world = World(sessions, **{name: int(value) for name, value in given.items()})

    def do_twin(self, name: str, dedup_id: str) -> None:
        """`twin SESSION ID`: one more session, whose records have a dedup id, numbered from 0."""
        self.world.open(name, dedup_id, 0)

    def do_put(self, number: str, *values: str) -> None:
        """`put INPUT VALUE...`: a batch for each value comes."""
        for value in values:
            self.world.bytes.put(int(number), records(value.encode()))

    def do_put_numbered(self, number: str, dedup_id: str, first: str, *values: str) -> None:
        """`put-numbered INPUT ID N VALUE...`: one batch of numbered records comes."""
        batch = records(
            *(value.encode() for value in values),
            producer_id=dedup_producer_id(dedup_id),
            producer_epoch=0,
            base_sequence=int(first),
        )
        self.world.bytes.put(int(number), batch)

    def do_put_large(self, number: str, size: str) -> None:
        """`put-large INPUT SIZE`: a batch of that size, about."""
        self.world.bytes.put(int(number), records(bytes(int(size))))

    def do_seal(self, number: str) -> None:
        """`seal INPUT`: its roll is sealed, the next one is empty."""
        end = self.world.bytes.end(int(number))
        self.world.bytes.sealed.add((int(number), end.run, end.roll))
        self.world.bytes.put(int(number), b"", run=end.run, roll=end.roll + 1)

    def do_roll(self, number: str, *values: str) -> None:
        """`roll INPUT VALUE...`: a batch for each value comes in the newest roll."""
        end = self.world.bytes.end(int(number))
        for value in values:
            self.world.bytes.put(int(number), records(value.encode()), run=end.run, roll=end.roll)

    def do_plan(self) -> None:
        """`plan`: what is to be proposed."""
        merges = self.world.plan()
        if merges:
            self.under_way.append(merges)
        for merge in merges:
            self.trace.append(
                f"merge partition {merge.partition} at {merge.base_offset} epoch {merge.epoch}"
            )
            for part in merge.ranges:
                verdict = Verdict(part.verdict).name
                self.trace.append(
                    f"  input {part.input} run {part.run} roll {part.roll} bytes {part.start} to "
                    f"{part.stop}: {part.records} records, {verdict} {part.detail}"
                )

    def do_commit(self) -> None:
        """`commit`: the oldest proposal is committed."""
        index = self.world.index - len(self.under_way) + 1
        self.world.commit(self.under_way.pop(0), index)

    def do_reset(self) -> None:
        """`reset`: leadership was lost, and won again."""
        self.world.planner.reset()
        self.under_way.clear()

    def do_close(self, session: str) -> None:
        """`close SESSION`: its run is closed at what is merged."""
        self.world.machine.apply(CloseRun(session, session, 0))

    def do_places(self) -> None:
        """`places`: up to where it has planned each input."""
        for number, entry in self.world.machine.state.sessions.inputs.items():
            planned = SessionPosition(*self.world.planner.place(entry))
            self.trace.append(f"input {number}: merged {tuple(entry.place)}, planned {planned}")


@pytest.mark.parametrize("path", scenario_files.files(__file__), ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    scenario_files.check(path, PlannerScript(), request)


def test_there_are_scenarios() -> None:
    assert len(scenario_files.files(__file__)) >= 4
