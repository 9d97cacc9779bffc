"""Kafka's own tools make users and rights, and come as these users, with passwords and with tokens:
a part of `make interop`. The listener has TLS. Left out as `test_tools.py` is.

What the files say goes before: a user of a file keeps the password that the file has.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog.cli.local_cluster import LocalCluster
from tests.e2e.harness import wait_for
from tests.interop import test_tools
from tests.interop.program import properties
from tests.interop.run import wait_newest
from tests.interop.test_tools import TIMEOUT_S, Tools, program
from tests.kafka.secure import PASSWORD, USERS, Secure

SECURITY = "org.apache.kafka.common.security"
BY_TOKEN = f"{SECURITY}.oauthbearer.OAuthBearerLogin"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"

pytestmark = test_tools.pytestmark


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[Secure]:
    path = tmp_path_factory.mktemp("secured")
    with LocalCluster(str(path / "cluster")) as cluster:
        cluster.prepare()
        found = Secure(cluster, path)
        cluster.start()
        wait_newest(cluster)
        yield found


@pytest.fixture
def tools(secure: Secure) -> Tools:
    """Of an administrator."""
    return Tools(secure.world.cluster.client_config().kafka_bootstrap)


class Guest:
    """Who comes to the listener that asks who it is."""

    def __init__(self, secure: Secure, path: Path, options: str = "", **login: str) -> None:
        """`login`: more properties, with `_` for dots. `options`: of the Java machine."""
        told = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": secure.authority,
            **{name.replace("_", "."): value for name, value in login.items()},
        }
        self._file = properties(path / f"{uuid.uuid4()}.properties", told)
        self._boot = secure.bootstrap("sasl")
        self._environment = os.environ | {"JAVA_TOOL_OPTIONS": options}

    def topics(self) -> list[str] | None:
        """Those that it may know of; None if it is not let in."""
        command = [*program("TopicCommand"), "--bootstrap-server", self._boot, "--list"]
        ran = subprocess.run(
            [*command, "--command-config", str(self._file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env=self._environment,
        )
        if ran.returncode:
            assert "SaslAuthenticationException" in ran.stdout + ran.stderr
            return None
        return ran.stdout.split()


def by_password(secure: Secure, path: Path, name: str, password: str, digits: int = 512) -> Guest:
    module = f"{SECURITY}.scram.ScramLoginModule"
    return Guest(
        secure,
        path,
        sasl_mechanism=f"SCRAM-SHA-{digits}",
        sasl_jaas_config=f'{module} required username="{name}" password="{password}";',
    )


def test_a_user_and_its_rights_are_made_by_tools(
    secure: Secure, tools: Tools, tmp_path: Path
) -> None:
    topic = f"t-{uuid.uuid4()}"
    tools.say("TopicCommand", "--create", "--topic", topic)
    secret = "SCRAM-SHA-512=[iterations=8192,password=secret]"
    tools.configure("users", "bob", "--alter", "--add-config", secret)
    assert by_password(secure, tmp_path, "bob", "wrong").topics() is None
    bob = by_password(secure, tmp_path, "bob", "secret")
    wait_for(lambda: bob.topics() == [], "bob is let in, and knows of nothing")
    names = "--topic", "t-", "--resource-pattern-type", "prefixed"
    allowed = "--allow-principal", "User:bob", "--operation", "Read", *names
    tools.say("AclCommand", "--add", *allowed)
    wait_for(lambda: bob.topics() == [topic], "bob may read it")
    denied = "--deny-principal", "User:bob", "--operation", "Describe", "--topic", topic
    tools.say("AclCommand", "--add", *denied)
    wait_for(lambda: bob.topics() == [], "what denies goes before")
    tools.say("AclCommand", "--remove", "--force", *denied)
    wait_for(lambda: bob.topics() == [topic], "bob may again")
    tools.say("AclCommand", "--remove", "--force", *allowed)
    wait_for(lambda: bob.topics() == [], "bob may not any more")
    tools.configure("users", "bob", "--alter", "--delete-config", "SCRAM-SHA-512")
    wait_for(lambda: bob.topics() is None, "bob is nobody")


def test_the_password_of_a_file_goes_before(secure: Secure, tools: Tools, tmp_path: Path) -> None:
    name = USERS[0]
    secret = "SCRAM-SHA-256=[iterations=4096,password=another]"
    tools.configure("users", name, "--alter", "--add-config", secret)
    assert by_password(secure, tmp_path, name, "another", 256).topics() is None
    assert by_password(secure, tmp_path, name, PASSWORD, 256).topics() is not None


def test_a_token_says_who_comes(secure: Secure, tools: Tools, tmp_path: Path) -> None:
    topic = f"open-{uuid.uuid4()}"
    tools.say("TopicCommand", "--create", "--topic", topic)
    for is_good, token in (
        (True, secure.issuer.token()),
        (False, secure.issuer.token(aud="another")),
    ):
        file = tmp_path / f"{is_good}.jwt"
        file.write_text(token, encoding="ascii")
        guest = Guest(
            secure,
            tmp_path,
            f"{ALLOWED}.urls={file.as_uri()} {ALLOWED}.files={file}",
            sasl_mechanism="OAUTHBEARER",
            sasl_login_callback_handler_class=f"{BY_TOKEN}CallbackHandler",
            sasl_oauthbearer_token_endpoint_url=file.as_uri(),
            sasl_jaas_config=f"{BY_TOKEN}Module required;",
        )
        assert guest.topics() == ([topic] if is_good else None)
