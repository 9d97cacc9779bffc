"""Confirmation of commands that destroy data: `--confirm NAME` repeats the name of the object.

Invariant: a command that is not confirmed changes nothing, says what it would destroy, and prints
the option that confirms it. No command prompts, so that scripts and terminals behave the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from samelog.cli.output import fail

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
NOTHING_DONE = "Nothing was changed"


def confirm_option(metavar: str, *, multiple: bool = False) -> Callable[[CommandT], CommandT]:
    """Give the command `confirm`; `metavar` says what it has to repeat, such as CLUSTER."""
    return click.option(
        "--confirm",
        metavar=metavar,
        multiple=multiple,
        help=f"Repeat {metavar} to confirm; without it, nothing is changed.",
    )


def check_confirmed(given: str | None, name: str, consequence: str) -> None:
    """End the command with an error that states the consequence unless `given` repeats `name`."""
    if given == name:
        return
    remedy = f"To proceed, add: --confirm {shlex.quote(name)}"
    if given is None:
        fail(f"{consequence}. {NOTHING_DONE}. {remedy}")
    fail(f"--confirm {given!r} does not repeat {name!r}. {NOTHING_DONE}. {remedy}")


def replaced_option(
    old: str, new: str, *, takes_value: bool = False
) -> Callable[[CommandT], CommandT]:
    """Make the command refuse an option of earlier versions with the name of the new one."""

    def refuse(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{old} has been removed; use {new}", context)

    return click.option(
        old,
        is_flag=not takes_value,
        hidden=True,
        expose_value=False,
        is_eager=True,
        callback=refuse,
    )
