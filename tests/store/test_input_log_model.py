"""An input log against a model of it: appends, seals, releases and restarts, in any order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.store.session.log import InputLog
from samelog.store.session.run import InputFile
from tests.examples import at_most
from tests.store.storage import batch, open_input, save_marks, sync_input


@dataclass
class ModelFile:
    """The bytes of a file, from `begin` on."""

    begin: int = 0
    data: bytes = b""
    sealed: bool = False

    @property
    def end(self) -> int:
        """Where the file ends."""
        return self.begin + len(self.data)


@dataclass
class ModelRun:
    """What a run should be."""

    files: dict[int, ModelFile] = field(default_factory=dict)
    durable: tuple[int, int] = (0, 0)

    @property
    def end(self) -> tuple[int, int]:
        """Where the next byte goes."""
        roll = max(self.files)
        return roll, self.files[roll].end


class Model:
    """A log, and what it should hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = open_input(path)
        self.runs: dict[int, ModelRun] = {}
        self.seed = 0

    def run(self, number: int) -> ModelRun:
        """A run, begun when it is first named."""
        return self.runs.setdefault(number, ModelRun({0: ModelFile()}))

    def append(self, number: int, count: int) -> None:
        """Append some batches in one call."""
        run = self.run(number)
        data = b""
        for _ in range(count):
            self.seed += 1
            data += batch(self.seed, size=self.seed % 50)
        self.log.append(number, *run.end, data)
        run.files[run.end[0]].data += data

    def seal(self, number: int) -> None:
        """Seal the newest file."""
        run = self.run(number)
        self.log.seal(number, *run.end)
        run.files[run.end[0]].sealed = True
        run.files[run.end[0] + 1] = ModelFile()

    def start_at(self, number: int, rolls: int, gap: int) -> None:
        """Give up what is held; go on a little later."""
        run = self.run(number)
        roll, byte = run.end
        place = (roll, byte + gap) if rolls == 0 else (roll + rolls, gap)
        self.log.start_at(number, *place)
        run.files = {place[0]: ModelFile(begin=place[1])}
        run.durable = place

    def release(self, number: int, roll: int) -> None:
        """Release sealed files."""
        run = self.run(number)
        self.log.release(number, roll)
        gone = [n for n, file in run.files.items() if n <= roll and file.sealed]
        for n in gone:
            del run.files[n]
        if gone:
            run.durable = max(run.durable, (gone[-1] + 1, 0))

    def sync(self, number: int) -> None:
        """Make a run durable."""
        sync_input(self.log, number)
        if number in self.runs:
            self.runs[number].durable = self.runs[number].end

    def rest(self, number: int) -> None:
        """Close the files, if nothing is to be synced; the log is what it was."""
        self.sync(number)
        is_synced = all(run.durable == self.log.end(n) for n, run in self.runs.items())
        assert self.log.rest() == is_synced

    def reopen(self, *, save: bool) -> None:
        """Restart the writer; without `save` as after a crash."""
        if save:
            save_marks(self.log)
        self.log.close()
        self.log = open_input(self.path)
        for number, run in self.runs.items():
            if save:
                assert self.log.durable(number) == run.durable
            assert self.log.durable(number) <= run.durable
            run.durable = self.log.durable(number)

    def check(self, log: InputLog) -> None:
        """The log is what it should be."""
        assert log.damaged == []
        held = {n: run for n, run in self.runs.items() if log.end(n) != (0, 0) or n in log.runs()}
        for number, run in self.runs.items():
            assert log.end(number) == (run.end if number in held else (0, 0))
        files = []
        for number, run in sorted(held.items()):
            for roll, file in sorted(run.files.items()):
                files.append(InputFile(number, roll, file.end, file.sealed))
                self._check_file(log, number, roll, file)
            self._check_last(log, number, run)
        assert log.files() == files

    def _check_file(self, log: InputLog, number: int, roll: int, file: ModelFile) -> None:
        assert log.read(number, roll, file.begin, file.end + 99) == file.data
        assert log.sealed_length(number, roll) == (file.end if file.sealed else None)
        middle = file.begin + len(file.data) // 2
        assert log.copy(number, roll, middle, file.end + 9) == file.data[middle - file.begin :]
        if file.begin > 0:
            assert log.read(number, roll, file.begin - 1, file.end) == b""

    def _check_last(self, log: InputLog, number: int, run: ModelRun) -> None:
        with_data = [file for _, file in sorted(run.files.items()) if file.data]
        expected = None
        if with_data:
            header = kernels.batch_headers(with_data[-1].data, 0, len(with_data[-1].data))[-1]
            expected = (with_data[-1].begin + header[0], header[9])
        assert log.last_batch(number) == expected


RUNS = st.integers(0, 2)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), RUNS, st.integers(1, 4)),
    st.tuples(st.just("append"), RUNS, st.integers(1, 4)),
    st.tuples(st.just("seal"), RUNS),
    st.tuples(st.just("start_at"), RUNS, st.integers(0, 2), st.integers(0, 500)),
    st.tuples(st.just("release"), RUNS, st.integers(0, 3)),
    st.tuples(st.just("sync"), RUNS),
    st.tuples(st.just("rest"), RUNS),
)


@contextmanager
def directory() -> Iterator[Path]:
    """A new directory for one example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "flights-0"


@settings(max_examples=at_most(60))
@given(st.lists(st.tuples(OPERATIONS, st.sampled_from(["", "", "crash", "restart"])), max_size=12))
def test_a_log_holds_what_was_done_to_it(steps: list[tuple[tuple[object, ...], str]]) -> None:
    with directory() as path:
        model = Model(path)
        for (name, *arguments), after in steps:
            getattr(model, str(name))(*arguments)
            model.check(model.log)
            for number, run in model.runs.items():
                assert model.log.durable(number) == run.durable
            if after:
                model.reopen(save=after == "restart")
                model.check(model.log)
        model.log.close()
