"""`samelog mirror skip` leaves a gap from a mirror's end to an offset, or says why it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samelog.admin.mirror_answers import (
    MirroredPartition,
    MirrorInfo,
    MirrorRows,
    SourcePartition,
    SourceState,
    SourceTopic,
)
from samelog.admin.mirror_requests import GetSource, LeaveGap, ListMirrors
from samelog.admin.requests import AdminRequest
from samelog.cli.main import main
from samelog.http.routes import problem_of
from samelog.mirror.stops import FILE, MirrorStop, MirrorStops
from samelog.wire.errors import FaultCode
from tests.cli.fake_nodes import Answer, FakeCluster

TOPIC, END, NEXT = "eu.flights", 40, 4711


def mirror(next_offset: int) -> MirrorInfo:
    """A mirror whose partition 1 ends there."""
    names = TOPIC, "id", "there", TOPIC, "log", ("there",)
    parts = tuple(MirroredPartition(number, 0, next_offset, None, None) for number in (0, 1))
    return MirrorInfo(*names, True, 1, -1, (), {}, 0, parts, len(parts))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    def answer(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, ListMirrors):
            return MirrorRows("c", (mirror(END),))
        if isinstance(request, GetSource):
            return source("log", NEXT)
        assert isinstance(request, LeaveGap)
        return mirror(request.next_offset)

    with FakeCluster(tmp_path, 1) as started:
        started.nodes[0].answer = answer
        yield started


def source(log_id: str, end: int) -> SourceState:
    """A source whose partition 1 of the topic ends there."""
    parts = tuple(SourcePartition(n, 0, end * n, 0, 0, 0, None, ()) for n in (0, 1))
    return SourceState("there", (SourceTopic(TOPIC, log_id, {}, 0, (), False, parts),), ())


def skip(cluster: FakeCluster, *arguments: str) -> Result:
    return run(cluster, "skip", *arguments)


def run(cluster: FakeCluster, *arguments: str) -> Result:
    config = Path(cluster.client_file).with_name("mirror.toml")
    config.write_text(
        f"name = 'm'\ndir = 'm'\ntopics = ['{TOPIC}']\n"
        f"source = '{cluster.client_file}'\ndestination = '{cluster.client_file}'\n"
    )
    words = ["mirror", *arguments, "--config", str(config)]
    return CliRunner().invoke(main, words, catch_exceptions=False)


def gaps(cluster: FakeCluster) -> list[AdminRequest[Any]]:
    return [each for each in cluster.nodes[0].asked if isinstance(each, LeaveGap)]


def test_the_gap_begins_where_the_mirror_ends(cluster: FakeCluster) -> None:
    done = skip(cluster, f"{TOPIC}/1", "--to", str(NEXT))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"{TOPIC}/1: offsets {END} to {NEXT - 1} are a gap\n"
    reason = "skipped by an operator"
    assert gaps(cluster) == [LeaveGap(TOPIC, 1, END, NEXT, NEXT, reason=reason)]


@pytest.mark.parametrize(
    ("partition", "to", "status", "message"),
    [
        ("eu.flights/1", "40", 1, "eu.flights/1 ends at 40, and cannot skip to 40"),
        ("eu.flights/1", "39", 1, "eu.flights/1 ends at 40, and cannot skip to 39"),
        (
            *("eu.flights/1", "4712", 1),
            "eu.flights/1 ends at 4711 at the source, and cannot skip to 4712",
        ),
        ("eu.flights/1", "0", 2, "0 is not in the range 1<=x<2^63"),
        ("eu.flights/2", "41", 1, "no mirror has a partition eu.flights/2"),
        ("eu.fares/0", "41", 1, "no mirror has a partition eu.fares/0"),
        ("eu.flights", "41", 1, "no mirror has a partition eu.flights;"),
        ("eu.flights/-1", "41", 1, "no mirror has a partition eu.flights/-1"),
        ("eu.flights/" + "9" * 5000, "41", 1, "no mirror has a partition eu.flights/9"),
        ("eu.flights/\N{SUPERSCRIPT TWO}", "41", 1, "no mirror has a partition"),
    ],
)
def test_a_gap_that_cannot_be_is_refused(
    cluster: FakeCluster, partition: str, to: str, status: int, message: str
) -> None:
    refused = skip(cluster, partition, "--to", to)
    assert refused.exit_code == status
    assert message in refused.stderr
    assert gaps(cluster) == []


def test_a_mirror_that_moved_meanwhile_is_left_alone(cluster: FakeCluster) -> None:
    node, text = cluster.nodes[0], "eu.flights/1 ends at 41, not at 40"
    usual = node.answer

    def answer(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, LeaveGap):
            return problem_of(FaultCode.OUT_OF_RANGE, text)
        return usual(request)

    node.answer = answer
    refused = skip(cluster, f"{TOPIC}/1", "--to", str(NEXT))
    assert refused.exit_code == 1
    assert text in refused.stderr


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (source("another", NEXT - 1), "is not known: stopped: the source was reset"),
        (problem_of(FaultCode.OUT_OF_RANGE, "no"), "the source does not answer"),
    ],
)
def test_a_gap_is_left_where_the_end_of_the_source_is_not_known(
    cluster: FakeCluster, found: Answer, said: str
) -> None:
    known = cluster.nodes[0].answer
    cluster.nodes[0].answer = lambda request: (
        found if isinstance(request, GetSource) else known(request)
    )
    done = skip(cluster, f"{TOPIC}/1", "--to", str(NEXT))
    assert done.exit_code == 0, done.output
    assert said in done.stderr
    assert len(gaps(cluster)) == 1


def test_the_status_names_the_batch_and_the_command_that_skips_it(cluster: FakeCluster) -> None:
    directory = Path(cluster.client_file).with_name("m")
    unknown = run(cluster, "status")
    assert f"{directory} is not a directory of this host" in unknown.stderr
    directory.mkdir()
    stops = MirrorStops(str(directory))
    skipping = f"samelog mirror skip {TOPIC}/1 --to {NEXT} --config mirror.toml"
    stops.put(TOPIC, 1, MirrorStop("id", "log", END, f"the batch at offset {END}: {skipping}"))
    stops.save()
    shown = run(cluster, "status", "--json")
    assert shown.stderr == ""
    first, second = json.loads(shown.stdout)["partitions"]
    assert second["state"] == f"stopped: the batch at offset {END}: {skipping}"
    assert "stopped" not in first["state"]
    (directory / FILE).write_text("{")
    assert "see the sidecar's log or /status" in run(cluster, "status").stderr
