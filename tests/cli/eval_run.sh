# SPDX-License-Identifier: MIT
# winnow eval --out on a tiny model: one record for each sample, config and turn; a cache that drops nothing
# answers as the full one; a run that was killed continues with the same answers.
. "$(dirname "$0")/lib.sh"
llama=$tiny/tiny-llama.gguf
need_file "$llama"
run() { good "$1" eval -m "$llama" -t 1 --samples 2 --quiet "${@:2}"; }
# A model of random weights ends no answer by itself, and what is checked of most is seen in a few tokens.
brief() { run "$@" --answer-tokens 12; }

brief 'a run' --tasks niah_single_1,scb_niah_syn --lengths 700 --samples 1 --policies snapkv,kvzip --ratios 0,0.5 \
    --modes agnostic,aware,aware_full --kv-types q8_0,f16 --out "$work/run"
grep -v 'the report is' "$work/err" && fail 'a run: that was on stderr'
py "$work/run" <<'PY' || fail 'records are not what they should be'
import json, sys
run = json.load(open(sys.argv[1] + "/run.json"))
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
configs = {c["config_id"]: c for c in run["configs"]}
assert len(configs) == len(run["configs"]) == 2 * 3 * (1 + 2 * 2), len(configs)
keys = {r["key"] for r in rows}
want = {f"{t}|700|{i}|42|{c}|{turn}" for t, n in (("niah_single_1", 1), ("scb_niah_syn", 5)) for i in range(1)
        for c in configs for turn in range(n)}
assert keys == want and len(rows) == len(want), (len(rows), len(want))
by = {(r["task"], r["index"], r["turn"], r["config"]): r for r in rows}
for r in rows:
    c = configs[r["config"]]
    full = by[r["task"], r["index"], r["turn"], c["reference"]]
    assert full["policy"] == "full" and full["kv_type"] == "f16" and full["mode"] == r["mode"]
    assert r["peak_bytes"] >= r["kv_bytes"] > 0 and (r["size"] != "ratio=0.5" or r["peak_bytes"] > 1.5 * r["kv_bytes"]), r
    assert r["refs"] == full["refs"] and r["kl"] is not None and 0 <= r["score"] <= 1 and "bad" not in r
    if r["size"] in ("full", "ratio=0"):
        assert abs(r["ratio_ach"]) < 1e-9
        if r["kv_type"] == "f16":
            assert (r["pred"], r["stop"], r["gen_tokens"]) == (full["pred"], full["stop"], full["gen_tokens"]), r["key"]
            assert r["agree"] == 1 and r["fgt"] == 1 and r["kl"] < 1e-9 and abs(r["dnll"]) < 1e-9, r
    else:
        assert abs(r["ratio_ach"] - 0.5) < 0.02 and r["kv_bytes"] < 0.8 * full["kv_bytes"], (r, full["kv_bytes"])
    if r["mode"] == "agnostic":  # a position of four bytes for each entry, and for its room
        heads = run["model"]["n_layer"] * run["model"]["n_head_kv"]
        entries = (1 - r["ratio_ach"]) * r["ctx_tokens"] * heads
        assert 4 * entries - 1 <= r["meta_bytes"] <= 4 * (entries + 32 * heads), (r["meta_bytes"], 4 * entries)
    if r["mode"] == "aware_full":
        assert r["q_tokens"] == 0 or r["turn"] > 0
    if r["kv_type"] == "q8_0" and r["policy"] == "full":
        assert r["kv_bytes"] < 0.6 * full["kv_bytes"]
for t in "niah_single_1", "scb_niah_syn":  # a mode that compresses more holds more
    part = [next(r for r in rows if r["task"] == t and r["policy"] == "full" and r["kv_type"] == "f16" and r["turn"] == 0
                 and r["mode"] == m) for m in ("agnostic", "aware", "aware_full")]
    assert part[0]["q_tokens"] > part[1]["q_tokens"] > part[2]["q_tokens"] == 0
    assert part[0]["kv_bytes"] <= part[1]["kv_bytes"] <= part[2]["kv_bytes"] > part[0]["kv_bytes"]
PY

# Without --out the folder is named for the model and the time.
mkdir "$work/here"
(cd "$work/here" && "$WINNOW" eval -m "$llama" -t 1 --quiet --tasks niah_single_1 --lengths 600 --samples 1 --policies snapkv >"$work/out" 2>"$work/err") ||
    fail "no folder: $(cat "$work/err")"
[ "$(cat "$work"/here/eval-tiny-llama-2*Z/results.jsonl | wc -l)" = 2 ] || fail "no folder: $(ls "$work/here")"

# One reading for all; the documents of the user are part of what a run is.
python3 - >"$work/docs.jsonl" <<'PY'
import json
for i in range(12):
    print(json.dumps({"type": "doc", "id": i, "text": f"Title {i}\nThe capital of land {i} is city {i * 7919}."}))
print(json.dumps({"type": "qa", "question": "What is the capital of land 1?", "answers": ["city 7919"], "gold": [1]}))
PY
documents=(eval -m "$llama" -t 1 --samples 1 --tasks qa_1 --lengths 1000 --policies snapkv --squad "$work/docs.jsonl" --out "$work/docs")
good 'documents' "${documents[@]}" &&
    grep -q '1 readings took .* by itself would need 2, ' "$work/err" || fail "readings: $(cat "$work/err")"
json 'documents' "$work/docs/run.json" 'len(o["squad"]) == 16 and "hotpot" not in o'
sed -i 's/Title 11/Title 12/' "$work/docs.jsonl"
"$WINNOW" "${documents[@]}" >"$work/out" 2>"$work/err"
grep -q '"squad" differs' "$work/err" || fail "other documents: $(cat "$work/err")"

