"""What a sidecar reports of its mirrors: a lag that is unknown is no number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from samelog.config.tables.shared import TlsFiles
from samelog.http.metrics.sidecar import Side
from samelog.mirror.progress import MirrorProgress
from samelog.mirror.serving import mirror_api, mirroring, mirroring_view


def clock_at(seconds: float) -> Any:
    """A clock that stands still."""
    return SimpleNamespace(now=lambda: seconds)


def with_two_partitions() -> MirrorProgress:
    """One partition lags, the other one has stopped; the source answered at 10 s."""
    progress = MirrorProgress(brought_bytes=77, heard_s=10.0)
    lagging, stopped = progress.of("eu.t", 0), progress.of("eu.t", 1)
    lagging.mirrored, lagging.end = 40, 100
    stopped.is_stopped, stopped.problem = True, "the source's log was replaced"
    progress.topics["orders"] = "a topic of that name exists"
    progress.own_groups["eu.t"] = ("billing", "audit")
    return progress


def test_samples_have_a_lag_only_where_it_is_known() -> None:
    progress = with_two_partitions()
    samples = {(name, labels): value for name, labels, value in mirroring(progress, clock_at(14))}
    assert samples["samelog_mirror_lag_records", ("eu.t", "0")] == 60
    assert samples["samelog_mirror_lag_unknown", ("eu.t", "1")] is True
    assert ("samelog_mirror_lag_records", ("eu.t", "1")) not in samples
    assert samples["samelog_mirror_stopped", ("eu.t", "1")] is True
    assert samples["samelog_mirror_brought_bytes_total", ()] == 77
    assert samples["samelog_mirror_topics_refused", ()] == 1
    assert samples["samelog_mirror_own_groups", ("eu.t",)] == 2
    assert samples["samelog_mirror_source_silence_seconds", ()] == 4
    assert samples["samelog_mirror_source_faulty", ()] is False
    progress.lost_source("no connection")
    samples = {(name, labels): value for name, labels, value in mirroring(progress, clock_at(14))}
    assert samples["samelog_mirror_lag_unknown", ("eu.t", "0")] is True
    assert samples["samelog_mirror_source_faulty", ()] is True


def test_silence_is_no_number_before_the_source_answers() -> None:
    progress = MirrorProgress()
    names = {name for name, _, _ in mirroring(progress, clock_at(14))}
    assert "samelog_mirror_source_silence_seconds" not in names
    assert mirroring_view(progress, clock_at(14)).silence_s is None


def test_the_view_names_problems() -> None:
    view = mirroring_view(with_two_partitions(), clock_at(14))
    assert view.silence_s == 4
    assert view.refused == {"orders": "a topic of that name exists"}
    assert [(row.partition, row.lag, row.stopped, row.problem) for row in view.partitions] == [
        (0, 60, False, ""),
        (1, None, True, "the source's log was replaced"),
    ]


def test_a_sidecar_is_ready_while_the_source_answers() -> None:
    progress = MirrorProgress()
    config: Any = SimpleNamespace(cluster="c", tls=TlsFiles(ca="", cert="", key=""))
    side = Side(config, "directory")
    now = SimpleNamespace(seconds=0.0)
    clock: Any = SimpleNamespace(now=lambda: now.seconds)
    api = mirror_api(progress, side, clock, lag_unknown_s=30.0)
    assert api.not_ready() == "the sidecar is starting"
    api.is_started = True
    assert "not heard of yet" in api.not_ready()
    progress.heard_s = 0.0
    now.seconds = 30.0
    assert api.not_ready() == ""
    now.seconds = 31.0
    progress.lost_source("no connection")
    assert api.not_ready() == "the source was not heard of for 31 s: no connection"
