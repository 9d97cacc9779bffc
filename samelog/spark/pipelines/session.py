"""A Spark session for a pipeline, and what is said where this host lacks something for one.

Nothing here needs PySpark to be imported. Invariant: whoever has a session already keeps it, and
its settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from samelog.spark.errors import NoSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_WANTED = 17
MASTER_HERE = "local[*]"
LOOK_TIMEOUT_S = 30
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "FATAL",
}
ON_THIS_HOST = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
"""Where executors are threads of the driver: nobody reaches it from outside, and a few tasks do."""
UNDER_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""spark-submit sets it: then it says which master, and where executors find Python."""
HOW_JAVA = "as root: apt-get install openjdk-17-jre-headless (or set JAVA_HOME)"


def check_installed() -> None:
    """Raise NoSpark where PySpark or Java is missing, or too old."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise NoSpark(
            f"pipelines need {names}, not installed here: install samelog with the extra 'spark'"
        )
    java = _java()
    if java is None:
        raise NoSpark(f"pipelines need Java {JAVA_WANTED} or newer, and there is none: {HOW_JAVA}")
    version = _java_version(java)
    if version < JAVA_WANTED:
        raise NoSpark(
            f"pipelines need Java {JAVA_WANTED} or newer; {java} is Java {version}: {HOW_JAVA}"
        )


def _java() -> str | None:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java" if home is None else os.path.join(home, "bin", "java"))


def _java_version(java: str) -> int:
    """Its major version; 0 if it does not say."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=LOOK_TIMEOUT_S
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else 0


@contextmanager
def spark_session(
    name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """The session there is, or a new one, which is stopped in the end.

    Args:
        name: of the application.
        master: as spark-submit's; default: what spark-submit says, or all cores of this host.
        conf: more settings, as spark-submit's.

    Raises NoSpark.
    """
    check_installed()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    made = _start(SparkSession.builder.appName(name), master, conf or {})
    try:
        yield made
    finally:
        made.stop()


def _start(
    builder: SparkSession.Builder, master: str | None, conf: Mapping[str, str]
) -> SparkSession:
    where = master or conf.get("spark.master")
    if where is None and UNDER_SUBMIT not in os.environ:
        where = MASTER_HERE
    settings = dict(DEFAULTS)
    if where is not None:
        builder = builder.master(where)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= ON_THIS_HOST if where.startswith("local[") else {}
    for key, value in {**settings, **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
