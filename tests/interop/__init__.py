"""What is made for Kafka against real clusters: `make interop`.

Clients in other languages, in `java/` and `go/`, use each feature once and print what came of it.
Programs such as Kafka Connect are run as they are published, and killed in their work.
"""
