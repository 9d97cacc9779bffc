"""`shiplog pki`: certificates for a private cluster.

Invariant: nothing is overwritten; the keys never leave the directory.
"""

from __future__ import annotations

import os

import click

from shiplog.cli.output import json_option, print_json, print_table, talk
from shiplog.config.pki import (
    AUTHORITY,
    CERTIFICATE_DAYS,
    CertificateInfo,
    IssuedFiles,
    Role,
    create_authority,
    describe,
    issue,
    list_certificates,
)

directory_option = click.option(
    "--dir",
    "directory",
    default="pki",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Directory of the authority and its certificates.",
)


@click.group()
def command() -> None:
    """Make and show certificates of a private authority.

    \b
    Examples:
      shiplog pki init --name demo
      shiplog pki issue node rt-sequencer-0 --host rt0.example.com --host 10.0.0.7
      shiplog pki issue publisher ewr
      shiplog pki list --json
    """


@command.command()
@directory_option
@click.option("--name", default="development", show_default=True, help="Name of the authority.")
@json_option
def init(directory: str, name: str, as_json: bool) -> None:
    """Make a new authority: ca.pem and ca.key.

    Whoever has ca.key can become any identity: keep it off the machines of the cluster.

    \b
    Example:
      shiplog pki init --dir pki --name demo
    """
    _report(create_authority(directory, name), as_json=as_json)


@command.command("issue")
@directory_option
@click.argument("role", type=click.Choice([role.value for role in Role]))
@click.argument("name")
@click.option("--host", "hosts", multiple=True, help="DNS name or IP address; may be repeated.")
@click.option("--days", default=CERTIFICATE_DAYS, show_default=True, help="Days of validity.")
@json_option
def issue_command(
    directory: str, *, role: str, name: str, hosts: tuple[str, ...], days: int, as_json: bool
) -> None:
    """Make a certificate and its key for shiplog://ROLE/NAME.

    A node's certificate serves and connects; all others only connect.

    \b
    Examples:
      shiplog pki issue node rt-sequencer-0 --host localhost --host 127.0.0.1
      shiplog pki issue subscriber reporting --days 90
    """
    _report(issue(directory, Role(role), name, hosts=hosts, days=days), as_json=as_json)


@command.command("list")
@directory_option
@json_option
def list_command(directory: str, as_json: bool) -> None:
    """List the certificates of a directory.

    \b
    Example:
      shiplog pki list --dir pki
    """
    certificates = list_certificates(directory)
    if as_json:
        print_json(certificates)
        return
    rows = [
        (os.path.basename(found.path), _identity(found), f"{found.not_after:%Y-%m-%d}")
        for found in certificates
    ]
    print_table(("file", "identity", "valid until"), rows)


@command.command()
@click.argument("cert", type=click.Path(dir_okay=False))
@json_option
def show(cert: str, as_json: bool) -> None:
    """Show what the certificate in the file CERT says.

    \b
    Example:
      shiplog pki show pki/node-rt-sequencer-0.pem --json
    """
    found = describe(cert)
    if as_json:
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


def _report(files: IssuedFiles, *, as_json: bool) -> None:
    if as_json:
        print_json(files)
        return
    talk(f"wrote {files.cert} and {files.key}")
    if os.path.basename(files.key) == f"{AUTHORITY}.key":
        talk("keep the key off the machines of the cluster")
