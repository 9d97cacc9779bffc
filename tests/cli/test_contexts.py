"""`samelog context`: named configurations, and which one counts."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from samelog.admin.answers import AdminAnswer, TopicInfo, Topics
from samelog.cli.contexts import Contexts, contexts_file, read_contexts, write_contexts
from samelog.cli.main import main
from samelog.cli.output import ConfigurationError
from tests.cli.fake_nodes import FakeCluster

VARIABLE = "SAMELOG_CONFIG"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user without contexts, whose environment comes back behind the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    return tmp_path


@pytest.fixture
def two(home: Path) -> Path:
    """The contexts a (current) and b, with files."""
    write_contexts(Contexts({"a": "/a.toml", "b": "/b.toml"}, "a"))
    return home


def place_that_counts(*arguments: str) -> str:
    """What a command of ours is told; the variable is as before again."""
    before = os.environ.get(VARIABLE)
    try:
        assert run(*arguments, "context", "list").exit_code == 0
        return os.environ.get(VARIABLE, "")
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


@given(
    st.dictionaries(
        st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,9}\Z"),
        st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    )
)
def test_the_file_says_what_was_written(places: dict[str, str]) -> None:
    contexts = Contexts(places, next(iter(places), ""))
    found = tomllib.loads(contexts.to_toml())
    assert found == {"current": contexts.current, "contexts": places}


def test_which_one_counts(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_that_counts() == "/a.toml"
    assert place_that_counts("--context", "b") == "/b.toml"
    monkeypatch.setenv(VARIABLE, "/mine.toml")
    assert place_that_counts() == "/mine.toml"
    assert place_that_counts("--context", "b") == "/b.toml"


def test_nobody_has_to_have_contexts(home: Path) -> None:
    assert place_that_counts() == ""
    assert run("context", "list").stdout.split() == ["CONTEXT", "CURRENT", "CONFIGURATION"]


def test_they_are_used_listed_and_forgotten(two: Path) -> None:
    assert run("context", "use", "b").exit_code == 0
    rows = json.loads(run("context", "list", "--json").stdout)
    assert [(row["context"], row["current"]) for row in rows] == [("a", False), ("b", True)]
    assert run("context", "remove", "b").exit_code == 0
    assert read_contexts() == Contexts({"a": "/a.toml"}, "")
    assert run("context", "use", "").exit_code == 0
    assert oct(os.stat(contexts_file()).st_mode & 0o777) == "0o600"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--context", "c", "context", "list"),
        ("context", "use", "c"),
        ("context", "remove", "c"),
        ("context", "add", "a b", "/a.toml"),
        ("context", "add", "c", "/nowhere.toml"),
    ],
)
def test_what_is_not_there_is_an_operators_mistake(two: Path, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert read_contexts().current == "a"


@pytest.mark.parametrize("text", ["current = 1", "contexts = 1", "[contexts]\na = 1", "nonsense"])
def test_a_file_that_is_none_is_named(home: Path, text: str) -> None:
    Path(contexts_file()).parent.mkdir(parents=True)
    Path(contexts_file()).write_text(text)
    with pytest.raises(ConfigurationError, match=r"contexts\.toml"):
        read_contexts()


def test_commands_ask_the_cluster_of_the_current_context(home: Path) -> None:
    def answer(request: object) -> AdminAnswer:
        return Topics((TopicInfo("flights", "id", 1, {}),))

    with FakeCluster(home) as cluster:
        for node in cluster.nodes:
            node.answer = answer
        added = run("context", "add", "fake", os.path.relpath(cluster.client_file))
        assert added.exit_code == 0, added.output
        listed = run("topic", "list", "--json")
    assert [row["name"] for row in json.loads(listed.stdout)] == ["flights"]
