"""Kafka clients in other languages against a real cluster: `make interop`.

The programs, in `java/` and `go/`, use each feature once and print what came of it.
"""
