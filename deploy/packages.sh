# Installs what is missing on Debian, and nothing else. Sourced by the scripts that need packages.
#
# Each line: the package, and a file or program that proves it is there already, however it came.

quickstart_packages="
git:git
ccache:ccache
flex:flex
bison:bison
bc:bc
libelf-dev:/usr/include/libelf.h
libssl-dev:/usr/include/openssl/ssl.h
pkg-config:pkg-config
build-essential:g++
cpio:cpio
xz-utils:xz
kmod:/sbin/depmod
rsync:rsync
curl:curl
jq:jq
qemu-system-x86:qemu-system-x86_64
postgresql:/usr/lib/postgresql/*/bin/initdb
linux-source-6.1:/usr/src/linux-source-6.1.tar.xz
"

test_packages="
openssh-server:/usr/sbin/sshd
iproute2:/usr/sbin/ip
nftables:/usr/sbin/nft
chromium:chromium
nodejs:node
npm:npm
"

# For virtual machines with a disk of Debian's.
lab_packages="
mmdebstrap:mmdebstrap
python3:python3
python3-venv:/usr/lib/python3*/ensurepip
openssh-client:ssh
"

is_there() {
    case $1 in
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# install_missing LINE…: one apt run for all that is missing; no network is needed when nothing is.
install_missing() {
    local line missing=()
    for line in "$@"; do
        is_there "${line#*:}" || missing+=("${line%%:*}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing ${missing[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=400)
    as_root "${apt[@]}" update >/dev/null
    # qemu-system-x86 depends on files that a qemu-utils of another version conflicts with; apt would rather remove
    # qemu-utils than change it, so both are named, at the version that fits.
    if [[ " ${missing[*]} " == *" qemu-system-x86 "* ]]; then
        local wanted installed
        wanted=$(apt-cache policy qemu-system-x86 | sed -n 's/^ *Candidate: //p')
        installed=$(dpkg-query -W -f='${Version}' qemu-utils 2>/dev/null || true)
        if [ -n "$installed" ] && [ "$installed" != "$wanted" ]; then
            missing+=(--allow-downgrades "qemu-utils=$wanted")
        fi
    fi
    as_root "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null
    for line in "$@"; do
        is_there "${line#*:}" || { echo "${line%%:*} was installed, but ${line#*:} is not there" >&2; return 1; }
    done
}

# need_cargo: the toolchain is the one thing that no package of Debian 12 brings in the version needed.
need_cargo() {
    local version
    version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || true
    if [ -z "$version" ] || [ "$(printf '%s\n1.94.0\n' "$version" | sort -V | head -n1)" != 1.94.0 ]; then
        echo "cargo 1.94 or newer must be on PATH (found: ${version:-none}); see https://rustup.rs" >&2
        return 1
    fi
}

# The agent as it is sent to machines and into guests: one file that needs nothing of where it runs.
# build_agent [PROFILE-OPTION]
build_agent() {
    RUSTFLAGS="-C target-feature=+crt-static" \
        cargo build --quiet "$@" --target x86_64-unknown-linux-gnu -p perfbisect-agent
}
