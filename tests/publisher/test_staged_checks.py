"""What is staged for a topic that nodes check has marks, and is checked before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog.config.load import load_client
from samelog.publisher import RowMisfit
from samelog.publisher.errors import NotStaged
from samelog.publisher.staged_checks import StagedChecks
from samelog.typed.schema import parse_schema
from samelog.typed.versions import mark
from tests.cli.fake_nodes import FakeCluster
from tests.typed.known import Known, schema_text

FIRST, SECOND = schema_text("a int32", "b string"), schema_text("a int64", "b string")
GOOD = b'{"a":1,"b":"x"}'
MARK = mark(1, parse_schema(FIRST).fingerprint)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path, 1) as started:
        yield started


@pytest.fixture
def known(cluster: FakeCluster) -> Known:
    found = Known(cluster, FIRST)
    found.enforce = "node"
    return found


def checks(cluster: FakeCluster, root: Path, topic: str = "t") -> StagedChecks:
    return StagedChecks(topic, str(root), load_client(cluster.client_file))


def test_what_is_staged_says_its_version(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    staged = checks(cluster, tmp_path)
    assert staged.marked([GOOD, None], None) == [(MARK,)] * 2
    known.texts.append(SECOND)  # who writes stays with what it has begun with
    found = staged.marked([GOOD, GOOD, GOOD], [None, (("x", b"y"),), (("x", b"y"), MARK)])
    assert found == [(MARK,), (("x", b"y"), MARK), (("x", b"y"), MARK)]
    assert known.asked == 1


def test_a_record_that_does_not_fit_refuses_all(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with pytest.raises(RowMisfit, match="row 1, column 'a': not int32"):
        checks(cluster, tmp_path).marked([GOOD, b'{"a":"x"}'], None)


def test_topics_that_nodes_do_not_check_need_no_marks(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    for known.enforce in ("off", "publisher"):
        assert checks(cluster, tmp_path).marked([b"anything"], None) is None
    known.enforce, known.texts = "node", []
    assert checks(cluster, tmp_path).marked([b"anything"], None) is None, "nodes say why not"


def test_nothing_is_staged_when_nobody_says_which_schema_there_is(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with pytest.raises(NotStaged, match="'other' is not known"):
        checks(cluster, tmp_path, "other").marked([GOOD], None)
