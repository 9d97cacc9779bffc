"""`samelog transaction`: list, describe and abort transactions of Kafka's producers.

Invariant: an abort is reported as done only when a majority of the nodes has it.
"""

from __future__ import annotations

import time

import click
from msgspec import to_builtins

from samelog.admin.answers import TransactionDescription, TransactionInfo
from samelog.admin.client import ask
from samelog.admin.requests import AbortTransaction, DescribeTransaction, ListTransactions
from samelog.cli.command_group import CommandGroup
from samelog.cli.live_names import complete_transactions
from samelog.cli.output import client_option, json_option, print_json, print_table, wants_json
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig

COLUMNS = ("transactional id", "state", "producer", "epoch", "open for (s)", "timeout (s)")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, describe and abort transactions of Kafka producers.

    \b
    Examples:
      samelog transaction list --config client.toml
      samelog transaction describe billing-1 --config client.toml --json
      samelog transaction abort billing-1 --config client.toml
    """


@command.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only those whose transaction is open.")
@client_option
@json_option
@watchable
def list_command(config: ClientConfig, *, only_open: bool) -> None:
    """List transactional ids and their newest transactions.

    \b
    Example:
      samelog transaction list --open --config client.toml
    """
    every = ask(config, ListTransactions()).transactions
    found = [each for each in every if each.began_ms >= 0 or not only_open]
    found.sort(key=lambda each: each.transactional_id)
    if wants_json():
        print_json(to_builtins(found))
    else:
        print_table(COLUMNS, [_row(each) for each in found])


@command.command()
@click.argument("transactional_id", shell_complete=complete_transactions)
@client_option
@json_option
@watchable
def describe(config: ClientConfig, transactional_id: str) -> None:
    """Show a transaction, and who takes part.

    Partitions are those that wait for its end; groups, those whose offsets go with it.

    \b
    Example:
      samelog transaction describe billing-1 --config client.toml
    """
    _show(ask(config, DescribeTransaction(transactional_id)))


@command.command()
@click.argument("transactional_id", shell_complete=complete_transactions)
@client_option
@json_option
def abort(config: ClientConfig, transactional_id: str) -> None:
    """Abort an open transaction, and fence its producer.

    Transactions end by themselves when their timeout is over. Until then, readers of what is
    committed wait for them.

    \b
    Example:
      samelog transaction abort billing-1 --config client.toml
    """
    _show(ask(config, AbortTransaction(transactional_id)))


def _row(each: TransactionInfo) -> tuple[object, ...]:
    open_s = "" if each.began_ms < 0 else max(0, round(time.time() - each.began_ms / 1000))
    timeout_s = round(each.timeout_ms / 1000)
    return (each.transactional_id, each.state, each.producer_id, each.epoch, open_s, timeout_s)


def _show(found: TransactionDescription) -> None:
    if wants_json():
        print_json(to_builtins(found))
        return
    print_table(COLUMNS, [_row(found.transaction)])
    if found.partitions:
        rows = [
            (each.topic, each.partition, "" if each.first_offset < 0 else each.first_offset)
            for each in found.partitions
        ]
        print_table(("topic", "partition", "begins at"), rows)
    if found.groups:
        print_table(("group",), [(each,) for each in found.groups])
