# SPDX-License-Identifier: MIT
# winnow calibrate stats: the same bytes however it was computed, a profile that methods read, bad input.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
need_file "$tiny/tiny-gemma3.gguf"
export WINNOW_CACHE=$work/cache # nobody's own profiles
stats() { printf '%s\n' calibrate stats -m "$model" --set pieces=10,length=96 "$@"; }
run_stats() { # NAME ARGS...
    local name=$1
    shift
    mapfile -t args < <(stats "$@")
    good "$name" "${args[@]}"
}

# The text that comes with the command; the file goes to where methods look.
run_stats 'default place' -t 1
made=$work/cache/profiles/tiny-llama/stats.json
[ "$(ls "$work/cache/profiles/tiny-llama")" = stats.json ] || fail "not stats.json alone: $(ls "$work/cache/profiles/tiny-llama")"
grep -q '^920 queries of every head' "$work/out" || fail "report: $(cat "$work/out")"
json 'settings' "$made" 'o["kind"] == "stats" and o["settings"]["pieces"] == 10 and o["settings"]["length"] == 96'
json 'the text is named' "$made" 'o["data"]["texts"][0]["name"] == "calibration.txt" and len(o["data"]["texts"][0]["hash"]) == 16'
# unpacked FILE: the same profile with numbers in place of texts; a row is a layer.
unpacked() {
    py "$1" "$work/numbers.json" <<'PY' || fail "$1 is not texts of numbers"
import base64, json, struct, sys
o = json.load(open(sys.argv[1]))
r = o["results"]
for key, form, size in (("query_mean", "f", 4), ("query_std", "f", 4), ("filter", "f", 4), ("query_corr", "h", 2)):
    layers = [base64.b64decode(x, validate=True) for x in r[key]]
    r[key] = [struct.unpack(f"<{len(x) // size}{form}", x) for x in layers]
    assert len(layers) == o["model"]["n_layer"] and len({len(x) for x in layers}) == 1, key
json.dump(o, open(sys.argv[2], "w"))
PY
}
unpacked "$made"
json 'numbers' "$work/numbers.json" 'all(-1e4 <= x <= 1e4 for l in o["results"]["query_corr"] for x in l) and
    all(x > 0 for l in o["results"]["query_std"] for x in l) and any(x != 0 for l in o["results"]["query_corr"] for x in l)'
json 'sizes' "$work/numbers.json" 'all(len(l) == o["model"]["n_head"] * d * (d - 1) // 2 for d in [o["model"]["n_embd_head"]] for l in o["results"]["query_corr"])'
# A filter is a mean of directions of length 1.
json 'filters' "$work/numbers.json" 'all(0 < sum(x * x for x in l[h:h + d]) <= 1.00001 for d in [o["model"]["n_embd_head"]]
    for l in o["results"]["filter"] for h in range(0, len(l), d))'
run_stats 'two threads' -t 2 -o "$work/two.json" && same 'any number of threads' "$made" "$work/two.json"

# Killed when some units are done, then taken up again.
mapfile -t args < <(stats -t 1 -o "$work/killed.json")
ended_by KILL "$work/killed.json.journal" 2 "${args[@]}"
if [ -e "$work/killed.json" ]; then
    printf 'too fast to be killed\n' >&2
else
    [ "$(wc -l <"$work/killed.json.journal")" -ge 2 ] || fail 'nothing in the journal'
    bad 'another setting' 'another length: 96, and now it is 80' calibrate stats -m "$model" --set pieces=10,length=80 -o "$work/killed.json"
    run_stats 'taken up' -t 1 -o "$work/killed.json"
fi
same 'killed and taken up' "$made" "$work/killed.json"
[ -e "$work/killed.json.journal" ] && fail 'the journal remains'

# Methods find it; another model's is refused.
ids 300 >"$work/ids"
for policy in qfilters:recent=8 expected_attention-stats kvpress-qfilters; do
    good "$policy" plan -m "$model" --tokens "$work/ids" --policy "$policy" --budget 64 -o "$work/plan.json"
done
bad 'of another model' 'another model' plan -m "$tiny/tiny-gemma3.gguf" --tokens "$work/ids" --policy qfilters --profile "$made" -o "$work/made/plan.json"

# Layers with a sliding window have rows of 0.
good 'a sliding window' calibrate stats -m "$tiny/tiny-gemma3.gguf" --set pieces=1,length=64 -o "$work/swa.json"
unpacked "$work/swa.json"
json 'rows of 0' "$work/numbers.json" 'len({all(x == 0 for x in l) for l in o["results"]["filter"]}) == 2'

# Bad input.
head -c 700 share/text/calibration.txt >"$work/short.txt"
bad 'a short text' 'the text has [0-9]+ tokens; give a longer text, or pieces=' calibrate stats -m "$model" -f "$work/short.txt" --set pieces=10,length=96 -o "$work/made/x.json"
bad 'longer than the context' 'length=100000; the model.s context has' calibrate stats -m "$model" --set length=100000 -o "$work/made/x.json"
bad 'pieces of nothing' 'pieces of 4 tokens are too short' calibrate stats -m "$model" --set length=4 -o "$work/made/x.json"
bad 'unknown setting' 'no option .piece.; did you mean pieces' calibrate stats -m "$model" --set piece=3 -o "$work/made/x.json"
bad 'unknown effort' "effort 'huge' is unknown" calibrate stats -m "$model" --effort huge -o "$work/made/x.json"
finish
