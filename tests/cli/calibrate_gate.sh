# SPDX-License-Identifier: MIT
# winnow calibrate gate: from texts to a scorer that predicts KVzip's scores, and what is refused.
. "$(dirname "$0")/lib.sh"
calibrates gate
small=pieces=3,length=80
ids 200 >"$work/ids"

bad 'no gates yet' 'kind gate .*winnow calibrate gate' plan -m "$model" --tokens "$work/ids" --policy kvgate --ratio 0.5 -o "$work/made/p.json"
two_texts
good 'into the cache folder' calibrate gate -m "$model" -f "$work/texts" --set $small -t 1 &&
    json 'profile' "$made" 'o["kind"] == "gate" and o["settings"]["target"] == "kvzip" and
        o["settings"]["features"] == ["key", "value", "lk", "keydiff", "ea", "lev"] and len(o["results"]["thresholds"]) == 4 and
        o["results"]["thresholds"] == sorted(o["results"]["thresholds"]) and
        all(len(w) == 2 * o["model"]["n_embd_head"] + 4 for l in o["results"]["weight"] for w in l) and
        all(-20 < b < 20 for l in o["results"]["bias"] for b in l)'
for line in '^gates from kvzip: [0-9]+ entries of each of 8 heads' '^words.txt +in a head +[-0-9.]+ ' '^ +over all ' '^threshold that keeps 12.5 %: tau=-?[0-9.]+$'; do
    grep -qE "$line" "$work/out" || fail "the report has no /$line/: $(cat "$work/out")"
done
tau=$(sed -n 's/^threshold that keeps 50 %: tau=//p' "$work/out")
good 'what is in it' profile show "$made" && grep -q '^weight, ' "$work/out" || fail "no table of weights: $(cat "$work/out")"

# A size is shared out over the model; a threshold leaves as much as scores above it; equal counts work too.
plan 'budget' --policy kvgate --budget 60 && json 'the size is exact' "$work/plan.json" "sum($counts) == 60 * 8 and len(set($counts)) > 1"
plan 'threshold' --policy "kvgate+threshold:tau=$tau,window=8" && json 'threshold' "$work/plan.json" "8 * 12 < sum($counts) < 8 * 200"
cp "$work/plan.json" "$work/first.json"
plan 'a lower threshold' --policy "kvgate+threshold:tau=-1000,window=8" && json 'a lower threshold' "$work/plan.json" "sum($counts) == 8 * 200"
plan 'equal counts' --policy kvgate+equal --budget 60 && json 'equal counts' "$work/plan.json" "set($counts) == {60}"

# In every phase; layer by layer where heads do not share a size over the model.
for evict in end layer chunk:64; do
    good "evict $evict" run -m "$model" --tokens "$work/ids" --policy kvgate+equal --ratio 0.5 --evict $evict --evict-every 8 -n 24 --json &&
        json "evict $evict" "$work/out" 'abs(o["kept_tokens_mean"] - 100) < 0.2'
done
good 'a threshold while decoding' run -m "$model" --tokens "$work/ids" --policy "kvgate+threshold:tau=$tau,window=8" --evict chunk:64 --evict-every 8 -n 24 --json
bad 'all heads, layer by layer' 'see all layers' run -m "$model" --tokens "$work/ids" --policy kvgate --ratio 0.5 --evict layer -n 4

good 'four numbers' calibrate gate -m "$model" -f "$text" --set $small,features=scalars -t 1 -o "$work/few.json" &&
    json 'four numbers' "$work/few.json" 'o["settings"]["features"] == ["lk", "keydiff", "ea", "lev"] and all(len(w) == 4 for l in o["results"]["weight"] for w in l)'
plan 'with four numbers' --policy kvgate --budget 60 --profile "$work/few.json"
bad 'of another model' 'was made for another model' plan -m "$models/tiny/tiny-qwen2.gguf" --tokens "$work/ids" --policy kvgate --budget 60 \
    --profile "$made" -o "$work/made/p.json"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than one line: $(cat "$work/err")"

good 'two threads' calibrate gate -m "$model" -f "$work/texts" --set $small -t 2 -o "$work/two.json"
same 'two threads' "$made" "$work/two.json"
good 'nothing held out' calibrate gate -m "$model" -f "$text" --set pieces=1,length=80 -o "$work/one.json" &&
    grep -q 'nothing was held out' "$work/out" || fail "nothing held out: $(cat "$work/out")"
killed "$work/cut.json.journal" '2 6' calibrate gate -m "$model" -f "$work/texts" --set $small -o "$work/cut.json"
good 'killed and taken up' calibrate gate -m "$model" -f "$work/texts" --set $small -t 1 -o "$work/cut.json"
same 'killed and taken up' "$made" "$work/cut.json"

bad 'pieces too long' 'read twice, do not fit' calibrate gate -m "$model" -f "$text" --set length=900000 -o "$work/made/s.json"
bad 'no such features' 'features' calibrate gate -m "$model" -f "$text" --set features=x -o "$work/made/s.json"
finish
