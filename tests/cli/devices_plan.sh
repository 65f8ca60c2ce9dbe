# SPDX-License-Identifier: MIT
# `plan --devices`: keep-sets of winnow's devices are those of sessions, but for what rounding chooses.
. "$(dirname "$0")/lib.sh"
need_backend
ids 600 >"$work/ids"
free_port
start_worker --device CPU

# alike MODEL OPTIONS...: both plans have the same form and as many positions, and nearly all are the same.
alike() {
    local model=$1
    need_file "$tiny/$model.gguf"
    good "$*: a session" plan -m "$tiny/$model.gguf" --tokens "$work/ids" -t 1 -o "$work/session.json" "${@:2}"
    for devices in cpu "rpc:127.0.0.1:$port,cpu"; do
        good "$* on $devices" plan -m "$tiny/$model.gguf" --tokens "$work/ids" -t 1 -o "$work/devices.json" --devices "$devices" "${@:2}" || continue
        py "$work/session.json" "$work/devices.json" <<'PY' || fail "$* on $devices"
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert {k: v for k, v in a.items() if k != "layers"} == {k: v for k, v in b.items() if k != "layers"}
x, y = ({(i, j, p) for i, l in enumerate(o["layers"]) for j, h in enumerate(l["heads"]) for p in h} for o in (a, b))
assert all(h == sorted(set(h)) for l in b["layers"] for h in l["heads"])
assert len(x) == len(y) and len(x & y) >= 0.95 * len(x), (len(x), len(y), len(x & y))
PY
    done
}
alike tiny-llama --policy full
alike tiny-llama --policy keydiff --ratio 0.7
alike tiny-llama --policy adakv --ratio 0.5
alike tiny-qwen3 --policy lagkv --ratio 0.5
alike tiny-gemma3 --policy snapkv --budget 100
alike tiny-gemma3 --policy streaming_llm --budget 40

# Where nothing is to choose by numbers, files are the same byte for byte.
model=$tiny/tiny-llama.gguf
good 'positions' plan -m "$model" --tokens "$work/ids" --policy streaming_llm --budget 64 -o "$work/session.json"
good 'positions on devices' plan -m "$model" --tokens "$work/ids" --policy streaming_llm --budget 64 --devices "cpu,rpc:127.0.0.1:$port" --layers 1,3 -o "$work/devices.json" &&
    same 'positions' "$work/session.json" "$work/devices.json"

# The document alone.
head -c 2000 examples/document.txt >"$work/doc.txt"
for where in '' '--devices cpu'; do
    # shellcheck disable=SC2086
    good "a document ${where:-in a session}" plan -m "$tiny/tiny-qwen3.gguf" -f "$work/doc.txt" -p 'Who?' --raw --context-only --policy streaming_llm --ratio 0.5 -o "$work/doc${where:+-d}.json" $where
done
same 'a document' "$work/doc.json" "$work/doc-d.json"

# What cannot be had is one sentence, and leaves no file.
on=(plan -m "$model" --tokens "$work/ids" -o "$work/none.json")
bad 'no such device' "there is no device 'gpu7': this ggml has .*CPU" "${on[@]}" --devices gpu7
bad 'a device twice' 'named twice' "${on[@]}" --devices cpu,CPU
bad 'too few layers' "'2,1' are 3 layers, and this model has 4" "${on[@]}" --devices "cpu,rpc:127.0.0.1:$port" --layers 2,1
bad 'layers of no device' 'name them' "${on[@]}" --layers 4
bad 'merged values' 'has positions alone' "${on[@]}" --devices cpu --policy snapkv-merge --ratio 0.5
bad 'a second pass' 'a second time' "${on[@]}" --devices cpu --policy kvzip --ratio 0.5
kill $worker
wait $worker 2>/dev/null || true
code=0
"$WINNOW" "${on[@]}" --devices "rpc:127.0.0.1:$port" >"$work/out" 2>&1 || code=$?
[ "$code" = 1 ] && [ "$(wc -l <"$work/out")" = 1 ] && grep -q "127.0.0.1:$port cannot be reached" "$work/out" || fail "nobody there: $code, $(cat "$work/out")"
[ ! -e "$work/none.json" ] || fail 'a plan was written after an error'
finish
