"""A running cluster, as `samelog doctor` finds it over the network.

Invariant: nothing is asked that changes anything; a node that does not answer is a finding.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException

from cryptography import x509

from samelog.admin.answers import Status
from samelog.admin.client import all_nodes, all_statuses, ask, ask_each
from samelog.admin.errors import AdminError
from samelog.admin.requests import GetAccess, GetUpgrade, PlanArchive
from samelog.admin.site_requests import ListSites
from samelog.admin.table import CLUSTER_HEADER
from samelog.admin.views import Access
from samelog.cli.doctor.findings import (
    SAME_GRANTS,
    Diagnosis,
    Soundness,
    judge_alike,
    judge_difference,
    judge_expiry,
    judge_levels,
    judge_partitions,
    judge_resources,
    judge_site,
    ok,
)
from samelog.cli.doctor.host import days_left
from samelog.config.document import read_file
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.network.tls import http_client_context, identity_of

ANSWER_S = 5.0


def check_cluster(config: ClientConfig) -> list[Diagnosis]:
    """The client's own certificate, every node, and what they have in common."""
    own = x509.load_pem_x509_certificate(read_file(config.tls.cert).data)
    findings = [judge_expiry("client", days_left(own))]
    places = [address for address, _ in all_nodes(config)]
    with ThreadPoolExecutor(len(places)) as threads:
        for each in threads.map(lambda address: check_node_at(config, address), places):
            findings += each
    statuses = all_statuses(config)
    findings += _check_resources(statuses)
    findings += [_check_levels(config), _check_policies(config), _check_partitions(statuses)]
    return findings + _check_sites(config) + check_grants(config)


def check_node_at(config: ClientConfig, address: Address) -> list[Diagnosis]:
    """Whether a node answers and is ready, its certificate and its clock."""
    try:
        return _probe(config, address)
    except (OSError, HTTPException, RuntimeFault, ValueError) as error:
        remedy = "look at its log; check the address, and the certificates of both sides"
        return [Diagnosis(str(address), "answers", Soundness.FAILED, str(error), remedy)]


def _probe(config: ClientConfig, address: Address) -> list[Diagnosis]:
    context = http_client_context(config.tls)
    with (
        socket.create_connection((address.host, address.port), ANSWER_S) as raw,
        context.wrap_socket(raw) as connected,
    ):
        identity = identity_of(connected, server_side=False)
        of = identity.rpartition("/")[2]
        certificate = connected.getpeercert(binary_form=True) or b""
        asked_at = time.time()
        with closing(HTTPConnection(address.host, address.port)) as spoken:
            spoken.sock = connected
            spoken.request("GET", "/readyz", headers={CLUSTER_HEADER: config.cluster})
            response = spoken.getresponse()
            body = response.read()
    now = (asked_at + time.time()) / 2
    findings = [_readiness(of, response.status, body)]
    findings.append(judge_expiry(of, days_left(x509.load_der_x509_certificate(certificate))))
    if date := response.headers.get("Date"):
        # the header was cut to whole seconds: half of one is as likely to be missing as not
        theirs = parsedate_to_datetime(date).timestamp() + 0.5
        findings.append(judge_difference(of, theirs - now))
    return findings


def _readiness(of: str, status: int, body: bytes) -> Diagnosis:
    if status == 200:
        return ok(of, "ready", "yes")
    try:
        detail = json.loads(body).get("detail", "")
    except (ValueError, AttributeError):
        detail = ""
    said = detail or f"status {status}"
    return Diagnosis(of, "ready", Soundness.FAILED, said, "docs/operations.md#samelognotready")


def _check_levels(config: ClientConfig) -> Diagnosis:
    try:
        found = ask(config, GetUpgrade())
    except AdminError as error:
        return _unknown("versions", error)
    levels = {member.name: member.level for member in found.members}
    return judge_levels(levels, found.level, found.waits_for)


def _check_policies(config: ClientConfig) -> Diagnosis:
    try:
        plan = ask(config, PlanArchive())
    except AdminError as error:
        return _unknown("archiving", error)
    if plan.differing:
        said = f"{', '.join(plan.differing)} have another policy than the leader"
        return Diagnosis(
            "cluster", "archiving", Soundness.FAILED, said, "give all nodes the same policy"
        )
    if plan.problem:
        return Diagnosis(
            "cluster", "archiving", Soundness.WARNING, plan.problem, "mend the policy's file"
        )
    return ok("cluster", "archiving", "one policy" if plan.policy else "no policy")


def _check_resources(answers: Sequence[Status | AdminError]) -> list[Diagnosis]:
    """Of the nodes that tell them; the findings about nodes name the others."""
    return [
        finding
        for answer in answers
        if isinstance(answer, Status) and answer.resources is not None
        for finding in judge_resources(answer.node, answer.resources)
    ]


def _check_partitions(answers: Sequence[Status | AdminError]) -> Diagnosis:
    """By the nodes that answer; the findings about nodes name the others."""
    given = [answer for answer in answers if isinstance(answer, Status)]
    if not given:
        return _unknown("partitions", AdminError("; ".join(map(str, answers))))
    rows = [(answer.node, row) for answer in given for row in answer.partitions]
    troubles = [
        f"{row.topic}-{row.partition} on {node}: {row.halted}" for node, row in rows if row.halted
    ]
    return judge_partitions(troubles, len({(row.topic, row.partition) for _, row in rows}))


def _check_sites(config: ClientConfig) -> list[Diagnosis]:
    """Those that have members; an older version knows of none."""
    try:
        sites = ask(config, ListSites()).sites
    except AdminError:
        return []
    return [judge_site(site.name, site.lag_ms) for site in sites if site.members]


def check_grants(config: ClientConfig) -> list[Diagnosis]:
    """Of the nodes that tell them, as they are in force."""
    nodes = all_nodes(config)
    answers = zip(nodes, ask_each(config, GetAccess(), nodes), strict=True)
    grants = {
        name or str(address): answer.grants
        for (address, name), answer in answers
        if isinstance(answer, Access)
    }
    return [judge_alike("grants", grants, SAME_GRANTS, "cluster")] if len(grants) > 1 else []


def _unknown(subject: str, error: AdminError) -> Diagnosis:
    remedy = "ask with an administrator's certificate, while a leader is there"
    return Diagnosis("cluster", subject, Soundness.WARNING, f"not known: {error}", remedy)
