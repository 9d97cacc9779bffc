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
    free = topic_of.keys() - set().union(*hands.values())
    for takers, numbers in _by_takers(subscriptions, topics):
        if takers:
            _deal([hands[member] for member in takers], sorted(free.intersection(numbers)))
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


def _by_takers(
    subscriptions: Mapping[str, set[str]], topics: Mapping[str, Sequence[int]]
) -> list[tuple[list[str], list[int]]]:
    """Members, sorted, and the partitions of all topics to which exactly these subscribe. There may
    be thousands of topics: no function is called for each.
    """
    alike: dict[frozenset[str], list[str]] = {}
    for member, subscribed in subscriptions.items():
        alike.setdefault(frozenset(subscribed), []).append(member)
    parts: list[tuple[set[str], list[str]]] = [(set(topics), [])]
    for wanted, members in alike.items():
        split = [(part & wanted, takers + members) for part, takers in parts]
        split += [(part - wanted, takers) for part, takers in parts]
        parts = [each for each in split if each[0]]
    return [
        (sorted(takers), [number for topic in part for number in topics[topic]])
        for part, takers in parts
    ]


def _deal(hands: Sequence[list[int]], numbers: Sequence[int]) -> None:
    """Give each partition to the shortest hand, the first of several; no function is called for
    each.
    """
    at = 0
    while at < len(numbers):
        least = min(map(len, hands))
        shortest = [hand for hand in hands if len(hand) == least]
        left = len(numbers) - at
        until = min((len(hand) for hand in hands if len(hand) > least), default=least + left)
        stop = at + min(left, (until - least) * len(shortest))
        for place, hand in enumerate(shortest):
            hand.extend(numbers[at + place : stop : len(shortest)])
        at = stop


def _level(
    hands: dict[str, list[int]], subscriptions: Mapping[str, set[str]], topic_of: Mapping[int, str]
) -> bool:
    """Move partitions from a member that has at least two more to one that may have them: as many
    as one of the two has above or below the average.
    """
    poorer = sorted(hands, key=lambda member: len(hands[member]))
    average, more = divmod(sum(map(len, hands.values())), max(1, len(hands)))
    for rich in reversed(poorer):
        for poor in poorer:
            if len(hands[rich]) - len(hands[poor]) < 2:
                break
            surplus = len(hands[rich]) - average - bool(more)
            count = max(1, min(surplus, average - len(hands[poor])))
            wanted = subscriptions[poor]
            given = [number for number in hands[rich] if topic_of[number] in wanted][-count:]
            if given:
                moved = set(given)
                hands[rich] = [number for number in hands[rich] if number not in moved]
                hands[poor] += given
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
