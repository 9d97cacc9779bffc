"""`samelog pki`: certificates for a private cluster.

Invariant: nothing is lost that was there; the keys never leave the directory.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.numbers import DAYS
from samelog.cli.output import json_option, print_json, print_table, report, talk, wants_json
from samelog.config.enrolment import Enrolment, enrol
from samelog.config.pki.authority import (
    AUTHORITY,
    CERTIFICATE_DAYS,
    CertificateInfo,
    CertificateRole,
    IssuedFiles,
    create_authority,
    describe,
    issue,
    list_certificates,
)
from samelog.config.pki.rotation import (
    finish_authority,
    refresh_lists,
    revoke,
    revoke_file,
    revoked_serials,
    rotate,
    rotate_authority,
)
from samelog.format.names import check_topic_name

directory_option = click.option(
    "--dir",
    "directory",
    default="pki",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Directory of the authority and its certificates.",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Make and show certificates of a private authority.

    \b
    Examples:
      samelog pki init --name demo
      samelog pki issue node rt-sequencer-0 --host rt0.example --host 10.0.0.7
      samelog pki issue publisher ewr
      samelog pki list --json
      samelog pki rotate node rt-sequencer-0
      samelog pki revoke pki/publisher-ewr.pem
      samelog pki enrol publisher ewr --cluster demo --node rt0.example:7000 --out ewr.toml
    """


@command.command()
@directory_option
@click.option("--name", default="development", show_default=True, help="Name of the authority.")
@json_option
def init(directory: str, name: str) -> None:
    """Make a new authority: ca.pem and ca.key, and crl.pem, on which nobody is yet.

    Whoever has ca.key can become any identity: keep it off the machines of the cluster.

    \b
    Example:
      samelog pki init --dir pki --name demo
    """
    files = create_authority(directory, name)
    refresh_lists(directory)
    _report(files)


@command.command("issue")
@directory_option
@click.argument("role", type=click.Choice([role.value for role in CertificateRole]))
@click.argument("name")
@click.option("--host", "hosts", multiple=True, help="DNS name or IP address; may be repeated.")
@click.option(
    "--days", default=CERTIFICATE_DAYS, show_default=True, type=DAYS, help="Days of validity."
)
@json_option
def issue_command(
    directory: str, *, role: str, name: str, hosts: tuple[str, ...], days: int
) -> None:
    """Make a certificate and its key for samelog://ROLE/NAME.

    A node's certificate serves and connects; others only connect, and with --host serve too, as
    sidecars do that answer HTTP.

    \b
    Examples:
      samelog pki issue node rt-sequencer-0 --host localhost --host 127.0.0.1
      samelog pki issue subscriber reporting --days 90
    """
    _report(issue(directory, CertificateRole(role), name, hosts=hosts, days=days))


@command.command("rotate")
@directory_option
@click.argument("role", type=click.Choice([AUTHORITY, *(role.value for role in CertificateRole)]))
@click.argument("name", required=False)
@click.option(
    "--days", default=CERTIFICATE_DAYS, show_default=True, type=DAYS, help="Days of validity."
)
@click.option("--finish", is_flag=True, help="With ca: let the old authority go.")
@json_option
def rotate_command(directory: str, *, role: str, name: str | None, days: int, finish: bool) -> None:
    """Make a new key and certificate in the place of an old one, with the same identity and hosts;
    or, with ca, a new authority. What was there before is kept in DIR/replaced.

    Processes take new files over while they run. An authority changes in four steps: rotate ca;
    copy ca.pem, which then holds both, to everybody; rotate every certificate, and copy those;
    rotate ca --finish, and copy ca.pem again.

    \b
    Examples:
      samelog pki rotate node rt-sequencer-0
      samelog pki rotate ca demo
      samelog pki rotate ca --finish
    """
    if role == AUTHORITY:
        _rotate_authority(directory, name, finish=finish)
        return
    if name is None or finish:
        raise click.UsageError("a certificate is rotated by ROLE and NAME; --finish is for ca")
    _report(rotate(directory, CertificateRole(role), name, days=days))


def _rotate_authority(directory: str, name: str | None, *, finish: bool) -> None:
    if not finish:
        _report(rotate_authority(directory, name or "development"))
        return
    gone = finish_authority(directory)
    report(
        {"gone": gone},
        f"{directory}/ca.pem holds the new authority alone; copy it to everybody",
    )


