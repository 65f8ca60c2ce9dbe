#!/bin/bash
# SPDX-License-Identifier: MIT
# Removes the files that CMake's install_manifest.txt lists, below $DESTDIR, and the folders called winnow that this
# leaves empty: uninstall.sh MANIFEST
set -euo pipefail
[ -f "${1:-}" ] || { echo "uninstall: no manifest '${1:-}'; nothing was installed from this build folder" >&2; exit 1; }
declare -A folders
while IFS= read -r file || [ -n "$file" ]; do
    rm -f -- "${DESTDIR:-}$file"
    folder=${DESTDIR:-}$(dirname "$file")
    [ "$(basename "$folder")" = winnow ] && folders[$folder]=1
done <"$1"
for folder in "${!folders[@]}"; do
    [ ! -d "$folder" ] || rmdir --ignore-fail-on-non-empty -- "$folder"
done
rm -f -- "$1"
