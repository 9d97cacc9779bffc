"""What people see: tables within 80 columns, sizes, states in colour, progress, watching."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from samelog.cli.commands.publish import ShipProgress, unmerged_bytes
from samelog.cli.commands.subscribe import copy_out
from samelog.cli.output import OperatorError, print_table
from samelog.cli.progress import SILENT_S, Bar, Follower, done_text, logged_above
from samelog.cli.terminal import size_text, style_of
from samelog.cli.watching import REST_OF_SCREEN, in_place, repeat, watchable
from samelog.format.positions import SessionPosition
from samelog.publisher.records import PartitionPositions, Positions, TopicPartition
from tests.patience import PATIENCE_S

Capture = pytest.CaptureFixture[str]
NODES = ("node", "state", "role", "term", "commit", "applied", "detail")


def at_terminal(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Standard output is a terminal of 80 columns from now on."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", kind)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_a_table_fits_80_columns_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    at_terminal(monkeypatch, "dumb")
    detail = "waits for the others to let it in, because its directory was empty"
    rows = [(f"rt-sequencer-{n}", "live", "follower", 12, 123456, 123456, detail) for n in (0, 1)]
    print_table(NODES, rows, title="cluster local")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    assert "rt-sequencer-1" in text
    assert "follower" in text
    assert text.count("123456") == 4
    assert sorted(set(detail.split()) - set(text.split())) == []


def test_numbers_are_right_aligned_and_bytes_are_short(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    at_terminal(monkeypatch, "dumb")
    print_table(("topic", "bytes", "lag"), [("a", 1_234_567, 5), ("b", 10, "-"), ("c", 0, 1200)])
    header, rule, *rows = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line]
    assert set(rule) <= {"─", " "}
    assert len({len(row) for row in (header, *rows)}) == 1
    assert "1.2 MB" in rows[0]


def test_programs_get_whole_numbers(capsys: Capture) -> None:
    print_table(("bytes",), [(1_234_567,)])
    assert capsys.readouterr().out.split() == ["BYTES", "1234567"]


def test_states_have_colours_unless_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    at_terminal(monkeypatch, "xterm")
    print_table(("node", "state"), [("n0", "live"), ("n1", "offline")])
    assert "\x1b[32mlive" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("node", "state"), [("n0", "live")])
    assert "\x1b[32m" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("column", "text", "style"),
    [
        ("state", "Offline", "bold red"),
        ("state", "live? (not ready)", "green"),
        ("node", "live", ""),
        ("state", "", ""),
        ("trouble", "halted", "red"),
    ],
)
def test_a_cell_is_shown_by_what_its_column_says(column: str, text: str, style: str) -> None:
    assert style_of(column, text) == style


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (999_960, "1.0 MB"), (5e18, "5.0 EB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size_text(count) == text


def test_progress_says_what_is_done_of_how_much_and_how_fast() -> None:
    assert done_text(1200, 3000, 400, is_bytes=False) == "1,200/3,000 400/s"
    assert done_text(1200, None, None, is_bytes=False) == "1,200"
    assert done_text(1e6, 3e9, 4e8, is_bytes=True) == "1.0 MB/3.0 GB 400.0 MB/s"


def test_what_is_over_soon_shows_no_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    now = 0.0
    monkeypatch.setattr("samelog.cli.progress.time.monotonic", lambda: now)
    with Bar("records", 10, is_bytes=False) as bar:
        bar.advance(1)
        assert not bar._is_shown
        now = SILENT_S
        bar.advance(1)
        assert bar._is_shown


def test_a_follower_shows_how_far_others_are() -> None:
    looks, seen = iter([(1, 4, "a"), (3, 4, "b")]), Event()

    def look() -> tuple[float, float | None, str]:
        found = next(looks, None)
        if found is None:
            seen.set()
        return found or (4, 4, "c")

    bar = Bar("", None, is_bytes=True)
    with bar, Follower(bar, look, 0.001):
        assert seen.wait(PATIENCE_S)
    [task] = bar._progress.tasks
    assert (task.completed, task.total) in {(3, 4), (4, 4)}


END = SessionPosition(1, 0, 100)
PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("appended", "merged", "left"),
    [
        ({PLACE: END}, {}, 100),
        ({PLACE: END}, {PLACE: SessionPosition(1, 0, 40)}, 60),
        ({PLACE: END, OTHER: END}, {PLACE: END}, 100),
        ({PLACE: END}, {PLACE: END}, 0),
        ({PLACE: SessionPosition(1, 1, 5)}, {PLACE: END}, None),
        ({PLACE: SessionPosition(1, 1, 5)}, {}, None),
    ],
)
def test_what_is_left_of_publishing(
    appended: PartitionPositions, merged: PartitionPositions, left: int | None
) -> None:
    assert unmerged_bytes(Positions(appended, {}, merged)) == left


def test_publishing_is_done_as_far_as_less_is_left() -> None:
    told = iter(
        [
            Positions({PLACE: END}, {}, {PLACE: SessionPosition(1, 0, 20)}),
            Positions({PLACE: END}, {}, {PLACE: END}),
        ]
    )
    shown = ShipProgress(lambda: next(told))
    assert shown.look() == (0, 80, "merging")
    assert shown.look() == (80, 80, "merging")


def ticks(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The user interrupts after so many pauses."""
    left = iter(range(count))

    def sleep(seconds: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr("samelog.cli.watching.time.sleep", sleep)


def showing(*what: str | Exception) -> Callable[[], None]:
    said = iter(what)

    def show() -> None:
        each = next(said)
        if isinstance(each, Exception):
            raise each
        click.echo(each)

    return show


def run(show: Callable[[], None]) -> str:
    @click.command()
    def command() -> None:
        repeat(show, 1)

    result = CliRunner().invoke(command)
    assert result.exit_code == (1 if result.exception else 0)
    return result.stdout


def test_watching_goes_on_after_a_fault_and_ends_when_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks(monkeypatch, 2)
    assert run(showing("one", OperatorError("gone"), "two")) == "one\nsamelog: gone\ntwo\n"


def test_a_fault_at_first_or_a_bug_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks(monkeypatch, 2)
    assert run(showing(OperatorError("gone"))) == ""
    assert run(showing("one", KeyError("x"))) == "one\n"


def test_on_a_terminal_it_replaces_what_was_shown() -> None:
    assert in_place("a\nb\n") == "\x1b[Ha\x1b[K\nb\x1b[K\n" + REST_OF_SCREEN


def test_a_list_can_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks(monkeypatch, 1)

    @click.command()
    @watchable
    def command() -> None:
        click.echo("list")

    assert CliRunner().invoke(command, []).stdout == "list\n"
    assert CliRunner().invoke(command, ["--watch", "2"]).stdout == "list\nlist\n"


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "shown"), [(io.BytesIO(), 1), (_Terminal(), 0)])
def test_no_bar_is_among_records_on_a_terminal(
    out: io.BytesIO, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[str] = []

    @contextmanager
    def progress(label: str, total: float | None) -> Iterator[Callable[[float], None]]:
        bars.append(label)
        yield lambda amount: None

    monkeypatch.setattr("samelog.cli.commands.subscribe.progress", progress)
    subscriber = SimpleNamespace(is_over=False)

    def lines(most: int) -> list[bytes]:
        subscriber.is_over = True
        return [b"one"]

    assert copy_out(subscriber, out, lines, None) == 1  # type: ignore[arg-type]
    assert (out.getvalue(), len(bars)) == (b"one\n", shown)


def test_lines_of_the_log_stay_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes the place of stderr while the bar is there gets them."""
    handler, there = logging.StreamHandler(io.StringIO()), io.StringIO()
    before = handler.stream
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with logged_above():
        monkeypatch.setattr("sys.stderr", there)
        logging.getLogger("x").error("something")
    assert there.getvalue() == "something\n"
    assert handler.stream is before
    assert before.getvalue() == ""
