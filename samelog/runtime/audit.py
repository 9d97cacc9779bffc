"""The audit log: who asked for a change of the cluster, whichever way, and what came of it.

What was asked is written whole, in several lines if it is long: no change hides behind others.

Invariant: a change that is asked for is written, refused ones too, whatever the log level.
"""

from __future__ import annotations

import json
import logging
from functools import partial

from samelog.format.steps import StepWork
from samelog.runtime.log import AUDIT, Whole, log_event
from samelog.wire.plain import encode_steps

LINE_CHARACTERS = 4_000
ASKED_CHARACTERS_MAX = 1 << 20
UNKNOWN = "nobody waits for it any more; it may be done all the same"
audit = logging.getLogger(AUDIT)


def noting_change(
    *, who: str, peer: str | None, what: str, asked: object, error: str | None
) -> StepWork[None]:
    """Write it down, one value or line of a long request a step. `asked`: the request, None if it
    could not be read; `error`: why nothing, or not all, came of it, None if it is done.
    """
    text = yield from encode_steps(asked, partial(json.dumps, default=str))
    kept = text[:ASKED_CHARACTERS_MAX]
    left_out = len(text) - len(kept)
    result = "done" if error is None else f"failed: {error}"
    begins = range(0, len(kept), LINE_CHARACTERS)
    for number, begin in enumerate(begins, 1):
        log_event(
            audit,
            logging.INFO,
            "audit",
            who=who,
            peer=peer,
            what=what,
            asked=Whole(kept[begin : begin + LINE_CHARACTERS]),
            result=Whole(result[:LINE_CHARACTERS]),
            **({"part": f"{number}/{len(begins)}"} if len(begins) > 1 else {}),
            **({"left_out_characters": left_out} if left_out else {}),
        )
        yield
