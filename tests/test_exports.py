"""What `import samelog` offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import samelog


def test_every_public_name_is_there() -> None:
    assert sorted(samelog.__all__) == dir(samelog)
    for name in samelog.__all__:
        assert getattr(samelog, name) is not None


def test_one_class_says_that_a_topic_was_deleted() -> None:
    """A publisher's caller and a subscriber's caller both catch it by the base that they know."""
    from samelog.publisher import PublisherError  # loaded when used
    from samelog.publisher import TopicDeleted as Published
    from samelog.subscriber import SubscriberError
    from samelog.subscriber import TopicDeleted as Subscribed

    assert samelog.TopicDeleted is Published is Subscribed
    assert issubclass(samelog.TopicDeleted, PublisherError)
    assert issubclass(samelog.TopicDeleted, SubscriberError)
    error = samelog.TopicDeleted("flights", "nothing is lost")
    assert str(error) == "topic 'flights' was deleted or created again; nothing is lost"


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'samelog' has no attribute 'nothing'"):
        getattr(samelog, "nothing")  # noqa: B009  # a constant name would not pass the type checker


def test_why_a_name_cannot_be_imported_is_said(tmp_path: Path) -> None:
    """A program beside which a file hides one of Python's own modules."""
    (tmp_path / "logging.py").write_text("")
    (tmp_path / "program.py").write_text("from samelog import Publisher\n")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "samelog.publisher cannot be imported: " in done.stderr.splitlines()[-1]
    assert "logging" in done.stderr.splitlines()[-1]


def test_importing_loads_no_part_until_it_is_used() -> None:
    program = "import sys, samelog; print([name for name in sys.modules if 'samelog.' in name])"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"[]\n"
