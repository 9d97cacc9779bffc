"""What is said of a failure: everything that is needed to see it again, and no more of it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.cluster_sim import run as clusters
from tests.cluster_sim.mutants_ordering import take_any_place
from tests.sim import run as groups
from tests.sim.mutants import vote_for_anyone
from tests.sim.options import from_seed
from tests.sim.world import World
from tests.simulation.parallel import in_order
from tests.simulation.trace import KEPT_LINES, UNFOLDED, Trace

CLUSTER_SEED = 1


@pytest.mark.usefixtures("simulates")
def test_a_failing_group_is_shrunk_and_told_of_in_full() -> None:
    with vote_for_anyone():
        whole = _failure_after_many_faults()
        seed = whole.options.seed
        report = str(groups.outcome(seed, shrinks=True))
    skipped = _facts(report, "tests.sim", seed)
    assert "leads term" in report
    assert len(skipped) >= len(whole.left()) // 2


def _failure_after_many_faults() -> groups.SimulationFailed:
    failures = map(groups.failure_of, range(1, 100))
    return next(found for found in failures if found is not None and len(found.left()) >= 8)


@pytest.mark.usefixtures("simulates")
def test_a_failing_cluster_is_shrunk_and_told_of_in_full() -> None:
    with take_any_place():
        report = str(clusters.outcome(CLUSTER_SEED, shrinks=True))
    _facts(report, "tests.cluster_sim", CLUSTER_SEED)
    assert "once and in order" in report
    assert "leads in term" in report


@pytest.mark.usefixtures("simulates")
def test_the_command_of_a_report_repeats_the_failure() -> None:
    with vote_for_anyone():
        seed = _failure_after_many_faults().options.seed
        report = str(groups.outcome(seed, shrinks=True))
        skipped = _facts(report, "tests.sim", seed)
        options = replace(from_seed(seed), skip=frozenset(skipped))
        with pytest.raises(groups.SimulationFailed) as again:
            groups.run_world(World(options))
    assert str(again.value) == report


def _facts(report: str, module: str, seed: int) -> list[int]:
    """The faults that were left out; everything else a report must have is there."""
    lines = report.splitlines()
    found = re.fullmatch(
        rf"again: python -m {module} --seed {seed} --trace(?: --skip ([0-9,]+))?", lines[-1]
    )
    assert found is not None
    assert re.fullmatch(r"commit \S+", lines[-2])
    assert lines[-3].startswith(f"Options(seed={seed}, ")
    assert lines[-4].startswith(f"seed {seed} at ")
    assert 1 < len(lines) <= KEPT_LINES + 4
    return [int(number) for number in (found[1] or "").split(",") if number]


# --- the parts ------------------------------------------------------------------------------------


def test_lines_that_repeat_are_folded_and_push_nothing_out() -> None:
    trace = Trace(lambda: 1.5)
    trace.event("n0", "is killed")
    for number in range(10 * KEPT_LINES):
        trace.event("n1", f"tries {number}")
    trace.event("n2", "leads")
    assert len(trace.lines) == 2 + UNFOLDED
    assert "is killed" in trace.lines[0]
    assert f"tries {10 * KEPT_LINES - 1} (and " in trace.lines[-2]


def test_a_verbose_trace_has_everything() -> None:
    trace = Trace(lambda: 1.5, is_verbose=True)
    for number in range(10 * KEPT_LINES):
        trace.event("n1", f"tries {number}")
    assert len(trace.lines) == 10 * KEPT_LINES


def test_equal_traces_only_have_equal_digests() -> None:
    traces = [Trace(lambda: 1.5) for _ in range(3)]
    for trace, numbers in zip(traces, ((1, 2), (1, 2), (2, 1)), strict=True):
        for number in numbers:
            trace.effect("n1", f"write {number}")
    assert traces[0].digest == traces[1].digest != traces[2].digest


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_seeds(jobs: int) -> None:
    assert list(in_order(abs, range(-20, 0), jobs)) == list(range(20, 0, -1))


def test_an_error_of_a_job_is_not_lost() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_order((1).__floordiv__, [1, 0], 2))
