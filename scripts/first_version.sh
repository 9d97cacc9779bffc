#!/bin/sh
# Installs samelog 0.1, as a wheel made of the commit that is called so, into build/first-version, once: with all that it
# needs, and with the load of its own tests. For the chaos scenario "upgrade".
set -eu
cd "$(dirname "$0")/.."
commit=73451996be53d36e371f5ac0e9b8b66967a340fb
to=build/first-version

if [ "$(cat "$to/commit" 2>/dev/null)" = "$commit" ]; then exit 0; fi
rm -rf "$to"
mkdir -p "$to/source"
git archive "$commit" | tar -x -C "$to/source"
.venv/bin/python -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$to" "$to/source"
.venv/bin/python -m pip install -q --disable-pip-version-check --target "$to/installed" "$(echo "$to"/samelog-*.whl)"
cp -R "$to/source/tests" "$to/installed/tests"
rm -rf "$to/source"
echo "$commit" >"$to/commit"
