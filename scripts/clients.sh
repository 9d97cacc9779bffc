#!/bin/sh
# Debian's kcat and Java (or only those named: kcat, java, mvn, nats), and helm, built by Go, for the
# tests, pipelines and comparisons that use them; without them tests are skipped, and the others say
# so. Never fails.
set -u
. "$(dirname "$0")/debian.sh"

say() { printf 'clients: %s\n' "$*" >&2; }

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >/dev/null 2>&1; }

# need COMMAND PACKAGE
need() {
    PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null && return
    if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; }; then
        say "$1 is not here, and cannot be installed: what needs it is left out (as root: apt-get install $2)"
        return
    fi
    say "installing Debian's $2"
    without_services apt install "$2" || { apt update && without_services apt install "$2"; } || say "$2 cannot be installed: what needs it is left out"
}

# Debian has none.
need_helm() {
    tools=$(dirname "$0")/../build/tools
    PATH="$PATH:$tools" command -v helm >/dev/null && return
    if command -v go >/dev/null; then
        say "building helm, once"
        mkdir -p "$tools"
        GOBIN=$(cd "$tools" && pwd) GOFLAGS=-mod=mod go install helm.sh/helm/v3/cmd/helm@v3.22.0 2>/dev/null && return
    fi
    say "helm is not here, and Go cannot build it: the tests of the chart are left out"
}

for name in ${*:-kcat java}; do
    case $name in
    kcat) need kcat kcat ;;
    java) need java default-jre-headless ;;
    mvn) need mvn maven ;;
    nats) need nats-server nats-server ;;
    helm) need_helm ;;
    esac
done
exit 0