good 'documents of qa_2' eval -m "$llama" -t 1 --quiet --samples 1 --tasks qa_2 --lengths 1000 --policies snapkv --hotpot "$work/docs.jsonl" --out "$work/docs2"
json 'documents of qa_2' "$work/docs2/run.json" 'len(o["hotpot"]) == 16 and "squad" not in o'

# A folder whose files are none that can be read or written: said at once, and a pipe is not waited for.
folder() { bad "$1" "$2" eval -m "$llama" -t 1 --quiet --tasks niah_single_1 --lengths 600 --samples 1 --policies snapkv --out "$work/odd"; }
for file in lock results.jsonl run.json; do
    for kind in pipe folder device; do
        rm -rf "$work/odd"
        mkdir "$work/odd"
        case $kind in
        pipe) mkfifo "$work/odd/$file" ;;
        folder) mkdir "$work/odd/$file" ;;
        device) ln -s /dev/zero "$work/odd/$file" ;;
        esac
        folder "$file is a $kind" "odd/$file|odd' has results but no run.json"
    done
done
as_others() { "$@"; }
[ "$(id -u)" -ne 0 ] || as_others() { setpriv --bounding-set=-dac_override,-dac_read_search "$@"; }
if as_others true 2>/dev/null; then
    real=$WINNOW
    printf '#!/bin/bash\n%s\n' "$(declare -f as_others)" 'as_others "$REAL" "$@"' >"$work/others"
    chmod +x "$work/others"
    export REAL=$real
    WINNOW=$work/others
    rm -rf "$work/odd"
    mkdir -m 500 "$work/odd"
    folder 'a folder that may not be written' 'odd/lock.* failed: Permission denied'
    chmod 700 "$work/odd"
    touch "$work/odd/results.jsonl"
    chmod 400 "$work/odd/results.jsonl"
    folder 'results that may not be written' 'results.jsonl.* failed: Permission denied'
    [ ! -s "$work/odd/lock" ] || fail 'a run that did not begin is taken for one that did not end'
    WINNOW=$real
    chmod 600 "$work/odd/results.jsonl"
fi
# A full disk is none of the user's input, wherever it is noticed: here files may have no bytes.
(
    trap '' XFSZ
    ulimit -f 0
    "$WINNOW" eval -m "$llama" -t 1 --quiet --tasks niah_single_1 --lengths 600 --samples 1 --policies snapkv --out "$work/full" 2>&1
    echo "exit code $?"
) | cat >"$work/out"
grep -q 'winnow: --out: writing the lock .* failed: File too large' "$work/out" && grep -qx 'exit code 1' "$work/out" || fail "a full disk: $(cat "$work/out")"

# What a run will not decide is said before it begins.
printf 'snapkv vs knorm mode=agnostic size=ratio=0.5 N=600\nsnapkv vs knorm mode=agnostic size=ratio=0.5 N=700\nsnapkv vs knorm mode=task size=ratio=0.5\n' >"$work/contrasts"
run 'contrasts' --tasks niah_single_1 --lengths 600 --samples 1 --policies snapkv,knorm --ratios 0.5 --contrasts "$work/contrasts" --out "$work/contrasted"
[ "$(grep -c 'which stays open' "$work/err")" -eq 2 ] && grep -q 'N=700.*stays open' "$work/err" || fail "contrasts: $(cat "$work/err")"
echo 'snapkv vs knorm mode=agnostic size=ratio=0.5 size=ratio=0.9' >"$work/contrasts"
bad 'a key twice' 'says twice' eval -m "$llama" --tasks niah_single_1 --policies snapkv,knorm --contrasts "$work/contrasts" --out "$work/made/x"

# Nothing is done twice.
cp "$work/run/results.jsonl" "$work/first"
brief 'again' --tasks niah_single_1,scb_niah_syn --lengths 700 --samples 1 --policies snapkv,kvzip --ratios 0,0.5 \
    --modes agnostic,aware,aware_full --kv-types q8_0,f16 --out "$work/run"
same 'again' "$work/first" "$work/run/results.jsonl"

# answers FILE: everything of the records but their times, in the order of their keys.
answers() {
    python3 -c '
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len({r["key"] for r in rows}) == len(rows)
for r in sorted(rows, key=lambda r: r["key"]):
    del r["ms"]
    print(json.dumps(r, sort_keys=True))' "$1"
}
options=(--tasks niah_single_1,niah_multikey_1,fwe --policies snapkv,knorm --ratios 0.25,0.5,0.75)
run 'whole' "${options[@]}" --lengths 700 --out "$work/whole"
answers "$work/whole/results.jsonl" >"$work/want"

# A process that is killed, twice, and one that is asked to end; each time at another place.
killed=(eval -m "$llama" -t 1 --samples 2 --quiet "${options[@]}" --lengths 700 --out "$work/killed")
for after in 5 12; do
    ended_by KILL "$work/killed/results.jsonl" "$after" "${killed[@]}"
done
before=$(($(wc -l <"$work/killed/results.jsonl") + 3)) # a torn line may go
ended_by TERM "$work/killed/results.jsonl" "$before" "${killed[@]}"
[ "$code" -eq 130 ] || [ "$code" -eq 0 ] || fail "SIGTERM: exit code $code: $(cat "$work/err")"
[ "$code" -eq 130 ] && { grep -q 'the same command goes on' "$work/err" || fail "SIGTERM: $(cat "$work/err")"; }
printf '{"v":1,"key":"torn' >>"$work/killed/results.jsonl"
run 'goes on' "${options[@]}" --lengths 700 --out "$work/killed"
answers "$work/killed/results.jsonl" >"$work/got"
same 'killed and resumed' "$work/want" "$work/got"

