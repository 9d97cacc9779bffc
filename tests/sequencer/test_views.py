"""Views in the replicated state, and what is asked of them (docs/typed.md, T25, T26)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.authorisation import Rights
from samelog.config.tables.node import Grant
from samelog.format.steps import finished
from samelog.replicator.interfaces import MergedStream, RequestRefused
from samelog.sequencer.admin.groups import group_lags, group_row
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.topics import partition_name
from samelog.sequencer.filtering.view_stream import ViewStream, check_owner, narrowed
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.places import (
    all_topics,
    base_number,
    base_topic,
    named_topic,
    place_of,
)
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    CreateTopicCommand,
    DeleteTopicCommand,
)
from samelog.sequencer.state.tables.views import (
    VIEWS_MOST,
    CreateViewCommand,
    DropViewCommand,
    View,
)
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.view_text import ViewText, parse_view
from samelog.wire.bounds import RowsAsked
from tests.typed.known import schema_text

ABC = schema_text("a int64", "b string", "c float64")
AB = schema_text("a int64", "b string")
NAMES = {"a": "int64", "b": "string"}


def create(topic_id: str = "v1", name: str = "big", **changed: Any) -> CreateViewCommand:
    fields: dict[str, Any] = {
        "base_id": "t1",
        "where": "b = 'x'",
        "columns": ["a"],
        "version": 1,
        "names": NAMES,
        "schema": schema_text("a int64"),
        "owner": "samelog://user/o",
        "at_ms": 5,
    }
    return CreateViewCommand(topic_id, name, **{**fields, **changed})


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "ticks", 2, {}, 1))
    machine.apply(CreateTopicCommand("t2", "other", 1, {}, 1))
    assert not isinstance(machine.apply(SetSchemaCommand("t1", 0, ABC, 2)), Rejection)
    return machine


def code(outcome: Any) -> str:
    assert isinstance(outcome, Rejection)
    return outcome.code


def test_a_view_has_a_name_a_log_and_numbers_of_its_own(machine: StateMachine) -> None:
    command = create()
    assert decode_commands(encode_commands([command, DropViewCommand("v1")])) == [
        command,
        DropViewCommand("v1"),
    ]
    for _ in range(2):  # proposed twice, because its fate was not known
        assert machine.apply(command) == command
    machine = StateMachine.decode(machine.encode())
    state = machine.state
    view = named_topic(state, "big")
    assert view is not None
    assert view.partition_numbers == [4, 5]
    assert view.log_id not in ("v1", "t1")
    assert base_topic(state, view) is state.topics.by_id["t1"]
    assert [topic.name for topic in all_topics(state)] == ["ticks", "other", "big"]
    assert place_of(state, 5) == (view, 1)
    assert (base_number(state, 5), base_number(state, 2), place_of(state, 9)) == (2, 2, None)
    assert machine.state.topics.named("big") is None  # nothing is published to it
    assert code(machine.apply(create("v2"))) == "TOPIC_EXISTS"
    assert code(machine.apply(create("v2", "ticks"))) == "TOPIC_EXISTS"
    assert code(machine.apply(CreateTopicCommand("t3", "big", 1, {}, 1))) == "TOPIC_EXISTS"
    assert code(machine.apply(create("v2", "w", base_id="v1"))) == "UNKNOWN_TOPIC"
    for name in ("__consumer_offsets", "__transaction_state", "__events"):
        assert code(machine.apply(create("v2", name))) == "RESERVED_TOPIC"


def test_a_base_stays_what_its_views_need(machine: StateMachine) -> None:
    machine.apply(create())
    refused = machine.apply(DeleteTopicCommand("t1"))
    assert code(refused) == "VIEWS_STAND"
    assert "samelog topic delete big --confirm big" in refused.message
    retyped = schema_text("a int64", "b binary")
    for text in (schema_text("a int64"), retyped):
        assert code(machine.apply(SetSchemaCommand("t1", 1, text, 3))) == "VIEWS_STAND"
    assert machine.apply(SetSchemaCommand("t1", 1, AB, 3))  # nobody needs c
    assert code(machine.apply(create("v2", "w", names={"c": "float64"}))) == "SCHEMA_MOVED"
    assert machine.apply(DropViewCommand("v1")) == DropViewCommand("v1")
    assert code(machine.apply(DropViewCommand("v1"))) == "UNKNOWN_TOPIC"
    assert len(machine.state.schemas.texts) == 2
    machine.apply(DeleteTopicCommand("t1"))
    assert not machine.state.schemas.texts


def test_views_are_bounded(machine: StateMachine) -> None:
    for number in range(VIEWS_MOST):
        assert not isinstance(machine.apply(create(f"v{number}", f"w{number}")), Rejection)
    assert code(machine.apply(create("more", "more"))) == "TOO_MANY"


def test_positions_in_a_view_are_its_own(machine: StateMachine) -> None:
    machine.apply(create())
    commits = [
        (4, CommittedOffset(7, -1, "", 1)),
        (9, CommittedOffset(7, -1, "", 1)),
    ]
    machine.apply(CommitOffsets([("g", commits)]))
    assert [*machine.state.groups.by_id["g"].offsets] == [4]
    machine.apply(AddPartitions("t1", 3))
    view = named_topic(machine.state, "big")
    assert view is not None
    assert (view.partitions, base_number(machine.state, view.partition_numbers[2])) == (
        3,
        machine.state.topics.by_id["t1"].partition_numbers[2],
    )
    machine.apply(DropViewCommand("v1"))
    assert not machine.state.groups.by_id["g"].offsets


def test_a_new_log_gives_its_views_another_one(machine: StateMachine) -> None:
    machine.apply(create())
    before = named_topic(StateMachine.decode(machine.encode()).state, "big")
    machine.apply(HardReset("r1", 5, 1))
    after = named_topic(machine.state, "big")
    assert before is not None
    assert after is not None
    assert after.log_id != before.log_id
    assert after.former_logs == [before.log_id]
    assert after.partitions == 2
    assert {*after.partition_numbers}.isdisjoint({*before.partition_numbers})
    assert not {*after.partition_numbers} & {*machine.state.partitions.by_number}


COMMANDS = st.one_of(
    st.builds(
        lambda n, base: create(f"v{n}", f"view-{n}", base_id=base, names={}, schema=""),
        st.integers(0, 5),
        st.sampled_from(["t1", "t2"]),
    ),
    st.builds(lambda n: DropViewCommand(f"v{n}"), st.integers(0, 5)),
    st.builds(
        AddPartitions,
        st.sampled_from(["t1", "t2"]),
        st.integers(1, 8),
    ),
    st.builds(lambda n: HardReset(f"r{n}", 5, 1), st.integers(0, 9)),
)


@given(st.lists(COMMANDS, max_size=30))
def test_a_view_is_found_as_by_looking_at_all(commands: list[Any]) -> None:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "ticks", 2, {}, 1))
    machine.apply(CreateTopicCommand("t2", "other", 1, {}, 1))
    assert not machine.state.views.index.by_name  # made before there are any
    for command in commands:
        machine.apply(command)
        found = machine.state.views.index
        rebuilt = StateMachine.decode(machine.encode()).state.views.index
        for each in ("by_name", "by_log", "by_number"):
            assert getattr(found, each) == getattr(rebuilt, each)
        orders = [{base: [*views] for base, views in i.by_base.items()} for i in (found, rebuilt)]
        assert orders[0] == orders[1]  # new partitions have their numbers in this order


class Base:
    """A partition that is not read here."""

    topic, topic_id, partitions, index = "ticks", "t1", 2, 0
    fault = None


def stream_of(machine: StateMachine) -> ViewStream:
    view = machine.state.views.by_id["v1"]
    base: MergedStream = Base()  # type: ignore[assignment]
    return ViewStream(view, base, lambda: machine.state)


def test_a_view_has_no_more_rights_than_its_owner(machine: StateMachine) -> None:
    machine.apply(create())
    view = machine.state.views.by_id["v1"]
    owner = Grant(identity=view.owner, subscribe_topics=("ticks",))
    rights = Rights([owner], ())
    check_owner(rights, view, "ticks")
    rights.grant([Grant(identity=view.owner, subscribe_topics=("big",))])
    with pytest.raises(RequestRefused, match="may not read 'ticks'"):
        check_owner(rights, view, "ticks")


def test_what_is_asked_of_a_view_names_its_columns_only(machine: StateMachine) -> None:
    machine.apply(create())
    stream = stream_of(machine)
    whole = RowsAsked("b = 'x'", ("a",), 1, skips_unread=True)
    assert narrowed(stream, None) == (whole, None)
    asked = RowsAsked("a > 1 -- so", (), 1, is_committed=True)
    wanted, condition = narrowed(stream, asked)
    assert wanted == whole._replace(where="(b = 'x'\n) AND (a > 1 -- so\n)", is_committed=True)
    assert condition is not None
    condition.check()
    with pytest.raises(RequestRefused):
        narrowed(stream, RowsAsked("", ("b",), 1))
    for bad in ("b = 'y'", "a", "a > 1) OR (a < 2"):
        _, condition = narrowed(stream, RowsAsked(bad, (), 1))
        assert condition is not None
        with pytest.raises(BadFilter):
            condition.check()


def test_a_view_that_was_dropped_is_gone_for_who_reads_it(machine: StateMachine) -> None:
    machine.apply(create())
    stream = stream_of(machine)
    assert stream.fault is None
    machine.apply(DropViewCommand("v1"))
    assert stream.fault is not None
    machine.apply(create())
    assert stream.fault is not None


def test_a_view_is_the_same_one_in_a_snapshot_and_its_end_is_seen_there(
    machine: StateMachine,
) -> None:
    machine.apply(create())
    stream = stream_of(machine)
    machine.state = StateMachine.decode(machine.encode()).state
    assert stream.fault is None
    machine.apply(DropViewCommand("v1"))
    assert stream.fault is not None


def test_a_group_that_reads_a_view_lags_behind_its_base(machine: StateMachine) -> None:
    machine.apply(create())
    machine.apply(CommitOffsets([("g", [(5, CommittedOffset(3, -1, "", 1))])]))
    machine.state.partitions.by_number[2].next_offset = 10
    logs = SimpleNamespace(machine=machine, merging=SimpleNamespace(partitions={}))
    node = cast(ServedNode, SimpleNamespace(logs=logs, raft=None))
    group = machine.state.groups.by_id["g"]
    assert finished(group_lags(node, group)) == {5: 7}
    assert finished(group_row(node, "g", group)).lag == 7
    assert partition_name(machine, 5) == ("big", 1)


@pytest.mark.parametrize(
    ("base", "columns", "where"),
    [
        ("ticks", ["symbol", "price"], "price > 100 AND symbol IN ('A', 'it''s')"),
        ("my-topic.eu", ["of day", 'a "b"'], '"of day" IS NULL'),
        ("Values", ["from", "CASE", "order", "timestamp"], "1 = 1"),
        ("ticks", [], ""),
    ],
)
def test_a_view_is_told_as_it_was_asked_for(base: str, columns: list[str], where: str) -> None:
    view = View("v", "v", "t", where, columns, 1, {}, "o", 1, "l", [])
    assert parse_view(view.query(base)) == ViewText(base, tuple(columns) or None, where)
