"""A planted bug is found by what it does, not because a call of it fails: what it puts in place of
a function takes the arguments of that function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from typing import Any
from unittest import mock

from tests.cluster_sim import mutants as clusters
from tests.mutants.by_tests import PLANTED
from tests.sim import mutants as groups

_BY_PLACE = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD


def test_what_is_planted_takes_the_arguments_of_what_it_replaces() -> None:
    planted = [*groups.MUTANTS, *clusters.MUTANTS, *(each.mutant for each in PLANTED)]
    assert [text for mutant in dict.fromkeys(planted) for text in _misfits(mutant)] == []


def _misfits(mutant: Callable[[], Any]) -> Iterator[str]:
    try:
        replaced = _replaced(mutant)
    except AttributeError as error:  # what it replaces is gone
        yield f"{mutant.__name__}: {error}"
        return
    for name, before, after in replaced:
        for places, names in _calls(inspect.signature(before)):
            try:
                inspect.signature(after).bind(*places, **names)
            except TypeError as error:
                yield f"{mutant.__name__}: {name}: {error}"


def _replaced(mutant: Callable[[], Any]) -> list[tuple[str, Any, Any]]:
    """Every function that a bug replaces by another one: its name, before, after."""
    found: list[tuple[str, Any, Any]] = []
    enter = mock._patch.__enter__

    def noting(patch: Any) -> Any:
        after, before = enter(patch), _function(patch.temp_original)
        if before is not None and _function(after) is not None:
            found.append((patch.attribute, before, _function(after)))
        return after

    noted = mock.patch.object(mock._patch, "__enter__", noting)
    with noted, mutant():
        return found


def _function(made: Any) -> Any:
    plain = made.__func__ if isinstance(made, staticmethod | classmethod) else made
    return plain if inspect.isfunction(plain) else None


def _calls(signature: Signature) -> Iterator[tuple[list[None], dict[str, None]]]:
    """The shortest and the longest call that a function takes."""
    for is_long in (False, True):
        wanted = [p for p in signature.parameters.values() if is_long or p.default is p.empty]
        places = [None for p in wanted if p.kind in _BY_PLACE]
        yield places, {p.name: None for p in wanted if p.kind is p.KEYWORD_ONLY}
