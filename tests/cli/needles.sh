# SPDX-License-Identifier: MIT
# The needle program: the full cache answers, a policy that forgets the middle of the text does not.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
needles=$(dirname "$WINNOW")/examples/needles
need_file "$needles"

ask() {
    "$needles" -m "$models/smollm2-135m.gguf" -t 1 --tokens 500 --depths 40 --ratios 0.5,0.875 "$@" \
        --csv "$work/n.csv" >"$work/table" 2>"$work/err" || fail "needles $*: $(cat "$work/err")"
}
# right POLICY MODE RATIO: 1 or 0
right() {
    python3 -c 'import csv, sys
print(*[r["right"] for r in csv.DictReader(open(sys.argv[1])) if [r["policy"], r["mode"], r["ratio"]] == sys.argv[2:]])' \
        "$work/n.csv" "$@"
}

# A block of LocalKV has only itself to stand out from, LagKV compares it with the next one: the paper's ablation.
ask --policies full,streaming_llm:sinks=4,recent=0,tova,localkv:lag=32,sink=4,lagkv:lag=32,sink=4
for mode in aware context; do
    for ratio in 0.5 0.875; do
        [ "$(right full $mode $ratio)" = 1 ] || fail "full cache, $mode: $(cat "$work/n.csv")"
        for policy in streaming_llm:sinks=4,recent=0 localkv:lag=32,sink=4; do
            [ "$(right $policy $mode $ratio)" = 0 ] || fail "$policy finds an evicted number: $(cat "$work/n.csv")"
        done
    done
    [ "$(right lagkv:lag=32,sink=4 $mode 0.5)" = 1 ] || fail "lagkv, $mode: $(cat "$work/n.csv")"
done
grep -Eq '^full +1/1 +1/1 +1/1 +1/1$' "$work/table" || fail "table: $(cat "$work/table")"

"$needles" -m "$models/smollm2-135m.gguf" --ratios 2 >"$work/out" 2>"$work/err" && fail 'ratio 2 is taken'
grep -q 'ratios' "$work/err" || fail "no reason: $(cat "$work/err")"
finish
