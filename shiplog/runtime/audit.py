"""The audit log: who asked for a change of the cluster, whichever way, and what came of it.

Invariant: a change that is asked for is one line, refused ones too, whatever the log level.
"""

from __future__ import annotations

import json
import logging

from shiplog.runtime.log import AUDIT, log_event
from shiplog.wire.plain import to_json

audit = logging.getLogger(AUDIT)


def note_change(*, who: str, peer: str | None, what: str, asked: object, error: str | None) -> None:
    """Write a line. `asked`: the request, None if it could not be read; `error`: why nothing came
    of it, None if it is done.
    """
    log_event(
        audit,
        logging.INFO,
        "audit",
        who=who,
        peer=peer,
        what=what,
        asked=json.dumps(to_json(asked), default=str),
        result="done" if error is None else f"failed: {error}",
    )
