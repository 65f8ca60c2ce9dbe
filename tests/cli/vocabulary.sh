#!/bin/bash
# SPDX-License-Identifier: MIT
# Vocabularies that libllama has something to say about, and long runs of one character.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=$cache/python/bin/python
with_keys() { # with_keys OUT ARGS: the tiny model with other keys
    "$python" -m gguf.scripts.gguf_new_metadata --force "${@:2}" "$tiny/tiny-llama.gguf" "$work/$1" >"$work/log" 2>&1 ||
        fail "$1 was not made: $(tail -1 "$work/log")"
}

seq 1 40 >"$work/text.txt"
with_keys none.gguf --remove-metadata tokenizer.ggml.pre
for command in "run -n 1" "tokens" "ppl --policy full"; do
    "$WINNOW" $command -m "$work/none.gguf" -f "$work/text.txt" >"$work/out" 2>"$work/err" ||
        fail "$command: $(cat "$work/err")"
    n=$(grep -c 'warning: .*GENERATION QUALITY WILL BE DEGRADED' "$work/err")
    [ "$n" = 1 ] || fail "$command warns $n times of a missing pre-tokenizer: $(cat "$work/err")"
done

with_keys unknown.gguf --pre-tokenizer smallm
"$WINNOW" tokens -m "$work/unknown.gguf" -p x >"$work/out" 2>"$work/err"
[ $? = 2 ] || fail "an unknown pre-tokenizer: $(cat "$work/err")"
grep -q "unknown pre-tokenizer type: 'smallm'" "$work/err" || fail "no reason: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" = 1 ] || fail "more than one line: $(cat "$work/err")"

with_keys tekken.gguf --pre-tokenizer tekken
head -c 30000 /dev/zero | tr '\0' a >"$work/long.txt"
"$WINNOW" tokens -m "$work/tekken.gguf" --raw -f "$work/long.txt" >"$work/out" 2>"$work/err"
code=$?
[ $code = 0 ] || [ $code = 2 ] || fail "30,000 letters end with $code: $(cat "$work/err")"

finish
