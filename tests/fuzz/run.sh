#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs a fuzz target that was linked with libFuzzer: run.sh PROGRAM KIND RUNS LENGTH [LIBFUZZER-OPTION...]
#
# First all inputs of corpus/KIND, then RUNS changed ones of at most LENGTH bytes, the same every time. What it finds besides goes to a
# temporary folder; an input that crashes the program is left in the current folder as crash-*: copy it to corpus/KIND
# with a name that says what it is.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1 kind=$2 runs=$3 length=$4
shift 4
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
options=(-seed=1 -runs="$runs" -max_len="$length" -len_control=0 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1)
for words in "$here/$kind.dict" "$(dirname "$program")/$kind.dict"; do
    [ ! -f "$words" ] || options+=(-dict="$words")
done
"$program" "${options[@]}" "$@" "$found" "$here/corpus/$kind" 2>&1 | tail -n 60
