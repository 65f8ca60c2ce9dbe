# SPDX-License-Identifier: MIT
# winnow calibrate heads and all: profiles of importance and gates from probes, and only what is missing is made. Tiny
# models answer no question, so their answers are fed.
. "$(dirname "$0")/lib.sh"
calibrates heads
numbered >"$work/text.txt"
small=facts=2,lengths=1,depths=2,longest=600,steps=6,sink=16,recent=32
heads=(calibrate heads -m "$model" -f "$work/text.txt")

good heads "${heads[@]}" --set "$small,forced=always" --dump "$work/dump.csv" -t 1
grep -q 'numbers are of 4 probes' "$work/out" || fail "report: $(cat "$work/out")"
json 'the profile' "$made" 'o["kind"] == "heads" and o["settings"]["sink"] == 16 and o["settings"]["recent"] == 32 and
    o["results"]["forced"] and o["results"]["counted"] == 4'
json 'ranges' "$made" 'all(x >= 0 for l in o["results"]["score"] for x in l) and any(x > 0 for l in o["results"]["score"] for x in l)
    and all(0 <= x <= 1 for l in o["results"]["alpha"] for x in l)'
# The profile is the mean of the dump: score of query heads, far shares of groups.
py "$made" "$work/dump.csv" <<'PY' || fail 'the dump does not give the profile'
import csv, json, sys
o = json.load(open(sys.argv[1]))
m, r = o["model"], o["results"]
rows = list(csv.DictReader(open(sys.argv[2])))
group, n = m["n_head"] // m["n_head_kv"], r["counted"]
assert len(rows) == n * m["n_layer"] * m["n_head"]
score = [[0.0] * m["n_head"] for _ in range(m["n_layer"])]
alpha = [[0.0] * m["n_head_kv"] for _ in range(m["n_layer"])]
for x in rows:
    score[int(x["layer"])][int(x["head"])] += float(x["importance"]) / n
    alpha[int(x["layer"])][int(x["head"]) // group] += float(x["far"]) / n / group
for got, want in ((r["score"], score), (r["alpha"], alpha)):
    assert all(abs(a - b) < 1e-7 for p, q in zip(got, want) for a, b in zip(p, q))
PY
good 'two threads' "${heads[@]}" --set "$small,forced=always" -t 2 -o "$work/two.json" && same 'any number of threads' "$made" "$work/two.json"
ids 300 >"$work/ids"
for policy in headkv duoattention:sinks=16 criticalkv-headkv; do
    good "$policy" plan -m "$model" --tokens "$work/ids" --policy "$policy" --budget 100 -o "$work/plan.json"
done
bad 'no answer' 'answers none of 4 probes' "${heads[@]}" --set "$small,forced=never" -o "$work/made/x.json"
echo 'Too short.' >"$work/short"
bad 'a short text' 'the text' calibrate heads -m "$model" -f "$work/short" --set "$small" -o "$work/made/x.json"

# ---- all: what is there is left alone ----
good 'methods says what is there' methods headkv -m "$model" && grep -q 'profiles   heads: .*/tiny-llama/heads.json' "$work/out" || fail "methods: $(grep profiles "$work/out")"
good 'methods says what is missing' methods qfilters -m "$model" && grep -q 'make it with .winnow calibrate stats' "$work/out" || fail "methods: $(grep profiles "$work/out")"
bad 'all, no such model' 'no file' calibrate all -m nomodel
finish
