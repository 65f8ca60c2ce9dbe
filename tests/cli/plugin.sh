# SPDX-License-Identifier: MIT
# Plugins: the example is compiled as its first comment says and gives its part to run, plan, eval, bench and ppl. A part of another kind can be
# added too. Bad files are refused in one sentence. `--policies plan:DIR` applies plans that `winnow plan` made as the policy itself does.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
root=$(cd "$(dirname "$0")/../.." && pwd)
ids 200 >"$work/ids"

# compile FILE.c FILE.so: with the command of the example's first comment.
line=$(sed -n 's/^ \*     \(cc .*libmine\.so\)$/\1/p' "$root/examples/plugin.c")
[ -n "$line" ] || fail 'the example has no compile line'
compile() {
    local command=${line/examples\/plugin.c/$1}
    command=${command/\$(pkg-config --cflags winnow)/-I$root/include}
    command=${command/libmine.so/$2}
    $command 2>"$work/err" || fail "$command: $(cat "$work/err")"
}
compile "$root/examples/plugin.c" "$work/libmine.so"
with=(--plugin "$work/libmine.so")

plan 'plan' --policy mine+adakv --budget 50 "${with[@]}"
json 'all heads of the plan' "$work/plan.json" "sum($counts) == 50 * len($counts) and len(set($counts)) > 1"
json 'its options are in the recipe' "$work/plan.json" 'o["policy"].startswith("mine:recent=16+")'
plan 'an option' --policy mine:recent=30 --budget 50 "${with[@]}"
json 'the newest stay' "$work/plan.json" 'all(h[-30:] == list(range(170, 200)) for l in o["layers"] for h in l["heads"])'
good 'run' run -m "$model" --tokens "$work/ids" --policy mine --ratio 0.5 -n 2 --json "${with[@]}"
json 'run keeps half' "$work/out" 'o["kept_tokens_mean"] == 100'
good 'run, chunks' run -m "$model" --tokens "$work/ids" --policy mine --ratio 0.5 --evict chunk:50 -n 2 "${with[@]}"
seq 400 >"$work/text"
good 'ppl' ppl -m "$model" -f "$work/text" --policy mine --ratio 0.5 -n 128 "${with[@]}"
good 'bench' bench methods -m "$model" --lengths 64 --reps 1 --policies mine,mine+adakv --json "${with[@]}"
grep -q '"mine+adakv"' "$work/out" && grep -q '"mine"' "$work/out" || fail "bench: $(cat "$work/out")"

# eval, and plans from a folder.
python3 - >"$work/user.jsonl" <<'PY'
import json
for i in range(2):
    text = " ".join(f"The keeper of tower {k} is called Name{k * (i + 1)}." for k in range(9))
    print(json.dumps({"context": text, "question": "Who keeps tower 3?", "answers": [f"Name{3 * (i + 1)}"]}))
PY
samples=(-m "$model" --jsonl "$work/user.jsonl")
mkdir "$work/plans"
python3 - "$WINNOW" "$model" "$work" "$work/libmine.so" <<'PY' || fail 'plans of the samples'
import json, subprocess, sys
winnow, model, work, plugin = sys.argv[1:]
dumped = subprocess.run([winnow, "eval", "-m", model, "--jsonl", f"{work}/user.jsonl", "--dump-samples"], check=True, capture_output=True, text=True)
for line in dumped.stdout.splitlines():
    s = json.loads(line)
    open(f"{work}/context", "w").write(s["context"])
    subprocess.run([winnow, "plan", "-m", model, "-f", f"{work}/context", "-p", s["question"], "--context-only", "--policy", "mine",
                    "--ratio", "0.5", "--plugin", plugin, "-o", f"{work}/plans/{s['task']}-{s['n_target']}-{s['index']}.json"],
                   check=True, capture_output=True)
PY
good 'eval' eval "${samples[@]}" --policies "mine,plan:$work/plans,mine+adakv,knorm" --ratios 0.5 --compare "mine,plan:$work/plans" --quiet -t 1 \
    --out "$work/eval" "${with[@]}"
py "$work/eval/results.jsonl" "$work/plans" <<'PY' || fail "eval: $(head -c 2000 "$work/eval/results.jsonl")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
by = {(r["policy"], r["index"]): r for r in rows}
assert len(by) == 10, sorted(by)
for i in range(2):
    ours, theirs = by["mine", i], by[f"plan:{sys.argv[2]}", i]
    assert theirs["size"] == "own" and ours["size"] == "ratio=0.5"
    for key in ("pred", "kl", "kept"):
        assert ours.get(key) == theirs.get(key), (key, ours, theirs)
