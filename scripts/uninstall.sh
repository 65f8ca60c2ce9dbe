#!/bin/bash
# SPDX-License-Identifier: MIT
# Removes the files that CMake's install_manifest.txt lists, below $DESTDIR, and the folders called winnow, with those
# inside them, that this leaves empty: uninstall.sh MANIFEST
set -euo pipefail
[ -f "${1:-}" ] || { echo "uninstall: no manifest '${1:-}'; nothing was installed from this build folder" >&2; exit 1; }
# Of an install into another DESTDIR nothing would be found, and the list of what it wrote be lost.
is_there() {
    local file
    while IFS= read -r file || [ -n "$file" ]; do
        { [ ! -e "${DESTDIR:-}$file" ] && [ ! -L "${DESTDIR:-}$file" ]; } || return 0
    done <"$1"
    return 1
}
is_there "$1" || {
    echo "uninstall: no file of '$1' is there${DESTDIR:+ below $DESTDIR}; give the DESTDIR of the install, or remove the list" >&2
    exit 1
}
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
