# SPDX-License-Identifier: MIT
# What the first pages promise comes: README's answer, the answer of another program on the backend (docs/use/llama-cpp-python.md), and README's
# table, which is what the record of its run gives. The run itself works end to end, on a tiny model.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
need_file "$tiny/tiny-llama.gguf"

example=$(sed -n 's/^    \$ build\/winnow //p' README.md)
answer=$(sed -n '/^    \$ build\/winnow /{n;s/^    //p;}' README.md)
[ "$(printf '%s\n' "$example" | wc -l)" -eq 1 ] && [ -n "$answer" ] || fail "one example with an answer is expected: $example"
case $example in
run\ *2\>/dev/null) ;;
*) fail "not a run that hides what goes to standard error: $example" ;;
esac
case $example in
*--policy*) fail "the first example names a policy: $example" ;;
esac
[ "$failures" -gt 0 ] || eval "\"\$WINNOW\" ${example%2>/dev/null} -t 1" >"$work/out" 2>"$work/err" </dev/null ||
    fail "$example: $(cat "$work/err")"
[ "$(cat "$work/out")" = "$answer" ] || fail "README promises '$answer', the command says '$(cat "$work/out")'"

# ---- The table ----
python3 scripts/readme_numbers.py --check 2>"$work/err" || fail "$(cat "$work/err")"
tree=$work/tree
mkdir -p "$tree/scripts" "$tree/records"
cp scripts/readme_numbers.py "$tree/scripts"
cp README.md "$tree"
numbers() { python3 "$tree/scripts/readme_numbers.py" --winnow "$WINNOW" "$@" >"$work/out" 2>"$work/err"; }
peer=$(dirname "$WINNOW")/tests/winnow_peer
if [ -x "$peer" ]; then
    numbers --measure --busy --model "$tiny/tiny-llama.gguf" --name Tiny --text "$PWD/share/text/held-out.txt" --tokens 120 --documents 1 \
        --questions 2 --threads 1 --peer "$peer" || fail "the run of README's table: $(cat "$work/err")"
    python3 - "$tree/records/readme.json" "$tree/README.md" <<'PY' || fail 'the record or the table of a run'
import json, sys

record, text = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
engines = {e["name"]: e for e in record["engines"]}
assert list(engines) == ["llama.cpp", "everything", "half", "quarter", "eighth"], list(engines)
assert all(len(e["read_s"]) == len(e["answer_tps"]) == len(e["kv_bytes"]) == 1 and e["read_s"][0] > 0 for e in engines.values()), engines
sizes = [engines[name]["kv_bytes"][0] for name in ("everything", "half", "quarter", "eighth")]
assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4, sizes
assert record["asked"] == 2 and all(0 <= e["found"] <= 2 for e in engines.values())
lines = text.split("<!-- BEGIN numbers (scripts/readme_numbers.py) -->\n")[1].split("<!-- END numbers -->")[0].splitlines()
assert lines[0].startswith("| Tiny, ") and lines[0].count("|") == 7 and lines[5].startswith("| answers found, of 2 |"), lines
assert text.split("<!-- BEGIN")[0] == open("README.md").read().split("<!-- BEGIN")[0]
PY
    numbers --check || fail "a table that was just written: $(cat "$work/err")"
    sed -i 's/^| a*nswering, tokens\/s | /&1/' "$tree/README.md"
    numbers --check && fail 'a number that somebody changed was taken'
    grep -q "is not what records/readme.json gives" "$work/err" || fail "a number that somebody changed: $(cat "$work/err")"
    sed -i '/END numbers/d' "$tree/README.md"
    numbers --check && fail 'a block without an end was taken'
    numbers --measure --busy --model "$tiny/tiny-llama.gguf" --tokens 120 --peer "$work/none" && fail 'a run without llama.cpp'
    grep -q 'scripts/setup.sh peers' "$work/err" || fail "a run without llama.cpp: $(cat "$work/err")"
fi

# ---- The backend: the last letters of a long answer may differ between CPUs, its first sentence not ----
backend=$(sed -n '/^    \$ WINNOW_POLICY=/,/[^\\]$/p' docs/use/llama-cpp-python.md)
promised=$(sed -n '/^    \$ WINNOW_POLICY=/,/^$/p' docs/use/llama-cpp-python.md | sed -n '3s/^    //p')
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
[ "$(cut -d. -f1 "$work/out")" = "${promised%%.*}" ] || fail "docs/use/llama-cpp-python.md promises '$promised' under the backend, which says '$(cat "$work/out")'"
grep -Eq '^winnow: of [0-9]{4} tokens, 1024 entries per head are kept$' "$work/err" || fail "nothing was compressed: $(cat "$work/err")"
finish
