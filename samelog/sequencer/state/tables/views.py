"""Views, topics that store nothing: which rows of which topic, and whose they are.

Invariant: a view has no records; its log has the offsets of its base, and an id that is another one
for another log of the base.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.tables.schemas import SchemaVersion


class CreateViewCommand(Command, frozen=True, tag=110):
    """Make a view: what passes `where` of the topic with the id `base_id`, read by its version
    `version` (0: records as they are), with these columns. `names`: every column that the view
    needs, with its type. `schema`: what its rows are; empty: none.
    """

    topic_id: str
    name: str
    base_id: str
    where: str
    columns: list[str]
    version: Unsigned32
    names: dict[str, str]
    schema: str
    owner: str
    at_ms: int


class DropViewCommand(Command, frozen=True, tag=111):
    """Forget a view."""

    topic_id: str


ViewCommand = CreateViewCommand | DropViewCommand

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


class ViewIndex:
    """Of the views of one state."""

    __slots__ = ("by_base", "by_log", "by_name", "by_number")

    def __init__(self, views: Iterable[View]) -> None:
        self.by_name: dict[str, View] = {}
        self.by_log: dict[str, View] = {}
        self.by_number: dict[int, tuple[View, int]] = {}
        """The number of a partition -> the view, and which of its partitions that is."""
        self.by_base: dict[str, dict[str, View]] = {}
        """The id of a topic -> the views that stand on it, by id."""
        for view in views:
            self.put(view)

    def put(self, view: View) -> None:
        """It is there."""
        self.by_name[view.name] = self.by_log[view.log_id] = view
        self.by_base.setdefault(view.base_id, {})[view.topic_id] = view
        for place, number in enumerate(view.partition_numbers):
            self.by_number[number] = view, place

    def remove(self, view: View) -> None:
        """It is there no more, or is about to be another one."""
        del self.by_name[view.name], self.by_log[view.log_id]
        there = self.by_base[view.base_id]
        del there[view.topic_id]
        if not there:
            del self.by_base[view.base_id]
        for number in view.partition_numbers:
            del self.by_number[number]


class ViewsTable(msgspec.Struct, dict=True):
    """All views."""

    by_id: dict[str, View] = {}
    """Their schemas' texts are those of the schemas table. Changed by the methods below only."""

    @cached_property
    def index(self) -> ViewIndex:
        """Finds views; snapshots do not have it."""
        return ViewIndex(self.by_id.values())

    def named(self, name: str) -> View | None:
        """Return the view of that name."""
        return self.index.by_name.get(name)

    def of_topic(self, topic_id: str) -> Sequence[View]:
        """Return the views of a topic, in the order in which they were created."""
        return [*self.index.by_base.get(topic_id, {}).values()]

    def put(self, view: View) -> None:
        """Add a view, or put it back after it was changed since `take`."""
        index = self.index
        self.by_id[view.topic_id] = view
        index.put(view)

    def take(self, topic_id: str) -> View | None:
        """Remove a view from the index, before it is dropped or changed. A changed view keeps its
        place among the others.
        """
        view = self.by_id.get(topic_id)
        if view is not None:
            self.index.remove(view)
        return view

    def number(self, view: View, number: int) -> None:
        """Give a view one more partition."""
        self.index.by_number[number] = view, len(view.partition_numbers)
        view.partition_numbers.append(number)
