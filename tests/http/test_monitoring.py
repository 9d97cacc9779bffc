"""Alerts and dashboard ask for metrics that there are; each alert has its part of the runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from samelog.http.metrics.table import (
    COMMON,
    MIRROR,
    NODE,
    PUBLISHER,
    SIDECAR,
    SUBSCRIBER,
    MetricKind,
    by_name,
)

ROOT = Path(__file__).resolve().parent.parent.parent
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "samelog.json"
RUNBOOK = ROOT / "docs" / "operations.md"
PAGE = "https://docs.example/samelog/docs/operations.html"
METRICS = by_name(COMMON, MIRROR, NODE, PUBLISHER, SIDECAR, SUBSCRIBER)
OTHERS = {
    "up",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
}
TARGET = {"job", "instance"}
SEVERITIES = {"critical", "warning"}


def rules() -> list[dict[str, Any]]:
    """Every alert."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    """Every query of the dashboard, as Prometheus gets it."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "5m").replace("$job", ".*") for each in found]


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics that an expression names, and the labels it picks their series by."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    for each in found:
        yield str(each.name), {matcher.name for matcher in each.matchers.matchers}


def problem_with(name: str, labels: set[str]) -> str | None:
    """What is wrong with a selector; None: nothing."""
    if name in OTHERS:
        return None
    metric = METRICS.get(re.sub(r"_(bucket|sum|count)$", "", name))
    if metric is None:
        return f"there is no metric {name}"
    if (metric.kind is MetricKind.HISTOGRAM) != (metric.name != name):
        return f"{name} is a {metric.kind.value}"
    unknown = labels - TARGET - {*metric.labels}
    return f"{name} has no label {unknown}" if unknown else None


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_alerts_ask_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    found = list(selectors(rule["expr"]))
    assert found
    assert [text for each in found if (text := problem_with(*each))] == []
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["annotations"]["runbook_url"] == f"{PAGE}#{rule['alert'].lower()}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool (prometheus)")
def test_alerts_fire_when_they_should() -> None:
    tests = sorted(map(str, ALERTS.parent.glob("alerts*_test.yaml")))
    assert len(tests) == 2
    command = ["promtool", "test", "rules", *tests]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_its_part_of_the_runbook() -> None:
    heads = re.findall(r"^### (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert heads == [rule["alert"] for rule in rules()]


def test_the_runbook_names_metrics_that_there_are() -> None:
    named = re.findall(r"`(samelog_\w+)`", RUNBOOK.read_text(encoding="utf-8"))
    assert [name for name in named if name not in METRICS] == []


@pytest.mark.parametrize("query", queries())
def test_the_dashboard_asks_for_metrics_that_there_are(query: str) -> None:
    assert [text for each in selectors(query) if (text := problem_with(*each))] == []


def test_a_wrong_selector_is_noticed() -> None:
    wrong = 'samelog_gone + samelog_ready{peer="x"} + samelog_fsync_seconds + samelog_ready_count'
    found = [problem_with(*each) for each in selectors(wrong)]
    assert len(found) == 4
    assert all(found)
