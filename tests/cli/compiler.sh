# SPDX-License-Identifier: MIT
# winnow calibrate compiler: the whole chain on a tiny model, what the preset makes of its tables, going on after the end
# of a process, and what is refused.
. "$(dirname "$0")/lib.sh"
calibrates
small=items=6,held_out=2,length=160,next=12,head_trials=8,tau_trials=8,window=16,entropy_bins=2
run() { # OUT SET ARGS...
    local out=$1 set=$2
    shift 2
    printf '%s\n' calibrate compiler -m "$model" -f "$text" -o "$out" --set "$set" "$@"
}
make() { # NAME OUT SET ARGS...
    local name=$1
    shift
    mapfile -t args < <(run "$@")
    good "$name" "${args[@]}"
}
refuse() { # NAME PATTERN OUT SET ARGS...
    local name=$1 pattern=$2
    shift 2
    mapfile -t args < <(run "$@" -t 1)
    bad "$name" "$pattern" "${args[@]}"
}

# ---- The chain ----
mkdir -p "$work/p"
make 'a calibration' "$work/p/compiler-b48.json" "$small" --budget 48 -t 1 &&
    json 'tables' "$work/p/compiler-b48.json" 'o["kind"] == "compiler" and o["settings"]["budget"] == 48 and len(o["results"]["weight"]) == o["model"]["n_layer"] and all(len(r) == o["model"]["n_head"] for r in o["results"]["weight"]) and len(o["results"]["entropy_edges"]) == 1 and all(len(l) == 2 and len(l[0]) == 2 for l in o["results"]["tau"]) and o["data"]["texts"][0]["name"] == "calibration.txt"'
# A file made now has the settings of the tables that ship, in their order: the same command makes the same bytes.
py "$work/p/compiler-b48.json" "$(dirname "$0")/../../share/profiles/smollm2-135m/compiler-b512.json" <<'PY' || fail 'the settings of shipped tables'
import json, sys
made, shipped = (list(json.load(open(name))["settings"]) for name in sys.argv[1:])
assert made == shipped, (made, shipped)
PY
# Whose prompts chose each threshold, and the check of risk: one threshold keeps as much on average over the prompts.
py "$work/p/compiler-b48.json" "$work/out" <<'PY' || fail 'where thresholds come from'
import json, sys
o = json.load(open(sys.argv[1]))
report = open(sys.argv[2]).read()
n = o["results"]["tau_count"]
cells = [f for layer in o["results"]["tau_from"] for row in layer for f in row]
assert len(cells) == len(n) and set(cells) <= {"cell", "layer", "all"}, cells
least = o["settings"]["cell_prompts"] * o["settings"]["tau_trials"]
assert o["settings"]["cell_prompts"] == 4
for f, k in zip(cells, n, strict=True):
    assert (f == "cell") == (k >= least), (f, k)
assert "layer" in cells, cells
# Cells that took their layer's choice have one value in each layer.
r, c = o["results"], o["results"]["checks"]
for taus, froms in zip(r.get("tau_learned", r["tau"]), r["tau_from"], strict=True):
    taken = {t for a, b in zip(taus, froms) for t, f in zip(a, b) if f == "layer"}
    assert len(taken) <= 1, (taus, froms)
assert r["tau_constant"] > 0
# Thresholds that do not beat the one by a standard error are not what methods read.
constant = c["tau_gain_over_constant"] <= c["tau_gain_over_constant_error"]
assert (o["settings"]["tau_origin"] == "constant") == ("tau_learned" in r) == ("written into all cells" in report) == constant, c
read = {t for layer in r["tau"] for row in layer for t in row}
assert not constant or len(read) == 1 and abs(read.pop() - r["tau_constant"]) < 1e-6, (read, r["tau_constant"])
assert abs(c["kept_at_constant"] - c["kept"]) < 1, c
assert 0 <= c["bound_layers"] <= c["bound_prompts"] <= 1
assert "%.1f on average" % c["kept_at_constant"] in report, report
assert "at as many entries on each prompt" in report and "the thresholds bind in" in report, report
PY
grep -q 'trials, [0-9]* a minute' "$work/out" || fail "no rate of trials: $(cat "$work/out")"
make 'two threads' "$work/two.json" "$small" --budget 48 -t 2 && same 'any number of threads' "$work/p/compiler-b48.json" "$work/two.json"
make 'thresholds whatever they gain' "$work/always.json" "$small,accept=always" --budget 48 -t 1
py "$work/p/compiler-b48.json" "$work/always.json" <<'PY' || fail 'thresholds whatever they gain'
import json, sys
a, b = (json.load(open(name)) for name in sys.argv[1:])
assert b["settings"]["tau_origin"] == "learned" and "tau_learned" not in b["results"]
assert b["settings"]["head_origin"] != a["settings"]["head_origin"] or b["results"]["tau"] == a["results"].get("tau_learned", a["results"]["tau"])
PY
make 'another seed' "$work/seed.json" "$small" --budget 48 -t 1 --seed 7
cmp -s "$work/p/compiler-b48.json" "$work/seed.json" && fail 'another seed gives the same file'

