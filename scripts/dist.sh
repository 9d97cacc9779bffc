#!/bin/sh
# Makes what is released of the last commit, in dist/: the sdist, a wheel for this machine that is built from it, and what
# an environment consists of that has nothing but the wheel (CycloneDX). The wheel is tried in that environment.
# A commit that has a tag is the version's: samelog.__version__ says which, and a tag of another one is refused.
set -eu
cd "$(dirname "$0")/.."
work=build/dist
python="$PWD/.venv/bin/python"

fail() {
    echo "dist: $*" >&2
    exit 1
}

version=$("$python" -c 'import samelog; print(samelog.__version__)')
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
for tag in $(git tag --points-at HEAD --list 'v*'); do
    [ "$tag" = "v$version" ] || fail "the tag is $tag, and samelog.__version__ is $version"
    grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no section $version"
done

rm -rf "$work" dist
mkdir -p "$work/source" dist
git archive HEAD | tar -x -C "$work/source"
(cd "$work/source" && "$python" -c 'from setuptools.build_meta import build_sdist; build_sdist("../../../dist")') \
    >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2 && fail "no sdist"; }
"$python" -m pip wheel -q --no-deps --no-build-isolation --wheel-dir dist "dist/samelog-$version.tar.gz"

"$python" -m venv --without-pip "$work/environment"
"$python" -m pip --python "$work/environment/bin/python" install -q "$(echo "dist/samelog-$version"-*.whl)"
rm "$work/environment"/lib/python*/site-packages/samelog-*.dist-info/direct_url.json # names a place on this machine
"$python" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install -q --disable-pip-version-check "cyclonedx-bom>=7,<8"
"$work/tools/bin/cyclonedx-py" environment --output-reproducible \
    --output-file "dist/samelog-$version.cdx.json" "$work/environment/bin/python"
"$work/environment/bin/python" scripts/try_wheel.py
ls -l dist
