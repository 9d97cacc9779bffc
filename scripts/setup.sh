#!/bin/sh
# Makes this tree runnable: .venv, the packages that pyproject.toml names, the compiled kernels.
# With an argument, only the packages of that extra: `setup.sh demo`. Without: what developers use.
#
# Does nothing when nothing changed (stamps in .venv), and needs the network only for what is missing.
# Debian's packages are installed when root or sudo allows; otherwise the message says what to install.
set -eu
cd "$(dirname "$0")/.."

PYTHON_WANTED="3.11"
VENV_PYTHON=".venv/bin/python"
PATH_STAMP=".venv/path.stamp"
EXTRA="${1:-dev}"
ALL_STAMP=".venv/packages.stamp"
PACKAGES_STAMP="$ALL_STAMP"
[ "$EXTRA" = dev ] || PACKAGES_STAMP=".venv/packages.$EXTRA.stamp"
KERNELS_STAMP=".venv/kernels.stamp"
began=$(date +%s)
worked=""

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

# The tree itself on Python's path: an import hook, which is the default, hides the data source from
# Spark, which lists the modules of directories.
EDITABLE="editable_mode=compat"

# What tools are told, from [tool.ruff] on, changes nothing that is installed.
packages_hash() { { sed '/^\[tool\.ruff\]/,$d' pyproject.toml; cat setup.py; echo "$EDITABLE"; } | sha256sum; }

kernels_hash() {
    find samelog setup.py \( -name '*.pyx' -o -name '*.px[di]' -o -name '*.h' -o -name setup.py \) -print |
        LC_ALL=C sort | while IFS= read -r file; do sha256sum "$file"; done | sha256sum
}

is_current() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

kernels_exist() {
    for module in samelog/format/_kernels samelog/runtime/disk/_disk_threads \
        samelog/runtime/network/_tls samelog/kafka/codec/primitives samelog/store/keys/_key_pages; do
        set -- "$module".*.so
        [ -f "$1" ] || return 1
    done
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@"; }

# install_system PACKAGES REASON
install_system() {
    if ! command -v apt-get >/dev/null; then
        fail "$2; there is no apt-get here: install the equivalent of Debian's $1, then try again"
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        fail "$2; as root, run: apt-get install $1"
    fi
    say "$2: installing Debian's $1"
    # shellcheck disable=SC2086  # a list of packages
    { apt install $1 || { apt update && apt install $1; }; } >.setup.log 2>&1 || {
        tail -n 5 .setup.log >&2
        fail "could not install $1 (.setup.log has all output); as root, run: apt-get update && apt-get install $1"
    }
    rm -f .setup.log
}

# Every Python that is new enough, each on a line; first the one that a shell finds first.
pythons() {
    for name in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3 /usr/local/bin/python3; do
        if "$name" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$PYTHON_WANTED'.split('.'))))" 2>/dev/null; then
            command -v "$name"
        fi
    done
}

find_python() {
    names=$(pythons)
    [ -n "$names" ] || fail "no Python >= $PYTHON_WANTED found (tried python3 and python3.11 to python3.14)"
    (
        IFS='
'
        set -f
        # shellcheck disable=SC2086  # a list of lines
        set -- $names
        "$1" scripts/pick_python.py "$@"
    )
}

# A version-qualified package name fits whichever of Debian's Pythons was found.
debian_python() { "$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])'; }

has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

can_compile() {
    "$1" - <<'PROGRAM' 2>/dev/null
import shlex, subprocess, sysconfig

compiler = shlex.split(sysconfig.get_config_var("CC"))[0]
command = [compiler, "-I", sysconfig.get_paths()["include"], "-fsyntax-only", "-x", "c", "-"]
subprocess.run(command, input=b"#include <Python.h>\n", check=True)
PROGRAM
}

create_venv() {
    python=$(find_python)
    if ! has_venv "$python"; then
        install_system "$(debian_python "$python")-venv" "$python can't create virtual environments"
    fi
    say "creating .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv || { rm -rf .venv; fail "$python -m venv .venv failed"; }
    pwd -P >"$PATH_STAMP"
}

ensure_compiler() {
    can_compile "$VENV_PYTHON" && return
    python=$(debian_python "$VENV_PYTHON")
    install_system "gcc libc6-dev $python-dev" "no working C compiler with $python's headers"
    can_compile "$VENV_PYTHON" || fail "still can't compile against $python's headers: they are not Debian's $python-dev; install them"
}

pip_install() {
    "$VENV_PYTHON" -m pip install -q --disable-pip-version-check "$@" || fail "pip could not install: $*"
}

install_packages() {
    ensure_compiler
    say "installing the packages that pyproject.toml names, and building the kernels"
    # Without isolation, so that a second time needs no network; hence the build's own needs come first.
    build_needs=$("$VENV_PYTHON" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")')
    printf '%s\n' "$build_needs" >.venv/build-requirements.txt
    pip_install -r .venv/build-requirements.txt
    pip_install --no-build-isolation --config-settings "$EDITABLE" --editable ".[$EXTRA]"
}

build_kernels() {
    ensure_compiler
    say "building the kernels"
    "$VENV_PYTHON" setup.py -q build_ext --inplace --force >.setup.log 2>&1 || {
        tail -n 40 .setup.log >&2
        fail "the kernels do not compile (.setup.log has all output)"
    }
    rm -f .setup.log
}

# The scripts in a virtual environment name its path: in a moved tree it is recreated.
if ! [ -x "$VENV_PYTHON" ] || { [ -f "$PATH_STAMP" ] && ! is_current "$PATH_STAMP" "$(pwd -P)"; }; then
    create_venv
fi
packages=$(packages_hash)
kernels=$(kernels_hash)
if ! is_current "$ALL_STAMP" "$packages" && ! is_current "$PACKAGES_STAMP" "$packages"; then
    # pip leaves compiled kernels as they are if they look newer than their source.
    had_kernels=""
    if kernels_exist; then had_kernels=yes; fi
    install_packages
    worked=yes
    printf '%s\n' "$packages" >"$PACKAGES_STAMP"
    if [ -z "$had_kernels" ] && kernels_exist; then printf '%s\n' "$kernels" >"$KERNELS_STAMP"; fi
fi
if ! is_current "$KERNELS_STAMP" "$kernels" || ! kernels_exist; then
    build_kernels
    worked=yes
    printf '%s\n' "$kernels" >"$KERNELS_STAMP"
fi
[ -z "$worked" ] || say "took $(($(date +%s) - began)) s"
