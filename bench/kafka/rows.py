"""The table: what is compared with what, and what we want of it. Pure.

Ratios are always ours over the peer's. A row without a target is there to be seen. Kafka "each
record synced" is `flush.messages=1`, the guarantee nearest to ours; by default Kafka does not sync.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.kafka.systems import DEFAULT, FLUSH, LISTENER, NATS, OWN, SINGLE
from bench.rounds.page import Chart
from bench.rounds.rows import Figure, Row, Target

SIZES = ((1000, "1 KB"), (100, "100 B"))
PLAIN, NONE_IDLE, IDLE, ITERATING = "plain", "none", "idle", "iterate"
BULK, LATENCY, CLIENTS, PLAINTEXT = "bulk", "latency", "listener", "listener-plaintext"
REQUESTS, READING, FAILOVER = "requests", "reading", "failover"
CATCH_UP, SPARK, PARTITIONS = "catch-up", "spark", "partitions"
SESSIONS, PRODUCERS, SINGLE_REQUESTS = "sessions", "producers", "single-requests"
BUSY_DISK, WRITTEN, NEW = "busy-disk", "written-partitions", "new-topics"
NAMES = {
    OWN: "samelog",
    SINGLE: "samelog, append with linger",
    LISTENER: "samelog's Kafka listener",
    FLUSH: "Kafka, each record synced",
    DEFAULT: "Kafka, default flush",
    NATS: "NATS JetStream, R3, default sync",
    PLAIN: "the plain limit",
}


def at_least(bound: float, *, slow_disk: float | None = None, of_ours: bool = False) -> Target:
    """A bound from below."""
    return Target(at_least=bound, slow_disk=slow_disk, of_ours=of_ours)


def at_most(bound: float, *, of_ours: bool = False) -> Target:
    """A bound from above."""
    return Target(at_most=bound, of_ours=of_ours)


def row(
    name: str,
    what: str,
    at: tuple[str, str, str],
    peer: str | None = None,
    target: Target | None = None,
) -> Row:
    """`at`: measure, our system, and the figure with its unit behind a blank; `peer`: its system,
    or system and figure.
    """
    measure, ours, figure = at
    figure, _, unit = figure.partition(" ")
    there = None
    if peer is not None:
        system, _, other = peer.partition(" ")
        there = Figure(system, other or figure)
        what = f"{what}, against {NAMES.get(system, system)}" if not other else what
    return Row(
        row=name,
        what=what,
        unit=unit,
        measure=measure,
        ours=Figure(ours, figure),
        peer=there,
        target=target,
    )


def bulk() -> Iterator[Row]:
    """Rows a, c, e."""
    against_flush = at_least(2, slow_disk=3)
    for size, text in SIZES:
        rate = f"mb_per_s.{size} MB/s"
        default = at_least(1.5 if size == 1000 else 1.2)
        what = f"end to end, {text}"
        yield row(f"a-{size}", what, (BULK, OWN, rate), FLUSH, against_flush)
        yield row(f"a-{size}-default", what, (BULK, OWN, rate), DEFAULT, default)
        yield row(f"a-{size}-nats", what, (BULK, OWN, rate), NATS)
        linger = f"{what}, appends that linger"
        yield row(f"a-{size}-append", linger, (BULK, SINGLE, rate), FLUSH)
        listener = f"{what}, the same client through the listener"
        yield row(f"a-{size}-listener", listener, (BULK, LISTENER, rate), FLUSH)
        yield row(f"a-{size}-listener-default", listener, (BULK, LISTENER, rate), DEFAULT)
        spent = f"cpu_s_per_gb.{size} s/GB"
        most = at_most(16 if size == 1000 else 25, of_ours=True)
        what = f"processor time of all processes, end to end, {text}"
        yield row(f"c-{size}", what, (BULK, OWN, spent), FLUSH, most)
        yield row(f"c-{size}-default", what, (BULK, OWN, spent), DEFAULT)
        disk = f"disk_bytes_per_byte.{size} B/B"
        what_disk = f"bytes to disk for each byte of records, all three, {text}"
        yield row(f"disk-{size}", what_disk, (BULK, OWN, disk), FLUSH)
        yield row(f"disk-{size}-listener", what_disk, (BULK, LISTENER, disk), FLUSH)
        nodes = f"nodes_cpu_s_per_gb.{size} s/GB"
        yield row(f"c-{size}-nodes", f"the nodes' of it, {text}", (BULK, OWN, nodes), FLUSH)
    share = "share of the plain limit, end to end, 1 KB"
    limit = f"{PLAIN} mb_per_s.1000"
    yield row("e-1000", share, (BULK, OWN, "mb_per_s.1000 MB/s"), limit, at_least(0.6))


def latency() -> Iterator[Row]:
    """Rows b."""
    for name, flushed in (("p50", at_most(0.6)), ("p99", at_most(0.6)), ("p999", None)):
        what = f"{name} from due to read, 1,000/s of 1 KB"
        figure = f"{name}_ms ms"
        not_synced = at_most(1.5) if name != "p999" else None
        yield row(f"b-{name}", what, (LATENCY, OWN, figure), FLUSH, flushed)
        yield row(f"b-{name}-default", what, (LATENCY, OWN, figure), DEFAULT, not_synced)
        yield row(f"b-{name}-nats", what, (LATENCY, OWN, figure), NATS)
        listener = f"{what}, the same client through the listener"
        yield row(f"b-{name}-listener", listener, (LATENCY, LISTENER, figure), FLUSH)
    what = "the nodes' processor time at 1,000/s of 1 KB"
    most = at_most(0.4, of_ours=True)
    yield row("b-cores", what, (LATENCY, OWN, "nodes_cores cores"), FLUSH, most)


def clients(measure: str, prefix: str, note: str, *, wanted: bool) -> Iterator[Row]:
    """Rows d: the same client through our listener and to Kafka; targets count with mutual TLS."""
    figures = (
        ("trip_p50_ms.{} ms", "acks=all round trip, p50", at_most(0.7)),
        ("trip_p99_ms.{} ms", "acks=all round trip, p99", None),
        ("produced_mb_per_s.{} MB/s", "produced", at_least(1.1)),
        ("produced_nodes_cpu_s_per_gb.{} s/GB", "nodes' processor time, produced", at_most(0.8)),
        ("consumed_mb_per_s.{} MB/s", "consumed", at_least(1.0)),
        ("consumed_nodes_cpu_s_per_gb.{} s/GB", "nodes' processor time, consumed", at_most(0.7)),
    )
    for figure, what, target in figures:
        for size, text in SIZES:
            kind = figure.partition(".")[0].removesuffix("_ms").replace("_", "-")
            name, whole = f"{prefix}-{kind}-{size}", f"listener{note}: {what}, {text}"
            at = (measure, LISTENER, figure.format(size))
            yield row(name, whole, at, FLUSH, target if wanted else None)
            yield row(f"{name}-default", whole, at, DEFAULT)


def requests() -> Iterator[Row]:
    """What a node's core answers."""
    wanted = {"produce": 10_000, "fetch": 20_000, "list offsets": 10_000}
    for name, least in wanted.items():
        figure = f"{name.replace(' ', '_')}_per_core_s 1/s"
        what = f"{name} requests per second of a node's core"
        at = (REQUESTS, LISTENER, figure)
        yield row(
            f"requests-{name.replace(' ', '-')}", what, at, FLUSH, at_least(least, of_ours=True)
        )
    at = (REQUESTS, LISTENER, "produce_16_KiB_ms ms")
    what = "a node's processor time for a Produce of 16 KiB"
    yield row("requests-produce-16k", what, at, FLUSH, at_most(0.4, of_ours=True))


