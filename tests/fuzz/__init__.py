"""Fuzzing of every parser that sees bytes from outside: from peers and clients, and from files that
may have been damaged or planted.

`python -m tests.fuzz` runs long and guided by coverage (atheris); test_fuzz.py gives every target a
short turn with random damage.

Invariant: a target raises only when the code under test did what it must never do.
"""
