"""What is only durable is told a moment later, unless it is committed before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from samelog.sequencer.ingest.untold import UntoldInputs
from tests.runtime.peers import in_loop, until


def told_by(script: Callable[[UntoldInputs], Awaitable[None]]) -> list[set[int]]:
    """What a script has inputs told of, in order."""
    told: list[set[int]] = []

    async def main() -> None:
        inputs = UntoldInputs(told.append)
        await script(inputs)
        assert inputs.numbers == set()

    in_loop(main)
    return told


def test_inputs_that_waited_are_told_together() -> None:
    async def script(inputs: UntoldInputs) -> None:
        inputs.add([1])
        inputs.add([2, 1])
        await until(lambda: not inputs.numbers)
        inputs.add([3])
        await until(lambda: not inputs.numbers)

    assert told_by(script) == [{1, 2}, {3}]


def test_an_input_that_was_told_meanwhile_is_not_told_again() -> None:
    async def script(inputs: UntoldInputs) -> None:
        inputs.add([1, 2])
        inputs.told([2, 7])
        await until(lambda: not inputs.numbers)

    assert told_by(script) == [{1}]


def test_nothing_waits_once_all_was_told() -> None:
    async def script(inputs: UntoldInputs) -> None:
        inputs.add([1])
        inputs.told([1])
        assert inputs._timer is None
        inputs.add([2])
        inputs.close()
        inputs.numbers.clear()
        assert inputs._timer is None

    assert told_by(script) == []
