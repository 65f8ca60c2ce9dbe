# SPDX-License-Identifier: MIT
# winnow eval --study: the parts of a study are answered together, options replace its lists, and what it needs is said.
. "$(dirname "$0")/lib.sh"
llama=$tiny/tiny-llama.gguf
need_file "$llama"
export WINNOW_CACHE=$work/cache # no profiles

study() { good "$1" eval -m "$llama" -t 1 --quiet --no-gate --out "$work/$1" --study "${@:2}"; }

# Six shares of the context alone, four of the whole prompt, one in chunks; the full cache in both modes.
study parts criticalkv --tasks niah_single_1 --lengths 700 --samples 1 --policies snapkv
py "$work/parts" <<'PY' || fail 'parts'
import json, sys
run = json.load(open(sys.argv[1] + "/run.json"))
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
assert run["suite"] == "criticalkv" and [t["task"] for t in run["tasks"]] == ["niah_single_1"], run["tasks"]
have = sorted((c["mode"], c["recipe"], c["size"], c["evict"]) for c in run["configs"])
want = sorted([("agnostic", "full", "full", "end"), ("aware_full", "full", "full", "end")]
              + [("agnostic", "snapkv", f"ratio={r}", "end") for r in (0.2, 0.25, 0.4, 0.5, 0.6, 0.8)]
              + [("aware_full", "snapkv", f"ratio={r}", "end") for r in (0.6, 0.8, 0.9, 0.95)]
              + [("agnostic", "snapkv", "ratio=0.5", "chunk:256")])
assert have == want, have
assert sorted(r["config"] for r in rows) == sorted(c["config_id"] for c in run["configs"])
PY

# Lengths hold for every task, a grid has the depths and trials that are asked for, and types of one part are compared
# with the 16-bit cache of the others.
study lagkv lagkv --lengths 700 --depths 20,100 --trials 1 --policies lagkv:lag=160 --ratios own --no-early-stop
py "$work/lagkv" <<'PY' || fail 'lagkv'
import json, sys
run = json.load(open(sys.argv[1] + "/run.json"))
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
assert [(t["task"], t["N"], t["n"]) for t in run["tasks"]] == [("passkey64", 700, 2)], run["tasks"]
have = sorted((c["kv_type"], c["recipe"], c["evict"]) for c in run["configs"])
types = ["f16", "q4_0", "q4_0:1024", "q8_0"]
want = sorted([(t, r, "end") for t in types for r in ("full", "lagkv:lag=160")] + [("f16", "lagkv:lag=160", "chunk")])
assert have == want, have
(reference,) = {c["reference"] for c in run["configs"]}
assert next(c for c in run["configs"] if c["config_id"] == reference)["kv_type"] == "f16"
assert len(rows) == 2 * len(want)
assert run["chat"] == {"template": "none", "raw": True, "head": "", "tail": ""}, run["chat"] # as in the paper's code
# Whether the key lies in what is never thinned is known in chunks too, where the same blocks stay.
def floor(when):
    (config,) = [c["config_id"] for c in run["configs"] if (c["kv_type"], c["recipe"], c["evict"]) == ("f16", "lagkv:lag=160", when)]
    return {r["depth"]: r["protected"] for r in rows if r["config"] == config}
assert floor("chunk") == floor("end") and set(floor("end").values()) == {True, False}, (floor("end"), floor("chunk"))
PY

# A size that a policy cannot have leaves it out, also where it reads by itself, and not the run; the same command has nothing to do then.
small=(eval -m "$llama" -t 1 --no-gate --tasks niah_single_1 --lengths 700 --samples 1 --policies lagkv,snapkv --budgets 100)
for when in end chunk; do
    good "left out: $when" "${small[@]}" --evict $when --out "$work/left-$when"
    grep -q 'lagkv with budget=100 is left out where it cannot be: .*the size leaves 100 ' "$work/err" || fail "left out: $(cat "$work/err")"
    py "$work/left-$when" <<'PY' || fail "left out: $when"
import json, sys
rows = {r["policy"]: r for r in map(json.loads, open(sys.argv[1] + "/results.jsonl"))}
assert rows.keys() == {"full", "lagkv", "snapkv"} and "score" in rows["snapkv"] and "score" not in rows["lagkv"], rows
assert "the size leaves 100 " in rows["lagkv"]["left_out"], rows["lagkv"]
PY
    cp "$work/left-$when/results.jsonl" "$work/before"
    good "left out, again: $when" "${small[@]}" --evict $when --out "$work/left-$when"
    same "left out, again: $when" "$work/before" "$work/left-$when/results.jsonl"
    grep -q 'lagkv with budget=100 in mode agnostic is left out of 1 sample: .*the size leaves 100 ' "$work/left-$when/summary.txt" || fail 'left out: summary'
done

# Costs: everybody reads and answers alone, as many tokens as are asked for; the answers are those of one reading for all.
study costs costs --lengths 600 --samples 1 --budgets 64 --policies snapkv,kvzip,knorm --answer-tokens 7
grep -q '^COSTS, each by itself' "$work/costs/summary.txt" || fail "costs: $(cat "$work/costs/summary.txt")"
page_data "$work/costs/report.html" "$work/page.json"
json 'costs: the page says so' "$work/page.json" 'o["runs"][0]["alone"]'
good 'costs together' eval -m "$llama" -t 1 --quiet --no-gate --tasks niah_single_2 --lengths 600 --samples 1 --budgets 64 \
    --policies snapkv,kvzip,knorm --modes aware_full --answer-tokens 7 --batch 1 --out "$work/together"
py "$work/costs" "$work/together" <<'PY' || fail 'costs'
import json, sys
def rows(folder):
    return {(r["policy"], r["size"]): r for r in map(json.loads, open(folder + "/results.jsonl"))}
alone, together = map(rows, sys.argv[1:])
run = json.load(open(sys.argv[1] + "/run.json"))
assert run["alone"] and run["answer_tokens"] == 7 and not run["batched"], run
assert alone.keys() == together.keys() and len(alone) == 4, alone.keys()
for key, r in alone.items():
    assert r["gen_tokens"] == 7 and r["stop"] == "length" and r["ms"]["prefill"] > 0, r
    assert (r["pred"], r["kv_bytes"], r["score"]) == tuple(together[key][k] for k in ("pred", "kv_bytes", "score")), (r, together[key])
assert len({r["ms"]["prefill"] for r in alone.values()}) == 4 and len({r["ms"]["prefill"] for r in together.values()}) == 1
PY
bad 'another way to read' '"alone" differs' eval -m "$llama" -t 1 --quiet --no-gate --tasks niah_single_2 --lengths 600 --samples 1 --budgets 64 \
    --policies snapkv,kvzip,knorm --modes aware_full --answer-tokens 7 --batch 1 --alone --out "$work/together"

bad 'no profile' 'srh' eval -m "$llama" --study compresskv --lengths 600 --samples 1 --depths 50 --out "$work/made/x"
bad 'a study with a suite' 'exclude each other' eval -m "$llama" --study lagkv --suite smoke --out "$work/made/x"
bad 'an unknown study' 'did you mean lagkv' eval -m "$llama" --study lakv --out "$work/made/x"
bad 'no lengths' '--lengths is empty' eval -m "$llama" --study lagkv --tasks vt --lengths , --out "$work/made/x"
finish
