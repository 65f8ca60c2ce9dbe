# SPDX-License-Identifier: MIT
# winnow eval --study perturbation on tiny models: nothing changes where nothing goes, a study that is killed goes on and
# ends the same, and what is refused.
. "$(dirname "$0")/lib.sh"
llama=$tiny/tiny-llama.gguf
gemma=$tiny/tiny-gemma3.gguf
need_file "$llama"
need_file "$gemma"
held_out=$(dirname "$0")/../../share/text/held-out.txt
study() { good "$1" eval --study perturbation -m "$llama" -t 1 --quiet --lengths 256 "${@:2}"; }

study 'a study' --samples 7 --text "$held_out" --ratios 0.8,0,0.5 --json --out "$work/whole"
page_data "$work/whole/report.html" "$work/page.json"
py "$work/whole" "$work/out" "$work/page.json" <<'PY' || fail 'the study is not what it should be'
import csv, json, sys
run = json.load(open(sys.argv[1] + "/run.json"))
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
out = json.load(open(sys.argv[2]))
assert run["study"] == "perturbation" and run["texts"] == {"n": 7, "tokens": 256, "of_file": 7, "sliding": []}, run["texts"]
assert [r["source"] for r in rows] == ["file"] * 7 and [r["index"] for r in rows] == list(range(7))
n_layer, n_head, n_kv = (run["model"][k] for k in ("n_layer", "n_head", "n_head_kv"))
sizes = {c["config_id"]: c["size"] for c in run["configs"]}
for r in rows:
    assert len(r["changes"]) == 6 and len(r["bounds"]) == 3
    for c in r["changes"]:
        assert [len(c[k]) for k in ("heads", "groups", "layers", "states")] == [n_layer * n_head, n_layer * n_kv, n_layer, n_layer]
        if sizes[c["config"]] == "ratio=0":
            assert c["kept"] == 1 and not any(sum((c[k] for k in ("heads", "groups", "layers", "states")), [])), r["key"]
        else:
            assert min(c["heads"]) > 0 and c["states"][-1] > 0
        group = n_head // n_kv
        for i in range(n_layer):  # the triangle inequality: a sum moves no further than its parts
            assert c["layers"][i] <= 1.00001 * sum(c["groups"][i * n_kv:(i + 1) * n_kv])
            for j in range(n_kv):
                at = i * n_head + j * group
                assert c["groups"][i * n_kv + j] <= 1.00001 * sum(c["heads"][at:at + group])
    for b in r["bounds"]:
        for change, hat in zip(b["change"], b["theta_hat"]):
            assert change <= 1.001 * hat + 1e-9
lines = list(csv.DictReader(open(sys.argv[1] + "/perturbation.csv")))
mean = lambda xs: sum(xs) / len(xs)
for p in out["pairs"]:  # the summary again, from the CSV
    of = lambda policy: {(l["layer"], l["head"]): float(l["mean"]) for l in lines
                         if (l["what"], l["size"], l["policy"]) == ("heads", p["size"], policy)}
    base, other = of(out["base"]), of(p["policy"])
    assert len(base) == len(other) == n_layer * n_head == p["heads"]["n"]
    assert abs(mean(list(other.values())) - p["heads"]["other"]) <= 1e-5 * p["heads"]["other"], p
    lower = sum(other[k] < base[k] for k in base)
    assert abs(lower - p["heads"]["lower"]) <= 1 and (p["size"] != "ratio=0" or lower == 0), (lower, p)
    assert p["heads"]["lower_share"] == p["heads"]["lower"] / p["heads"]["n"] and 0 <= p["heads"]["lower_share_lo"] <= p["heads"]["lower_share_hi"] <= 1
    if p["size"] == "ratio=0.8":
        for name in "change", "geometric":
            assert p["heads"][name + "_lo"] <= p["heads"][name] <= p["heads"][name + "_hi"], p
    if p["size"] == "ratio=0.8":
        assert abs(p["kept"] - 0.2) < 0.01
by = {(l["what"], l["layer"], l["head"]): float(l["mean"]) for l in lines if l["size"] == "ratio=0.8" and l["policy"] == ""}
want = mean([r["bounds"][0]["theta_hat"][1] for r in rows])
assert abs(by["theta_hat", "0", "1"] - want) <= 1e-5 * want
page = json.load(open(sys.argv[3]))["perturbation"]  # what the page draws: the first size by layer and head
assert page["policies"] == out["policies"] and page["summary"] == open(sys.argv[1] + "/summary.txt").read()
for k, policy in enumerate(page["policies"]):
    for l in lines:
        if (l["what"], l["size"], l["policy"]) == ("heads", page["sizes"][0], policy):
            assert abs(page["by_head"][k][int(l["layer"])][int(l["head"])] - float(l["mean"])) <= 1e-5 * float(l["mean"]), l
PY

# The report is made again from the folder, packed or not; nothing else is written, nor in place of what was read.
report() { # NAME FOLDER ARGS...: the same numbers and forms as in $work/whole
    good "$1" report "${@:2}" --json
    same "$1: numbers" "$work/numbers" "$work/out"
}
cp "$work/out" "$work/numbers"
mkdir "$work/again" "$work/packed"
cp "$work/whole/run.json" "$work/whole/results.jsonl" "$work/again"
cp "$work/whole/run.json" "$work/packed"
gzip -c "$work/whole/results.jsonl" >"$work/packed/results.jsonl.gz"
report 'a report' "$work/again"
report 'a report of packed results' "$work/packed"
for file in summary.txt perturbation.csv report.html; do
    same "a report: $file" "$work/whole/$file" "$work/again/$file"
    same "packed: $file" "$work/whole/$file" "$work/packed/$file"
