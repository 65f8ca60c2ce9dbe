# SPDX-License-Identifier: MIT
# The example program with a layer budget and a selector of its own: they go into recipes with parts of the library.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
program=$(dirname "$WINNOW")/examples/own_budget
need_file "$program"

# Counts of the layers under a recipe (a canonical one begins so).
layers() {
    awk -v name="$1" 'index($0, name) == 1 { on = 1 } on && /by layer:/ { sub(/.*by layer: /, ""); print; exit }' "$work/out"
}

"$program" "$tiny/tiny-llama.gguf" >"$work/out" 2>"$work/err" || fail "own_budget: $(cat "$work/err")"
[ "$(grep -c 'by layer:' "$work/out")" -eq 4 ] || fail "not four policies: $(cat "$work/out")"
set -- $(layers 'knorm+direct+uniform')
[ $# -eq 4 ] && [ "$1" = "$2" ] && [ "$1" = "$4" ] || fail "uniform layers differ: $*"
half=$1
set -- $(layers 'knorm+direct+hourglass:waist=0.5+equal+topk')
[ "$1" -gt "$half" ] && [ "$2" -lt "$half" ] && [ "$3" -lt "$half" ] && [ "$4" -gt "$half" ] ||
    fail "no hourglass around $half: $*"
[ $(($1 + $2 + $3 + $4)) -le $((4 * half)) ] || fail "more than asked for: $*"
set -- $(layers 'knorm+direct+hourglass:waist=0.25+equal+spread:step=8')
[ $# -eq 4 ] || fail "no spread: $(cat "$work/out")"
[ -n "$(layers 'snapkv:window=8')" ] || fail "does not combine with adakv: $(cat "$work/out")"
"$program" /no/such/model >"$work/out" 2>"$work/err" && fail 'a missing model is taken'
finish
