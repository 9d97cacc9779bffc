"""What an input log is after a power loss: a prefix of what was appended."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format.file_names import SESSION_MARKS_FILE
from tests.examples import at_most
from tests.store.storage import batch, open_input, save_marks, sync_input
from tests.store.test_input_log_model import directory


@dataclass
class Written:
    """One run as it was: per roll its batches, all sealed but the last; and how far durable."""

    files: list[list[bytes]]
    durable: tuple[int, int]

    def data(self, roll: int) -> bytes:
        """All bytes of a file."""
        return b"".join(self.files[roll])

    def boundaries(self, roll: int) -> list[int]:
        """Where the batches of a file begin and end."""
        return [0, *accumulate(map(len, self.files[roll]))]


@st.composite
def written_logs(draw: st.DrawFn) -> Written:
    """Some files of some batches, and how far they were synced."""
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    seed = draw(st.integers(0, 1 << 20))
    files = [
        [batch(seed + 10 * roll + n, size=(seed + 7 * n) % 90) for n in range(count)]
        for roll, count in enumerate(sizes)
    ]
    roll = draw(st.integers(0, len(files) - 1))
    whole = Written(files, (0, 0))
    return Written(files, (roll, draw(st.sampled_from(whole.boundaries(roll)))))


def write(path: Path, written: Written) -> None:
    """Append everything, and sync and mark at the durable position."""
    log = open_input(path)
    for roll, several in enumerate(written.files):
        position = 0
        for data in several:
            if (roll, position) == written.durable:
                sync_input(log, 0)
                save_marks(log)
            log.append(0, roll, position, data)
            position += len(data)
        if (roll, position) == written.durable:
            sync_input(log, 0)
            save_marks(log)
        if roll + 1 < len(written.files):
            log.seal(0, roll, position)
    log.close()


@dataclass
class Loss:
    """What a power loss does above the mark: a file is cut, spoilt, and later names are gone."""

    roll: int
    keep: int
    tail: bytes
    names_lost: int


@st.composite
def losses(draw: st.DrawFn, written: Written) -> Loss:
    """A loss that spares what is durable."""
    roll = draw(st.integers(written.durable[0], len(written.files) - 1))
    least = written.durable[1] if roll == written.durable[0] else 0
    boundaries = [end for end in written.boundaries(roll) if end >= least]
    keep = draw(st.one_of(st.sampled_from(boundaries), st.integers(least, len(written.data(roll)))))
    tail = draw(st.sampled_from([b"", b"", b"\0" * 100, b"junk", batch(5)[:-1]]))
    tail = tail if keep in written.boundaries(roll) else b"\0" * len(tail)
    return Loss(roll, keep, tail, draw(st.integers(0, 2)))


def names_in_order(written: Written) -> list[str]:
    """The names above the durable ones, in the order of their creation."""
    names = []
    for roll in range(written.durable[0], len(written.files) - 1):
        names += [f"log.0.{roll}.sealed-{len(written.data(roll))}", f"log.0.{roll + 1}"]
    return names


def inflict(path: Path, written: Written, loss: Loss) -> list[str]:
    """Do to the files what the loss says; the names that are left of those above the mark."""
    file = path / f"log.0.{loss.roll}"
    file.write_bytes(written.data(loss.roll)[: loss.keep] + loss.tail)
    names = names_in_order(written)
    left = names[: len(names) - loss.names_lost] if loss.names_lost else names
    for name in names[len(left) :]:
        (path / name).unlink()
    return left


def expected_end(path: Path, written: Written, left: list[str], lowest: int) -> tuple[int, int]:
    """The longest prefix that can be trusted, by the rules of docs/formats.md."""
    for roll in range(lowest, len(written.files)):
        if not (path / f"log.0.{roll}").exists():
            return roll, 0
        found = (path / f"log.0.{roll}").read_bytes()
        whole = written.data(roll)
        end = max(end for end in written.boundaries(roll) if found[:end] == whole[:end])
        is_sealed = f"log.0.{roll}.sealed-{len(whole)}" in left
        if not is_sealed or end < len(whole):
            return roll, end
    raise AssertionError("the last file is never sealed")


def is_damaged(path: Path, left: list[str], end: tuple[int, int]) -> bool:
    """Whether something shows that the file of a roll was longer than its intact batches."""
    roll = end[0]
    follows = any(f"log.0.{later}" in left for later in range(roll + 1, 9))
    is_sealed = any(name.startswith(f"log.0.{roll}.sealed-") for name in left)
    return follows or is_sealed


def bytes_behind(path: Path, end: tuple[int, int]) -> dict[str, bytes]:
    """What is in the files behind a position, by the names of their copies."""
    found = {}
    for file in path.glob("log.0.?"):
        roll = int(file.name[-1])
        if (data := file.read_bytes()) and roll > end[0]:
            found[f"{file.name}.quarantined-1"] = data
        elif roll == end[0] and data[end[1] :]:
            found[f"{file.name}.from-{end[1]}.quarantined-1"] = data[end[1] :]
    return found


@settings(max_examples=at_most(50))
@given(st.data())
def test_a_power_loss_leaves_a_prefix(data: st.DataObject) -> None:
    written = data.draw(written_logs())
    with directory() as path:
        write(path, written)
        left = inflict(path, written, data.draw(losses(written)))
        end = expected_end(path, written, left, written.durable[0])
        damage = is_damaged(path, left, end) if path.joinpath(f"log.0.{end[0]}").exists() else False
        behind = bytes_behind(path, end) if damage else {}
        log = open_input(path)
        assert (bool(log.damaged), log.lost_durable) == (damage, False)
        assert {file.name: file.read_bytes() for file in path.glob("*.quarantined-*")} == behind
        assert log.durable(0) == (written.durable if log.runs() else (0, 0))
        assert log.end(0) == end >= written.durable
        for roll in range(end[0]):
            assert log.read(0, roll, 0, 1 << 20) == written.data(roll)
            assert log.sealed_length(0, roll) == len(written.data(roll))
        log.append(0, *end, batch(99))
        log.close()
        again = open_input(path)
        assert again.end(0) == (end[0], end[1] + len(batch(99)))
        again.close()


@settings(max_examples=at_most(40))
@given(st.data(), st.sampled_from([None, b"", b"{}\n00000000\n"]))
def test_without_marks_nothing_that_is_cut_is_lost(
    data: st.DataObject, marks: bytes | None
) -> None:
    written = data.draw(written_logs())
    with directory() as path:
        write(path, written)
        left = inflict(path, written, data.draw(losses(written)))
        file = path.parent / SESSION_MARKS_FILE
        file.unlink()
        if marks is not None:
            file.write_bytes(marks)
        before = {file.name: file.read_bytes() for file in path.glob("log.0.?")}
        all_names = [
            f"log.0.{roll}.sealed-{len(written.data(roll))}" for roll in range(written.durable[0])
        ]
        end = expected_end(path, written, all_names + left, 0)
        log = open_input(path)
        assert log.end(0) == end
        log.close()
        aside = {file.name: file.read_bytes() for file in path.glob("*.quarantined-*")}
        assert len(log.damaged) == len(aside)
        for name, found in before.items():
            kept = (path / name).read_bytes() if (path / name).exists() else b""
            names = (f"{name}.quarantined-1", f"{name}.from-{len(kept)}.quarantined-1")
            assert kept + b"".join(aside.get(other, b"") for other in names) == found
