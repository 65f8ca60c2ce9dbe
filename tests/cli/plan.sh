# SPDX-License-Identifier: MIT
# winnow plan: the file is whole, its totals are right.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
need_file "$tiny/tiny-llama.gguf"
need_file "$tiny/tiny-gemma3.gguf"

ids 300 >"$work/ids"
shape='o["format"] == "winnow-plan-1" and o["n_tokens"] == 300 and type(o["model"]) is str and
       len(o["layers"]) == 4 and all(len(l["heads"]) == 2 for l in o["layers"])'
order='all(h == sorted(set(h)) and h[0] >= 0 and h[-1] < 300 for l in o["layers"] for h in l["heads"])'
total='sum(len(h) for l in o["layers"] for h in l["heads"])'

plan() {
    local name=$1
    shift
    rm -rf "$work/made" && mkdir "$work/made"
    good "$name" plan -m "$tiny/tiny-llama.gguf" --tokens "$work/ids" -o "$work/made/plan.json" "$@" || return 1
    [ -s "$work/out" ] && fail "$name: stdout is not empty"
    [ "$(ls -A "$work/made")" = plan.json ] || fail "$name: other files: $(ls -A "$work/made")"
    json "$name" "$work/made/plan.json" "set(o) == {'format', 'model', 'fingerprint', 'n_tokens', 'policy', 'tokens', 'layers'} and o['tokens'] == [int(t) for t in open('$work/ids')]"
    json "$name" "$work/made/plan.json" "$shape"
    json "$name" "$work/made/plan.json" "$order"
}

# The model that is meant where none is named.
good 'the default model' plan --tokens "$work/ids" --policy streaming_llm --budget 64 -o "$work/default.json" &&
    json 'the default model' "$work/default.json" 'len(o["layers"]) == 30 and all(len(l["heads"]) == 3 for l in o["layers"])'

plan full && json 'full keeps all' "$work/made/plan.json" "$total == 300 * 8"
for policy in streaming_llm snapkv tova knorm adakv pyramidkv; do
    plan "$policy" --policy "$policy" --budget 64 &&
        json "$policy: exact total" "$work/made/plan.json" "$total == 64 * 8"
done
plan adakv --policy adakv --budget 64 &&
    json 'adakv is ragged' "$work/made/plan.json" 'len({len(h) for l in o["layers"] for h in l["heads"]}) > 1'
plan pyramidkv --policy pyramidkv --budget 64 &&
    json 'pyramid falls' "$work/made/plan.json" 'len(o["layers"][0]["heads"][0]) > len(o["layers"][-1]["heads"][0])'
plan streaming --policy streaming_llm --budget 64 &&
    json 'sinks and the last' "$work/made/plan.json" \
        'all(h == [0, 1, 2, 3] + list(range(240, 300)) for l in o["layers"] for h in l["heads"])'
plan ratio --policy snapkv --ratio 0.75 && {
    json 'a quarter' "$work/made/plan.json" "$total == 75 * 8"
    json 'the window stays' "$work/made/plan.json" \
        'all(h[-32:] == list(range(268, 300)) for l in o["layers"] for h in l["heads"])'
    json 'defaults are written out' "$work/made/plan.json" '"window=32" in o["policy"]'
    # The canonical policy gives the same plan again.
    cp "$work/made/plan.json" "$work/first.json"
    policy=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["policy"])' "$work/first.json")
    plan canonical --policy "$policy" --ratio 0.75 && same 'canonical policy' "$work/first.json" "$work/made/plan.json"
    plan threads --policy snapkv --ratio 0.75 -t 1 && same 'one thread' "$work/first.json" "$work/made/plan.json"
}

# An existing file is replaced as a whole.
echo old >"$work/old.json"
good 'replace' plan -m "$tiny/tiny-llama.gguf" --tokens "$work/ids" --policy knorm --budget 10 -o "$work/old.json" &&
    json 'replaced' "$work/old.json" "$total == 10 * 8"

# Layers with a sliding window list what they hold; the others keep the budget.
ids 60 >"$work/ids"
good 'sliding window' plan -m "$tiny/tiny-gemma3.gguf" --tokens "$work/ids" --policy knorm --budget 10 -o "$work/swa.json" && {
    json 'every layer lists something' "$work/swa.json" 'all(len(h) > 0 for l in o["layers"] for h in l["heads"])'
    json 'some keep 10, some more' "$work/swa.json" \
        'min(len(h) for l in o["layers"] for h in l["heads"]) == 10 < max(len(h) for l in o["layers"] for h in l["heads"])'
}
finish
