"""Marks what is staged for a topic whose records nodes check, and checks it before it is sent.

Nodes judge what is staged once, and merge it later, so they want each record to say its version.
Invariant: what is staged for such a topic has marks, and fits them as far as is known here; one
record that does not refuses all that came with it (docs/typed.md, T11, T18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samelog.admin.client import topic_schemas
from samelog.admin.errors import AdminError
from samelog.admin.known_schemas import KnownSchemas
from samelog.config.tables.client import ClientConfig
from samelog.publisher.errors import NotStaged
from samelog.publisher.row_checks import GivenValues, HeadersColumn, RowChecks
from samelog.store.disk.files import OsFileSystem
from samelog.typed.enforcing import Enforce
from samelog.typed.versions import SCHEMA_HEADER, mark


class StagedChecks:
    """Of one writer, and its topic."""

    def __init__(self, topic: str, directory: str, config: ClientConfig) -> None:
        """`directory`: keeps what the cluster says of the schema."""
        self._topic, self._config = topic, config
        self._known = KnownSchemas(OsFileSystem(), directory, config)
        self._checks = RowChecks(self._known)
        self._mark: tuple[str, bytes] | None = None
        self._is_asked = False

    def marked(self, values: GivenValues, headers: HeadersColumn | None) -> HeadersColumn | None:
        """The headers of records, of which each has a mark; None: nodes do not check the topic.
        Raises RowMisfit, NotStaged.
        """
        if not self._is_asked:
            self._mark = self._learn()
            self._is_asked = True
        if self._mark is None:
            return None
        given = [None] * len(values) if headers is None else headers
        column = [_with_mark(pairs or (), self._mark) for pairs in given]
        self._checks.check(self._topic, values, column)
        return column

    def _learn(self) -> tuple[str, bytes] | None:
        """The mark of records that have none; None: nodes do not check. Raises NotStaged."""
        try:
            page = topic_schemas(self._config, self._topic)
        except AdminError as error:
            raise NotStaged(f"the schema of topic {self._topic!r} is not known: {error}") from error
        if page.enforce != Enforce.NODE.value:
            return None
        texts = tuple(each.schema for each in page.versions)
        self._known.note(page.topic, page.topic_id, texts, {})
        return mark(page.newest, page.versions[-1].fingerprint) if page.versions else None


def _with_mark(
    pairs: Sequence[tuple[str, Any]], own: tuple[str, bytes]
) -> Sequence[tuple[str, Any]]:
    is_marked = any(name == SCHEMA_HEADER for name, _ in pairs)
    return pairs if is_marked else (*pairs, own)
