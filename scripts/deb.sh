#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes the Debian packages winnow, libwinnow0 and libwinnow-dev from this tree, and has lintian look at them: deb.sh [FOLDER]
#
# They are written to FOLDER (build/deb). The tree is copied first, since dpkg-buildpackage writes into its parent folder. The ggml
# and libllama of scripts/setup.sh go into libwinnow0: they suit every CPU that has what the machine here has of AVX2, FMA,
# F16C and BMI2 (scripts/setup.sh, step llama).
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$(realpath -m "${1:-$top/build/deb}")
cd "$top"
tree=$out/winnow
export WINNOW_CACHE=${WINNOW_CACHE:-$HOME/.cache/winnow} # debhelper gives a build a HOME of its own

say() { printf 'deb: %s\n' "$*" >&2; }

# The files that belong to the project: those that git knows or would add, or, without git, all but build folders; not what was
# removed and not committed yet, nor what this script writes.
files() {
    { git ls-files -z --cached --others --exclude-standard 2>/dev/null ||
        find . \( -type f -o -type l \) -not -path './build*' -not -path './.git/*' -printf '%P\0'; } |
        while IFS= read -r -d '' file; do
            if { [ -e "$file" ] || [ -L "$file" ]; } && [[ $top/$file != "$out"/* ]]; then printf '%s\0' "$file"; fi
        done
}

mkdir -p "$out"
rm -rf "$tree" "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
mkdir "$tree"
files | tar --null --files-from=- -cf - | tar -xf - -C "$tree"
cd "$tree"
say "building in $tree; the log is $out/log"
DEB_BUILD_OPTIONS="parallel=$(nproc) ${DEB_BUILD_OPTIONS:-}" dpkg-buildpackage --build=binary --no-sign >"$out/log" 2>&1 || {
    tail -n 30 "$out/log" >&2
    say "dpkg-buildpackage failed; the whole log is $out/log"
    exit 1
}
say "lintian looks at them"
lintian --allow-root --fail-on error,warning --info "$out"/*.changes
rm -rf "$tree"
ls -1sh "$out"/*.deb
