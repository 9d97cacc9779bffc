"""Views, as the replicated state has them: which rows of which topic, and whose they are.

Invariant: a view has no records; its log has the offsets of its base, and an id that is another one
for another log of the base.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.views.schema_version import SchemaVersion

VIEWS_MOST = 1000
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_SQL = {
    *("all", "and", "as", "between", "case", "create", "distinct", "else", "false", "for", "from"),
    *("having", "join", "like", "not", "null", "on", "or", "select", "then", "true", "union"),
    *("using", "values", "when", "where", "with"),
}
"""Words that are no names to who reads a view's text."""


class View(msgspec.Struct, array_like=True):
    """One view; docs/typed.md, "Views"."""

    topic_id: str
    name: str
    base_id: str
    where: str
    columns: list[str]
    version: Unsigned32
    names: dict[str, str]
    """The columns that it needs, with their types."""
    owner: str
    created_ms: int
    log_id: str
    partition_numbers: list[Unsigned32]
    """Of its own, as positions of consumer groups are kept by them."""
    schema: SchemaVersion | None = None
    former_logs: list[str] = []

    def query(self, base: str) -> str:
        """What it is, as SQL; `base`: the name of the topic that it is of."""
        columns = ", ".join(map(_quoted, self.columns)) or "*"
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {columns} FROM {_quoted(base)}{where}"


def _quoted(name: str) -> str:
    """A name, in quotes unless it is a word, and none of SQL's."""
    is_plain = _WORD.fullmatch(name) and name.lower() not in _OF_SQL
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def log_of_view(topic_id: str, base_log_id: str) -> str:
    """The id of the log that a view shows of a log of its base."""
    return hashlib.blake2b(f"{topic_id} {base_log_id}".encode(), digest_size=16).hexdigest()
