# SPDX-License-Identifier: MIT
# bench/peers/compare.py with engines that are made up: the same tokens for all, ratios within a round, failures that are
# said. The Python engines themselves are not installed here.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
top=$(cd "$(dirname "$0")/../.." && pwd)
text=$top/README.md

# engine NAME PYTHON: a worker that answers with what PYTHON makes of tokens, decode and keep.
engine() {
    cat >"$work/$1.py" <<PY
import sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, "$top/bench/peers")
from protocol import serve
asked = []
def run(tokens, decode, keep):
    asked.append(tokens)
    $2
serve("$1, made up", run)
PY
}
# compare ARGS...: with the tiny model; what it says is in $work/out and $work/err.
compare() {
    PYTHONDONTWRITEBYTECODE=1 timeout 100 python3 "$top/bench/peers/compare.py" --winnow "$WINNOW" \
        --model "$tiny/tiny-llama.gguf" --text "$text" --length 96 --decode 5 --reps 3 --threads 1 --engines winnow "$@" \
        >"$work/out" 2>"$work/err" </dev/null
}

engine even 'return 1000 * len(asked), 50.0, [-1]'
compare --worker "even=python3 $work/even.py" --csv "$work/c.csv" || fail "compare: $(cat "$work/err")"
py "$work/out" "$work/c.csv" <<'PY' || fail "compare: $(cat "$work/out" "$work/c.csv")"
import csv, statistics, sys
rows = list(csv.DictReader(open(sys.argv[2])))
of = {name: [r for r in rows if r["engine"] == name] for name in ("winnow, full cache", "winnow, SnapKV", "even")}
assert [len(r) for r in of.values()] == [3, 3, 3] and len(rows) == 9, rows
assert [float(r["first_ms"]) for r in of["even"]] == [2000, 3000, 4000], "the first call warms up"
table = {c[0]: c for c in ([x.strip() for x in line.strip("|\n").split("|")] for line in open(sys.argv[1]) if line.startswith("| "))}
even, ours = table["even"], of["winnow, full cache"]
want = statistics.median(float(e["first_ms"]) / float(o["first_ms"]) for o, e in zip(ours, of["even"]))
assert even[5] == "winnow, full cache" and even[6] == f"{want:.2f}x", (even, want)
assert even[1] == "3000" and even[2] == f"{96e3 / 3000:.1f}" and even[3] == "100.0", even
share = statistics.median(float(e["peak_bytes"]) / float(o["peak_bytes"]) for o, e in zip(ours, of["even"]))
assert even[8] == f"{1 / share:.2f}x" and even[9].startswith("0 of "), (even, share)
assert table["winnow, SnapKV"][5] == "", table
PY
grep -q 'even, made up' "$work/out" || fail "compare: engines are not described: $(cat "$work/out")"

# Every engine gets the tokens that winnow reads.
"$WINNOW" tokens -m "$tiny/tiny-llama.gguf" -f "$text" --raw | tr -s ' \n' '\n' | head -96 >"$work/ids"
engine curious "open('$work/seen', 'w').write(''.join(f'{t}\n' for t in tokens)); return 1.0, 1.0, [1]"
compare --worker "curious=python3 $work/curious.py" || fail "tokens: $(cat "$work/err")"
cmp -s "$work/ids" "$work/seen" || fail 'tokens: the engine got others'

# What cannot be had is left out before the measurement and ends it in the middle.
compare --worker 'absent=false' || fail "absent: $(cat "$work/err")"
grep -q 'left out: absent ended with code 1' "$work/err" || fail "absent: $(cat "$work/err")"
engine dying 'sys.exit("that was all")'
compare --worker "dying=python3 $work/dying.py" --csv "$work/d.csv" && fail 'dying: accepted'
grep -q 'dying ended with code 1: that was all' "$work/err" || fail "dying: $(cat "$work/err")"
[ -e "$work/d.csv" ] && fail 'dying: a CSV was written'
engine hanging 'time.sleep(60)'
compare --worker "hanging=python3 $work/hanging.py" --timeout 8 && fail 'hanging: accepted'
grep -q 'hanging said nothing for 8' "$work/err" || fail "hanging: $(cat "$work/err")"
compare --length 100000000 && fail 'too short a text: accepted'
grep -q 'give a longer --text' "$work/err" || fail "too short a text: $(cat "$work/err")"
compare --length 3 && fail 'too few tokens: accepted'
WINNOW_CACHE=$work/none compare --engines winnow,llama.cpp || fail "no llama.cpp: $(cat "$work/err")"
grep -q 'left out: llama.cpp: `make peers`' "$work/err" || fail "no llama.cpp: $(cat "$work/err")"
finish
