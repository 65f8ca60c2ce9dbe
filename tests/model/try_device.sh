# SPDX-License-Identifier: MIT
# scripts/try_device.sh: a device that works, one that is not there, and bad arguments. try_device.sh BUILD.
set -u
script=$(cd "$(dirname "$0")/../../scripts" && pwd)/try_device.sh
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() { echo "FAILED: $1: $(cat "$out")" >&2; exit 1; }
expect() { # CODE PATTERN ARGUMENT...
    local want=$1 pattern=$2 code=0
    shift 2
    bash "$script" "$@" >"$out" 2>&1 || code=$?
    [ $code = "$want" ] || fail "$* ended with $code, not $want"
    grep -Eq -- "$pattern" "$out" || fail "$* does not say '$pattern'"
}
expect 2 'usage' # no device
expect 2 'usage' CPU --slow
expect 2 'usage' CPU --bytes 0
expect 2 'no such build' CPU --quick /nonexistent
tiny=${WINNOW_CACHE:-$HOME/.cache/winnow}/models/tiny/tiny-llama.gguf
expect 1 "no device 'Vulkan7'" Vulkan7 --quick -m "$tiny" "$1"
# A tiny model has a token for nearly every byte, and a text of a real one's length took it half a minute.
expect 0 'dropped = hidden +passed' CPU --quick --bytes 1500 -m "$tiny" "$1"
[ "$(grep -c 'kept alike' "$out")" = 3 ] || fail 'not every policy was tried'
[ "$(grep -c 'nats of a token' "$out")" = 3 ] || fail 'not every type was tried'
[ "$(grep -c 'dropped to hidden' "$out")" = 4 ] || fail 'not every model was tried'
