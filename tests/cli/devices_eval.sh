# SPDX-License-Identifier: MIT
# `eval --devices`: samples are answered on devices around others, and the full cache's comparison is that of sessions, but for rounding.
. "$(dirname "$0")/lib.sh"
need_backend
model=$tiny/tiny-qwen3.gguf
need_file "$model"
free_port
start_worker --device CPU
both=cpu,rpc:127.0.0.1:$port
same=(-m "$model" -t 1 --policies snapkv,keydiff --ratios 0.5 --quiet --no-gate --batch 1)

# A text: its tokens are given, so that only rounding can differ.
tr '\n' ' ' <examples/document.txt | head -c 3000 >"$work/text.txt"
text=(eval "${same[@]}" --tasks ppl --text "$work/text.txt" --lengths 512 --samples 2)
good 'a text in sessions' "${text[@]}" --out "$work/text-s"
good 'a text on devices' "${text[@]}" --out "$work/text-d" --devices "$both" --layers 3,1
py "$work/text-s/results.jsonl" "$work/text-d/results.jsonl" <<'PY' || fail 'a text on devices'
import json, sys
a, b = ({o["key"]: o for o in map(json.loads, open(path))} for path in sys.argv[1:])
assert a.keys() == b.keys() and len(a) == 6
for key in a:
    x, y = a[key], b[key]
    assert x["policy"] != "full" or y["dnll"] == y["kl"] == 0 and y["agree"] == 1, y
    assert abs(x["dnll"] - y["dnll"]) < 0.1 and abs(x["kl"] - y["kl"]) < 0.1 * max(x["kl"], 0.1), (x, y)
    assert abs(x["ratio_ach"] - y["ratio_ach"]) < 0.01 and x["ctx_tokens"] == y["ctx_tokens"]
PY

# Questions, one after the other, with and without what was said before. A run that is continued has its answers already.
for turns in multi_turn multi_request; do
    asked=(eval "${same[@]}" --tasks scb_mf_syn --lengths 600 --samples 1 --turns $turns --answer-tokens 6)
    good "$turns in sessions" "${asked[@]}" --out "$work/s-$turns"
    good "$turns on devices" "${asked[@]}" --out "$work/d-$turns" --devices cpu
    good "$turns on devices again" "${asked[@]}" --out "$work/d-$turns" --devices cpu
    py "$work/s-$turns/results.jsonl" "$work/d-$turns/results.jsonl" <<'PY' || fail "$turns on devices"
import json, sys
a, b = ({o["key"]: o for o in map(json.loads, open(path))} for path in sys.argv[1:])
assert a.keys() == b.keys() and len(b) == sum(1 for _ in open(sys.argv[2])) and len(b) > 6
for key in b:
    x, y = a[key], b[key]
    assert all(x[k] == y[k] for k in ("ctx_tokens", "q_tokens", "refs", "policy")) and y["gen_tokens"] <= 6
    assert abs(x["ratio_ach"] - y["ratio_ach"]) < 0.02
    assert y["policy"] != "full" or y["agree"] == 1
PY
done
code=0
"$WINNOW" "${asked[@]}" --out "$work/d-multi_request" --devices "$both" >"$work/out" 2>&1 || code=$?
[ "$code" = 2 ] && grep -q devices "$work/out" || fail "a folder of other devices: $code, $(cat "$work/out")"

# What cannot be had is one sentence.
on=(eval "${same[@]}" --tasks niah_single_1 --lengths 700 --samples 1 --out "$work/none")
bad 'no such device' "there is no device 'gpu7': this ggml has .*CPU" "${on[@]}" --devices gpu7
bad 'a device twice' 'named twice' "${on[@]}" --devices cpu,CPU
bad 'too few layers' "'3' are 3 layers, and this model has 4" "${on[@]}" --devices cpu --layers 3
bad 'layers of no device' 'name them' "${on[@]}" --layers 4
bad 'chunks' '--evict is for sessions' "${on[@]}" --devices cpu --evict chunk:100
bad 'while answering' '--evict-every is for sessions' "${on[@]}" --devices cpu --evict-every 10
bad 'masks' '--mask-heads is for sessions' "${on[@]}" --devices cpu --mask-heads 0-1
bad 'a folder' '--store is for sessions' "${on[@]}" --devices cpu --store "$work/folder" --policies keydiff
bad 'a time' '--time-budget is for sessions' "${on[@]}" --devices cpu --time-budget 1m
bad 'a study of heads' 'leave out --devices' eval -m "$model" --study perturbation --out "$work/none" --devices cpu
bad 'a tail' 'of --kv-types is for sessions' "${on[@]}" --devices cpu --kv-types q8_0:32
bad 'a second pass' 'a second time' "${on[@]}" --devices cpu --policies kvzip
kill $worker
wait $worker 2>/dev/null || true
code=0
"$WINNOW" "${on[@]}" --devices "rpc:127.0.0.1:$port" >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 1 ] && [ "$(grep -c . "$work/err")" = 1 ] && grep -q "127.0.0.1:$port cannot be reached" "$work/err" || fail "nobody there: $code, $(cat "$work/err")"
finish