# Two shards are the whole, with any others in the batch.
run 'shard 1' "${options[@]}" --lengths 700 --shard 1/2 --out "$work/shard1"
run 'shard 2' "${options[@]}" --lengths 700 --shard 2/2 --batch 3 --out "$work/shard2"
cat "$work/shard1/results.jsonl" "$work/shard2/results.jsonl" >"$work/shards"
answers "$work/shards" >"$work/got"
same 'shards' "$work/want" "$work/got"

# Machines of different speed have time for different numbers of samples: the shards are one run all the same. With as many
# seconds as here nothing is lowered, because each has one half of the work.
for i in 1 2; do
    run "shard $i with a budget" --tasks niah_single_1 --lengths 600,700,100000 --policies snapkv --time-budget 9h --shard $i/2 --out "$work/paced$i"
    grep -q 'time-budget' "$work/err" && fail "shard $i with a budget: $(cat "$work/err")"
done
py "$work/paced2/run.json" <<'PY' || fail 'shards with a budget: run.json'
import json, sys
run = json.load(open(sys.argv[1]))
assert [t["n"] for t in run["tasks"]] == [2, 2, 2] and run["time_budget"] == "9h", run["tasks"]
assert [t["units"] > 0 for t in run["tasks"]] == [True, True, False], run["tasks"]  # nobody fits what is left out
run["tasks"][0]["n"] = 1
json.dump(run, open(sys.argv[1], "w"))
PY
good 'shards with a budget' report "$work/paced1" "$work/paced2" --json -o "$work/paced.html"
json 'shards with a budget' "$work/out" 'len(o["runs"]) == 1 and o["runs"][0]["answers"] == 8'

# run.json says what computed, and a run does not go on elsewhere or with another version.
cp -r "$work/paced1" "$work/moved"
for field in device backend winnow; do
    py "$work/paced1/run.json" "$work/moved/run.json" $field <<'PY' || fail "run.json has no $field"
import json, sys
run = json.load(open(sys.argv[1]))
assert isinstance(run.get(sys.argv[3]), str) and run[sys.argv[3]] and run["calibration"]["token_ms"] > 0
json.dump({**run, sys.argv[3]: "another"}, open(sys.argv[2], "w"))
PY
    bad "another $field" "\"$field\" differs" eval -m "$llama" -t 1 --samples 2 --quiet --tasks niah_single_1 --lengths 600,700,100000 --policies snapkv \
        --time-budget 9h --shard 1/2 --out "$work/moved"
done

# Rules that drop entries while reading and answering, and questions asked one by one.
brief 'chunks' --tasks niah_single_1 --lengths 600 --policies streaming_llm,lagkv --evict chunk:256 --evict-every 8 --out "$work/chunks"
printf 'knorm vs knorm mode=agnostic size=ratio=0.5 evict=chunk:256/end\n' >"$work/rules.txt"
brief 'rules of eviction' --tasks niah_single_1 --lengths 600 --policies knorm --ratios 0.5 --evict end,chunk:256 --contrasts "$work/rules.txt" --out "$work/evict" && {
    grep -q 'stays open' "$work/err" && fail "rules of eviction: $(cat "$work/err")"
    grep -q 'knorm minus knorm, .*, chunk:256 and end, .*: n = ' "$work/out" || fail "rules of eviction: $(grep minus "$work/out")"
}
brief 'slack' --tasks niah_single_1 --lengths 600 --policies knorm --ratios 0.5 --evict chunk:256 --chunk-slack 1.5 --out "$work/slack"
py "$work/slack" <<'PY' || fail 'slack: records'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
assert all(abs(r["ratio_ach"] - 0.5) < 0.02 for r in rows if r["policy"] == "knorm"), rows
configs = json.load(open(sys.argv[1] + "/run.json"))["configs"]
assert [c.get("chunk_slack") for c in configs] == [None, 1.5], configs
PY
# Several rules of --evict-every. A contrast compares two of them; one with a rule that is not in the list stays open.
printf '%s\n' 'knorm vs knorm mode=agnostic size=ratio=0.5 every=4:0.5:all/4' 'knorm vs knorm mode=agnostic size=ratio=0.5 every=4/8' >"$work/rules.txt"
run 'rules' --tasks niah_single_1 --lengths 600 --policies knorm --ratios 0.5 --evict-every 4/4:0.5:all --answer-tokens 40 --contrasts "$work/rules.txt" --out "$work/rules"
[ "$(grep -c 'does not compare' "$work/err")" = 1 ] && grep -q "does not compare '.*every=4/8'" "$work/err" || fail "rules: $(cat "$work/err")"
py "$work/rules" <<'PY' || fail 'rules: records'
import json, sys
run = json.load(open(sys.argv[1] + "/run.json"))
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
assert [(c["recipe"], c["evict_every"]) for c in run["configs"]] == [("full", ""), ("knorm", "4"), ("knorm", "4:0.5:all")], run["configs"]
of = {c["config_id"]: c["evict_every"] for c in run["configs"]}
assert sorted(of[r["config"]] for r in rows) == ["", "", "4", "4", "4:0.5:all", "4:0.5:all"], rows
PY
bad 'a rule that is none' "'x': give I or I:T" eval -m "$llama" --tasks niah_single_1 --policies knorm --evict-every 4/x --out "$work/made/x"
brief 'compressed again' --tasks scb_niah_syn --lengths 600 --samples 1 --policies snapkv,lagkv:lag=64,kvzip --ratios 0,0.5 --recompress each-turn --out "$work/again2"
py "$work/again2" <<'PY' || fail 'compressed again: records'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
full = {r["turn"]: r for r in rows if r["policy"] == "full"}
assert len(rows) == 5 * (1 + 3 * 2), len(rows)
for r in rows:
    whole = full[r["turn"]]
    if r["size"] == "ratio=0.5":  # of all that was read so far
        assert abs(r["ratio_ach"] - 0.5) < 0.02 and r["kl"] is not None, r
        first = next(x for x in rows if (x["config"], x["turn"]) == (r["config"], 0))
        assert r["turn"] == 0 or r["kv_bytes"] > first["kv_bytes"], r
    else:
        assert (r["pred"], r["fgt"], r["agree"]) == (whole["pred"], 1, 1), (r, whole)
