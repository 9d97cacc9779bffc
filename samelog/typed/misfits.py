"""What does not fit a schema, and where. Pure.

Invariant: a misfit names one record, and shows no more of its value than `SHOWN_BYTES`.
"""

from __future__ import annotations

from dataclasses import dataclass

SHOWN_BYTES = 64


@dataclass(frozen=True, slots=True)
class Misfit:
    """One record that does not fit; `column` is empty if the value is none of the format."""

    index: int
    column: str
    expected: str
    found: str
    """The beginning of the value, or of the column's."""

    def __str__(self) -> str:
        where = f"record {self.index}"
        if self.column:
            where += f", column {self.column!r}"
        return f"{where}: not {self.expected}: {self.found}"


class RowMisfit(ValueError):
    """A row that was to be appended does not fit."""

    def __init__(self, misfit: Misfit) -> None:
        super().__init__(str(misfit).replace("record", "row", 1))
        self.misfit = misfit


def beginning(value: object) -> str:
    """What is shown of a value: a text that is safe in any log."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value[: SHOWN_BYTES + 1])
        text = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        return text + ("…" if len(data) > SHOWN_BYTES else "")
    text = repr(value)
    return text if len(text) <= SHOWN_BYTES else text[:SHOWN_BYTES] + "…"
