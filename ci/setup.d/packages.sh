# SPDX-License-Identifier: Apache-2.0
# Distribution packages, sourced by ci/setup: which ones, and how the missing ones are installed.
# Reads dpkg's database; calls apt-get only when something is missing, and `apt-get update` only
# when the lists do not know a package or are too old to fetch it. Needs say() of ci/setup.

packages_build=(
    build-essential cmake ninja-build pkg-config
    libsqlite3-dev sqlite3 libyaml-dev libjansson-dev libelf-dev libdw-dev
    libfuse3-dev libiberty-dev liblzma-dev libmicrohttpd-dev libcurl4-openssl-dev
    node-d3 libjs-jquery libjs-jquery-datatables
    python3 python3-dev python3-venv python3-pip python3-psutil libxml2-utils procps util-linux xz-utils binutils
    clang libclang-rt-dev libbpf-dev tzdata
)

# Names of the arguments that are not installed, one a line.
packages_missing() {
    local installed name
    installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
    for name in "$@"; do
        grep -qx "$name installed" <<<"$installed" || echo "$name"
    done
}

# Can the archive provide this package?
package_known() { [[ -n $(apt-cache madison "$1" 2>/dev/null) ]]; }

# What only tests, the canary's demo and benchmarks need, and they are skipped without: a browser for the HTML report, a proxy, podman,
# Prometheus, another load generator, the HTTP of the torch server, PyYAML for the manifests, what bundles libraries, shells that
# complete, a reader of manual pages, launchers of ranks, an MPI to build upgate-mpi-reduce with, what ci/format
# lays out with. Ubuntu's chromium is a snap, which
# does not start where there is no snapd (containers); another browser of the family is found by the test.
packages_tests() {
    echo haproxy prometheus wrk openssl python3-aiohttp python3-yaml patchelf zsh fish mandoc podman crun openmpi-bin libopenmpi-dev slurm-wlm
    grep -qsE '^VERSION_CODENAME=(bookworm|jammy|noble)$' /etc/os-release && echo clang-format-14 # another version lays out otherwise
    grep -qs '^ID=ubuntu' /etc/os-release || echo chromium
}

# What brings bpftool, which makes the skeletons of bpf/: Debian has a package of that name, Ubuntu up to
# 24.04 has it among the tools of its kernel.
packages_bpftool() {
    if grep -qs '^ID=ubuntu' /etc/os-release && ! package_known bpftool; then
        echo linux-tools-common linux-tools-generic
    else
        echo bpftool
    fi
}

# apt-get as root, quietly: its words are shown when it fails.
apt() {
    local sudo=() log status=0
    if ((EUID != 0)); then
        command -v sudo >/dev/null || {
            say "root is needed to install packages, and there is no sudo"
            return 1
        }
        sudo=(sudo)
        [[ -t 0 ]] || sudo=(sudo -n) # nobody could type a password
    fi
    log=$(mktemp) || return 1
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null || status=$?
    ((status == 0)) || tail -n 20 "$log" >&2
    rm -f "$log"
    return "$status"
}

# Debian starts a service as it installs it. Tests run their own, so nothing stays on this machine's ports.
packages_stop_services() {
    local name
    [ -d /run/systemd/system ] || return 0
    for name in "$@"; do
        case $name in haproxy | prometheus)
            if ((EUID == 0)); then systemctl --quiet disable --now "$name" || true
            else sudo -n systemctl --quiet disable --now "$name" || true; fi ;;
        esac
    done
}

packages_ensure() {
    local missing=() name
    mapfile -t missing < <(packages_missing "$@")
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || {
        say "no apt-get here (Debian and Ubuntu have it); install by other means: ${missing[*]}"
        return 1
    }
    say "installing ${missing[*]}"
    for name in "${missing[@]}"; do
        package_known "$name" || { apt update || true; break; }
    done
    apt install --yes --no-install-recommends "${missing[@]}" && packages_stop_services "${missing[@]}" && return 0
    say "trying again with fresh package lists"
    apt update && apt install --yes --no-install-recommends "${missing[@]}" && packages_stop_services "${missing[@]}" && return 0
    say "failed to install ${missing[*]}: no network, no permission or no such package"
    return 1
}
