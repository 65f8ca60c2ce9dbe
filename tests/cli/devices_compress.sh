# SPDX-License-Identifier: MIT
# `compress --devices`: the stored document has what the devices' cache held, and is asked with sessions and on devices.
. "$(dirname "$0")/lib.sh"
need_backend
free_port
start_worker --device CPU
both=cpu,rpc:127.0.0.1:$port
head -c 1200 examples/document.txt >"$work/doc.txt"

# alike MODEL OPTIONS...: files differ in nothing but numbers that rounding chooses, and hold as much.
alike() {
    local model=$tiny/$1.gguf
    need_file "$model"
    for where in session cpu "$both"; do
        local on=()
        [ "$where" = session ] || on=(--devices "$where")
        local file=$work/${where%%,*}.wkv
        [ "$where" = "$both" ] && file=$work/both.wkv
        good "$* on $where" compress -m "$model" -f "$work/doc.txt" --raw -t 1 -o "$file" "${on[@]}" "${@:2}" || return 1
        good "$* on $where: inspect" inspect "$file" --json && cp "$work/out" "$file.json"
        good "$* on $where: ask" ask -m "$model" -c "$file" -p 'Who signs?' -n 4 --temp 0 --json && cp "$work/out" "$file.asked"
    done
    good "$*: ask on devices" ask -m "$model" -c "$work/both.wkv" -p 'Who signs?' -n 4 --temp 0 --json --devices cpu
    for file in cpu both; do
        py "$work/session.wkv.json" "$work/$file.wkv.json" "$work/session.wkv.asked" "$work/$file.wkv.asked" <<'PY' || fail "$* on $file"
import json, sys
a, b, x, y = (json.load(open(path)) for path in sys.argv[1:])
for key in ("n_tokens", "n_past", "policy", "size", "phase", "kept_tokens_mean", "document", "tokens", "model"):
    assert a[key] == b[key], key
assert a["kv_type"] == b["kv_type"].removesuffix(":unrotated") # libllama rotates some sizes of heads alone
assert x["prompt_tokens"] == y["prompt_tokens"] and x["kept_tokens_mean"] == y["kept_tokens_mean"] and len(y["tokens"]) > 0
PY
    done
}
alike tiny-qwen3 --policy full
alike tiny-qwen3 --policy keydiff --ratio 0.5
alike tiny-qwen3 --policy snapkv-merge --ratio 0.5
alike tiny-llama --policy adakv --budget 100
alike tiny-llama --policy keydiff --ratio 0.5 --kv-type q8_0
alike tiny-llama3 --policy keydiff --ratio 0.5 --kv-type q8_0
alike tiny-gemma3 --policy snapkv --ratio 0.6

# The entries are those of the plan that the devices make.
model=$tiny/tiny-llama.gguf
good 'a plan' plan -m "$model" -f "$work/doc.txt" --raw --context-only --policy adakv --budget 100 -t 1 --devices cpu -o "$work/plan.json"
good 'a document' compress -m "$model" -f "$work/doc.txt" --raw --policy adakv --budget 100 -t 1 --devices cpu -o "$work/one.wkv"
good 'its entries' inspect "$work/one.wkv" --json && py "$work/plan.json" "$work/out" <<'PY' || fail 'the entries are not those of the plan'
import json, sys
plan, file = (json.load(open(path)) for path in sys.argv[1:])
assert [l["heads"] for l in plan["layers"]] == [l["heads"] for l in file["layers"]]
PY

# A document with its template, and one that is added to it by a session.
good 'a template' compress -m "$tiny/tiny-qwen3.gguf" -f "$work/doc.txt" --policy keydiff --ratio 0.5 --devices cpu -o "$work/chat.wkv"
good 'one more' compress -m "$tiny/tiny-qwen3.gguf" -f "$work/doc.txt" -c "$work/chat.wkv" -o "$work/more.wkv"

# What cannot be had is one sentence, and leaves no file.
on=(compress -m "$model" -f "$work/doc.txt" --policy keydiff --ratio 0.5 -o "$work/none.wkv")
bad 'no such device' "there is no device 'gpu7': this ggml has .*CPU" "${on[@]}" --devices gpu7
bad 'a device twice' 'named twice' "${on[@]}" --devices cpu,CPU
bad 'too few layers' "'2,1' are 3 layers, and this model has 4" "${on[@]}" --devices "$both" --layers 2,1
bad 'layers of no device' 'name them' "${on[@]}" --layers 4
bad 'adding' 'leave out -c' compress -m "$tiny/tiny-qwen3.gguf" -f "$work/doc.txt" -c "$work/chat.wkv" -o "$work/none.wkv" --devices cpu
bad 'a tail' '--kv-tail is for sessions' "${on[@]}" --devices cpu --kv-type q8_0 --kv-tail 32
bad 'a second pass' 'a second time' compress -m "$model" -f "$work/doc.txt" --policy kvzip --ratio 0.5 -o "$work/none.wkv" --devices cpu
kill $worker
wait $worker 2>/dev/null || true
code=0
"$WINNOW" "${on[@]}" --devices "rpc:127.0.0.1:$port" >"$work/out" 2>&1 || code=$?
[ "$code" = 1 ] && [ "$(wc -l <"$work/out")" = 1 ] && grep -q "127.0.0.1:$port cannot be reached" "$work/out" || fail "nobody there: $code, $(cat "$work/out")"
[ ! -e "$work/none.wkv" ] || fail 'a document was stored after an error'
finish
