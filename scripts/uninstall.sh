#!/bin/bash
# SPDX-License-Identifier: MIT
# Removes the files that CMake's install_manifest.txt lists, below $DESTDIR, and the folders called winnow, with those
# inside them, that this leaves empty: uninstall.sh MANIFEST
set -euo pipefail
[ -f "${1:-}" ] || { echo "uninstall: no manifest '${1:-}'; nothing was installed from this build folder" >&2; exit 1; }
declare -A folders
while IFS= read -r file || [ -n "$file" ]; do
    rm -f -- "${DESTDIR:-}$file"
    folder=$(dirname "$file")
    while [[ $folder/ == */winnow/* ]]; do
        folders[${DESTDIR:-}$folder]=1
        folder=$(dirname "$folder")
    done
done <"$1"
printf '%s\n' "${!folders[@]}" | sort -r | while IFS= read -r folder; do # what is inside a folder comes before it
    [ ! -d "$folder" ] || rmdir --ignore-fail-on-non-empty -- "$folder"
done
rm -f -- "$1"
