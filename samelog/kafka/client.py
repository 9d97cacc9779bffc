"""Who is at the other end of a connection, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from samelog.kafka.clients.memory import Memory
from samelog.kafka.clients.quotas import Allowance, Allowances
from samelog.kafka.clients.sasl import Authenticator, SaslExchange
from samelog.runtime.counters import ListenerTally


@dataclass(slots=True)
class KafkaClient:
    """One connection's client."""

    identity: str
    """As rights are granted to; empty until it has authenticated."""
    listener: str
    host: str
    software: str = ""
    """What it says of itself, for the log."""
    authenticator: Authenticator | None = None
    """Of a listener that asks for names and passwords."""
    exchange: SaslExchange | None = None
    """An authentication under way."""
    rejected: str = ""
    """Why the connection is to be closed behind the next answer; empty if it is not."""
    memory: Memory[Any] | None = None
    """What all clients of the listener hold together."""
    allowances: Allowances | None = None
    """Where there are quotas."""
    allowance: Allowance | None = None
    """What its identity has used, if there is a quota for it."""
    tally: ListenerTally = field(default_factory=ListenerTally)
    """What went through the listener."""
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """To be called when the connection is over."""
