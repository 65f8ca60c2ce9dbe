#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tries winnow around a device of ggml on this machine: try_device.sh NAME [--quick] [--bytes N] [-m MODEL] [BUILD]. NAME is as `winnow doctor`
# lists it, BUILD the folder of a build with tests, MODEL that of the demo or another one, N how much of a text it reads. It prints a block for an
# issue, and ends with 1 if a check failed.
#
#   dropped = hidden   logits with entries dropped, compared with hidden ones and with the device WINNOW
#   keep-sets          which entries stay of a document, compared with this machine's CPU without --devices
#   cache types        how likely a text is with half of a cache of each type dropped, compared with this machine's CPU
#   bench              a prompt of 512 tokens and an answer, compared with llama.cpp on this machine's CPU
#   families, whole    llama.cpp's test of its architectures: libllama's graphs as they are
#   families, ragged   the same with every layer ragged from its first token on
#
# Families are compared with the same device without winnow, or with the CPU where a worker has it.
# --quick leaves the families and the bench out, which take minutes.
set -u
usage() { echo "usage: scripts/try_device.sh NAME [--quick] [--bytes N] [-m MODEL] [BUILD]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
name= quick=false bytes=6000 build= model=smollm2-135m
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=true ;;
        --bytes) shift && bytes=${1:-} && [[ $bytes =~ ^[1-9][0-9]{0,8}$ ]] || usage ;;
        -m) shift && model=${1:-} ;;
        -*) usage ;;
        *) if [ -z "$name" ]; then name=$1; elif [ -z "$build" ]; then build=$1; else usage; fi ;;
    esac
    shift
done
[ -n "$name" ] || usage
build=$(cd "${build:-$root/build}" 2>/dev/null && pwd) || { echo "there is no such build: run cmake first, or name its folder" >&2; exit 2; }
test=$build/tests/model_bridge_devices families=$build/tests/llama_archs
for file in "$build/winnow" "$test"; do
    [ -x "$file" ] || { echo "there is no $file: build winnow with its tests first (make test)" >&2; exit 2; }
done
# `make vulkan` leaves the module there. The command finds it by itself.
[ ! -f "$build/libggml-vulkan.so" ] || export WINNOW_GGML_MODULES=${WINNOW_GGML_MODULES-$build/libggml-vulkan.so}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/out failed=0

# check TITLE COMMAND...: one line with what the command said last, or the end of its output where it failed.
check() {
    local title=$1 code=0
    shift
    "$@" >"$out" 2>&1 || code=$?
    if [ $code -eq 0 ]; then
        printf '%-18s passed\n' "$title"
        grep -E '^(.*: dropped to hidden|[0-9]+ models of|.* kept alike|.* nats of a token.*|  (prefill|decode) | {6,}llama)' "$out" | sed -E 's/^ {0,2}/    /'
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

# alike POLICY: which entries stay here and on the device. Other roundings may change a few.
alike() {
    local on=$work/$1
    "$build/winnow" plan -m "$model" -f "$work/text" --ratio 0.75 --policy "$1" -o "$on.here" &&
        "$build/winnow" plan -m "$model" -f "$work/text" --ratio 0.75 --policy "$1" --devices "$name" -o "$on.there" &&
        python3 - "$1" "$on.here" "$on.there" <<'END'
import json
import sys

sets = []
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as f:
        sets.append({(i, j, p) for i, layer in enumerate(json.load(f)["layers"]) for j, head in enumerate(layer["heads"]) for p in head})
here, there = sets
print(f"{sys.argv[1]}: {len(here & there)} of {len(here)} entries kept alike")
sys.exit(f"error: {len(there)} entries on the device" if len(here) != len(there) or len(here & there) < 0.95 * len(here) else 0)
END
}
plans() { alike keydiff && alike snapkv && alike lagkv; }

# as_likely TYPE: how likely a text is after half of its beginning was dropped, here and on the device.
as_likely() {
    local on=$work/$1 asked=(ppl -m "$model" -f "$work/text" --kv-type "$1" --ratio 0.5 --policy keydiff --json)
    "$build/winnow" "${asked[@]}" --devices cpu >"$on.here" && "$build/winnow" "${asked[@]}" --devices "$name" >"$on.there" &&
        python3 - "$1" "$on.here" "$on.there" <<'END'
import json
import sys

here, there = (json.load(open(path, encoding="utf-8")) for path in sys.argv[2:])
print(f"{sys.argv[1]}: {there['nll_mean']:.4f} nats of a token, on the CPU {here['nll_mean']:.4f}")
alike = here["kept_tokens_mean"] == there["kept_tokens_mean"] and abs(here["nll_mean"] - there["nll_mean"]) < 0.02 * here["nll_mean"]
sys.exit(0 if alike else "error: too far away")
END
}
types() { as_likely f16 && as_likely q8_0 && as_likely q4_0; }
bench() { "$build/winnow" bench -m "$model" --devices "$name" --peer own --lengths 512 --budget 64 --reps 3; }

cd "$root" || exit 1
head -c "$bytes" examples/document.txt >"$work/text"
echo '```'
echo "winnow around $name: $("$build/winnow" --version 2>/dev/null | head -n 1), $(uname -sm)"
"$build/winnow" doctor 2>/dev/null | sed -n '/^devices/,/^[a-z]/p' | grep -E "^(devices)? +" | sed 's/^/    /'
check 'dropped = hidden' "$test" "$name"
if "$build/winnow" doctor -m "$model" >/dev/null 2>&1; then
    check 'keep-sets' plans
    check 'cache types' types
    $quick || check 'bench' bench
else
    echo "keep-sets, cache types, bench   left out: there is no $model (make demo has one; -m names another)"
fi
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
