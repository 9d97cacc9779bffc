"""What checks records in tests: at once, or never."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from samelog.sequencer.judging.process import CannotCheck
from samelog.typed.judging import PLAIN, BatchMisfits, Terms, judge_batch
from samelog.typed.schema import parse_schema


class InlineJudge:
    """In the event loop itself. Implements BatchJudge."""

    def __init__(self) -> None:
        self.asked = 0
        self.why_not = ""
        """Why nothing can be said."""
        self.is_for_long = False

    async def judge(
        self,
        who: Hashable,
        key: str,
        texts: Sequence[str],
        batches: Sequence[bytes],
        *,
        terms: Terms = PLAIN,
    ) -> list[BatchMisfits]:
        """Judge, if that can be done."""
        self.asked += len(batches)
        if self.why_not:
            raise CannotCheck(self.why_not, is_for_long=self.is_for_long)
        schemas = {version: parse_schema(text) for version, text in enumerate(texts, 1)}
        return [judge_batch(schemas, len(schemas), batch, terms) for batch in batches]

    async def close(self) -> None:
        """There is nothing to let go of."""
