"""The event loop of a process: a broken invariant ends it, whatever else fails is heard of."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.cli.node_process import _unhandled
from samelog.format.errors import InvariantError
from samelog.runtime.loop import (
    EXIT_SOFTWARE,
    InLoop,
    LoopThreads,
    crash,
    is_abandoned,
    run,
    spawn,
)
from tests.patience import PATIENCE_S
from tests.runtime.peers import in_loop, until

PROGRAM = """
import asyncio, logging, sys
from samelog.format.errors import InvariantError
from samelog.runtime.loop import run, spawn

logging.basicConfig(stream=sys.stderr)

def broken():
    raise InvariantError("two leaders")

async def broken_task():
    broken()

async def main():
    loop = asyncio.get_running_loop()
    try:
        {statement}
        await asyncio.sleep(10)
    finally:
        print("cleanup ran")

run(main())
print("survived")
"""


@pytest.mark.parametrize(
    "statement",
    ["broken()", "loop.call_soon(broken)", "spawn(broken_task(), 'a task')", "await broken_task()"],
)
def test_a_broken_invariant_ends_the_process_at_once(statement: str) -> None:
    program = PROGRAM.format(statement=statement)
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == EXIT_SOFTWARE
    assert "two leaders" in result.stderr
    assert "survived" not in result.stdout


def test_crash_says_why_before_it_leaves(caplog: pytest.LogCaptureFixture) -> None:
    codes: list[int] = []
    crash(InvariantError("two leaders"), leave=codes.append)
    assert codes == [EXIT_SOFTWARE]
    assert "two leaders" in caplog.text


def test_a_failed_task_is_heard_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise LookupError("lost")

    async def main() -> None:
        spawn(fail(), "ship things")
        await until(lambda: "ship things failed" in caplog.text)

    with caplog.at_level(logging.ERROR):
        in_loop(main)
    errors = [each.exc_info[1] for each in caplog.records if each.exc_info]
    assert [repr(error) for error in errors] == ["LookupError('lost')"]


def test_the_outcome_of_an_abandoned_wait_is_no_failure() -> None:
    """Its waiter was cancelled in the turn in which it failed; no code stopped halfway."""
    unhandled: list[dict[str, Any]] = []

    async def wait(future: asyncio.Future[None]) -> None:
        await asyncio.wait({future})

    async def broken() -> None:
        raise LookupError("lost")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: unhandled.append(context))
        future = loop.create_future()
        task = asyncio.create_task(wait(future))
        await asyncio.sleep(0)
        future.set_exception(LookupError("refused"))
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        del future, task
        failed = asyncio.create_task(broken())
        await asyncio.wait({failed})
        del failed
        gc.collect()
        await until(lambda: len(unhandled) == 2)

    in_loop(main)
    assert [is_abandoned(context) for context in unhandled] == [True, False]
    stopped: list[BaseException] = []
    node: Any = SimpleNamespace(fail=stopped.append)
    loop: Any = None
    for context in unhandled:
        _unhandled(node, loop, context)
    assert [repr(error) for error in stopped] == ["LookupError('lost')"], "only a task stops a node"


def test_a_cancelled_task_is_not_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        task = spawn(asyncio.sleep(10), "wait")
        task.cancel()
        await until(task.done)

    in_loop(main)
    assert caplog.text == ""


def test_run_returns_what_main_returns_and_raises_what_it_raises() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise LookupError("lost")

    assert run(answer()) == 42
    with pytest.raises(LookupError):
        run(fail())


async def thread_name() -> str:
    """Of the thread that runs this."""
    return threading.current_thread().name


def running(name: str) -> int:
    """How many threads have this name."""
    return sum(thread.name == name for thread in threading.enumerate())


def test_threads_are_shared_by_more_than_there_may_be() -> None:
    threads = LoopThreads("shared", most=2)
    taken = [threads.take() for _ in range(5)]
    assert running("shared") == 2
    assert {each.run(thread_name()) for each in taken} == {"shared"}
    assert sorted(taken.count(each) for each in set(taken)) == [2, 3]
    last = taken.pop()
    for thread in taken:
        threads.give_back(thread)
    assert running("shared") == 1
    assert last.run(thread_name()) == "shared"
    threads.give_back(last)
    assert running("shared") == 0
    again = threads.take()
    assert again.run(thread_name()) == "shared"
    threads.give_back(again)


def test_a_forked_child_has_threads_of_its_own() -> None:
    threads = LoopThreads("shared", most=1)
    taken = threads.take()
    child = os.fork()
    if not child:
        os._exit(0 if threads.take().run(thread_name()) == "shared" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    threads.give_back(taken)


def test_a_pause_ends_in_time_and_can_be_cancelled() -> None:
    async def main() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found))
        paused, begun = InLoop(), asyncio.get_running_loop().time()
        await paused.pause(0.01)
        assert asyncio.get_running_loop().time() >= begun + 0.009
        task = asyncio.ensure_future(paused.pause(0.0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await paused.pause(0.01)
        assert failures == []

    in_loop(main)
