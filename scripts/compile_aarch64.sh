#!/bin/bash
# SPDX-License-Identifier: MIT
# Compiles the kernels and what chooses among them for aarch64, with Debian's cross compiler: compile_aarch64.sh FOLDER
# FOLDER has the headers of ggml. Warnings are errors; nothing is linked or run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
headers=${1:?a folder with the headers of ggml}
[ -f "$headers/ggml.h" ] || { echo "compile_aarch64.sh: $headers has no ggml.h" >&2; exit 2; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for source in src/kernel/*.c src/attend/*.c src/forward/matmul.c; do
    options=()
    # As in CMakeLists.txt.
    [[ $source != *_neondot.c ]] || options=(-march=armv8.2-a+dotprod)
    [[ $source != */noise.c ]] || options=(-DWNW_TEST_NOISE=1)
    aarch64-linux-gnu-gcc -std=c11 -D_GNU_SOURCE -O2 "${options[@]}" -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror \
        -Iinclude -Isrc -isystem "$headers" -c "$source" -o "$out/$(basename "$source" .c).o"
done

# Without its instruction set a file has nothing but a function that returns NULL.
has() {
    aarch64-linux-gnu-nm "$out/$1.o" | grep -q " $2\$" || { echo "compile_aarch64.sh: src/kernel/$1.c is empty" >&2; exit 1; }
}
has kernel_neon mul_rows
has matmul_neondot strip
