#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tries winnow around a device of ggml on this machine: try_device.sh NAME [--quick] [BUILD]. NAME is as `winnow doctor` lists it, BUILD
# the folder of a build with tests. It prints a block for an issue, and ends with 1 if a check failed.
#
#   dropped = hidden   logits with entries dropped, compared with hidden ones and with the device WINNOW
#   families, whole    llama.cpp's test of its architectures: libllama's graphs as they are
#   families, ragged   the same with every layer ragged from its first token on
#
# Families are compared with the same device without winnow, or with the CPU where a worker has it.
# --quick leaves the families out, which take minutes.
set -u
usage() { echo "usage: scripts/try_device.sh NAME [--quick] [BUILD]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
name= quick=false build=
for argument in "$@"; do
    case $argument in
        --quick) quick=true ;;
        -*) usage ;;
        *) if [ -z "$name" ]; then name=$argument; elif [ -z "$build" ]; then build=$argument; else usage; fi ;;
    esac
done
[ -n "$name" ] || usage
build=$(cd "${build:-$root/build}" 2>/dev/null && pwd) || { echo "there is no such build: run cmake first, or name its folder" >&2; exit 2; }
test=$build/tests/model_bridge_devices families=$build/tests/llama_archs
for file in "$build/winnow" "$test"; do
    [ -x "$file" ] || { echo "there is no $file: build winnow with its tests first (make test)" >&2; exit 2; }
done
# `make vulkan` leaves the module there. The command finds it by itself.
[ ! -f "$build/libggml-vulkan.so" ] || export WINNOW_GGML_MODULES=${WINNOW_GGML_MODULES-$build/libggml-vulkan.so}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0

# check TITLE COMMAND...: one line with what the command said last, or the end of its output where it failed.
check() {
    local title=$1 code=0
    shift
    "$@" >"$out" 2>&1 || code=$?
    if [ $code -eq 0 ]; then
        printf '%-18s passed\n' "$title"
        grep -E '^(.*: dropped to hidden|[0-9]+ models of)' "$out" | sed 's/^/    /'
    else
        printf '%-18s FAILED (%s)\n' "$title" "$code"
        grep -E 'dropped to hidden|FAILED:|no device|error|Failure|assert|abort' "$out" | tail -n 12 | sed 's/^/    /'
        failed=1
    fi
}
# whole BOUND RAGGED
whole() {
    [[ $name == rpc:* ]] || local -x WINNOW_ARCHS_REFERENCE=$name
    WINNOW_ARCHS_BOUND=$1 WINNOW_DEVICES=$name WINNOW_RAGGED_AT_ONCE=$2 bash "$root/tests/archs/archs.sh" "$families" /dev/null WINNOW0
}

cd "$root" || exit 1
echo '```'
echo "winnow around $name: $("$build/winnow" --version 2>/dev/null | head -n 1), $(uname -sm)"
"$build/winnow" doctor 2>/dev/null | sed -n '/^devices/,/^[a-z]/p' | grep -E "^(devices)? +" | sed 's/^/    /'
check 'dropped = hidden' "$test" "$name"
if $quick; then
    echo 'families           left out'
elif [ -x "$families" ]; then
    check 'families, whole' whole 1e-4 0
    check 'families, ragged' whole 1e-4 1
else
    echo 'families           left out: this build has no llama_archs'
fi
echo '```'
exit $failed