def reading() -> Iterator[Row]:
    """Rows f."""
    for size, text in SIZES:
        arrow = at_most(0.5)
        what = f"arrow_records() against iterating, processor time per record, {text}"
        at = (READING, OWN, f"arrow_cpu_us.{size} µs")
        yield row(f"f-arrow-{size}", what, at, f"{OWN} iterate_cpu_us.{size}", arrow)
        for role in ("poll", "consume"):
            what = f"iterating over a finished copy against {role}, {text}"
            at = (READING, OWN, f"iterate_m_per_s.{size} M/s")
            yield row(f"f-iterate-{role}-{size}", what, at, f"{FLUSH} {role}_m_per_s.{size}")
        for role in ("append", "append_linger", "append_many"):
            what = f"{role} against a Kafka client's produce, {text}"
            at = (READING, OWN, f"{role}_m_per_s.{size} M/s")
            name = f"f-{role.replace('_', '-')}-{size}"
            yield row(name, what, at, f"{FLUSH} calls_m_per_s.{size}")


def failover() -> Iterator[Row]:
    """Rows i."""
    kinds = (("own API", "own_gap_s s"), ("Kafka client", "client_gap_s s"))
    for text, figure in kinds:
        name = f"i-{'own' if text == 'own API' else 'client'}"
        at, peer = (FAILOVER, OWN, figure), f"{FLUSH} client_gap_s"
        what = f"leader killed: gap in acknowledgements, {text}"
        yield row(f"{name}-median", what, at, peer, at_most(0.5, of_ours=True))
        worst = row(f"{name}-max", f"{what}, longest", at, peer, at_most(1.0, of_ours=True))
        yield replace(worst, worst=True)
        at = (FAILOVER, OWN, figure.replace("gap", "silent_gap"))
        what, peer = f"leader silent: the same, {text}", f"{FLUSH} client_silent_gap_s"
        yield row(f"{name}-silent", what, at, peer, at_most(1.5, of_ours=True))
    figure = "impatient_silent_gap_s"
    what = "leader silent: the same, Kafka client with socket.timeout.ms=1000"
    yield row("i-impatient-silent", what, (FAILOVER, OWN, f"{figure} s"), f"{FLUSH} {figure}")


