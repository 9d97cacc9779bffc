"""What differs between two versions of a configuration.

Invariant: what both leave out, or say alike, is no change, wherever it is said.
"""

from __future__ import annotations

from samelog.config.document import Document, Setting, settings


def changes(before: Document, after: Document) -> list[Setting]:
    """What differs, as it is now; of what is gone, as it was."""
    old = {each.name: each for each in settings(before)}
    new = {each.name: each for each in settings(after)}
    return [
        new.get(name, old.get(name, each))
        for name, each in (old | new).items()
        if name not in old or name not in new or old[name].value != new[name].value
    ]
