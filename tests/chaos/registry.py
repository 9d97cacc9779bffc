"""The list of scenarios: what each is called, does, needs and promises.

Invariant: importing `tests.chaos.scenarios` fills the list; names are unique.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tests.chaos.field import Field

Need = Callable[[], str | None]
"""Why a scenario cannot run here, in one line; None if it can."""
Step = Callable[[Field], None]


class Expect(Enum):
    """What has to hold once a fault is healed."""

    KEPT = "kept"
    """Nothing acknowledged is lost, nothing doubled, reordered or made up; all copies are equal."""
    NOTICED = "noticed"
    """More is damaged than can be repaired: no wrong byte is served, and the damage is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of fault, with its cluster."""

    name: str
    what: str
    inject: Step
    prepare: Step | None
    """Before the cluster starts: disks, proxies, namespaces."""
    needs: tuple[Need, ...]
    expect: Expect
    seconds: float
    """How long faults go on, unless told otherwise."""
    nodes: int = 3
    copies: int = 0
    """Of the topic; 0: on all nodes."""

    def why_not(self) -> str | None:
        """Why it cannot run here; None if it can."""
        return next((reason for need in self.needs if (reason := need()) is not None), None)


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    name: str,
    *,
    prepare: Step | None = None,
    needs: tuple[Need, ...] = (),
    expect: Expect = Expect.KEPT,
    seconds: float = 20.0,
    nodes: int = 3,
    copies: int = 0,
) -> Callable[[Step], Step]:
    """Register a function that injects faults for `field.seconds`; its docstring says what."""

    def register(inject: Step) -> Step:
        what = " ".join((inject.__doc__ or "").split())
        SCENARIOS[name] = Scenario(
            name=name,
            what=what,
            inject=inject,
            prepare=prepare,
            needs=needs,
            expect=expect,
            seconds=seconds,
            nodes=nodes,
            copies=copies,
        )
        return inject

    return register
