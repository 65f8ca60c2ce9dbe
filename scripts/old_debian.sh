#!/bin/bash
# SPDX-License-Identifier: MIT
# Tries a wheel in an older Debian, with that release's Python and C library: old_debian.sh WHEEL [SUITE] [FOLDER]
#
# The package `debootstrap` makes the root of SUITE (bullseye) in FOLDER, once; this needs root and the network. The wheel and the newest
# NumPy that goes with that Python are installed into an empty environment there, and tests/python/package.py runs with the wheel's own
# command. Models are those of scripts/setup.sh.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${WINNOW_CACHE:-$HOME/.cache/winnow}
wheel=$(realpath "${1:?the wheel to try}")
suite=${2:-bullseye}
root=$(realpath -m "${3:-$cache/roots/$suite}")
tiny=$cache/models/tiny/tiny-llama.gguf

say() { printf 'old_debian: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 WINNOW_CACHE=/models "$@"; }

[ "$(id -u)" = 0 ] || die 'a root of another system needs root'
[ -f "$tiny" ] || die "there is no $tiny; scripts/setup.sh makes it"
command -v debootstrap >/dev/null || die 'install the package debootstrap'
if [ ! -x "$root/usr/bin/python3" ]; then
    say "making $root"
    debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$root" >"$root.log" 2>&1 || die "debootstrap failed: $(tail -n 3 "$root.log")"
fi
# The loader finds a program's own folder in /proc, and multiprocessing has semaphores in /dev/shm.
mount -t proc proc "$root/proc"
trap 'umount "$root/proc" "$root/dev/shm"' EXIT
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
version=$(inside python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
say "$suite: $(inside ldd --version | head -n 1), Python $version"

rm -rf "$root/wheels" "$root/venv" "$root/try"
mkdir -p "$root/wheels" "$root/try" "$root/models/models"
cp "$wheel" "$root/wheels"
cp -r "$top/tests/python" "$tiny" "$root/try"
[ ! -f "$cache/models/smollm2-135m.gguf" ] || cp -u "$cache/models/smollm2-135m.gguf" "$root/models/models"
python3 -m pip download -q --disable-pip-version-check --only-binary :all: --python-version "$version" --implementation cp --platform manylinux2014_x86_64 \
    --no-deps -d "$root/wheels" 'numpy>=1.22'
inside python3 -m venv /venv
inside /venv/bin/pip install -q --disable-pip-version-check --no-index --find-links /wheels winnow || die 'the wheel cannot be installed'
inside /venv/bin/winnow --version
inside /venv/bin/python -m winnow doctor >"$root/try/doctor" || die "winnow doctor: $(cat "$root/try/doctor")"
if inside test -e /models/models/smollm2-135m.gguf; then
    cp "$top/examples/document.txt" "$root/try"
    inside /venv/bin/python -c 'import winnow
with winnow.Model("smollm2-135m") as m, m.compress(open("/try/document.txt").read(), ratio=0.75) as doc:
    print(doc.ask("What is the access code of the north dome?", max_tokens=12))'
fi
inside /venv/bin/python /try/python/package.py /venv/bin/winnow /try/tiny-llama.gguf -
