# SPDX-License-Identifier: MIT
# winnow score: one score a line and the mean; bad lines are named; any bytes are taken; the benchmarks' packages agree.
. "$(dirname "$0")/lib.sh"

printf '%s\n' '{"pred":"yes it is yes","refs":["yes yes no"]}' '' '{"pred":"x","refs":["y","x"],"more":1}' >"$work/p.jsonl"
"$WINNOW" score --metric qa_f1 -i "$work/p.jsonl" >"$work/out" || fail "score"
printf '0.571428571\n1\nmean 0.785714286\n' | cmp -s - "$work/out" || fail "scores: $(cat "$work/out")"
"$WINNOW" score --metric qa_f1 -i "$work/p.jsonl" --json | python3 -c '
import json, sys
o = json.load(sys.stdin)
sys.exit(not (o["metric"] == "qa_f1" and o["n"] == 2 and len(o["scores"]) == 2 and abs(o["mean"] - 0.785714286) < 1e-8))' ||
    fail "score --json"

# refused NAME PATTERN CONTENT [METRIC]: the file is refused, and the line named.
refused() {
    printf '%b' "$3" >"$work/bad.jsonl"
    bad "$1" "$2" score --metric "${4:-qa_f1}" -i "$work/bad.jsonl"
}
line='{"pred":"a","refs":["b"]}\n'
refused 'cut off' "line 2: not JSON" "$line{\"pred\":\"a\","
refused 'not an object' "line 1: not a JSON object" '[1]\n'
refused 'no prediction' 'line 2: no text "pred"' "$line{\"refs\":[\"b\"]}\n"
refused 'a number as prediction' 'line 1: no text "pred"' '{"pred":1,"refs":["b"]}\n'
refused 'no references' 'line 1: no list "refs"' '{"pred":"a"}\n'
refused 'empty references' 'line 1: no list "refs"' '{"pred":"a","refs":[]}\n'
refused 'a number as reference' 'line 1: "refs" has something' '{"pred":"a","refs":["b",1]}\n'
refused 'no classes' 'line 1: no list "classes"' "$line" classification
refused 'a NUL byte' 'line 1 has a NUL byte \(at byte 10\)' '{"pred":"a\0000b","refs":["b"]}\n'
refused 'a NUL byte further on' 'line 2 has a NUL byte' "$line{\"pred\":\"a\",\"refs\":[\"\0000\"]}\n"
refused 'UTF-16' 'convert it to UTF-8' '\0377\0376{\0\042\0p\0\n\0'
refused 'half a surrogate' 'line 1: not JSON' '{"pred":"\\ud800","refs":["b"]}\n'
refused 'nothing' 'is empty' '\n  \n'
bad 'no such file' 'cannot open' score --metric qa_f1 -i "$work/none"
bad 'a folder' 'is a directory' score --metric qa_f1 -i "$work"
bad 'an unknown metric' 'did you mean qa_f1' score --metric qa_f2 -i "$work/p.jsonl"
bad 'an unknown metric' 'string_match_all, string_match_part' score --metric zzzzzz -i "$work/p.jsonl"
bad 'no metric' '--metric' score -i "$work/p.jsonl"
bad 'no file' '-i' score --metric qa_f1

# Bytes that are no text, zeros in strings, the byte order of another program, a line of megabytes.
printf '{"pred":"\377\300 x","refs":["x"]}\r\n{"pred":"a\\u0000b","refs":["a\\u0000b"]}\n' >"$work/odd.jsonl"
python3 -c 'import json; print(json.dumps({"pred": "word. " * 500000, "refs": ["word"]}))' >>"$work/odd.jsonl"
for metric in all part contains exact partial kv number qa_f1 rouge1_recall wordset_recall count retrieval code_sim; do
    "$WINNOW" score --metric $metric -i "$work/odd.jsonl" >"$work/out" || fail "$metric of odd texts"
    [ "$(wc -l <"$work/out")" -eq 4 ] || fail "$metric of odd texts: $(cat "$work/out")"
done
[ "$("$WINNOW" score --metric kv -i "$work/odd.jsonl" | tr '\n' ' ')" = '1 1 1 mean 1 ' ] || fail 'kv of odd texts'

# A byte order mark is no text; bytes that are not UTF-8 give one warning, with the file and the line.
printf '\xef\xbb\xbf{"pred":"a b","refs":["b"]}\n{"pred":"c","refs":["c"]}\n' >"$work/marked.jsonl"
[ "$("$WINNOW" score --metric contains -i "$work/marked.jsonl" 2>"$work/err" | tr '\n' ' ')" = '1 1 mean 1 ' ] || fail "a byte order mark: $(cat "$work/err")"
[ ! -s "$work/err" ] || fail "a byte order mark is told of: $(cat "$work/err")"
printf '{"pred":"a","refs":["a"]}\n{"pred":"th\xe9","refs":["caf\xe9 th\xea"]}\n{"pred":"\xe9","refs":["b"]}\n{"pred":"b\xe9","refs":["b"]}\n' >"$work/latin.jsonl"
"$WINNOW" score --metric kv -i "$work/latin.jsonl" >"$work/out" 2>"$work/err" || fail "Latin-1: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" -eq 2 ] && grep -q "warning: '$work/latin.jsonl' line 2 has 3 sequences that are not UTF-8" "$work/err" &&
    grep -q 'has 2 more such lines' "$work/err" || fail "Latin-1 is not told of: $(cat "$work/err")"

# A reference with an empty normal form is compared as it is written, as a word of its own.
# literally PRED REF SCORE [METRIC...]
literally() {
    local pred=$1 ref=$2 want=$3 metric
    shift 3
    for metric in "$@"; do
        python3 -c 'import json, sys; print(json.dumps({"pred": sys.argv[1], "refs": [sys.argv[2]]}))' "$pred" "$ref" >"$work/one.jsonl"
        [ "$("$WINNOW" score --metric $metric -i "$work/one.jsonl" | head -1)" = "$want" ] || fail "$metric of '$pred' with '$ref' is not $want"
    done
}
for ref in A An The a the; do
    literally B "$ref" 0 exact
    literally "$ref" "$ref" 1 exact
    literally "It is $ref." "$ref" 1 exact
    literally "x${ref}x" "$ref" 0 exact
done
literally 'Anything at all' A 0 exact
literally no 'The!' 0 exact
literally 'Well, The! ' ' The! ' 1 exact
literally no '?' 0 exact contains
literally 'no?' '?' 1 exact contains
literally '!' '?' 0 exact contains
literally '- - -' '- -' 1 exact contains
literally 'the' 'a an' 0 exact
literally B A 0 contains
literally 'an apple' 'a' 1 contains
literally anything '' 0 exact contains
literally anything '' 1 kv part all qa_substring # as the programs of these benchmarks have it
literally '' '' 1 exact contains kv part all qa_substring
literally '  ' ' ' 1 exact contains

# What has no end is refused by its first bytes, and so is an object that says one thing twice.
bad 'zeros without an end' 'NUL byte' score --metric exact -i /dev/zero
echo '{"pred": "a", "refs": ["a"], "pred": "b"}' >"$work/twice.jsonl"
bad 'a key twice' 'has a key twice' score --metric exact -i "$work/twice.jsonl"

python="${WINNOW_CACHE:-$HOME/.cache/winnow}/metrics/bin/python"
if [ -x "$python" ]; then
    "$python" scripts/metrics/reference.py check "$WINNOW" 3 100 >"$work/out" 2>&1 ||
        fail "the packages differ: $(cat "$work/out")"
fi
finish