# Where no threshold binds, nothing was learned: the lowest threshold that was tried is the one of all.
make 'thresholds that never bind' "$work/idle.json" "${small/length=160/length=600}" --budget 17 -t 1 &&
    py "$work/idle.json" "$work/out" <<'PY' || fail 'thresholds that never bind'
import json, sys
o, report = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
r = o["results"]
assert r["checks"]["bound_layers"] == 0 and r["checks"]["kept"] == 17, r["checks"]
assert o["settings"]["tau_origin"] == "constant" and abs(r["tau_constant"] - 1 / 16) < 1e-9, (o["settings"]["tau_origin"], r["tau_constant"])
assert "written into all cells" in report, report
PY

# The method reads the tables by its name.
ids 300 >"$work/ids"
good 'the preset' plan -m "$model" --tokens "$work/ids" --policy compilerkv:window=16 --budget 48 --profile "$work/p" -o "$work/plan.json" &&
    { grep -Eq 'warning|no calibrat' "$work/err" && fail "the preset does not take the table: $(cat "$work/err")"; }

# A model with sliding windows, weights that are kept for any result of the checks; two budgets in a folder.
if [ -f "$tiny/tiny-gemma3-f32.gguf" ]; then
    mkdir -p "$work/many"
    good 'sliding windows, two budgets' calibrate compiler -m "$tiny/tiny-gemma3-f32.gguf" -f "$text" -o "$work/many" --budget 40,48 -t 1 \
        --set "$small,accept=always" &&
        json 'one file each' "$work/many/compiler-b40.json" 'o["settings"]["budget"] == 40 and o["settings"]["gate"] == "elastic"'
    [ -f "$work/many/compiler-b48.json" ] || fail 'no file for the second budget'
fi

# ---- Other rules ----
make 'a choice for every cell' "$work/range.json" "${small/head_trials=8/head_trials=9},cell_prompts=1,floor=0,accept=always" --budget 48 -t 1 &&
    json 'its settings' "$work/range.json" 'o["settings"]["floor"] == 0 and "cell" in str(o["results"]["tau_from"])'
good 'its tables are read' plan -m "$model" --tokens "$work/ids" --policy compilerkv:window=16 --budget 48 --profile "$work/range.json" -o "$work/plan.json"

# Tables of before have no tau_from and no tau_constant.
py "$work/p/compiler-b48.json" "$work/before.json" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
for key in ("tau_from", "tau_constant"):
    del o["results"][key]
json.dump(o, open(sys.argv[2], "w"))
PY
good 'tables of before' plan -m "$model" --tokens "$work/ids" --policy compilerkv:window=16 --budget 48 --profile "$work/before.json" -o "$work/before.plan" &&
    { grep -q warning "$work/err" && fail "a table of before: $(cat "$work/err")"; }
good 'tables of before, one threshold' plan -m "$model" --tokens "$work/ids" --policy paper-compilerkv-no_risk:window=16 --budget 48 --profile "$work/before.json" -o "$work/before.plan" &&
    { grep -q 'tau_constant.*the mean' "$work/err" || fail "no word of the mean: $(cat "$work/err")"; }
good 'one threshold' plan -m "$model" --tokens "$work/ids" --policy paper-compilerkv-no_risk:window=16 --budget 48 --profile "$work/p" -o "$work/before.plan" &&
    { grep -q warning "$work/err" && fail "one threshold: $(cat "$work/err")"; }

# Several texts: prompts, and those that only check, come from each of them.
mkdir -p "$work/texts"
head -c 60000 "$text" >"$work/texts/a.txt"
tail -c 30000 "$text" >"$work/texts/b.txt"
good 'two texts' calibrate compiler -m "$model" -f "$work/texts" -o "$work/texts.json" --set "${small/held_out=2/held_out=3}" --budget 48 -t 1 &&
    json 'their names' "$work/texts.json" '[t["name"] for t in o["data"]["texts"]] == ["a.txt", "b.txt"] and o["settings"]["items_of_texts"] == [4, 2] and o["settings"]["held_out_of_texts"] == [2, 1]'

