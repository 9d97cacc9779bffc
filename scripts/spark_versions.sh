#!/bin/sh
# Runs the tests of the Spark source and sink with the other versions of PySpark that pyproject.toml allows, each in a
# directory of its own below build/, before the one of .venv. What 4.1 cannot do (read a stream) is left out there.
set -eu
cd "$(dirname "$0")/.."

for version in 4.1.4 4.2.1; do
    to=build/pyspark-$version
    [ -f "$to/pyspark/version.py" ] || .venv/bin/python -m pip install -q --no-deps --target "$to" "pyspark==$version"
    echo "spark: with PySpark $version" >&2
    PYTHONPATH="$PWD/$to" .venv/bin/python -m pytest -q tests/spark "$@"
done
