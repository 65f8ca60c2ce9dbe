# SPDX-License-Identifier: MIT
# winnow calibrate layers: from a text to budgets that CompressKV reads, and what is refused.
. "$(dirname "$0")/lib.sh"
calibrates
small=keep=16,length=80,samples=3,generate=5
ids 200 >"$work/ids"
layers() { printf '%s\n' calibrate layers -m "$model" "$@"; }
run_good() {
    local name=$1
    shift
    mapfile -t args < <(layers "$@")
    good "$name" "${args[@]}"
}
run_bad() {
    local name=$1 pattern=$2
    shift 2
    mapfile -t args < <(layers "$@")
    bad "$name" "$pattern" "${args[@]}"
}

# Where methods look for it, by its name.
run_good 'into the cache folder' -f "$text" --policy snapkv:window=8 --set $small -t 1 &&
    json 'profile' "$work/cache/profiles/tiny-llama/layers.json" \
        'o["kind"] == "layers" and len(o["results"]["avg_score"]) == 4 and abs(sum(o["results"]["avg_score"]) - 1) < 1e-9 and o["settings"]["lengths"] == 2 and o["settings"]["measured_samples"] <= 12 and len(o["results"]["per_set"]) == 4 and o["data"]["texts"][0]["name"] == "calibration.txt"'
grep -q '^layer   0 ' "$work/out" || fail "no report: $(cat "$work/out")"
grep -q '^samples of 40 tokens and the others: [01][.][0-9]* in common; layer [0-3] moves most' "$work/out" || fail "no moves: $(cat "$work/out")"
[ -z "$(ls "$work"/cache/profiles/tiny-llama/*.journal 2>/dev/null)" ] || fail 'the journal is still there'
good 'the preset reads it' plan -m "$model" --tokens "$work/ids" --policy compresskv:heads=all --budget 64 -o "$work/plan.json"

# Any number of threads, and a run that was killed, give the same bytes.
several=${small/samples=3/samples=16}
run_good 'one thread' -f "$text" --policy snapkv:window=8 --set $several -t 1 -o "$work/one.json"
run_good 'two threads' -f "$text" --policy snapkv:window=8 --set $several -t 2 -o "$work/two.json" --dump "$work/two.csv"
same 'threads' "$work/one.json" "$work/two.json"
mapfile -t args < <(layers -f "$text" --policy snapkv:window=8 --set $several -o "$work/cut.json" --dump "$work/cut.csv")
killed "$work/cut.json.journal" '2 3' "${args[@]}"
good 'killed and taken up' "${args[@]}"
same 'killed and taken up' "$work/two.json" "$work/cut.json"
same 'killed and taken up: measurements' "$work/two.csv" "$work/cut.csv"
[ "$(head -1 "$work/two.csv")" = text,sample,step,layer,error,tokens,question ] || fail "dump begins with: $(head -1 "$work/two.csv")"

run_bad 'no retrieval heads' 'of kind srh .*winnow calibrate srh' -f "$text" --set $small -o "$work/made/l.json"
run_bad 'no such text' 'nowhere' -f "$work/nowhere" -o "$work/made/l.json"
head -c 60 "$text" >"$work/short.txt"
run_bad 'text too short' "'short.txt' has [0-9]* tokens; at least 85" -f "$work/short.txt" --policy snapkv:window=8 --set $small,tokens=text -o "$work/made/l.json"
run_bad 'too long for the model' 'context' -f "$text" --policy snapkv --set length=10000000 -o "$work/made/l.json"
run_bad 'longer than any option' 'length' -f "$text" --policy snapkv --set length=10000001 -o "$work/made/l.json"
run_bad 'no such setting' 'did you mean length' -f "$text" --policy snapkv --set lenght=5 -o "$work/made/l.json"
run_bad 'full policy' 'keeps everything' -f "$text" --policy full -o "$work/made/l.json"
finish
