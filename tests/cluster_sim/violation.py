"""What a simulated world must never show."""

from __future__ import annotations


class Violation(Exception):
    """A promise is broken. `rule` is short and the same for the same kind of breach."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
