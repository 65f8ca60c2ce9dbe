# SPDX-License-Identifier: MIT
# README's example of an answer is what the command says.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"

example=$(sed -n 's/^    \$ build\/winnow //p' README.md)
answer=$(sed -n '/^    \$ build\/winnow /{n;s/^    //p;}' README.md)
[ "$(printf '%s\n' "$example" | wc -l)" -eq 1 ] && [ -n "$answer" ] || fail "one example with an answer is expected: $example"
case $example in
run\ *2\>/dev/null) ;;
*) fail "not a run that hides what goes to standard error: $example" ;;
esac
[ "$failures" -gt 0 ] || eval "\"\$WINNOW\" ${example%2>/dev/null} -t 1" >"$work/out" 2>"$work/err" </dev/null ||
    fail "$example: $(cat "$work/err")"
[ "$(cat "$work/out")" = "$answer" ] || fail "README promises '$answer', the command says '$(cat "$work/out")'"
finish
