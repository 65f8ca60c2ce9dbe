# SPDX-License-Identifier: MIT
# The example program with a method of its own: all its policies run, and they do not all answer alike.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
need_file "$tiny/tiny-llama.gguf"
program=$(dirname "$WINNOW")/examples/own_method
need_file "$program"

# What became of the number under a recipe (a canonical one begins with the same name): found or lost.
fate() {
    awk -v name="$1" 'index($0, name) == 1 { on = 1 } on && /the number was/ { print $NF; exit }' "$work/out"
}

"$program" "$models/smollm2-135m.gguf" >"$work/out" 2>"$work/err" || fail "own_method: $(cat "$work/err")"
[ "$(grep -c 'the number was' "$work/out")" -eq 6 ] || fail "not six policies: $(cat "$work/out")"
[ "$(fate full)" = found ] || fail "the full cache does not answer: $(cat "$work/out")"
[ "$(fate streaming_llm)" = lost ] || fail "an evicted number is found: $(cat "$work/out")"
grep -q '^stand_out:recency=0.1,window=32+direct+uniform:rounding=exact+adakv' "$work/out" ||
    fail "its method does not combine with our budget: $(cat "$work/out")"

seq 200 | sed 's/.*/line & of a text/' >"$work/text"
"$program" "$tiny/tiny-llama.gguf" "$work/text" 'What?' >"$work/out" 2>"$work/err" || fail "own text: $(cat "$work/err")"
[ "$(grep -c 'answer:' "$work/out")" -eq 6 ] || fail "own text: $(cat "$work/out")"
"$program" "$tiny/tiny-llama.gguf" /no/such/file >"$work/out" 2>"$work/err" && fail 'a missing file is taken'
finish
