"""Finds views by what they are asked for by, so that a look costs the same however many there are.

It is derived from the views of the replicated state, and is no part of it. Invariant: it equals the
index that a rebuild would give.
"""

from __future__ import annotations

from collections.abc import Iterable

from samelog.sequencer.state.views.view import View


class ViewIndex:
    """Of the views of one state."""

    __slots__ = ("by_base", "by_log", "by_name", "by_number")

    def __init__(self, views: Iterable[View]) -> None:
        self.by_name: dict[str, View] = {}
        self.by_log: dict[str, View] = {}
        self.by_number: dict[int, tuple[View, int]] = {}
        """The number of a partition -> the view, and which of its partitions that is."""
        self.by_base: dict[str, dict[str, View]] = {}
        """The id of a topic -> the views that stand on it, by id."""
        for view in views:
            self.put(view)

    def put(self, view: View) -> None:
        """It is there."""
        self.by_name[view.name] = self.by_log[view.log_id] = view
        self.by_base.setdefault(view.base_id, {})[view.topic_id] = view
        for place, number in enumerate(view.partition_numbers):
            self.by_number[number] = view, place

    def remove(self, view: View) -> None:
        """It is there no more, or is about to be another one."""
        del self.by_name[view.name], self.by_log[view.log_id]
        there = self.by_base[view.base_id]
        del there[view.topic_id]
        if not there:
            del self.by_base[view.base_id]
        for number in view.partition_numbers:
            del self.by_number[number]