def catch_up() -> Iterator[Row]:
    """A follower that comes back."""
    for figure, what in (
        ("mb_per_s MB/s", "a follower that comes back copies what it lacks"),
        ("longest_ack_pause_ms ms", "longest pause in acknowledgements meanwhile"),
    ):
        name = f"catch-up-{figure.partition('_')[0]}"
        yield row(name, what, (CATCH_UP, LISTENER, figure), FLUSH)


def spark() -> Iterator[Row]:
    """Spark's source and sink."""
    for name, least in (("source", 3.0), ("sink", 2.0)):
        at = (SPARK, OWN, f"{name}_rows_per_s rows/s")
        tuned = f"{FLUSH} {name}_tuned_rows_per_s"
        whole = f"Spark's {name} against Spark's own for Kafka"
        yield row(f"spark-{name}", f"{whole}, tuned", at, tuned, at_least(least))
        yield row(f"spark-{name}-default", whole, at, f"{FLUSH} {name}_rows_per_s")
    at = (SPARK, OWN, "source_rows_per_s rows/s")
    what = "Spark's source against Spark's own, tuned, from our listener"
    yield row("spark-source-listener", what, at, f"{LISTENER} source_tuned_rows_per_s")


def partitions() -> Iterator[Row]:
    """Rows g."""
    for figure, what in (
        ("cpu_ms", "nodes' processor time for a single record"),
        ("p99_ms", "p99 of a single record"),
        ("p50_ms", "p50 of a single record"),
    ):
        whole = f"{what}, with idle partitions against none"
        at = (PARTITIONS, LISTENER, f"{figure}.idle ms")
        target = at_most(1.2) if figure != "p50_ms" else None
        name = f"g-idle-{figure.removesuffix('_ms')}"
        yield row(name, whole, at, f"{LISTENER} {figure}.none", target)
        at = (PARTITIONS, LISTENER, f"{figure}.idle ms")
        yield row(f"{name}-kafka", f"{what}, with idle partitions", at, FLUSH)
    for figure, what, most in (
        ("disk_mb MB", "disk of a node for partitions with a record each", 50),
        ("descriptors_more 1", "descriptors of a node for them", 2_500),
        ("idle_node_cpu_percent %", "an idle node's processor time, with idle partitions", None),
        ("node_rss_mb MB", "memory of a node with all of them", None),
        ("create_s s", "making the idle partitions", None),
        ("written_s s", "a first record into each partition", None),
    ):
        name = f"g-{figure.partition(' ')[0].replace('_', '-')}"
        target = None if most is None else at_most(most, of_ours=True)
        yield row(name, what, (PARTITIONS, LISTENER, figure), FLUSH, target)


def sessions() -> Iterator[Row]:
    """Many publishers and sessions, beside as many Kafka producers."""
    whole = "100 publishers of 10/s in two processes, or as many Kafka producers"
    for figure, what, target in (
        ("p50_ms ms", "p50 from due to read", at_most(0.5)),
        ("p99_ms ms", "p99 from due to read", at_most(0.5)),
        ("nodes_cores cores", "nodes' processor time", None),
        ("publishers_cores cores", "publishers' processor time", None),
    ):
        name = figure.partition(" ")[0]
        short = name.removesuffix("_ms").replace("_", "-")
        at = (PRODUCERS, OWN, figure)
        yield row(f"many-{short}", f"{whole}: {what}", at, FLUSH, target)
        yield row(f"many-{short}-default", f"{whole}: {what}", at, DEFAULT)
        clients = f"100 Kafka producers of 10/s: {what}"
        yield row(f"many-{short}-listener", clients, (PRODUCERS, LISTENER, figure), FLUSH)
    through = "1,000 sessions of 1/s through one sidecar"
    for figure, what, most in (
        ("p50_ms ms", "p50 from due to read", 100),
        ("p99_ms ms", "p99 from due to read", 500),
        ("nodes_cores cores", "nodes' processor time", None),
        ("sidecar_cores cores", "the sidecar's processor time", None),
        ("open_s s", "opening all", 5),
        ("sidecar_restart_s s", "ready after a restart of the sidecar", None),
        ("node_restart_s s", "ready after a restart of a node", None),
        ("sidecar_connections 1", "connections of the sidecar", None),
        ("sidecar_descriptors 1", "descriptors of the sidecar", None),
        ("sidecar_rss_mb MB", "memory of the sidecar", None),
    ):
        short = figure.partition(" ")[0].replace("_", "-")
        target = None if most is None else at_most(most, of_ours=True)
        yield row(f"sidecar-{short}", f"{through}: {what}", (SESSIONS, OWN, figure), None, target)


