# SPDX-License-Identifier: MIT
# Policies that judge the prompt by its question: the prompt's second piece reaches them.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"

head -c 1500 examples/document.txt >"$work/doc"

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

# The border of the two pieces is known, so it is used and not the last 32 tokens, which replace an unknown question.
plan 'finch' "$work/a.json" --policy finch -p 'Who wrote this text?'
plan 'finch, 32 tokens' "$work/b.json" --policy finch:question=32 -p 'Who wrote this text?'
json 'the border is known' "$work/a.json" "o['layers'] != json.load(open('$work/b.json'))['layers']"

bad 'no question' 'give one with -p' plan -f "$work/doc" --policy kvcompose-aware -o "$work/made/plan.json"
printf '1 2 3 4 5 6 7 8' >"$work/ids"
bad 'tokens' 'give one with -p' plan --tokens "$work/ids" --policy kvcompose-aware -o "$work/made/plan.json"
finish