@command.command("revoke")
@directory_option
@click.argument("cert_or_serial")
@json_option
def revoke_command(directory: str, *, cert_or_serial: str) -> None:
    """Revoke a certificate: its file, or its serial number (samelog pki list --json).

    It goes on the list DIR/crl.pem. Whoever has that file as `crl` in [tls] lets it in no more;
    connections that exist stay until they end.

    \b
    Examples:
      samelog pki revoke pki/publisher-ewr.pem
      samelog pki revoke 3fa9c1 --dir pki
    """
    if os.path.exists(cert_or_serial):
        path, serial = revoke_file(directory, cert_or_serial), describe(cert_or_serial).serial
    else:
        path, serial = revoke(directory, cert_or_serial), cert_or_serial
    report(
        {"crl": path, "serial": serial},
        f"{serial} is on the list {path}; copy it to everybody",
    )


def _checked_topics(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(check_topic_name(text) for text in texts)


@command.command("enrol")
@directory_option
@click.argument(
    "role",
    type=click.Choice([role.value for role in CertificateRole if role is not CertificateRole.NODE]),
)
@click.argument("name")
@click.option("--cluster", required=True, help="The cluster's name.")
@click.option(
    "--node",
    "nodes",
    metavar="[NAME=]HOST:PORT",
    required=True,
    multiple=True,
    help="A node, and its name, if certificates are to be checked for it; may be repeated.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    callback=_checked_topics,
    help="What a subscriber keeps; may be repeated.",
)
@click.option("--kafka-bootstrap", default="", help="What Kafka clients call bootstrap.servers.")
@click.option(
    "--days", default=CERTIFICATE_DAYS, show_default=True, type=DAYS, help="Of a new certificate."
)
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="The file to write.")
@json_option
def enrol_command(
    directory: str,
    *,
    role: str,
    name: str,
    cluster: str,
    nodes: tuple[str, ...],
    topics: tuple[str, ...],
    kafka_bootstrap: str,
    days: int,
    out: str,
) -> None:
    """Write all that samelog://ROLE/NAME needs as one file: nodes, topics, authority, certificate
    and key. It is a client's configuration, for --config, or to be served at an https:// URL
    (docs/enrolment.md).

    The certificate is made if there is none yet. Run it again after `rotate`, or with other nodes
    or topics: clients take the new file over while they run.

    \b
    Examples:
      samelog pki enrol publisher ewr --cluster demo --node rt0.example:7000 --out ewr.toml
      samelog pki enrol subscriber reports --cluster demo --topic flights --topic weather \\
        --node rt0=rt0.example:7000 --node rt1=rt1.example:7000 --out reports.toml
    """
    if topics and role == CertificateRole.PUBLISHER.value:
        raise click.UsageError("--topic is what a subscriber keeps; a publisher names its topics")
    names, addresses = _named_nodes(nodes)
    enrolment = Enrolment(
        cluster=cluster,
        nodes=addresses,
        node_names=names,
        topics=topics,
        kafka_bootstrap=kafka_bootstrap,
    )
    enrol(directory, CertificateRole(role), name, enrolment, out=out, days=days)
    report({"config": out}, f"wrote {out}; whoever has it is samelog://{role}/{name}")


def _named_nodes(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names, if they have any, and the addresses."""
    parts = [text.rpartition("=") for text in texts]
    names = tuple(name for name, _, _ in parts if name)
    if names and len(names) < len(parts):
        raise click.UsageError("--node: all have a name, or none has")
    return names, tuple(address for _, _, address in parts)


@command.command("list")
@directory_option
@json_option
def list_command(directory: str) -> None:
    """List the certificates of a directory.

    \b
    Example:
      samelog pki list --dir pki
    """
    certificates = list_certificates(directory)
    revoked = revoked_serials(directory)
    if wants_json():
        print_json([{**asdict(each), "revoked": each.serial in revoked} for each in certificates])
        return
    rows = [
        (
            os.path.basename(found.path),
            _identity(found),
            "revoked" if found.serial in revoked else f"{found.not_after:%Y-%m-%d}",
        )
        for found in certificates
    ]
    print_table(("file", "identity", "valid until"), rows)


@command.command()
@click.argument("cert", type=click.Path(dir_okay=False))
@json_option
def show(cert: str) -> None:
    """Show what the certificate in the file CERT says.

    \b
    Example:
      samelog pki show pki/node-rt-sequencer-0.pem --json
    """
    found = describe(cert)
    if wants_json():
        print_json(found)
        return
    rows = [
        ("identity", _identity(found)),
        ("hosts", " ".join(found.names) or "-"),
        ("valid from", found.not_before),
        ("valid until", found.not_after),
        ("serial", found.serial),
        ("sha256", found.fingerprint_sha256),
    ]
    print_table(("field", "value"), rows)


def _identity(found: CertificateInfo) -> str:
    return "(authority)" if found.authority else found.identity or "(no identity)"


def _report(files: IssuedFiles) -> None:
    if wants_json():
        print_json(files)
        return
    talk(f"wrote {files.cert} and {files.key}")
    if os.path.basename(files.key) == f"{AUTHORITY}.key":
        talk("keep the key off the machines of the cluster")