def single_requests() -> Iterator[Row]:
    """Records that come one by one."""
    for rate in (50, 200):
        for name in ("p50", "p99"):
            what = f"{name} from due to acknowledgement, single requests, {rate}/s of 1 KB"
            at = (SINGLE_REQUESTS, LISTENER, f"ack_{name}_ms.{rate} ms")
            yield row(f"single-{rate}-ack-{name}", what, at, FLUSH)
            yield row(f"single-{rate}-ack-{name}-default", what, at, DEFAULT)
            what = f"{name} from due to read, {rate}/s of 1 KB"
            at = (SINGLE_REQUESTS, OWN, f"{name}_ms.{rate} ms")
            yield row(f"single-{rate}-{name}", what, at, FLUSH)
            yield row(f"single-{rate}-{name}-nats", what, at, NATS)
            at = (SINGLE_REQUESTS, LISTENER, f"{name}_ms.{rate} ms")
            target = at_most(0.8) if (rate, name) == (200, "p99") else None
            whole = f"{what}, the same client through the listener"
            yield row(f"single-{rate}-{name}-listener", whole, at, FLUSH, target)


def loads() -> Iterator[Row]:
    """A busy disk, written partitions, new topics, transactions."""
    disk = "1,000/s of 1 KB beside O_DIRECT writes at 40 % of the disk's rate"
    for name in ("p50", "p99"):
        what = f"{disk}: {name} from due to read"
        yield row(f"busy-{name}", what, (BUSY_DISK, OWN, f"{name}_ms ms"), FLUSH)
        at = (BUSY_DISK, LISTENER, f"{name}_ms ms")
        yield row(f"busy-{name}-listener", f"{what}, a Kafka client", at, FLUSH)
    for figure, what in (
        ("p50_ms ms", "p50 from due to read"),
        ("p99_ms ms", "p99 from due to read"),
        ("nodes_cores cores", "nodes' processor time"),
    ):
        short = figure.partition(" ")[0].removesuffix("_ms").replace("_", "-")
        whole = f"1,000/s into 1,000 partitions in turn: {what}"
        yield row(f"written-{short}", whole, (WRITTEN, LISTENER, figure), FLUSH)
        yield row(f"written-{short}-default", whole, (WRITTEN, LISTENER, figure), DEFAULT)
    for name in ("p50", "p99"):
        what = f"first record of a new topic, {name}"
        yield row(f"new-topic-{name}", what, (NEW, LISTENER, f"first_{name}_ms ms"), FLUSH)
        for records in (1, 10):
            what = f"a transaction of {records}, {name}"
            at = (NEW, LISTENER, f"transaction_{name}_ms.{records} ms")
            yield row(f"transaction-{records}-{name}", what, at, FLUSH)


def all_rows() -> list[Row]:
    """The whole table."""
    return [
        *bulk(),
        *latency(),
        *clients(CLIENTS, "d", "", wanted=True),
        *clients(PLAINTEXT, "d-plaintext", " in plaintext", wanted=False),
        *requests(),
        *reading(),
        *sessions(),
        *single_requests(),
        *loads(),
        *failover(),
        *catch_up(),
        *spark(),
        *partitions(),
    ]


def charts() -> list[Chart]:
    """One for what matters of each measure."""
    ours = tuple(NAMES[each] for each in (OWN, SINGLE, LISTENER))
    everyone = (OWN, SINGLE, LISTENER, FLUSH, DEFAULT, NATS)
    wanted = [
        (f"bulk-{size}", f"End to end, {text}", "MB/s", BULK, f"mb_per_s.{size}")
        for size, text in SIZES
    ]
    wanted += [
        (f"cpu-{size}", f"Processor time, {text}", "s/GB", BULK, f"cpu_s_per_gb.{size}")
        for size, text in SIZES
    ]
    wanted += [
        (f"latency-{name}", f"1,000/s of 1 KB, {name}", "ms", LATENCY, f"{name}_ms")
        for name in ("p50", "p99")
    ]
    wanted += [
        ("trips", "acks=all round trip, 1 KB, p50", "ms", CLIENTS, "trip_p50_ms.1000"),
        ("catch-up", "A follower that comes back", "MB/s", CATCH_UP, "mb_per_s"),
    ]
    return [
        Chart(
            name,
            title,
            unit,
            measure,
            {NAMES[each]: Figure(each, figure) for each in (*everyone, PLAIN)},
            ours,
        )
        for name, title, unit, measure, figure in wanted
    ]
