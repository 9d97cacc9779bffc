"""Names that a shell completes: topics, groups, nodes and so on, as the cluster has them now.

Invariant: completing never fails and never waits for longer than ANSWER_S for each node; where
nobody answers there are no names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from samelog.config.tables.client import ClientConfig

ANSWER_S = 1.0
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(ask_for: Callable[[ClientConfig], Iterable[str]]) -> Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        try:
            found = sorted(set(ask_for(_config_of(ctx))))
        except Exception:  # noqa: BLE001  a shell cannot be told what is wrong
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


def _config_of(ctx: click.Context) -> ClientConfig:
    """What --config, a variable or a context says. Raises ConfigError."""
    from samelog.config.load import load_client

    config = ctx.params.get("config")
    return config if isinstance(config, ClientConfig) else load_client(str(config))


def _ask(config: ClientConfig, request: Any) -> Any:
    """The first answer of a node."""
    from samelog.admin.client import ask_node
    from samelog.admin.errors import AdminError

    names = config.node_names or (None,) * len(config.nodes)
    for address, name in zip(config.nodes, names, strict=True):
        try:
            return ask_node(config, address, request, name=name, timeout_s=ANSWER_S)
        except AdminError:
            continue
    raise AdminError("no node answers")


def _topics(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.requests import ListTopics

    return [topic.name for topic in _ask(config, ListTopics()).topics]


def _groups(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.requests import ListGroups

    return [group.group for group in _ask(config, ListGroups()).groups]


def _nodes(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.requests import GetStatus

    return [node.name for node in _ask(config, GetStatus()).nodes]


def _hosts(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.requests import GetStatus

    return [node.host for node in _ask(config, GetStatus()).nodes]


def _sessions(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.requests import GetStatus

    return [session.session for session in _ask(config, GetStatus()).sessions]


def _sites(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.site_requests import ListSites

    return [site.name for site in _ask(config, ListSites()).sites]


def _mirrors(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.mirror_requests import ListMirrors

    found = _ask(config, ListMirrors()).mirrors
    return [mirror.topic for mirror in found if mirror.promoted_ms < 0]


def _transactions(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.requests import ListTransactions

    return [each.transactional_id for each in _ask(config, ListTransactions()).transactions]


def _data_groups(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.placement_requests import GetPlacement

    groups = [each.group for each in _ask(config, GetPlacement()).groups]
    return [str(group) for group in groups if group]


def _tasks(config: ClientConfig) -> Iterable[str]:
    from samelog.admin.placement_requests import ListTasks

    return [str(task.number) for task in _ask(config, ListTasks()).running]


complete_topics = _completer(_topics)
complete_groups = _completer(_groups)
complete_nodes = _completer(_nodes)
complete_hosts = _completer(_hosts)
complete_sessions = _completer(_sessions)
complete_sites = _completer(_sites)
complete_mirrors = _completer(_mirrors)
complete_transactions = _completer(_transactions)
complete_data_groups = _completer(_data_groups)
complete_tasks = _completer(_tasks)


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """This user's contexts."""
    from samelog.cli.contexts import read_contexts
    from samelog.cli.output import OperatorError

    try:
        return [name for name in sorted(read_contexts().places) if name.startswith(incomplete)]
    except OperatorError:
        return []
