# SPDX-License-Identifier: MIT
# README's examples of answers, by the command and by another program on the backend, are what comes.
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

# The backend: the last letters of a long answer may differ between CPUs, its first sentence not.
backend=$(sed -n '/^    \$ WINNOW_POLICY=/,/[^\\]$/p' README.md)
promised=$(sed -n '/^    \$ WINNOW_POLICY=/,/^$/p' README.md | sed -n '3s/^    //p')
case $backend in
*'examples/llama_cpp_python.py'*'$(cat examples/document.txt)'*) ;;
*) fail "no example of the backend: $backend" ;;
esac
if ! "$WINNOW" backend --path >/dev/null 2>&1 || ! has_llama_cpp; then
    echo 'this build has no backend, or there is no llama-cpp-python: its example was not run'
    finish
fi
backend=${backend#*\$ }
backend=${backend//build\/winnow/\"\$WINNOW\"}
backend=${backend//\~\/.cache\/winnow/\"\$cache\"}
export WINNOW_VERBOSE=1 OMP_WAIT_POLICY=passive
eval "$backend" >"$work/out" 2>"$work/err" </dev/null || fail "$backend: $(cat "$work/err")"
[ "$(cut -d. -f1 "$work/out")" = "${promised%%.*}" ] || fail "README promises '$promised' under the backend, which says '$(cat "$work/out")'"
grep -Eq '^winnow: of [0-9]{4} tokens, 1024 entries per head are kept$' "$work/err" || fail "nothing was compressed: $(cat "$work/err")"
finish
