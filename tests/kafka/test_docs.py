"""docs/kafka.md says what the registry and the tests say. `make docs` rewrites its tables."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import pytest

from samelog.kafka.registry import APIS
from tests.interop.results import Client, missing, recorded
from tests.interop.run import CLIENTS as INTEROP
from tests.kafka import measured
from tests.kafka.clients import CLIENTS
from tests.kafka.compatibility import shown, wanted_versions
from tests.kafka.features import FEATURES
from tests.tables import with_tables, write_tables

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "kafka.md"
YES, NO = "yes", "–"


def apis() -> str:
    """The APIs as a table, and what else is to be known of some as a list."""
    known = sorted(APIS.values(), key=lambda api: api.key)
    rows = [f"| {a.key} | {a.name} | {a.first}–{a.last} |" for a in known]
    notes = [f"- **{a.name}**: {a.notes}" for a in known if a.notes]
    items = [fill(each, 100, subsequent_indent="  ", break_on_hyphens=False) for each in notes]
    return "\n".join(["| key | API | versions |", "|---|---|---|", *rows, "", *items, ""])


def clients() -> list[Client]:
    """Each client, and what the tests have seen of it."""
    versions = wanted_versions()
    found = shown()
    python = [
        Client(
            name, f"{versions[name]} and later" if name in versions else "of Debian", found[name]
        )
        for name in CLIENTS
    ]
    return [*python, *recorded()]


def compatibility() -> str:
    """Clients and features as a table."""
    columns = clients()
    names = (client.name.replace("kafka-clients (Java)", "Java client") for client in columns)
    head = ["feature", *names]
    versions = ["version", *(client.version for client in columns)]
    rows = [
        [feature, *(YES if feature in client.shown else NO for client in columns)]
        for feature in FEATURES
    ]
    return "".join(
        f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), versions, *rows]
    )


def tables(directory: Path | None = None) -> dict[str, str]:
    """Each table of the page."""
    return {
        "the registry": apis(),
        "the tests": compatibility(),
        "the benchmark": measured.table(),
    }


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text, tables())


def test_other_languages_clients_have_shown_everything() -> None:
    assert len(recorded()) == len(INTEROP)
    for client in recorded():
        assert not client.failed
        assert missing(client) == []


def test_a_feature_that_nobody_shows_is_missed() -> None:
    client = Client("c", "1", [*FEATURES[1:], "flying"])
    assert missing(client) == [
        f"did not try {FEATURES[0]!r}",
        "no feature of ours: 'flying'",
    ]
    assert client.word(FEATURES[0]) == "-"


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_is_shown_by_a_client_of_the_tests(feature: str) -> None:
    assert any(feature in features for features in shown().values())


if __name__ == "__main__":
    write_tables(PAGE, tables)
