"""Checks of the arguments that an application passes to the Python API.

Invariant: an argument that passes has its type and lies within its bounds. An error names the
argument, the given value and the allowed ones, and no internal type.
"""

from __future__ import annotations

from enum import Enum
from operator import index
from typing import TypeVar

ChoiceT = TypeVar("ChoiceT", bound=Enum)
SHOWN_CHARACTERS = 80


def check_choice(name: str, given: object, choices: type[ChoiceT]) -> ChoiceT:
    """Return the member of `choices` with this value. Raises ValueError."""
    try:
        return choices(given)
    except ValueError:
        allowed = ", ".join(str(each.value) for each in choices)
        raise ValueError(f"{name}: {shown(given)} is not one of {allowed}") from None


def check_integer(name: str, given: object, allowed: range) -> int:
    """Return a whole number of any integer type, except bool. Raises TypeError, ValueError."""
    try:
        number = index(given)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(given, bool):
        raise TypeError(f"{name} is {shown(given)}; it must be a whole number") from None
    if number not in allowed:
        raise ValueError(f"{name} is {shown(number)}; it must be {allowed[0]} to {allowed[-1]}")
    return number


def check_number(name: str, given: object, low: float, high: float) -> float:
    """Return a number that need not be whole. Raises TypeError, ValueError."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{name} is {shown(given)}; it must be a number")
    if not low <= given <= high:
        raise ValueError(f"{name} is {shown(given)}; it must be {low:g} to {high:g}")
    return given


def shown(given: object) -> str:
    """Return a value for a message, on one line and short: a peer may have sent it."""
    try:
        text = ascii(given)
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def parse_digits(text: str, allowed: range) -> int | None:
    """Return the number that ASCII digits say, None if they say none of `allowed`."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(allowed[-1])):
        return None
    number = int(text)
    return number if number in allowed else None