# ---- Do the tables help? As docs/research/calibration.md says, on a text that calibration did not read ----
held=$(dirname "$0")/../../share/text/held-out.txt
need_file "$held"
# compare NAME PROFILE: learned tables against one threshold for all prompts, and against neutral tables; $work/eval/summary.txt.
compare() {
    local learned=compilerkv:window=16 constant=compilerkv:window=16+gate:window=16,table=constant
    local neutral=compilerkv:window=16,table=none+gate:window=16,mode=strict
    printf "$learned vs %s mode=agnostic size=budget=48 of=kl\n" "$constant" "$neutral" >"$work/contrasts"
    rm -rf "$work/eval"
    good "$1" eval --tasks ppl --text "$held" -m "$model" --lengths 344 --samples 7 --policies "$learned,$constant,$neutral" --budgets 48 \
        --profile "$2" --contrasts "$work/contrasts" --out "$work/eval" -t 1
    sed -n '/^primary contrasts/,/^$/p' "$work/eval/summary.txt" >"$work/primary"
}
compare 'learned tables' "$work/range.json"
[ "$(grep -c 'KL: n = 7, ' "$work/primary")" -eq 2 ] || fail "no two contrasts over 7 pieces: $(cat "$work/primary")"
# Neutral tables gain nothing on any text: the same entries stay.
py "$work/range.json" "$work/ones.json" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
o["results"]["weight"] = [[1.0] * len(r) for r in o["results"]["weight"]]
o["results"]["tau"] = [[[1e-6 for _ in b] for b in l] for l in o["results"]["tau"]]
json.dump(o, open(sys.argv[2], "w"))
PY
compare 'neutral tables' "$work/ones.json"
grep -q 'mode=strict.*n = 7, 0.0000 .*no variation' "$work/primary" || fail "neutral tables are not neutral: $(cat "$work/primary")"

# ---- Going on ----
long=${small/items=6/items=24}
mapfile -t args < <(run "$work/long.json" "$long" --budget 48 -t 1)
ended_by KILL "$work/long.json.journal" 30 "${args[@]}"
[ -e "$work/long.json" ] && fail 'the run ended before it was killed'
[ -s "$work/long.json.journal" ] || fail 'no journal after the end of the process'
cp "$work/long.json.journal" "$work/journal"
refuse 'other settings' 'length' "$work/long.json" "${long/length=160/length=170}" --budget 48
refuse 'another budget' 'budgets' "$work/long.json" "$long" --budget 40
sed '$d' "$work/journal" >"$work/long.json.journal"
sed '$!d' "$work/journal" | head -c 20 >>"$work/long.json.journal" # a line that the end has cut
make 'going on' "$work/long.json" "$long" --budget 48 -t 1
make 'at one go' "$work/once.json" "$long" --budget 48 -t 1 && same 'the same bytes' "$work/long.json" "$work/once.json"
[ -e "$work/long.json.journal" ] && fail 'the journal is still there'
sed 's/"nll":\[[^]]*\]/"nll":[1,2]/' "$work/journal" >"$work/damaged.json.journal"
grep -q '"nll":\[1,2\]' "$work/damaged.json.journal" || fail 'nothing to damage in the journal'
refuse 'a damaged result' 'damaged.json.journal.*remove it' "$work/damaged.json" "$long" --budget 48

# ---- What is refused ----
mkdir -p "$work/made"
out=$work/made/x.json
refuse 'no budget' 'give one with --budget' "$out" "$small"
refuse 'no number' "'many' is not a number" "$out" "$small" --budget many
refuse 'a budget of 1' "'1' is not a number from 2" "$out" "$small" --budget 1
refuse 'an empty budget' "'' is not a number" "$out" "$small" --budget 48,
refuse 'a budget twice' 'names 48 twice' "$out" "$small" --budget 48,48
refuse 'two budgets in one file' 'name a folder' "$out" "$small" --budget 40,48
refuse 'a budget beyond the context' 'half of the model' "$out" "$small" --budget 100000000
refuse 'prompts shorter than two budgets' 'set length to at least 200' "$out" "$small" --budget 100
refuse 'prompts beyond the context' "do not fit the model's context" "$out" "${small/length=160/length=10000000}" --budget 48
refuse 'too few prompts' 'too few' "$out" "${small/items=6/items=3}" --budget 48
refuse 'an unknown setting' 'did you mean items' "$out" "itms=3" --budget 48
head -c 700 "$text" >"$work/short.txt"
bad 'a short text' 'give more text' calibrate compiler -m "$model" -f "$work/short.txt" -o "$out" --set "$small" --budget 48

finish
