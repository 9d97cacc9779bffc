"""`samelog tasks`: list, pause, resume and cancel what moves replicas of data groups.

Invariant: a change is reported as done only when a majority of the nodes has it.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import click
from msgspec import UNSET

from samelog.admin.client import ask
from samelog.admin.placement_requests import (
    CancelTask,
    GetPlacement,
    ListTasks,
    PauseTask,
    ResumeTask,
)
from samelog.admin.task_answers import TaskInfo, TaskRows
from samelog.cli.command_group import CommandGroup
from samelog.cli.live_names import complete_tasks
from samelog.cli.numbers import NUMBER, TIME_S
from samelog.cli.output import (
    client_option,
    fail,
    json_option,
    print_json,
    print_table,
    talk,
    waiting,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig

COLUMNS = ("task", "kind", "group", "to", "from", "state", "why", "waits for")
WAITING_SHOWN = 20
POLL_S = 0.25
QUIET_S = 2.0
BLOCKED_S = 10.0
"""Nodes that restart, or elect a leader, take less."""


@click.group(cls=CommandGroup)
def command() -> None:
    """List, pause, resume and cancel tasks, which move replicas of data groups; wait for them.

    \b
    Examples:
      samelog tasks list --config client.toml
      samelog tasks pause --config client.toml
      samelog tasks resume 12 --config client.toml
      samelog tasks cancel 12 --config client.toml
      samelog tasks wait --config client.toml
    """


@command.command("list")
@click.option("--ended", is_flag=True, help="Those that ended, the newest first.")
@client_option
@json_option
@watchable
def list_command(config: ClientConfig, *, ended: bool) -> None:
    """List tasks that run, and what is to be done after them, the most urgent first.

    \b
    Example:
      samelog tasks list --config client.toml --json
    """
    found = ask(config, ListTasks())
    if ended and not wants_json():
        print_table(COLUMNS, [_row(each) for each in found.ended])
    else:
        show(found)


@command.command()
@click.argument("number", type=NUMBER, shell_complete=complete_tasks, required=False)
@client_option
@json_option
def pause(config: ClientConfig, *, number: int | None) -> None:
    """Let task NUMBER stand still; without NUMBER, begin no task any more.

    A task that is paused keeps what it has made so far, and its place among those of its nodes.

    \b
    Examples:
      samelog tasks pause 12 --config client.toml
      samelog tasks pause --config client.toml
    """
    show(ask(config, PauseTask(UNSET if number is None else number)))


@command.command()
@click.argument("number", type=NUMBER, shell_complete=complete_tasks, required=False)
@client_option
@json_option
def resume(config: ClientConfig, *, number: int | None) -> None:
    """Let task NUMBER go on; without NUMBER, begin tasks again, also those that were cancelled.

    \b
    Examples:
      samelog tasks resume 12 --config client.toml
      samelog tasks resume --config client.toml
    """
    show(ask(config, ResumeTask(UNSET if number is None else number)))


@command.command()
@click.argument("number", type=NUMBER, shell_complete=complete_tasks)
@client_option
@json_option
def cancel(config: ClientConfig, *, number: int) -> None:
    """Undo task NUMBER, or let it end where that is too late.

    It is not begun again before `samelog tasks resume`, or until its node is drained again.

    \b
    Example:
      samelog tasks cancel 12 --config client.toml
    """
    show(ask(config, CancelTask(number)))


@command.command("wait")
@click.option(
    "--timeout",
    "timeout_s",
    type=TIME_S,
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up, with exit code 1.",
)
@client_option
@json_option
def wait_command(config: ClientConfig, *, timeout_s: float) -> None:
    """Wait until no task runs and none waits.

    Ends with exit code 1 and the reason if only tasks are left that are blocked or paused, or when
    the time is over.

    \b
    Examples:
      samelog topic alter big --replication-factor 3 --config client.toml
      samelog tasks wait --timeout 600 --config client.toml
    """
    show(_until_done(config, timeout_s))


def _until_done(config: ClientConfig, timeout_s: float) -> TaskRows:
    """Return the tasks once none was left for QUIET_S, as a request may not be planned yet. Exits
    if nothing but blocked or paused tasks was left for BLOCKED_S, or after `timeout_s`.
    """
    began, most = time.monotonic(), 0
    quiet_at, moved_at = began + QUIET_S, began
    with waiting("tasks") as tell:
        while True:
            found, now = ask(config, ListTasks()), time.monotonic()
            left = (*found.running, *found.waiting)
            if not left and now >= quiet_at:
                return found
            if left and now > began + timeout_s:
                fail(f"{len(left)} left after {timeout_s:g} s: {_said(left[0])}")
            moved_at = moved_at if _stands_still(found) else now
            if left and now > moved_at + BLOCKED_S:
                fail(f"{len(left)} left, and blocked: {_said(left[0])}\nsamelog tasks list")
            if left:
                most, quiet_at = max(most, len(left)), now + QUIET_S
                tell(most - len(left), most, _said(left[0]))
            time.sleep(POLL_S)


def _stands_still(found: TaskRows) -> bool:
    """Return whether every task that is left waits for an operator or a missing node."""
    are_paused = all(each.state == "paused" for each in found.running)
    return are_paused and (
        found.are_paused or all(each.state == "blocked" for each in found.waiting)
    )


def _said(task: TaskInfo) -> str:
    """A task, in a few words."""
    why = task.waits_for or task.reason
    return f"{task.kind} of group {task.group}" + (f": {why}" if why else "")


def wait_empty(config: ClientConfig, names: Collection[str], wait_s: float) -> TaskRows:
    """Wait until no node of these has a replica of a data group, and show how many of how many are
    gone. The tasks then.
    """
    deadline, most, label = time.monotonic() + wait_s, 0, ", ".join(names)
    with waiting(label) as progress:
        while left := _replicas(config, names):
            most = max(most, left)
            if time.monotonic() > deadline:
                have = "has" if len(names) == 1 else "have"
                fail(f"{label} {have} {left} replicas after {wait_s:g} s: samelog tasks list")
            progress(most - left, most, f"{label}: replicas that are gone")
            time.sleep(POLL_S)
    return ask(config, ListTasks())


def _replicas(config: ClientConfig, names: Collection[str]) -> int:
    groups = [each for each in ask(config, GetPlacement()).groups if each.group > 0]
    return sum(name in names for each in groups for name in (*each.members, *each.readers))


def show(found: TaskRows) -> None:
    """As the commands about tasks answer."""
    if wants_json():
        print_json(found)
        return
    print_table(COLUMNS, [_row(each) for each in (*found.running, *found.waiting[:WAITING_SHOWN])])
    if len(found.waiting) > WAITING_SHOWN:
        talk(f"and {len(found.waiting) - WAITING_SHOWN} more")
    if found.are_paused:
        talk("no task is begun: samelog tasks resume")


def _row(each: TaskInfo) -> tuple[object, ...]:
    number = each.number if each.number > 0 else "-"
    who = each.gets or "-", each.loses or "-"
    return (number, each.kind, each.group, *who, each.state, each.reason, each.waits_for or "-")
