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
    awk -F, -v p="\"$1\"" -v m="$2" -v r="$3" '$6 == p && $5 == m && $7 == r { print $9 }' "$work/n.csv"
}

ask --policies full,streaming_llm:sinks=4,recent=0,tova
for mode in aware context; do
    for ratio in 0.5 0.875; do
        [ "$(right full $mode $ratio)" = 1 ] || fail "full cache, $mode: $(cat "$work/n.csv")"
    done
done
[ "$(awk -F, '/streaming_llm/ && /,context,/ && /,0.875,/ { print $10 }' "$work/n.csv")" = 0 ] ||
    fail "an evicted needle was found: $(cat "$work/n.csv")"
grep -Eq '^full +1/1 +1/1 +1/1 +1/1$' "$work/table" || fail "table: $(cat "$work/table")"

"$needles" -m "$models/smollm2-135m.gguf" --ratios 2 >"$work/out" 2>"$work/err" && fail 'ratio 2 is taken'
grep -q 'ratios' "$work/err" || fail "no reason: $(cat "$work/err")"
finish
