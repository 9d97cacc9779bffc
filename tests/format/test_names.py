"""Names: what the grammars take, and that nothing else gets through."""

from __future__ import annotations

import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.errors import InvalidName, LogFormatError
from samelog.format.names import check_session_name, check_topic_name

SESSION_FIRST = string.ascii_lowercase + string.digits
SESSION_REST = SESSION_FIRST + "._-"
TOPIC = string.ascii_letters + string.digits + "._-"


@pytest.mark.parametrize("name", ["a", "0", "ewr", "rt-sequencer-0", "a..b", "a" * 128, "9._-"])
def test_session_names(name: str) -> None:
    assert check_session_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "-a",
        "_a",
        ".a",
        "A",
        "a/b",
        "a\\b",
        "a b",
        "a\n",
        "\na",
        "a\0",
        "é",
        "a" * 129,
        "١",
    ],
)
def test_not_session_names(name: str) -> None:
    with pytest.raises(InvalidName, match="not a valid name"):
        check_session_name(name)


@pytest.mark.parametrize("name", ["a", "Flights", "...", "_x", "-", ".a", "a" * 249])
def test_topic_names(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "a\0", "é", "a" * 250])
def test_not_topic_names(name: str) -> None:
    with pytest.raises(InvalidName, match="not a valid topic name"):
        check_topic_name(name)


@given(st.one_of(st.text(), st.text("./\\.-aA0_\n\0~é", max_size=6)))
def test_the_grammars_letter_by_letter(name: str) -> None:
    session = 1 <= len(name) <= 128 and name[0] in SESSION_FIRST and set(name) <= set(SESSION_REST)
    topic = 1 <= len(name) <= 249 and set(name) <= set(TOPIC) and name not in {".", ".."}
    assert accepted(check_session_name, name) == session
    assert accepted(check_topic_name, name) == topic


@given(st.text("./\\.-aA0_\n\0~", max_size=6))
def test_an_accepted_name_stays_in_its_directory(name: str) -> None:
    for check in (check_session_name, check_topic_name):
        if accepted(check, name):
            assert os.path.normpath(os.path.join("d", name)) == os.path.join("d", name)


def accepted(check: object, name: str) -> bool:
    try:
        return callable(check) and check(name) == name
    except InvalidName:
        return False


def test_the_message_is_one_short_line_whatever_the_name() -> None:
    with pytest.raises(InvalidName) as caught:
        check_session_name("\x1b[31m\n" * 1000)
    text = str(caught.value)
    assert len(text) < 250
    assert text.isprintable()
    assert isinstance(caught.value, LogFormatError)
    assert isinstance(caught.value, ValueError)
