# SPDX-License-Identifier: MIT
# winnow calibrate curves: from a text to curves that the preset lukv reads, and what is refused.
. "$(dirname "$0")/lib.sh"
calibrates curves
small=length=100,samples=2,questions=2,generate=4
ids 200 >"$work/ids"

bad 'no curves yet' 'kind curves .*winnow calibrate curves' plan -m "$model" --tokens "$work/ids" --policy lukv -o "$work/made/p.json"
good 'into the cache folder' calibrate curves -m "$model" -f "$text" --set $small -t 1 --dump "$work/one.csv" &&
    json 'profile' "$made" \
        'o["kind"] == "curves" and len(o["results"]["keep"]) == 99 and all(abs(sum(map(sum, k)) / 8 - 1 + r) < 0.01 for r, k in zip(o["results"]["ratio"], o["results"]["keep"]) if r < 0.9) and o["settings"]["policy"].startswith("expected_attention:")'
grep -q '^layer   0 ' "$work/out" || fail "no report: $(cat "$work/out")"
plan 'the preset reads it' --policy lukv --budget 60 && {
    json 'the size is exact' "$work/plan.json" 'sum(len(h) for l in o["layers"] for h in l["heads"]) == 60 * 8'
    json 'heads differ' "$work/plan.json" 'len({len(h) for l in o["layers"] for h in l["heads"]}) > 1'
}
plan 'as kvpress' --policy kvpress-lukv --ratio 0.7
plan 'scores of another kind' --policy keydiff+lukv --budget 60
grep -q 'warning: .*for scores of expected_attention, not keydiff' "$work/err" || fail "no warning: $(cat "$work/err")"

killed "$work/cut.json.journal" '1 2' calibrate curves -m "$model" -f "$text" --set $small -o "$work/cut.json" --dump "$work/cut.csv"
good 'killed and taken up, two threads' calibrate curves -m "$model" -f "$text" --set $small -t 2 -o "$work/cut.json" --dump "$work/cut.csv"
same 'killed and taken up' "$made" "$work/cut.json"
same 'killed and taken up: measurements' "$work/one.csv" "$work/cut.csv"

bad 'scores inside blocks' 'inside a block only' calibrate curves -m "$model" -f "$text" --policy lagkv --set $small -o "$work/made/c.json"
head -c 60 "$text" >"$work/short.txt"
bad 'text too short' 'at least 100' calibrate curves -m "$model" -f "$work/short.txt" --set $small -o "$work/made/c.json"
finish
