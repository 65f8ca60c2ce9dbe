# SPDX-License-Identifier: MIT
# winnow eval at lengths as long as the model's context: no sample is left out that fits, for any comparison after its answer.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
n=4096 # the model's context
llama=$work/short.gguf
shorter "$tiny/tiny-llama.gguf" $n "$llama"

# answered NAME FOLDER TURNS: every policy has a record for each turn, with its comparison, and nothing was left out.
answered() {
    grep -q 'left out' "$work/err" && fail "$1: $(cat "$work/err")"
    py "$2" "$3" $n <<'PY' || fail "$1: records"
import json, sys
turns, n_ctx = int(sys.argv[2]), int(sys.argv[3])
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
own = json.load(open(sys.argv[1] + "/run.json"))["own_history"]
assert sorted((r["policy"], r["turn"]) for r in rows) == sorted((p, t) for p in ("full", "snapkv") for t in range(turns)), len(rows)
full = {r["turn"]: r for r in rows if r["policy"] == "full"}
for r in rows:
    assert r["stop"] in ("length", "eog", "matched") and n_ctx - 800 < r["ctx_tokens"] < n_ctx or turns > 1, r
    if not own or r["turn"] == 0:
        assert r["fgt"] is not None and r["kl"] is not None and r["dnll"] is not None and full[r["turn"]]["agree"] == 1, r
PY
}
whole() {
    good "$1" eval -m "$llama" -t 1 --tasks "$1" --lengths $n --samples 1 --no-gate --policies snapkv --depths 50 --out "$work/$1${*:3}" "${@:3}"
    answered "$1" "$work/$1${*:3}" "$2"
}
whole niah_single_2 1
whole passkey64 1
whole scb_kv_syn 5
whole scb_kv_syn 5 --own-history
whole scb_kv_syn 5 --turns=multi_request
whole scb_mf_syn 6 # answers of 5 tokens: the room after the last question is less than what comparisons feed elsewhere
py "$work/scb_mf_syn/results.jsonl" <<'PY' || fail 'scb_mf_syn: comparisons'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
full = [r["prefix"] for r in sorted(rows, key=lambda r: r["turn"]) if r["policy"] == "full"]
assert full[0] == 32 and 5 <= full[-1] < 32, full
PY

# A summary of a report that lost its middle, whose reference is longer than the answers.
mkdir "$work/lb"
py "$work/lb/gov_report.jsonl" <<'PY'
import json, sys
json.dump({"input": "", "context": " ".join(f"word{i}" for i in range(3000)), "answers": [" ".join(f"word{i}" for i in range(600))],
           "length": 3000, "dataset": "gov_report", "language": "en", "all_classes": None, "_id": "1"}, open(sys.argv[1], "w"))
PY
for tokens in '' '--answer-tokens=600'; do
    good "gov_report $tokens" eval -m "$llama" -t 1 --tasks gov_report --longbench "$work/lb" --policies snapkv $tokens --out "$work/report$tokens"
    answered "gov_report $tokens" "$work/report$tokens" 1
    grep -q '"truncated":true' "$work/report$tokens/results.jsonl" || fail 'gov_report: it was not cut'
done

# References that stay in the cache and are longer than answers: the cut leaves room for them.
mkdir "$work/scb"
py "$work/scb/scbench_kv.jsonl" <<'PY'
import json, sys
turns = [{"input": f"Key: {i}", "answer": f"value {i} " * 60} for i in range(5)]
json.dump({"id": 0, "context": " ".join(f"word{i}" for i in range(3000)), "multi_turns": turns}, open(sys.argv[1], "w"))
PY
good 'long references' eval -m "$llama" -t 1 --tasks scb_kv --scbench "$work/scb" --policies snapkv --out "$work/long"
answered 'long references' "$work/long" 5
finish
