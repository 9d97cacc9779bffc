#!/bin/sh
# Builds the programs of `make interop`: Java with each version of Apache Kafka's client, Go with franz-go. What
# Debezium follows is PostgreSQL.
#
# Does nothing when nothing changed (stamps in build/interop), and needs the network only for what is missing. Installs
# Debian's packages where it may; what cannot be installed or built is named, and left out of the run.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/debian.sh

OUT="$PWD/build/interop"
LOG="$OUT/build.log"
JAVA_VERSIONS="4.3.1 3.9.2"

say() { printf 'interop: %s\n' "$*" >&2; }

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >>"$LOG" 2>&1; }

# need COMMAND PACKAGE
need() {
    command -v "$1" >/dev/null && return
    if command -v apt-get >/dev/null; then
        say "installing Debian's $2"
        { without_services apt install "$2" || { apt update && without_services apt install "$2"; }; } &&
            command -v "$1" >/dev/null && return
    fi
    say "no $1, and $2 cannot be installed; as root, run: apt-get install $2"
    return 1
}

hash_of() { find "$@" -type f -print | LC_ALL=C sort | while IFS= read -r file; do sha256sum "$file"; done | sha256sum; }

is_current() { [ -f "$1/stamp" ] && [ "$(cat "$1/stamp")" = "$2" ]; }

# build NAME HASH COMMAND…: runs it, unless that was done before.
build() {
    target="$OUT/$1"
    hash=$2
    is_current "$target" "$hash" && return
    say "building $1"
    rm -rf "$target"
    mkdir -p "$target"
    name=$1
    shift 2
    if "$@" >>"$LOG" 2>&1; then
        printf '%s\n' "$hash" >"$target/stamp"
    else
        tail -n 15 "$LOG" >&2
        say "$name cannot be built ($LOG has all output)"
        rm -rf "$target"
    fi
}

java_part() {
    hash=$(hash_of tests/interop/java)
    missing=""
    for version in $JAVA_VERSIONS; do is_current "$OUT/java-$version" "$hash" || missing=1; done
    [ -z "$missing" ] && command -v java >/dev/null && return
    need javac openjdk-17-jdk-headless && need mvn maven || return
    for version in $JAVA_VERSIONS; do
        build "java-$version" "$hash" mvn -q -B -f tests/interop/java/pom.xml \
            "-Dkafka.version=$version" "-Doutput=$OUT/java-$version" compile
    done
}

go_part() {
    hash=$(hash_of tests/interop/go)
    is_current "$OUT/go" "$hash" && return
    need go golang-go || return
    say "Go here: $(go env GOVERSION); franz-go takes $(sed -n 's/^go /go/p' tests/interop/go/go.mod) or newer"
    build go "$hash" go build -C tests/interop/go -mod=readonly -trimpath -o "$OUT/go/interop" .
}

mkdir -p "$OUT"
: >"$LOG"
java_part
go_part
need psql postgresql
exit 0
