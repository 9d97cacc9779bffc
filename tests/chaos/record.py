"""Records that describe themselves, so that a merged log can be judged without any other source.

A value is `session life number chain padding`. A *life* is one process of a publisher; numbers
count from 0 in each life. `chain` hashes the record together with the chain before it.

Invariant: a value that `parse` accepts as the successor of another one was written by that life of
that session, at that place.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

CHAIN_BYTES = 8
PADDING_BYTES_MAX = 400


class Author(NamedTuple):
    """One life of one session."""

    session: str
    life: int


class Parsed(NamedTuple):
    """One record, taken apart."""

    author: Author
    number: int
    chain: bytes
    body: bytes


def first_chain(author: Author) -> bytes:
    """What the first record of a life is hashed with."""
    return _digest(b"", f"{author.session} {author.life}".encode())


def _digest(chain: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(chain + body, digest_size=CHAIN_BYTES).hexdigest().encode()


def next_chain(chain: bytes, body: bytes) -> bytes:
    """The chain behind a record."""
    return _digest(chain, body)


class Writer:
    """Makes the records of one life, in order."""

    def __init__(self, author: Author) -> None:
        self.author = author
        self.count = 0
        self._chain = first_chain(author)

    def take(self, padding: bytes = b"") -> bytes:
        """The next record's value."""
        head = f"{self.author.session} {self.author.life} {self.count}".encode()
        self._chain = next_chain(self._chain, head + b" " + padding)
        self.count += 1
        return b"%s %s %s" % (head, self._chain, padding)


def parse(value: bytes | None) -> Parsed | None:
    """A record taken apart; None if no publisher writes such a thing."""
    parts = (value or b"").split(b" ", 4)
    if len(parts) != 5 or not parts[1].isdigit() or not parts[2].isdigit():
        return None
    session, life, number, chain, padding = parts
    author = Author(session.decode("ascii", "replace"), int(life))
    return Parsed(author, int(number), chain, b" ".join((session, life, number, padding)))
