"""`samelog restore`: archived records back from their copies, as local files.

Invariant: exit code 0 means that all that was asked for is there, checked against its checksums.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from samelog.admin.answers import LogFile
from samelog.admin.client import ask, log_history
from samelog.admin.errors import AdminError
from samelog.admin.requests import DescribeTopic
from samelog.archiver.copies.copying import read_manifest
from samelog.archiver.copies.manifests import FORMATS, CopiedLog, CopyFault, RestoreRange, choose
from samelog.archiver.copies.restoring import (
    RangeRestore,
    Restored,
    SegmentCopy,
    common_format,
    find_copied_log,
    manifests_of,
)
from samelog.archiver.copies.targets import Target, open_target
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import END_OFFSET, OFFSET, PARTITION
from samelog.cli.output import (
    fail,
    json_option,
    optional_client,
    print_json,
    progress,
    talk,
    wants_json,
)
from samelog.config.tables.client import ClientConfig
from samelog.format.names import check_topic_name
from samelog.store.disk.files import OsFileSystem


def parse_time(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """An ISO 8601 moment (UTC unless it says) in ms."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time such as 2026-11-21T17:00") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", type=PARTITION, default=0, show_default=True)
@click.option("--from-offset", type=OFFSET, help="From this offset on.")
@click.option("--to-offset", type=END_OFFSET, help="Up to this one, without it.")
@click.option("--from-time", callback=parse_time, help="From this time on (ISO 8601).")
@click.option("--to-time", callback=parse_time, help="Up to this time (ISO 8601).")
@click.option(
    "--to", "directory", required=True, type=click.Path(file_okay=False), help="Where it is put."
)
@click.option("--from", "url", help="Where the copies are.  [default: what the cluster says]")
@click.option("--cluster", help="Without --config: whose copies, if the target has several.")
@click.option("--log-id", help="Without --config: of which log, if the topic had several.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="From these copies.")
@optional_client("the manifests beside the copies count")
@json_option
def command(
    config: ClientConfig | None,
    *,
    topic: str,
    partition: int,
    from_offset: int | None,
    to_offset: int | None,
    from_time: int | None,
    to_time: int | None,
    directory: str,
    url: str | None,
    cluster: str | None,
    log_id: str | None,
    kind: str | None,
) -> None:
    """Bring archived records of TOPIC back from the copies that were made before archiving.

    Below --to comes a merged log such as nodes and subscribers have: `samelog subscribe` without
    --config, Spark and Kafka's tools read it. Whole segments come back; reading begins at
    --from-offset or --from-time. Every copy is checked against its SHA-256, with --config against
    the cluster's log-history. Without --config the manifests beside the copies are enough.

    \b
    Examples:
      samelog restore flights --to back --config client.toml
      samelog restore flights --partition 2 --from-offset 5000 --to-offset 9000 --to back \\
        --config client.toml
      samelog restore flights --from-time 2026-03-01 --to-time 2026-03-02 --to back \\
        --from "s3://bucket/archive?region=eu-central-1" --json
      samelog subscribe --topic flights --dir back --no-follow
    """
    if config is None and url is None:
        raise click.UsageError("name the cluster's --config, or where the copies are with --from")
    if config is not None and (cluster or log_id):
        raise click.UsageError("with --config, --cluster and --log-id have no meaning")
    check_topic_name(topic)
    wanted = RestoreRange(from_offset, to_offset, from_time, to_time)
    if config is not None:
        copies = _by_reachable_history(config, topic, partition, wanted, url=url)
    else:
        target = open_target(str(url))
        place = find_copied_log(target, topic, partition, cluster=cluster, log_id=log_id)
        chosen = choose(manifests_of(target, place), wanted)
        copies = [SegmentCopy(target, manifest) for manifest in chosen]
    restored = bring_back(copies, wanted, directory, kind=kind)
    if wants_json():
        print_json(restored)
        return
    talk(f"{restored.directory}: offsets {restored.first_offset} to {restored.next_offset - 1}")
    talk(f"samelog subscribe --topic {topic} --dir {directory} --no-follow")


def _by_reachable_history(
    config: ClientConfig, topic: str, partition: int, wanted: RestoreRange, *, url: str | None
) -> list[SegmentCopy]:
    """Like by_history; where no node answers, name the other way. Raises CopyFault, AdminError."""
    try:
        return by_history(config, topic, partition, wanted, url=url)
    except AdminError as error:
        if url is None or error.code is not None:
            raise
        fail(f"{error}. To restore by the manifests beside the copies, add: --config ''")


def by_history(
    config: ClientConfig, topic: str, partition: int, wanted: RestoreRange, *, url: str | None
) -> list[SegmentCopy]:
    """The copies of a range, as the cluster's history knows them. Raises CopyFault, AdminError."""
    described = ask(config, DescribeTopic(topic))
    place = CopiedLog(config.cluster, topic, described.topic.topic_id, partition)
    files = [
        file for file in log_history(config, topic, partition=partition) if file.copied_ms >= 0
    ]
    chosen = choose(files, wanted)
    urls = dict.fromkeys(url or file.copy_url for file in chosen)
    targets = {each: open_target(each) for each in urls}
    return [_copy_of(targets[url or file.copy_url], place, file) for file in chosen]


def _copy_of(target: Target, place: CopiedLog, file: LogFile) -> SegmentCopy:
    name = place.manifest(file.first_offset)
    manifest = read_manifest(target, place, name)
    if manifest is None:
        raise CopyFault(f"{name} is not at {file.copy_url}: say with --from where it is now")
    known = file.next_offset, file.size_bytes, file.sha256
    if (manifest.next_offset, manifest.size, manifest.sha256) != known:
        raise CopyFault(f"{name} describes another segment than was archived: its SHA-256 differs")
    return SegmentCopy(target, manifest)


def bring_back(
    copies: Sequence[SegmentCopy], wanted: RestoreRange, directory: str, *, kind: str | None
) -> Restored:
    """Restore a range. Raises CopyFault, LogFormatError."""
    taken = kind or common_format(copies)
    lacking = [copy.manifest for copy in copies if taken not in copy.manifest.files]
    if lacking:
        raise CopyFault(f"offset {lacking[0].first_offset} was not copied as {taken}")
    total = sum(copy.manifest.size for copy in copies)
    with progress("restoring", total, unit="bytes") as advance:
        restoring = RangeRestore(OsFileSystem(), list(copies), taken, progress=advance)
        return restoring.into(directory, first=wanted.first, from_ms=wanted.from_ms)
