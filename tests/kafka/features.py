"""What Kafka clients are tried with, in the order of the table in docs/kafka.md.

Every row has its tests: those of Python clients are marked with `shows`, the programs of
`tests/interop` name the feature in what they print.
"""

from __future__ import annotations


FEATURES = (
    "produce: acks 0",
    "produce: acks 1",
    "produce: acks all",
    "produce: gzip",
    "produce: snappy",
    "produce: lz4",
    "produce: zstd",
    "produce: idempotent",
    "produce: the leader is killed",
    "records: keys, headers, timestamps",
    "consume: seek",
    "consume: by timestamp",
    "groups: members come and go",
    "groups: cooperative",
    "groups: static members",
    "groups: commits with metadata",
    "groups: group.protocol=consumer",
    "groups: the coordinator is killed",
    "admin: topics",
    "admin: partitions",
    "admin: settings",
    "admin: groups",
    "admin: group offsets",
    "admin: offsets",
    "admin: cluster",
    "TLS",
    "mutual TLS",
    "SASL PLAIN",
    "SASL SCRAM-SHA-256",
    "SASL SCRAM-SHA-512",
)
