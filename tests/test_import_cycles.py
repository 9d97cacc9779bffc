"""No module of the package imports itself by way of others, not even for types alone."""

from __future__ import annotations

from collections.abc import Iterator

import grimp


def cycles(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """One for each module that is left when those without (more) imports are taken away."""
    left = dict(imports)
    while leaves := [name for name, found in left.items() if not found & left.keys()]:
        for name in leaves:
            del left[name]
    for name, found in left.items():
        yield [name, *sorted(found & left.keys())]


def test_a_cycle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set[str]()}
    assert sorted(cycles(imports)) == [["a", "b"], ["b", "c"], ["c", "a"]]


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph("samelog", exclude_type_checking_imports=False)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert not list(cycles(imports))