assert json.load(open(sys.argv[1] + "/run.json"))["recompress"]
PY
brief 'own history' --tasks scb_niah_syn --lengths 600 --policies snapkv --own-history --out "$work/own"
run 'budgets' --tasks niah_single_1 --lengths 600 --policies snapkv --budgets 64,128 --out "$work/budgets"
brief 'bytes' --tasks niah_single_1 --lengths 1000 --policies snapkv --kv-bytes 256K --kv-types f16,q8_0,q8_0:64,q8_0:64:unrotated --out "$work/bytes"
py "$work/bytes/results.jsonl" <<'PY' || fail 'bytes'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
kept = {r["kv_type"]: 1 - r["ratio_ach"] for r in rows if r["policy"] == "snapkv"}
assert 1.6 < kept["q8_0"] / kept["f16"] < 2.1, kept
assert kept["f16"] < kept["q8_0:64"] < kept["q8_0"], kept  # sinks and tail cost as much as in f16
assert kept["q8_0:64"] == kept["q8_0:64:unrotated"], kept  # rotation takes no bytes
assert {r["kv_type"] for r in rows if r["kv_rotated"]} == {"q8_0", "q8_0:64"}
PY

# Tasks without scores that distinguish methods: the summary has means, and for texts the perplexity and its ratio on the same
# pieces, each with an interval around it.
brief 'pieces' --tasks ppl,niah_single_1 --text "$(dirname "$0")/../../share/text/held-out.txt" --lengths 600 --samples 8 --policies snapkv --out "$work/pieces"
page_data "$work/pieces/report.html" "$work/page.json"
py "$work/pieces" "$work/page.json" <<'PY' || fail 'pieces: the summary'
import json, math, re, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl") if '"index":9' not in line]
text = open(sys.argv[1] + "/summary.txt").read()
page = json.load(open(sys.argv[2]))["runs"][0]
(shown,) = (r for b in page["blocks"] for p in b.get("predictions", []) if p["task"] == "ppl" for r in p["rows"]
            if next(x["policy"] for x in b["rows"] if x["config"] == r["config"]) == "snapkv")
def of(task, policy):
    return sorted((r for r in rows if r["task"] == task and r["policy"] == policy and r["index"] < 900000), key=lambda r: r["index"])
def table(task):
    return text.split(f"\n{task} ", 1)[1].split("\n\n")[0].splitlines()[1:]
full, kept = of("ppl", "full"), of("ppl", "snapkv")
assert len(full) == len(kept) == 8
mean = lambda x: sum(x) / len(x)
nll = [mean([r["scores"]["nll"] for r in x]) for x in (full, kept)]
line = next(s for s in table("ppl") if s.startswith("snapkv"))
kl, ppl, ratio = re.findall(r"([\d.]+) \[([\d.]+), ([\d.]+)\]", line)
for name, (got, lo, hi), want in (("kl", kl, mean([r["kl"] for r in kept])), ("perplexity", ppl, math.exp(nll[1])),
                                  ("over_full", ratio, math.exp(nll[1] - nll[0]))):
    assert abs(float(got) / want - 1) < 1e-3 and float(lo) < want < float(hi), (line, want)
    decimals = len(got.split(".")[1])
    assert [f"{x:.{decimals}f}" for x in shown[name]] == [got, lo, hi], (shown, line)
line = next(s for s in table("niah_single_1") if s.startswith("snapkv"))
want = of("niah_single_1", "snapkv")
agree, first, lo, hi, dnll = map(float, re.search(r"([\d.]+) +([\d.]+) \[([\d.]+), ([\d.]+)\] +([-+\d.]+)$", line).groups())
assert lo <= first <= hi, line
assert abs(agree - 100 * mean([r["agree"] for r in want])) < 0.06 and abs(first - 100 * mean([r["fgt"] for r in want])) < 0.06, line
assert abs(dnll - mean([r["dnll"] for r in want])) < 6e-4, line
PY

# A text's second half, read after the compressed first half, has the perplexity that winnow ppl prints.
seq -f 'Sentence number %g says that all is well.' 1 40 >"$work/text.txt"
run 'text' --tasks ppl --text "$work/text.txt" --lengths 700 --samples 1 --policies snapkv --out "$work/text"
for policy in full snapkv; do
    [ $policy = full ] && set -- || set -- --ratio 0.5
    good "ppl $policy" ppl -m "$llama" -t 1 -f "$work/text.txt" -n 700 --prefix 350 --policy $policy "$@" --json
    py "$work/text/results.jsonl" "$work/out" $policy <<'PY' || fail "text: $policy"
import json, sys
row = next(r for r in map(json.loads, open(sys.argv[1])) if r["policy"] == sys.argv[3])
assert "score" not in row and row["stop"] == "text" and row["q_tokens"] == 350
assert abs(row["scores"]["nll"] - json.load(open(sys.argv[2]))["nll_mean"]) < 1e-6, row
PY
done

