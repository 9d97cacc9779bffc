#!/bin/sh
# Runs the tests of the Spark source and sink with the oldest PySpark that has all they need, what the oldest that
# pyproject.toml allows can do, and pages of docs/ with the versions that they are about. Each version has a directory of its own below build/, and Maven fetches connectors, once.
set -eu
cd "$(dirname "$0")/.."

# installed VERSION REQUIREMENT…
installed() {
    to=build/pyspark-$1
    shift
    [ -f "$to/pyspark/version.py" ] || .venv/bin/python -m pip install -q --no-deps --target "$to" "$@"
}

installed 4.2.1 "pyspark==4.2.1"
installed 4.1.4 "pyspark==4.1.4"
installed 4.0.1 "pyspark==4.0.1"
installed 3.5.1 "pyspark==3.5.1" "py4j==0.10.9.7"
.venv/bin/python -c "from bench import maven; maven.jars(maven.OLDER_SPARK_KAFKA); maven.jars(maven.SPARK_ICEBERG)"

echo "spark: pages about other versions" >&2
.venv/bin/python -m pytest -q tests/spark/test_other_versions.py
echo "spark: with PySpark 4.2.1" >&2
PYTHONPATH="$PWD/build/pyspark-4.2.1" .venv/bin/python -m pytest -q tests/spark "$@"
