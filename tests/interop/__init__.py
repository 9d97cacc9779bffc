"""Kafka clients in other languages against a real cluster: `python -m tests.interop`, `make interop`.

The programs, in `java/` and `go/`, use each feature once and print what came of it.
"""