# Where the full cache's predictions are no numbers, in one piece of a text, that piece has nulls and is marked, and the others
# are as they were. The token of "~" is made a row of values that are no numbers.
"$cache/python/bin/python" - "$llama" "$work" <<'PY' || fail 'a model with a bad token'
import shutil, sys
from gguf import GGUFReader
llama, work = sys.argv[1:]
shutil.copy(llama, work + "/bad.gguf")
reader = GGUFReader(work + "/bad.gguf", "r+")
ids = [bytes(f.parts[i]) for f in [reader.fields["tokenizer.ggml.tokens"]] for i in f.data]
(table,) = (t for t in reader.tensors if t.name == "token_embd.weight")
table.data[ids.index(b"~")] = float("nan")
reader.data.flush()
text = " ".join(f"Sentence number {i} says that all is well." for i in range(120))
at = text.index("says", 1500) + 2  # in the second half of the second piece; no two tokens become one there
open(work + "/bad.txt", "w").write(text[:at] + "~" + text[at + 1:])
open(work + "/good.txt", "w").write(text)
PY
for text in good bad; do
    good "a $text text" eval -m "$work/bad.gguf" -t 1 --quiet --tasks ppl --text "$work/$text.txt" --lengths 800 --samples 4 --policies snapkv,knorm \
        --out "$work/text-$text"
done
py "$work"/text-{good,bad} <<'PY' || fail 'a bad text: records'
import json, sys
good, bad = ({(r["index"], r["policy"]): r for r in map(json.loads, open(d + "/results.jsonl"))} for d in sys.argv[1:])
assert good.keys() == bad.keys() and len(good) == 4 * 3, sorted(bad)
for key, r in bad.items():
    assert "score" not in r
    if key[0] != 1:
        same = ("kl", "dnll", "scores", "stop")
        assert "bad" not in r and [r[k] for k in same] == [good[key][k] for k in same], r
    else:
        assert r["bad"] and r["stop"] == "bad" and r["kl"] is r["dnll"] is r["agree"] is r["scores"]["nll"] is None, r
summary = open(sys.argv[2] + "/summary.txt").read()
assert "3 answers have a number that is not finite" in summary, summary
line = next(s for s in summary.split("\nppl ", 1)[1].splitlines() if s.startswith("snapkv"))
want = [bad[i, "snapkv"]["kl"] for i in (0, 2, 3)]
assert abs(float(line.split()[3]) - sum(want) / 3) < 1e-3, line
PY

# Without --samples and --lengths a text is read to its end, in pieces as long as the model's context where that is shorter
# than 2048 tokens.
shorter "$llama" 128 "$work/short.gguf"
seq -f 'Sentence number %g says that all is well.' 0 129 >"$work/long.txt"
good 'a whole text' eval -m "$work/short.gguf" -t 1 --quiet --tasks ppl --text "$work/long.txt" --policies snapkv --out "$work/pieces_all"
good 'its tokens' tokens -m "$work/short.gguf" --raw -f "$work/long.txt"
python3 - "$work/pieces_all" "$(wc -w <"$work/out")" <<'PY' || fail 'a whole text: its pieces'
import json, sys
(task,) = json.load(open(sys.argv[1] + "/run.json"))["tasks"]
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
n = round((int(sys.argv[2]) - 1) / 127)  # each begins with BOS
assert task["N"] == 128 and task["n"] == n > 20, (task, n)
assert sorted((r["index"], r["policy"]) for r in rows) == [(i, p) for i in range(n) for p in ("full", "snapkv")]
assert all(r["ctx_tokens"] == 64 for r in rows[:-2])
PY

# The full cache's answer, each alone, is that of winnow run on the same tokens.
sample_ids "$llama" --tasks niah_single_1 --lengths 1000 --samples 1 --chat none
good 'run' run -m "$llama" -t 1 --tokens "$work/prompt.ids" -n 128 --json
cp "$work/out" "$work/answer.json"
run 'alone' --tasks niah_single_1 --lengths 1000 --samples 1 --policies full --chat none --batch 1 --no-early-stop --out "$work/alone"
py "$work/alone/results.jsonl" "$work/answer.json" <<'PY' || fail 'run: the answers differ'
import json, sys
row, answer = json.loads(open(sys.argv[1]).readline()), json.load(open(sys.argv[2]))
text = "".join(c if ord(c) >= 32 else "\n" for c in answer["text"].strip()).strip()
assert row["pred"] == text and row["gen_tokens"] == len(answer["tokens"]), (row["pred"], text)
PY

# Probes are answered by the full cache alone. A budget of time lowers the numbers of samples, and the run goes on with
# the numbers that it began with.
brief 'probes' --tasks niah_single_1 --lengths 700 --samples 8 --policies snapkv --time-budget 1s --out "$work/probes"
cp "$work/probes/run.json" "$work/probes.json"
grep -q '"calibration":' "$work/probes/run.json" || fail 'probes: run.json does not say how fast the machine was'
brief 'probes again' --tasks niah_single_1 --lengths 700 --samples 8 --policies snapkv --time-budget 1s --out "$work/probes"
same 'time budget' "$work/probes.json" "$work/probes/run.json"
brief 'all probes' --tasks niah_single_1 --lengths 700 --samples 8 --policies snapkv --out "$work/all"
py "$work/all/results.jsonl" <<'PY' || fail 'probes'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
probes = [r for r in rows if r["index"] >= 900000]
# a model of random weights answers none: after sixteen the other four cannot change that
assert len(probes) == 16 and all(r["policy"] == "full" and r["score"] == 0 for r in probes) and len(rows) == 16 + 2 * 8
PY

# Where only probes were answered there is no report, which is no mistake: here the shard's one sample is a probe.
brief 'only probes' --tasks niah_single_1 --lengths 700 --samples 8 --policies snapkv --shard 1/28 --out "$work/few"
grep -q 'only answers to probes' "$work/err" && [ "$(wc -l <"$work/few/results.jsonl")" -eq 1 ] && [ ! -e "$work/few/report.html" ] ||
    fail "only probes: $(cat "$work/err")"

