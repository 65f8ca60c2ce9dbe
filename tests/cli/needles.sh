# SPDX-License-Identifier: MIT
# The needle program: the full cache answers, a policy that forgets the middle of the text does not.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
needles=$(dirname "$WINNOW")/examples/needles
need_file "$needles"

ask() {
    "$needles" -m "$models/smollm2-135m.gguf" -t 1 --tokens 500 --depths 40 --tries 2 --ratios 0.5,0.875 "$@" \
        --csv "$work/n.csv" >"$work/table" 2>"$work/err" || fail "needles $*: $(cat "$work/err")"
}
# right POLICY MODE RATIO: how many of the two texts
right() {
    python3 -c 'import csv, sys
rows = [r for r in csv.DictReader(open(sys.argv[1])) if [r["policy"], r["mode"], r["ratio"]] == sys.argv[2:]]
assert len(rows) == 2
print(sum(int(r["right"]) for r in rows))' \
        "$work/n.csv" "$@"
}

# A block of LocalKV has only itself to stand out from, LagKV compares it with the next one: the paper's ablation.
# Of two texts LagKV need find one: the model is small, and what it makes of seven digits depends on the prompt's words.
ask --policies full,streaming_llm:sinks=4,recent=0,tova,localkv:lag=32,sink=4,lagkv:lag=64,sink=4
for mode in aware context; do
    for ratio in 0.5 0.875; do
        [ "$(right full $mode $ratio)" = 2 ] || fail "full cache, $mode: $(cat "$work/n.csv")"
        for policy in streaming_llm:sinks=4,recent=0 localkv:lag=32,sink=4; do
            [ "$(right $policy $mode $ratio)" = 0 ] || fail "$policy finds an evicted number: $(cat "$work/n.csv")"
        done
    done
    [ "$(right lagkv:lag=64,sink=4 $mode 0.5)" -ge 1 ] || fail "lagkv, $mode: $(cat "$work/n.csv")"
done
grep -Eq '^full +2/2 +2/2 +2/2 +2/2$' "$work/table" || fail "table: $(cat "$work/table")"


# The prompts as they would be read. No sentence stands in one twice, nor eight words in a row within a sentence; what
# is asked for stands in it once; the task is what follows the document, the answer's first words included.
prompts() {
    "$needles" -m "$models/smollm2-135m.gguf" --policies full --prompts "$work/prompts" "$@" >"$work/out" 2>"$work/err" ||
        fail "needles --prompts $*: $(cat "$work/err")"
    python3 - "$work/prompts" <<'PY' || fail "prompts of: $*"
import re, sys
from collections import Counter
parts = re.split(r"^=== (.*)\n", open(sys.argv[1], encoding="utf-8").read(), flags=re.M)[1:]
prompts = list(zip(parts[0::4], parts[1::4], parts[3::4]))
faults = [] if prompts and parts[2::4] == ["task"] * len(prompts) else ["not one task behind each prompt"]
for title, prompt, task in prompts:
    if not prompt.rstrip("\n").endswith(task.strip("\n")) or not task.rstrip("\n").endswith("mentioned in the provided text is"):
        faults.append(f"{title}: the task is {task!r}")
    document = prompt[:-len(task.strip("\n")) - 1]
    sentences = [s for s in (s.strip() for s in re.split(r"(?<=[.?!])\s|\n", document)) if len(s.split()) > 2]
    faults += [f"{title}: twice: {s}" for s, n in Counter(sentences).items() if n > 1]
    runs = Counter(run for s in sentences for w in [re.findall(r"[\w'-]+", s.lower())]
                   for run in (tuple(w[i:i + 8]) for i in range(len(w) - 7)))
    faults += [f"{title}: twice: {' '.join(r)}" for r, n in runs.items() if n > 1]
    word = re.search(r"number for (\w+) mentioned", task).group(1)
    if len(re.findall(rf"The special magic number for {word} is: \d{{7}}\.", document)) != 1:
        faults.append(f"{title}: not one number for {word}")
    tokens = int(title.split()[0])
    if len(document.split()) < tokens / 2:
        faults.append(f"{title}: only {len(document.split())} words")
print("\n".join(faults[:9]), file=sys.stderr)
sys.exit(bool(faults))
PY
}
prompts --tokens 500,1500,4000,16000 --depths 0,50,100 --tries 2 --needles 4
prompts --tokens 3500 --depths 50 -f examples/document.txt

# short TOKENS FILE: refused before anything is read, with the length that can be had
short() {
    "$needles" -m "$models/smollm2-135m.gguf" --tokens "64,$1" -f "$2" --csv "$work/short.csv" >"$work/out" 2>"$work/err"
    [ $? -eq 2 ] || fail "$1 tokens of $2 are not refused: $(cat "$work/err")"
    grep -Eq -- "--tokens $1: $2 has about [0-9]+ tokens without a repeated sentence" "$work/err" ||
        fail "no reason: $(cat "$work/err")"
}
short 4000 examples/document.txt
for _ in 1 2 3; do cat examples/document.txt; done >"$work/thrice" # longer, but no new sentence in it
short 4000 "$work/thrice"

"$needles" -m "$models/smollm2-135m.gguf" --ratios 2 >"$work/out" 2>"$work/err" && fail 'ratio 2 is taken'
grep -q 'ratios' "$work/err" || fail "no reason: $(cat "$work/err")"
finish
