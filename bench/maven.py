"""Jars of those that are compared with, or that pages of docs/ use, fetched by Maven as it is set
up on this machine, once, and kept below build/.

Invariant: a jar is used only if it is, to the byte, one of those whose hashes are in bench/jars/;
nothing of the product uses any.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.campaign.digest import ROOT

HASHES = ROOT / "bench" / "jars"
JARS = ROOT / "build" / "bench"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
MAVEN_S = 600

Artifact = tuple[str, str, str]
"""Group, name and version in Maven's repositories."""
KAFKA = "kafka-4.4.0"
OLDER_KAFKA = "kafka-4.1.1"
PLATFORM = "kafka-platform-4.1.1"
DEBEZIUM = "debezium-3.6.1"
SPARK_KAFKA = "spark-kafka-4.2.0"
OLDER_SPARK_KAFKA = "spark-kafka-3.5.1"
SPARK_ICEBERG = "spark-iceberg-1.11.0"
ARTIFACTS: Mapping[str, Sequence[Artifact]] = {
    KAFKA: [("org.apache.kafka", "kafka_2.13", "4.4.0")],
    OLDER_KAFKA: [("org.apache.kafka", "kafka_2.13", "4.1.1")],
    PLATFORM: [
        ("org.apache.kafka", "kafka-streams", "4.1.1"),
        ("org.apache.kafka", "connect-runtime", "4.1.1"),
        ("org.apache.kafka", "connect-file", "4.1.1"),
        ("org.apache.kafka", "connect-mirror", "4.1.1"),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ],
    DEBEZIUM: [
        ("io.debezium", "debezium-embedded", "3.6.1.Final"),
        ("io.debezium", "debezium-connector-postgres", "3.6.1.Final"),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ],
    SPARK_KAFKA: [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ],
    OLDER_SPARK_KAFKA: [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.12", "3.5.1"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.12", "3.5.1"),
        ("org.apache.kafka", "kafka-clients", "3.4.1"),
        ("org.apache.commons", "commons-pool2", "2.11.1"),
    ],
    SPARK_ICEBERG: [
        ("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.11.0"),
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.1"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ],
}
ALONE = {SPARK_KAFKA, OLDER_SPARK_KAFKA, SPARK_ICEBERG}
"""Without what they need: PySpark has that."""


class Unavailable(Exception):
    """Something to compare with cannot be had on this machine; the message says what, why, and what
    helps. Comparisons leave it out, and say so.
    """


class NotStarted(Exception):
    """Something to compare with is here, but did not begin to work: a round without it is none."""


@cache
def jars(name: str) -> list[str]:
    """The paths of a set of jars. Raises Unavailable."""
    for command, package in (("java", "openjdk-17-jre-headless"), ("mvn", "maven")):
        if shutil.which(command) is None:
            raise Unavailable(f"{name}: there is no {command} (as root: apt-get install {package})")
    wanted = parse((HASHES / f"{name}.sha256").read_text(encoding="ascii"))
    if not (JARS / name).is_dir():
        _fetch(name)
    if wrong := differing(wanted, JARS / name):
        raise Unavailable(f"{name}: {', '.join(wrong)} in {JARS / name} are not those of {HASHES}")
    return sorted(str(JARS / name / each) for each in wanted)


def parse(text: str) -> dict[str, str]:
    """Hashes by file, of a list as sha256sum writes it."""
    return {file: digest for digest, file in (line.split() for line in text.splitlines())}


def differing(wanted: Mapping[str, str], directory: Path) -> list[str]:
    """Files that are missing, too many, or not what they should be."""
    there = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("*.jar")
    }
    return sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))


def _fetch(name: str) -> None:
    made = JARS / f"{name}.new"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    file = made / "pom.xml"
    file.write_text(pom(ARTIFACTS[name], alone=name in ALONE), encoding="utf-8")
    command = ["mvn", "-q", "-B", "-f", str(file), PLUGIN, f"-DoutputDirectory={made}"]
    command += ["-DincludeScope=runtime"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_S, check=False)
    if ended.returncode:
        told = [line for line in ended.stdout.splitlines() if "ERROR" in line] or [ended.stderr]
        raise Unavailable(f"{name}: Maven cannot fetch it: {told[0][:300]}")
    made.rename(JARS / name)


def pom(artifacts: Sequence[Artifact], *, alone: bool) -> str:
    """What Maven is asked for."""
    all_of_it = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = f"<exclusions>{all_of_it}</exclusions>" if alone else ""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{without}</dependency>"
        for group, name, version in artifacts
    )
    head = "<modelVersion>4.0.0</modelVersion><groupId>samelog</groupId>"
    head += "<artifactId>bench</artifactId><version>1</version>"
    return f"<project>{head}<dependencies>{wanted}</dependencies></project>\n"
