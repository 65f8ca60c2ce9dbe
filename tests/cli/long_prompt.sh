# SPDX-License-Identifier: MIT
# The example program that reads a long prompt: in chunks and whole.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
program=$(dirname "$WINNOW")/examples/long_prompt
need_file "$program"
text=$(dirname "$0")/../../examples/document.txt

# read_prompt ARGUMENTS...: its output is in $work/out.
read_prompt() { "$program" "$tiny/tiny-llama.gguf" "$text" "$@" >"$work/out" 2>"$work/err" || fail "$*: $(cat "$work/err")"; }
# MiB of the cache: at most, and at the end.
most() { sed -n 's/^# cache: \([0-9.]*\) MiB at most.*/\1/p' "$work/out"; }
now() { sed -n 's/.*at most, \([0-9.]*\) MiB now$/\1/p' "$work/out"; }
# less A B: whether A is less than B.
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0) }'; }

read_prompt 2500
[ "$(sed -n 's/^\([0-9]*\),.*/\1/p' "$work/out" | tr '\n' ' ')" = '1024 2048 2500 ' ] || fail "lines: $(cat "$work/out")"
whole=$(most)
[ "$(now)" = "$whole" ] || fail "something was dropped: $(cat "$work/out")"
read_prompt 2500 0.75
less "$(now)" "$whole" || fail "nothing was dropped: $(cat "$work/out")"
[ "$(most)" = "$whole" ] || fail "the cache was not whole: $(cat "$work/out")"
read_prompt 2500 0.75 512 1
less "$(most)" "$whole" || fail "chunks take as much as the whole prompt: $(cat "$work/out")"

"$program" >"$work/out" 2>"$work/err" && fail 'no arguments are taken'
"$program" "$tiny/tiny-llama.gguf" "$text" none >"$work/out" 2>"$work/err" && fail 'a number that is none is taken'
"$program" "$tiny/tiny-llama.gguf" /no/such/file 100 >"$work/out" 2>"$work/err" && fail 'a missing text is taken'
"$program" /no/such/model "$text" 100 >"$work/out" 2>"$work/err" && fail 'a missing model is taken'
finish
