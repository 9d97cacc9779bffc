#!/bin/sh
# Runs the tests of the Spark source and sink with other versions of PySpark than that of .venv, each in a directory of
# its own below build/: whether they can be allowed. 4.2.1 passes those of batches and streams that need no session;
# 4.1 cannot read streams.
set -eu
cd "$(dirname "$0")/.."

for version in 4.2.1; do
    to=build/pyspark-$version
    [ -f "$to/pyspark/version.py" ] || .venv/bin/python -m pip install -q --no-deps --target "$to" "pyspark==$version"
    echo "spark: with PySpark $version" >&2
    PYTHONPATH="$PWD/$to" .venv/bin/python -m pytest -q tests/spark "$@"
done
