"""The texts of topics' schemas, and views, as the replicated state has them.

Invariant: equal texts are kept once, as long as a topic has them, and all together are bounded
(docs/typed.md, T14).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from samelog.sequencer.state.views.index import ViewIndex
from samelog.sequencer.state.views.schema_version import SchemaVersion
from samelog.sequencer.state.views.view import View
from samelog.typed.schema import Schema, parse_schema

TEXTS_BYTES_MOST = 16 << 20
"""Of all texts together."""

__all__ = ["TEXTS_BYTES_MOST", "KeptText", "SchemaVersion", "Schemas", "View"]


class KeptText(msgspec.Struct, array_like=True):
    """A schema's text, and how many versions of all topics it is."""

    text: str
    uses: int = 0


class Schemas(msgspec.Struct, dict=True):
    """The texts of all versions of all topics, by fingerprint."""

    texts: dict[str, KeptText] = {}
    size_bytes: int = 0
    views: dict[str, View] = {}
    """By id; their schemas' texts are among the others. Changed by what is below only."""
    enforced: dict[str, None] = {}
    """The topics whose records nodes check (`schema.enforce=node`)."""

    @cached_property
    def index(self) -> ViewIndex:
        """Finds views; snapshots do not have it."""
        return ViewIndex(self.views.values())

    def view_named(self, name: str) -> View | None:
        """The view of that name."""
        return self.index.by_name.get(name)

    def views_of(self, topic_id: str) -> Sequence[View]:
        """Those that stand on a topic, in the order in which they were made."""
        return [*self.index.by_base.get(topic_id, {}).values()]

    def put_view(self, view: View) -> None:
        """It is there, or has changed since `take_view`."""
        index = self.index
        self.views[view.topic_id] = view
        index.put(view)

    def take_view(self, topic_id: str) -> View | None:
        """It is there no more, or is about to change, which keeps its place among the others."""
        view = self.views.get(topic_id)
        if view is not None:
            self.index.remove(view)
        return view

    def number_view(self, view: View, number: int) -> None:
        """A view has one more partition."""
        self.index.by_number[number] = view, len(view.partition_numbers)
        view.partition_numbers.append(number)

    def keep(self, schema: Schema) -> bool:
        """Whether there is room for it."""
        known = self.texts.get(schema.fingerprint)
        if known is None:
            size = len(schema.text.encode())
            if self.size_bytes + size > TEXTS_BYTES_MOST:
                return False
            known = self.texts[schema.fingerprint] = KeptText(schema.text)
            self.size_bytes += size
        known.uses += 1
        return True

    def forget(self, versions: Sequence[SchemaVersion]) -> None:
        """Their topic is deleted."""
        for version in versions:
            kept = self.texts[version.fingerprint]
            kept.uses -= 1
            if not kept.uses:
                del self.texts[version.fingerprint]
                self.size_bytes -= len(kept.text.encode())

    def schema_of(self, version: SchemaVersion) -> Schema:
        """What a version is."""
        return parse_schema(self.texts[version.fingerprint].text)