done
rm "$work/packed/"{report.html,summary.txt,perturbation.csv}
report 'a page elsewhere' "$work/packed" -o "$work/page.html"
same 'a page elsewhere' "$work/whole/report.html" "$work/page.html"
[ "$(ls "$work/packed" | wc -l)" -eq 2 ] || fail "a page elsewhere: $(ls "$work/packed")"
bad 'over what was read' 'is an input' report "$work/packed" -o "$work/packed/run.json"
for option in '--compare snapkv,lagkv' '--fail-if macro_delta<-5' '--niah-score partial' --no-gate; do
    bad "report $option" "leave out ${option%% *}\$" report "$work/packed" $option
done
bad 'beside another folder' 'a report of its own' report "$work/packed" "$work/again"
# broken NAME PATTERN SED: a folder whose run.json was changed so.
broken() {
    mkdir -p "$work/broken"
    cp "$work/whole/results.jsonl" "$work/broken"
    sed "$3" "$work/whole/run.json" >"$work/broken/run.json"
    bad "$1" "$2" report "$work/broken"
}
broken 'no layers' '"model"' 's/"n_layer":[0-9]*/"n_layer":0/'
broken 'other heads' 'not a record' 's/"n_head":[0-9]*/"n_head":64/'
broken 'a layer that is not there' '"texts"' 's/"sliding":\[\]/"sliding":[99]/'
broken 'no sliding layers' '"texts"' 's/"sliding"/"slid"/'
broken 'no seed' '"seed"' 's/"seed":[0-9]*/"seed":null/'
broken 'a recipe that is none' '"configs"' 's/"recipe":"paper-criticalkv"/"recipe":7/'
mkdir "$work/twice"
cp "$work/whole/run.json" "$work/twice"
{ cat "$work/whole/results.jsonl"; head -n 3 "$work/whole/results.jsonl" | tail -n 1; } >"$work/twice/results.jsonl"
bad 'a text twice' "line 8: the text 'text.2' is there twice" report "$work/twice"
echo '{"changes":[]}' >>"$work/again/results.jsonl"
bad 'a line that is no record' "line 8: this is not a record" report "$work/again"

# Killed, torn and asked to end; then it goes on.
options=(--samples 9 --ratios 0.8,0.5)
study 'whole' "${options[@]}" --out "$work/once"
ended_by KILL "$work/killed/results.jsonl" 2 \
    eval --study perturbation -m "$llama" -t 1 --quiet --lengths 256 "${options[@]}" --out "$work/killed"
printf '{"v":1,"key":"text|' >>"$work/killed/results.jsonl"
study 'goes on' "${options[@]}" --out "$work/killed"
for file in summary.txt perturbation.csv; do
    same "killed and resumed: $file" "$work/once/$file" "$work/killed/$file"
done
cp "$work/killed/results.jsonl" "$work/first"
study 'again' "${options[@]}" --out "$work/killed"
same 'nothing is done twice' "$work/first" "$work/killed/results.jsonl"
bad 'another study' '"texts" differs' eval --study perturbation -m "$llama" --quiet --lengths 256 "${options[@]}" --samples 8 --out "$work/killed"

# Sliding layers are left alone, and their heads are not counted.
good 'sliding windows' eval --study perturbation -m "$gemma" -t 1 --quiet --lengths 128 --samples 2 --ratios 0.8 \
    --policies snapkv:window=8,criticalkv:window=8 --json --out "$work/gemma"
py "$work/gemma" "$work/out" <<'PY' || fail 'sliding windows'
import json, sys
row = json.loads(open(sys.argv[1] + "/results.jsonl").readline())
n = json.load(open(sys.argv[2]))["pairs"][0]["layers"]["n"]
layers = row["changes"][0]["layers"]
assert 0 < n < len(layers) and sum(x > 0 for x in layers) == n, (n, layers)
PY

refuse() { bad "$1" "$2" eval --study perturbation -m "$llama" --quiet --out "$work/made/x" "${@:3}"; }
refuse 'questions' 'leave out --tasks' --tasks ruler
for other in '--needle num' '--niah-compat compresskv' '--niah-score partial' '--haystack noise' '--trials 2' '--turns multi_request' \
    '--lb-prefix user' '--lb-chat all' '--lb-extra-tokens 20' '--lb-max-prompt 1000' --alone '--recompress each-turn' '--answer-tokens 9' \
    --no-early-stop --no-gate '--chat chatml' '--batch 3' '--shard 1/2' '--time-budget 1m' '--depths lin5' --closed-book '--modes aware'; do
    refuse "$other" "leave out ${other%% *}\$" $other # the name and its word are two arguments
done
refuse 'one policy' 'give two or more' --policies snapkv
refuse 'two lengths' 'takes one length' --lengths 256,512
refuse 'too short' 'takes one length' --lengths 10
refuse 'too long' "the model's context holds" --lengths 10000000
refuse 'two types' 'one type of cache' --kv-types f16,q8_0
refuse 'rules' 'leave out --evict' --evict layer
refuse 'calibration' 'has no calibration results' --policies snapkv,headkv
echo 'This text is short.' >"$work/short.txt"
refuse 'short file' 'fewer than one text' --text "$work/short.txt" --lengths 256
bad 'samples' 'no samples to print' eval --study perturbation -m "$llama" --dump-samples
finish
