# SPDX-License-Identifier: MIT
# winnow eval --closed-book: without its context no retrieval task can be answered, and what was read says so.
. "$(dirname "$0")/lib.sh"
smollm2=$models/smollm2-135m.gguf
need_file "$smollm2"
tasks=niah_single_1,niah_single_2,niah_single_3,niah_multikey_1,niah_multikey_2,niah_multikey_3,niah_multivalue,niah_multiquery
tasks+=,vt,qa_syn_1,qa_syn_2,niah_grid,passkey64,passkey7,scb_kv_syn,scb_prefix_suffix_syn,scb_niah_syn
good 'closed book' eval -m "$smollm2" -t 1 --quiet --closed-book --tasks $tasks --lengths 1024 --samples 1 --depths 50 --answer-tokens 12 --batch 1 \
    --out "$work/closed"
python3 - "$work/closed" $tasks <<'PY' || fail 'closed book: scores'
import collections, json, sys
scores = collections.defaultdict(list)
for r in map(json.loads, open(sys.argv[1] + "/results.jsonl")):
    assert r["policy"] == "full" and r["ctx_tokens"] < 60, r  # the chat's head
    scores[r["task"]].append(100 * r["score"])
assert sorted(scores) == sorted(sys.argv[2].split(",")), scores.keys()
means = {task: sum(s) / len(s) for task, s in scores.items()}
assert all(mean < 5 for mean in means.values()), means
PY
grep -q '^Closed book: ' "$work/closed/summary.txt" || fail 'closed book: the summary does not say so'
page_data "$work/closed/report.html" "$work/page.json"
json 'closed book: the page says so' "$work/page.json" 'any(n.startswith("Closed book: ") for n in o["runs"][0]["notes"])'
finish