PY
good 'a report knows neither' report "$work/eval"

one=$(ls "$work/plans" | head -1)
cp -r "$work/plans" "$work/other"
py "$work/other/$one" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
o["tokens"][5] ^= 1
json.dump(o, open(sys.argv[1], "w"))
PY
refuse() { bad "$1" "$2" eval "${samples[@]}" --policies "plan:$3" --quiet -t 1 --out "$work/no" "${@:4}"; rm -rf "$work/no"; }
# Refused while samples are read: the folder of results is there by then.
refuse 'another text' 'is a plan of another text' "$work/other"
refuse 'the other mode' "is a plan of [0-9]+ tokens, and mode aware compresses [0-9]+" "$work/plans" --modes aware
rm "$work/other/$one"
refuse 'no plan of a sample' "$one" "$work/other"
mkdir "$work/empty"
refuse 'an empty folder' 'has no plan; name them TASK-LENGTH-INDEX.json' "$work/empty"
refuse 'no folder' 'cannot read the folder: No such file' "$work/nowhere"
refuse 'while reading' 'compresses once' "$work/plans" --evict chunk

# ---- A part of another kind, and plugins that do not work ----
cat >"$work/first.c" <<'PY'
#include <winnow_method.h>
static int32_t first(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t i = 0; i < p->n_keep; i++)
        keep[i] = i;
    return p->n_keep;
}
static const wnw_selector part = {.part = {WNW_SELECTOR_INIT, .name = "the_first", .about = "The first."}, .select = first};
WNW_PLUGIN(r) { return wnw_registry_add(r, &part.part); }
PY
compile "$work/first.c" "$work/first.so"
plan 'a selector' --policy mine:recent=0+the_first --budget 50 "${with[@]}" --plugin "$work/first.so"
json 'the first stay' "$work/plan.json" 'all(h == list(range(50)) for l in o["layers"] for h in l["heads"])'

echo '#include <winnow_method.h>
WNW_PLUGIN(r) { return r ? WNW_OK : WNW_E_ARG; }' >"$work/nothing.c"
echo '#include <winnow_method.h>
static const wnw_scorer part = {.part = {WNW_SCORER_INIT, .name = "half"}};
WNW_PLUGIN(r) { return wnw_registry_add(r, &part.part); }' >"$work/half.c"
echo '#include <winnow_method.h>
#undef WNW_VERSION_STRING
#define WNW_VERSION_STRING "0.0.9"
WNW_PLUGIN(r) { return r ? WNW_OK : WNW_E_ARG; }' >"$work/old.c"
echo 'int nothing_of_winnow;' >"$work/foreign.c"
echo '#include <winnow_method.h>
int no_such_function(wnw_registry *r);
WNW_PLUGIN(r) { return no_such_function(r); }' >"$work/lacks.c"
for name in nothing half old foreign lacks; do compile "$work/$name.c" "$work/$name.so"; done
head -c 2000 "$work/libmine.so" >"$work/cut.so"
echo text >"$work/text.so"
mkfifo "$work/fifo.so"
no() { bad "$1" "$2" plan -m "$model" --tokens "$work/ids" --policy mine --budget 50 -o "$work/made/plan.json" --plugin "$work/$3"; }
no 'adds nothing' 'adds no part' nothing.so
no 'half a part' "half.so': scorer half has no score function" half.so
no 'of another version' 'was compiled for winnow 0.0.9, and this is' old.so
no 'no plugin' 'is no plugin of winnow' foreign.so
no 'a function that is not there' 'cannot load the plugin .*no_such_function' lacks.so
no 'cut off' 'is cut off, or' cut.so
head -c 40 "$work/libmine.so" >"$work/cut.so"
no 'cut off in its head' 'is cut off, or' cut.so
no 'a text' 'is no shared library' text.so
no 'a pipe' 'is no regular file' fifo.so
no 'no file' "cannot read the plugin .*No such file" none.so
bad 'twice' 'the name "mine" is taken' plan -m "$model" --tokens "$work/ids" --policy mine --budget 50 -o "$work/made/plan.json" "${with[@]}" "${with[@]}"
bad 'not loaded' 'unknown policy name "mine"' plan -m "$model" --tokens "$work/ids" --policy mine --budget 50 -o "$work/made/plan.json"
bad 'stored' 'leave out --store or --plugin' run -m "$model" -f "$work/text" -p What? --context-only --policy mine --budget 50 --store "$work/store" "${with[@]}"
(cd "$work" && bad 'a name without a folder' 'adds no part' plan -m "$model" --tokens ids --policy mine --budget 50 -o made/plan.json --plugin nothing.so)
finish