# A grid that ends early has seen all depths alike.
# Probes of a grid come to all depths, as its samples do.
brief 'probes of a grid' --tasks niah_grid --lengths 400 --depths lin5 --trials 3 --policies full --out "$work/grid_probes"
py "$work/grid_probes/results.jsonl" <<'PY' || fail 'probes of a grid'
import json, sys
probes = [r for r in map(json.loads, open(sys.argv[1])) if r["index"] >= 900000]
assert {r["index"] // 3 % 5 for r in probes[:5]} == set(range(5)) and len({r["index"] for r in probes}) == len(probes) == 16, [r["index"] for r in probes]
depths = sorted(r["depth"] for r in probes)
assert depths[-1] - depths[0] > 0.2, depths  # a needle goes after the last full stop, which is rare in 400 tokens
PY
brief 'a grid' --tasks niah_grid --lengths 400 --depths lin5 --trials 2 --policies snapkv --no-gate --shard 1/2 --out "$work/grid"
py "$work/grid" <<'PY' || fail 'a grid: its first half has not seen every depth once'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
depths = [r["index"] // 2 for r in rows if r["policy"] == "full"]
assert sorted(depths) == [0, 1, 2, 3, 4], depths
PY

# Calibration results belong to the run.
py "$work" <<'PY'
import json, sys
m = json.load(open(sys.argv[1] + "/run/run.json"))["model"]
share = list(range(1, m["n_layer"] + 1))
for name, x in ("rising", share), ("falling", share[::-1]):
    json.dump({"format": "winnow-profile-1", "kind": "layers", "settings": {}, "data": {},
               "model": {k: m[k] for k in ("fingerprint", "n_layer", "n_head", "n_head_kv", "n_embd_head")},
               "results": {"avg_score": [v / sum(x) for v in x]}}, open(f"{sys.argv[1]}/{name}.json", "w"))
PY
layers=(eval -m "$llama" -t 1 --quiet --tasks niah_single_1 --lengths 700 --samples 1 --policies snapkv+error_aware --out "$work/layers")
good 'a profile' "${layers[@]}" --profile "$work/rising.json"
good 'a profile, again' "${layers[@]}" --profile "$work/rising.json"
bad 'another profile' '"configs" differs' "${layers[@]}" --profile "$work/falling.json"

# The user's own questions: each line is answered with its own metric and length, one that the context does not hold is
# left out, and a file that changed is another run.
py "$work/own.jsonl" <<'PY'
import json, sys
long = " ".join(f"Sentence number {i} says that all is well." for i in range(12000))
with open(sys.argv[1], "w") as f:
    for row in ({"id": "first", "context": "Ann has 7 goats. " * 20, "question": "How many goats?", "answers": ["7", "seven"]},
                {"context": long, "question": "Is all well?", "answer": "yes"},
                {"context": "Bob sings. " * 20, "question": "Who?", "answer": "Bob", "metric": "qa_f1", "max_new": 3}):
        print(json.dumps(row), file=f)
PY
own=(eval -m "$llama" -t 1 --quiet --jsonl "$work/own.jsonl" --policies snapkv --out "$work/questions")
good 'own questions' "${own[@]}"
grep -q '1 samples were left out: they are longer' "$work/err" || fail "own questions: $(cat "$work/err")"
py "$work/questions" <<'PY' || fail 'own questions: records'
import json, sys
run = json.load(open(sys.argv[1] + "/run.json"))
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
(task,) = run["tasks"]
assert (task["task"], task["group"], task["n"], len(task["file"])) == ("user", "user", 3, 16), task
assert sorted((r["index"], r["policy"]) for r in rows) == [(0, "full"), (0, "snapkv"), (2, "full"), (2, "snapkv")], rows
for r in rows:
    first = r["index"] == 0
    assert (r.get("id"), r.get("metric")) == (("first", None) if first else (None, "qa_f1")), r
    assert r["refs"] == (["7", "seven"] if first else ["Bob"]) and r["question"].startswith("How many" if first else "Who")
    assert r["gen_tokens"] <= (64 if first else 3) and ("partial" in r["scores"]) == first and not r["truncated"]
    if first:  # the default metric: is an answer in what was said?
        assert r["score"] == any(ref in r["pred"].lower() for ref in r["refs"]), r
    assert (r["policy"] == "full") == (r["ratio_ach"] < 0.4), r
PY
grep -q '^1 samples were left out: they are longer' "$work/questions/summary.txt" || fail 'own questions: the summary says nothing of what is too long'
grep -qi 'stand-in\|in place of' "$work/questions/summary.txt" && fail 'own questions: nothing stands in for anything'
grep -q "^Stand-ins: generated prose in place of essays (scb_niah_syn); our own lists of words in place of the package wonderwords (niah_single_1); made-up data in place of the benchmark's own (scb_niah_syn)" "$work/run/summary.txt" ||
    fail "a run: stand-ins: $(grep -i stand "$work/run/summary.txt")"
good 'a run, as JSON' report "$work/run" --json
json 'a run, as JSON' "$work/out" 'len(o["runs"][0]["stand_ins"]) == 3 and o["runs"][0]["too_long"] == 0 and any(n.startswith("Stand-ins: ") for n in o["runs"][0]["notes"])'
good 'own questions, as JSON' report "$work/questions" --json
json 'own questions, as JSON' "$work/out" 'o["runs"][0]["stand_ins"] == [] and o["runs"][0]["too_long"] == 1'
# A folder whose run.json does not name the lists of words, as earlier versions left it, goes on.
py "$work/run/run.json" <<'PY'
import json, sys
with open(sys.argv[1]) as f:
    o = json.load(f)
o["stand_ins"] = [s for s in o["stand_ins"] if "words" not in s]
with open(sys.argv[1], "w") as f:
    json.dump(o, f)
PY
cp "$work/run/results.jsonl" "$work/first"
brief 'an older folder' --tasks niah_single_1,scb_niah_syn --lengths 700 --samples 1 --policies snapkv,kvzip --ratios 0,0.5 \
    --modes agnostic,aware,aware_full --kv-types q8_0,f16 --out "$work/run"
same 'an older folder' "$work/first" "$work/run/results.jsonl"
cp "$work/questions/results.jsonl" "$work/first"
good 'own questions, again' "${own[@]}"
same 'own questions, again' "$work/first" "$work/questions/results.jsonl"
bad 'prompts of another length' '"lb_max_prompt" differs' "${own[@]}" --lb-max-prompt 600
sed -i 's/Ann has 7/Ann has 8/' "$work/own.jsonl"
bad 'own questions that changed' '"tasks" differs' "${own[@]}"
sed -i -n 2p "$work/own.jsonl"
bad 'own questions, all too long' 'shorter contexts in files' eval -m "$llama" -t 1 --quiet --jsonl "$work/own.jsonl" --policies snapkv --out "$work/none"

# A set that is mostly cut away is named, and how its answers were limited belongs to the run.
mkdir "$work/lb"
py "$work/lb/qasper.jsonl" <<'PY'
import json, sys
row = {"input": "Who?", "context": " ".join(f"word{i}" for i in range(900)), "answers": ["Ann"], "length": 900, "dataset": "qasper",
       "language": "en", "all_classes": None, "_id": "1"}
with open(sys.argv[1], "w") as f:
    f.writelines(json.dumps(dict(row, _id=str(i))) + "\n" for i in range(2))
PY
cut=(eval -m "$llama" -t 1 --quiet --tasks qasper --longbench "$work/lb" --lb-max-prompt 1000 --policies snapkv --out "$work/cut")
good 'LongBench, cut' "${cut[@]}"
grep -q "^More than half of most contexts was cut .*: qasper" "$work/cut/summary.txt" || fail 'LongBench, cut: the summary does not say so'
py "$work/cut/results.jsonl" <<'PY' || fail 'LongBench: records do not say how long contexts are'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows and all(r["bucket"] == "0-4k" for r in rows), rows
PY
bad 'LongBench, longer answers' '"tasks" differs' "${cut[@]}" --lb-extra-tokens 20
bad 'LongBench, in the chat template' '"lb_chat" differs' "${cut[@]}" --lb-chat all

# The beginning of an answer is in the user's turn if the whole prompt is compressed, else after the template.
lb() { good "LongBench, $1" eval -m "$llama" -t 1 --tasks qasper --longbench "$work/lb" --lb-max-prompt 600 --chat chatml --policies snapkv \
    --modes agnostic,aware_full --out "$work/lb-$1" "${@:2}"; }
lb auto
grep -q "LongBench: answers begin in the user's turn in mode aware_full, after the template's tail in others" "$work/err" ||
    fail "LongBench: it does not say where answers begin: $(cat "$work/err")"
lb user --quiet --lb-prefix user
lb assistant --quiet --lb-prefix assistant
py "$work"/lb-{auto,user,assistant} <<'PY' || fail 'LongBench: places of the beginning of an answer'
import json, sys
auto, user, assistant = ({(r["policy"], r["mode"], r["index"]): (r["pred"], r["kl"], r["dnll"], r["kv_bytes"]) for r in
                          map(json.loads, open(d + "/results.jsonl"))} for d in sys.argv[1:])
assert auto.keys() == user.keys() == assistant.keys() and len(auto) == 8
for key, r in auto.items():
    assert r == (user if key[1] == "aware_full" else assistant)[key], (key, r)
    assert key[0] == "full" or user[key] != assistant[key], key
PY

# Each of several requests finds the compressed cache as the first one did: the same question gives the same numbers, to the
# last bit that is written. In a conversation it would not, because questions and answers stay.
mkdir "$work/twice" "$work/scb"
py "$work/twice/scbench_kv.jsonl" <<'PY'
import json, sys
ask = lambda key: {"input": f'Key: "{key}"\nThe value is: ', "answer": f"value of {key}"}
pairs = ", ".join(f'"key{i}": "value of key{i}"' for i in range(40))
json.dump({"id": 0, "context": "{" + pairs + "}", "multi_turns": [ask("key7"), ask("key31"), ask("key7")]}, open(sys.argv[1], "w"))
PY
for turns in multi_request multi_turn; do
    brief "a question twice, $turns" --tasks scb_kv --scbench "$work/twice" --policies snapkv,kvzip,lagkv:lag=64 --ratios 0.5 \
        --kv-types f16,q8_0:64 --turns $turns --out "$work/$turns"
done
py "$work"/multi_{request,turn}/results.jsonl <<'PY' || fail 'a question twice: records'
import json, sys
requests, talk = ({(r["config"], r["turn"]): r for r in map(json.loads, open(path))} for path in sys.argv[1:])
configs = {c for c, _ in requests}
assert len(configs) == 2 * (1 + 3) and len(requests) == len(talk) == 3 * len(configs), len(requests)
fields = ("pred", "stop", "gen_tokens", "q_tokens", "kl", "dnll", "agree", "prefix", "fgt", "kv_bytes", "ratio_ach", "score")
for c in configs:
    first, between, again = (requests[c, turn] for turn in range(3))
    for field in fields:
        assert first[field] == again[field], (field, first, again)
    assert first["kl"] is not None and first["dnll"] is not None and first["question"] == again["question"] != between["question"]
    assert talk[c, 0]["pred"] == first["pred"] and talk[c, 2]["q_tokens"] > first["q_tokens"], (talk[c, 2], first)
compared = [c for c in configs if requests[c, 0]["policy"] != "full"]
assert any(requests[c, 0]["kl"] != requests[c, 1]["kl"] for c in compared)  # another question has other numbers
assert any(talk[c, 0]["kl"] != talk[c, 2]["kl"] for c in compared)
PY

# A context with many long questions is cut until the conversation fits.
py "$work/scb/scbench_kv.jsonl" <<'PY'
import json, sys
turns = [{"input": f"Key: {i} " + "that we ask for at length " * 6, "answer": str(i)} for i in range(12)]
for path in sys.argv[1:]:
    json.dump({"id": 0, "context": " ".join(f"word{i}" for i in range(4000)), "multi_turns": turns}, open(path, "w"))
PY
shorter "$llama" 4096 "$work/middling.gguf"
good 'SCBench, cut' eval -m "$work/middling.gguf" -t 1 --quiet --tasks scb_kv --scbench "$work/scb" --policies snapkv --answer-tokens 4 --out "$work/scbench"
py "$work/scbench/results.jsonl" <<'PY' || fail 'SCBench, cut: records'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert sorted((r["policy"], r["turn"]) for r in rows) == sorted((p, t) for p in ("full", "snapkv") for t in range(12)), len(rows)
assert all(r["truncated"] and r["ctx_tokens"] > 200 for r in rows), rows[0]
PY

# A policy that uses the question is not run in mode agnostic, and the others are not run in mode task.
brief 'task' --tasks niah_single_1 --lengths 600 --policies snapkv,kvcompose:task=question --modes agnostic,task --out "$work/task"
[ "$(grep -c 'is left out of mode' "$work/err")" -eq 2 ] || fail "task: $(cat "$work/err")"

# refused NAME PATTERN ARGS...: a run that cannot begin, and leaves no folder.
refused() { bad "$1" "$2" eval -m "$llama" --tasks niah_single_1 --lengths 1000 --samples 1 --out "$work/made/x" "${@:3}"; }
refused 'a policy' 'nosuch' --policies nosuch
refused 'two sizes' 'exclude each other' --ratios 0.5 --budgets 8
refused 'a ratio' 'out of range' --ratios 0.5,1
refused 'a ratio that is no number' "'x' is neither" --ratios x
refused 'no ratio' 'is empty' --ratios ,
refused 'a budget' 'out of range' --budgets 0
refused 'a type' 'f17' --kv-types f17
refused 'a type that is never rotated' 'a cache of f16 is never rotated' --kv-types f16:unrotated
refused 'a mode' "'awar' is unknown" --modes awar
refused 'a shard' 'give I/N' --shard 3/2
refused 'turns' 'is unknown' --turns x
refused 'requests' 'compresses a question too' --turns multi_request --modes aware
refused 'requests without a history' 'no history to compress' --turns multi_request --recompress each-turn
refused 'a time to compress again' 'use never or each-turn' --recompress always
refused 'eviction' 'is unknown' --evict x
refused 'slack without chunks' 'give --evict chunk' --chunk-slack 2
bad 'slack for blocks' 'judges each block once' eval -m "$llama" --tasks niah_single_1 --lengths 1000 --samples 1 --policies lagkv --evict chunk:256 --chunk-slack 2 \
    --out "$work/blocks"
refused 'eviction of a policy' 'does not go with this policy' --policies kvzip --evict chunk
refused 'a size of its own' 'has no size of its own' --policies snapkv --ratios own
bad 'a suite' 'did you mean small' eval -m "$llama" --suite smal --out "$work/made/x"
bad 'a comparison of what is not run' "this run has no policy 'h2o'" eval -m "$llama" --tasks niah_single_1 --lengths 600 --samples 1 --policies snapkv --compare snapkv,h2o --out "$work/made/x"
bad 'a comparison of one' 'does not name two' eval -m "$llama" --tasks niah_single_1 --lengths 600 --samples 1 --policies snapkv --compare snapkv --out "$work/made/x"
refused 'a suite with tasks' 'leave out --tasks' --suite smoke
refused 'a prefix' 'is unknown' --lb-prefix x
refused 'sets in the chat template' 'use official or all' --lb-chat x
refused 'a budget of time' 'such as 10m' --time-budget 10
refused 'a closed book with policies' 'leave out --policies' --closed-book --policies snapkv
bad 'no text' 'ppl needs a text' eval -m "$llama" --tasks ppl --out "$work/made/x"
bad 'a short text' 'less than half a piece' eval -m "$llama" --tasks ppl --text "$work/text.txt" --lengths 100000 --out "$work/made/x"
bad 'longer than the context' 'longer than the model' eval -m "$llama" --tasks niah_single_1 --lengths 100000 --samples 1 --out "$work/long" --quiet
bad 'another run' '"seed" differs' eval -m "$llama" --tasks niah_single_1 --lengths 600 --samples 2 --policies snapkv --budgets 64,128 --out "$work/budgets" --seed 43
cp -r "$work/budgets" "$work/torn"
rm "$work/torn/lock"
printf '{"v":1,"key":"torn' >>"$work/torn/results.jsonl"
cp -r "$work/torn" "$work/kept"
bad 'another run, torn' '"seed" differs' eval -m "$llama" --tasks niah_single_1 --lengths 600 --samples 2 --policies snapkv --budgets 64,128 --out "$work/torn" --seed 43
diff -r "$work/kept" "$work/torn" || fail 'another run, torn: the folder was changed'
bad 'another config' '"configs" differs' eval -m "$llama" --tasks niah_single_1 --lengths 600 --samples 2 --policies snapkv --budgets 64 --out "$work/budgets"
bad 'a file in place of the folder' 'a file has that name' eval -m "$llama" --tasks niah_single_1 --lengths 1000 --out "$work/first"
mkdir "$work/damaged"
cp "$work/budgets/run.json" "$work/damaged"
{ echo garbage; cat "$work/budgets/results.jsonl"; } >"$work/damaged/results.jsonl"
bad 'a damaged line' 'line 1 of .* is not a result' eval -m "$llama" -t 1 --tasks niah_single_1 --lengths 600 --samples 2 --policies snapkv --budgets 64,128 --out "$work/damaged"
finish
