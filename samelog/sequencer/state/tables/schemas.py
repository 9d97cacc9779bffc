"""The texts of topics' schemas, by version.

Invariant: equal texts are kept once, as long as a topic or a view has them, and all together are
bounded (docs/typed.md, T14).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.typed.schema import Schema, parse_schema


class SetSchemaCommand(Command, frozen=True, tag=80):
    """Let a topic have one more version of its schema, behind version `follows` (0: its first)."""

    topic_id: str
    follows: Unsigned32
    text: str
    at_ms: int


SchemaCommand = SetSchemaCommand


class SchemaVersion(msgspec.Struct, frozen=True, array_like=True):
    """One version of a topic's schema: which text it is, and since when."""

    fingerprint: str
    set_ms: int


TEXTS_BYTES_MOST = 16 << 20
"""Of all texts together."""


class KeptText(msgspec.Struct, array_like=True):
    """A schema's text, and how many versions of all topics it is."""

    text: str
    uses: int = 0


class SchemasTable(msgspec.Struct):
    """The texts of all versions of all topics and views, by fingerprint."""

    texts: dict[str, KeptText] = {}
    size_bytes: int = 0
    enforced: dict[str, None] = {}
    """The topics whose records nodes check (`schema.enforce=node`)."""

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
