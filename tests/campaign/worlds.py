"""A batch of simulated worlds, as a process of its own: python -m tests.campaign.worlds KIND START
COUNT prints what they came to, as one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.cluster_sim.run import outcome as cluster_outcome
from tests.sim.run import outcome as group_outcome
from tests.simulation.parallel import in_order

OUTCOMES: dict[str, Callable[..., Any]] = {"groups": group_outcome, "clusters": cluster_outcome}
SUMS = {
    "groups": {"events": "events", "agreed": "committed", "elections": "elections"},
    "clusters": {"events": "steps", "agreed": "acknowledged", "elections": "elections"},
}
"""What is added up: name -> the field of a world's result."""


def summed(kind: str, outcomes: list[Any]) -> dict[str, Any]:
    """The sums over the worlds that hold, and what there is to say of those that do not."""
    held = [each for each in outcomes if not isinstance(each, str)]
    sums = {name: sum(getattr(each, field) for each in held) for name, field in SUMS[kind].items()}
    simulated = round(sum(each.simulated_s for each in held))
    failed = [each for each in outcomes if isinstance(each, str)]
    return {"simulated_s": simulated, **sums, "failed": len(failed), "remarks": failed}


def main() -> None:
    """One batch."""
    kind, start, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    run = partial(OUTCOMES[kind], shrinks=False)
    outcomes = list(in_order(run, range(start, start + count)))
    sys.stdout.write(json.dumps(summed(kind, outcomes)) + "\n")


if __name__ == "__main__":
    main()
