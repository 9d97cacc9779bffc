"""Who gets which partition: the two assignors that Kafka's brokers have.

Invariant: a pure function of its arguments; every partition of a topic that anybody subscribes to
is given to exactly one of its subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Assignment = dict[str, list[int]]
"""Member -> partition numbers, sorted."""


def uniform(
    subscriptions: Mapping[str, set[str]],
    topics: Mapping[str, Sequence[int]],
    before: Mapping[str, Sequence[int]],
) -> Assignment:
    """As even as the subscriptions allow; members keep what they had as far as that is even."""
    topic_of = {number: topic for topic, numbers in topics.items() for number in numbers}
    hands = _kept(subscriptions, topic_of, before)
    for number in sorted(topic_of.keys() - {n for hand in hands.values() for n in hand}):
        takers = [m for m, subscribed in subscriptions.items() if topic_of[number] in subscribed]
        if takers:
            min((hands[m] for m in sorted(takers)), key=len).append(number)
    while _level(hands, subscriptions, topic_of):
        pass
    return {member: sorted(hand) for member, hand in hands.items()}


def _kept(
    subscriptions: Mapping[str, set[str]],
    topic_of: Mapping[int, str],
    before: Mapping[str, Sequence[int]],
) -> Assignment:
    """What members had, and may have on; each partition once."""
    hands: Assignment = {}
    free = set(topic_of)
    for member in sorted(subscriptions):
        had = [number for number in before.get(member, ()) if number in free]
        hands[member] = [n for n in had if topic_of[n] in subscriptions[member]]
        free -= set(hands[member])
    return hands


def _level(
    hands: dict[str, list[int]], subscriptions: Mapping[str, set[str]], topic_of: Mapping[int, str]
) -> bool:
    """Move one partition from a member that has at least two more to one that may have it."""
    poorer = sorted(hands, key=lambda member: len(hands[member]))
    for rich in reversed(poorer):
        for poor in poorer:
            if len(hands[rich]) - len(hands[poor]) < 2:
                break
            for number in reversed(hands[rich]):
                if topic_of[number] in subscriptions[poor]:
                    hands[rich].remove(number)
                    hands[poor].append(number)
                    return True
    return False


def ranges(
    subscriptions: Mapping[str, set[str]],
    topics: Mapping[str, Sequence[int]],
    before: Mapping[str, Sequence[int]],
) -> Assignment:
    """Of each topic consecutive partitions, the first members one more where they don't divide."""
    hands: dict[str, list[int]] = {member: [] for member in subscriptions}
    for topic, numbers in sorted(topics.items()):
        takers = sorted(m for m, subscribed in subscriptions.items() if topic in subscribed)
        start = 0
        for index, member in enumerate(takers):
            stop = start + len(numbers) // len(takers) + (index < len(numbers) % len(takers))
            hands[member] += numbers[start:stop]
            start = stop
    return {member: sorted(hand) for member, hand in hands.items()}


DEFAULT = "uniform"
ASSIGNORS: Mapping[str, Callable[..., Assignment]] = {DEFAULT: uniform, "range": ranges}
"""By the names that clients ask for (group.remote.assignor)."""
