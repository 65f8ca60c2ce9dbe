# SPDX-License-Identifier: MIT
# Policies that judge the prompt by its question: the prompt's second piece reaches them.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"

head -c 600 examples/document.txt >"$work/doc"

# plan NAME FILE ARGS...: a plan of the document.
plan() {
    local name=$1 to=$2
    shift 2
    good "$name" plan -f "$work/doc" --ratio 0.75 -t 1 -o "$to" "$@"
}

# The document is the same and so is what is compressed; the questions differ.
plan 'one question' "$work/a.json" --policy kvcompose-aware --context-only -p 'Who wrote this text?'
plan 'another question' "$work/b.json" --policy kvcompose-aware --context-only -p 'Name every number you find.'
json 'the question decides' "$work/a.json" "o['n_tokens'] == json.load(open('$work/b.json'))['n_tokens'] and \
    o['layers'] != json.load(open('$work/b.json'))['layers']"

# A question that is expected counts as the one that is asked; of several all count, and one that is named twice counts once.
for at in who numbers; do
    text='Who wrote this text?'
    [ $at = who ] || text='Name every number you find.'
    plan "asked: $at" "$work/$at.json" --policy kvcompose:task=question --context-only -p "$text"
done
expect() { plan "expected: $1" "$work/$1.json" --policy kvcompose:task=question --context-only "${@:2}"; }
expect once --expect 'Who wrote this text?'
expect twice --expect 'Who wrote this text?' --expect 'Who wrote this text?'
expect both --expect 'Who wrote this text?' --expect 'Name every number you find.'
expect besides --expect 'Who wrote this text?' -p 'Name every number you find.'
py "$work" <<'PY' || fail 'expected questions'
import json, sys
def layers(name):
    return json.load(open(f"{sys.argv[1]}/{name}.json"))["layers"]
assert layers("who") == layers("once") == layers("twice") == layers("besides") != layers("numbers")
assert layers("both") not in (layers("who"), layers("numbers"))
PY
good 'a document for expected questions' compress -f "$work/doc" --ratio 0.75 -t 1 --policy kvcompose-aware --expect 'Who wrote this text?' -o "$work/doc.wkv"
good 'asked' ask -c "$work/doc.wkv" -p 'Who wrote this text?' -n 8 -t 1 && cp "$work/out" "$work/asked"
good 'run' run -f "$work/doc" --ratio 0.75 --policy kvcompose-aware --context-only -p 'Who wrote this text?' -n 8 -t 1 && same 'the stored document' "$work/asked" "$work/out"
bad 'a policy without questions' 'goes with policies that judge' plan -f "$work/doc" --policy snapkv --expect x -o "$work/made/plan.json"
bad 'no document' 'about a document' plan -p x --policy kvcompose-aware --expect y -o "$work/made/plan.json"
bad 'an empty question' 'is empty' plan -f "$work/doc" --policy kvcompose-aware --expect '' -o "$work/made/plan.json"
bad 'a folder' 'does not go with --expect' run -f "$work/doc" --context-only --policy kvcompose-aware --expect x --store "$work/made/folder" -p x
bad 'a folder for one question' 'judges a document by its question' run -f "$work/doc" --context-only --policy kvcompose-aware --store "$work/folder" -p x

# The border of the two pieces is known, so it is used and not the last 32 tokens, which replace an unknown question.
plan 'finch' "$work/a.json" --policy finch -p 'Who wrote this text?'
plan 'finch, 32 tokens' "$work/b.json" --policy finch:question=32 -p 'Who wrote this text?'
json 'the border is known' "$work/a.json" "o['layers'] != json.load(open('$work/b.json'))['layers']"

bad 'no question' 'give one with -p' plan -f "$work/doc" --policy kvcompose-aware -o "$work/made/plan.json"
printf '1 2 3 4 5 6 7 8' >"$work/ids"
bad 'tokens' 'give one with -p' plan --tokens "$work/ids" --policy kvcompose-aware -o "$work/made/plan.json"
finish
