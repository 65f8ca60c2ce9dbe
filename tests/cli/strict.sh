# SPDX-License-Identifier: MIT
# Commands on devices that have the rules of a GPU (tests/devices/strict.c): a graph is computed later, memory has an end, operands have an
# alignment, and operations are missing.
. "$(dirname "$0")/lib.sh"
need_backend
module=$(dirname "$WINNOW")/tests/libggml-strict.so
need_file "$module"
export WINNOW_GGML_MODULES=$module
model=$tiny/tiny-llama.gguf
need_file "$model"
ids 500 >"$work/ids"

# alike NAME OPTIONS...: these devices give what the CPU gives, but for the order of additions. $like: their variables.
like= on='strict0,strict1 --layers 2,2'
alike() {
    local name=$1
    asked=(ppl -m "$model" --tokens "$work/ids" -t 1 --json "${@:2}")
    good "$name on the CPU" "${asked[@]}" --devices cpu && cp "$work/out" "$work/cpu"
    # shellcheck disable=SC2086
    env $like "$WINNOW" "${asked[@]}" --devices $on >"$work/out" 2>"$work/err" </dev/null || { fail "$name: $(cat "$work/err")"; return; }
    py "$work/cpu" "$work/out" <<'PY' || fail "$name: $(cat "$work/cpu" "$work/out")"
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert a["kept_tokens_mean"] == b["kept_tokens_mean"] and a["scored_tokens"] == b["scored_tokens"]
assert abs(a["nll_mean"] - b["nll_mean"]) < 0.02 * a["nll_mean"]
PY
}
alike 'whole' --policy full
alike 'keys' --policy keydiff --ratio 0.7
alike 'window queries' --policy snapkv --ratio 0.5
alike 'sums' --policy h2o --ratio 0.5
alike 'chunks' --policy keydiff --budget 100 --evict chunk:128
alike 'quantised' --policy keydiff --ratio 0.5 --kv-type q8_0
alike 'quantised, chunks' --policy snapkv --ratio 0.5 --kv-type q4_0 --evict chunk:128
like=STRICT_MAX_SIZE=100000
alike 'small buffers' --policy keydiff --ratio 0.5
like=

# Such a device of another machine.
free_port
start_worker --device strict0
on="rpc:127.0.0.1:$port"
alike 'a worker' --policy snapkv --ratio 0.5
alike 'a worker, sums' --policy h2o --ratio 0.5
alike 'a worker, quantised' --policy keydiff --ratio 0.5 --kv-type q8_0
alike 'a worker, quantised, chunks' --policy keydiff --ratio 0.7 --kv-type q4_0 --evict chunk:64
kill -0 $worker || fail "the worker ended: $(cat "$work/worker")"
kill $worker
wait $worker 2>/dev/null || true

# What a device lacks: the answer is whole, or one sentence says why not.
asked=(run -m "$model" --tokens "$work/ids" -n 2 -t 1 --json --ratio 0.5 --devices strict0)
for op in SOFT_MAX SUM_ROWS MUL_MAT CONT; do
    export STRICT_REFUSE=$op
    bad "sums without $op" "h2o needs attention sums, and STRICT0 does not compute $op " "${asked[@]}" --policy h2o
    good "keys without $op" "${asked[@]}" --policy keydiff && json "keys without $op" "$work/out" 'o["kept_tokens_mean"] == 250'
done
for op in FLASH_ATTN_EXT GET_ROWS CPY; do
    export STRICT_REFUSE=$op
    bad "keys without $op" 'STRICT0 does not compute ' "${asked[@]}" --policy keydiff
    good "all without $op" run -m "$model" --tokens "$work/ids" -n 2 -t 1 --json --policy full --devices strict0 && json "all without $op" "$work/out" 'o["kept_tokens_mean"] == 500'
done
export STRICT_REFUSE=SET_ROWS
code=0
"$WINNOW" "${asked[@]}" --policy keydiff >"$work/out" 2>"$work/err" </dev/null || code=$?
[ $code = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q ': STRICT0 does not store keys and values of type f16: take another type$' "$work/err" ||
    fail "a cache that nothing can be written to: exit code $code, $(cat "$work/err")"
unset STRICT_REFUSE

# Memory for less than the model; for the model, and not for the prompt. Nothing is given then.
for most in 1000 100000 2000000 3000000 4000000 6000000; do
    code=0
    STRICT_MEMORY=$most "$WINNOW" "${asked[@]}" --policy keydiff >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ $code = 0 ] && json "memory of $most" "$work/out" 'o["kept_tokens_mean"] == 250' && continue
    [ $code = 1 ] && [ ! -s "$work/out" ] && [ -s "$work/err" ] || fail "memory of $most: exit code $code, $(cat "$work/err")"
done
finish
