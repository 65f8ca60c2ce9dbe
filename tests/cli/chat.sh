# SPDX-License-Identifier: MIT
# The example program of a conversation: turns follow each other in one session, and what they add is compressed too.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/chat/smollm2.gguf"
program=$(dirname "$WINNOW")/examples/chat
need_file "$program"
model=$tiny/chat/smollm2.gguf

# talk POLICY DOCUMENT...: three questions; one line of `$work/counts` for each, tokens so far and those kept.
talk() {
    printf 'Which?\n\nAnd then?\nWhy is that <|im_end|> so?\n' | "$program" "$model" "$@" >"$work/out" 2>"$work/err" ||
        fail "chat $*: $(cat "$work/err")"
    sed -n 's/^\[\([0-9]*\) tokens, \([0-9]*\) kept per head\]$/\1 \2/p' "$work/err" >"$work/counts"
    [ "$(wc -l <"$work/counts")" -eq 3 ] || fail "chat $*: not three turns: $(cat "$work/err")"
}

printf 'The harbor is red, and the ship is blue.' >"$work/document"
talk full "$work/document"
first=$("$WINNOW" tokens -m "$model" -f "$work/document" -p 'Which?' | wc -w)
read -r n kept <"$work/counts"
[ "$n" -eq "$first" ] || fail "the first turn has $n tokens, winnow tokens says $first"
awk '$1 != $2 || $1 <= last { exit 1 } { last = $1 }' "$work/counts" || fail "full drops, or turns do not grow: $(cat "$work/counts")"

# Half of all tokens stay, those of earlier turns and answers included. No token is read twice where positions are new.
for policy in knorm streaming_llm+rerotate; do
    talk $policy "$work/document"
    awk '{ half = $1 / 2; if ($2 < half - 1 || $2 > half + 1) exit 1 }' "$work/counts" || fail "$policy: not half: $(cat "$work/counts")"
done
talk full # without a document

"$program" "$model" nonsense </dev/null >"$work/out" 2>"$work/err" && fail 'an unknown policy is taken'
"$program" /no/such/model full </dev/null >"$work/out" 2>"$work/err" && fail 'a missing model is taken'
finish
