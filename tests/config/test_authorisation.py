"""Rights: nothing without a grant, and a grant gives only what it names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.config.authorisation import Rights, matches
from samelog.config.tables.node import Grant

EWR = "samelog://publisher/ewr"


def rights(*grants: Grant) -> Rights:
    return Rights(grants, ["n0", "n1", "n2"])


@given(identity=st.text(), name=st.text())
def test_nobody_may_do_anything_by_default(identity: str, name: str) -> None:
    none = rights()
    assert not none.may_push(identity, name)
    assert not none.may_publish(identity, name, name)
    assert not none.may_use_dedup_id(identity, name)
    assert not none.may_subscribe(identity, name)
    assert not none.may_see(identity, name)
    assert not none.is_admin(identity)
    assert not none.is_peer(identity)


def test_a_publisher_may_do_what_its_grant_names_and_no_more() -> None:
    some = rights(
        Grant(
            identity=EWR,
            publish_sessions=("ewr",),
            publish_topics=("flights*",),
            publish_dedup_ids=("twin",),
        )
    )
    assert some.may_push(EWR, "ewr")
    assert not some.may_push(EWR, "ewr2")
    assert not some.may_push("samelog://publisher/ewr2", "ewr")
    assert not some.may_push("samelog://subscriber/ewr", "ewr")
    assert some.may_publish(EWR, "ewr", "flights")
    assert some.may_publish(EWR, "ewr", "flights-late")
    assert not some.may_publish(EWR, "ewr", "weather")
    assert some.may_use_dedup_id(EWR, "twin")
    assert not some.may_use_dedup_id(EWR, "twins")
    assert not some.may_subscribe(EWR, "flights")
    assert not some.is_admin(EWR)


def test_a_session_of_one_grant_does_not_get_the_topics_of_another() -> None:
    some = rights(
        Grant(identity=EWR, publish_sessions=("a",), publish_topics=("x",)),
        Grant(identity=EWR, publish_sessions=("b",), publish_topics=("y",)),
    )
    assert some.may_publish(EWR, "a", "x")
    assert some.may_publish(EWR, "b", "y")
    assert not some.may_publish(EWR, "a", "y")


def test_who_reads_or_writes_a_topic_may_see_what_its_values_are() -> None:
    some = rights(
        Grant(identity=EWR, publish_sessions=("ewr",), publish_topics=("flights*",)),
        Grant(identity="samelog://subscriber/*", subscribe_topics=("weather",)),
        Grant(identity="samelog://admin/*", admin=True),
    )
    assert some.may_see(EWR, "flights-late")
    assert not some.may_see(EWR, "weather")
    assert some.may_see("samelog://subscriber/s", "weather")
    assert not some.may_see("samelog://subscriber/s", "flights")
    assert some.may_see("samelog://admin/a", "anything")
    assert some.may_see("samelog://node/n1", "anything")
    assert not some.may_see("samelog://node/n3", "anything")


def test_only_voters_are_peers_and_peers_may_read() -> None:
    some = rights(Grant(identity="samelog://*", admin=True))
    assert some.is_peer("samelog://node/n1")
    assert some.may_subscribe("samelog://node/n1", "anything")
    assert not some.is_peer("samelog://node/n3")
    assert not some.is_peer("samelog://client/n1")
    assert not some.may_subscribe("samelog://node/n3", "anything")


@given(text=st.text(), tail=st.text())
def test_a_star_stands_for_any_end(text: str, tail: str) -> None:
    assert matches(f"{text}*", text + tail)
    assert matches(text, text)
    assert matches(text, text + tail) == (not tail or text.endswith("*"))


def test_groups_are_those_that_a_grant_to_subscribe_names() -> None:
    some = rights(
        Grant(identity=EWR, subscribe_topics=("t",), subscribe_groups=("mine-*",)),
        Grant(identity="dns:any", subscribe_topics=("t",)),
        Grant(identity="dns:writer", publish_sessions=("*",), publish_topics=("*",)),
        Grant(identity="dns:admin", admin=True),
    )
    assert some.may_use_group(EWR, "mine-1")
    assert not some.may_use_group(EWR, "yours")
    assert some.may_use_group("dns:any", "yours")
    assert not some.may_use_group("dns:writer", "yours")
    assert some.may_use_group("dns:admin", "yours")
    assert not some.may_use_group("dns:stranger", "yours")


def test_mirrors_take_a_right() -> None:
    everything = Grant(
        identity="samelog://client/a",
        publish_sessions=("*",),
        publish_topics=("*",),
        subscribe_topics=("*",),
        admin=True,
    )
    rights = Rights([everything, Grant(identity="samelog://client/b", mirror=("eu.*",))], [])
    assert not rights.may_push("samelog://client/a", "mirror.x")
    assert not rights.may_publish("samelog://client/a", "mirror.x", "eu.t")
    assert rights.may_push("samelog://client/b", "mirror.x")
    assert rights.may_publish("samelog://client/b", "mirror.x", "eu.t")
    assert not rights.may_publish("samelog://client/b", "mirror.x", "t")
    assert not rights.may_publish("samelog://client/b", "x", "eu.t")
