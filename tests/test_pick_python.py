"""Which Python `make setup` takes."""

import sys

import pytest

from scripts.pick_python import Found, chosen, main, measured

FIRST = Found("python3", (3, 11), 0.010)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Found("/usr/bin/python3", (3, 11), 0.006), "/usr/bin/python3"),
        (Found("/usr/bin/python3", (3, 11), 0.009), "python3"),
        (Found("python3.14", (3, 14), 0.001), "python3"),
    ],
)
def test_the_first_one_is_taken_unless_another_build_of_it_is_much_faster(
    other: Found, expected: str
) -> None:
    """A little could be chance, and another version is not what the user has chosen."""
    assert chosen([FIRST, other]).name == expected


def test_a_python_is_measured_and_one_that_does_not_run_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The running one."""
    found = measured(sys.executable)
    assert found is not None
    assert found.version == sys.version_info[:2]
    assert found.seconds > 0
    main([sys.executable, "/bin/false"])
    assert capsys.readouterr().out == f"{sys.executable}\n"
