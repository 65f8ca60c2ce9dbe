# SPDX-License-Identifier: MIT
# winnow tokens, and the prompt options that it shares with run.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/chat/smollm2.gguf"
need_file "$tiny/chat/gemma3.gguf"
smollm2=$tiny/chat/smollm2.gguf

# text FILE: the text that a list of pieces makes.
text() { printf '%b' "$(cut -f 2 "$1" | sed 's/\\\\/\\0134/g' | tr -d '\n')"; }

printf 'A tab\there, a \\ and\na line.' >"$work/doc"
good pieces tokens -m "$smollm2" -f "$work/doc" -p 'Where is é?' --pieces && {
    cp "$work/out" "$work/pieces"
    grep -Pvq '^[0-9]+\t[^\t]+$' "$work/out" && fail 'a line that is not an id, a tab and a piece'
    grep -q '^1	<|im_start|>$' "$work/out" || fail 'no control token by name'
    grep -q '	\\n$' "$work/out" || fail 'a line break is not written as \n'
    grep -q '	\\xc3$' "$work/out" || fail 'a part of a character is not written as \xc3'
    default='You are a helpful AI assistant named SmolLM, trained by Hugging Face'
    [ "$(text "$work/out")" = "$(printf '<|im_start|>system\n%s<|im_end|>\n<|im_start|>user\n%s\n\nWhere is é?<|im_end|>\n<|im_start|>assistant\n' \
        "$default" "$(cat "$work/doc")")" ] || fail "another text: $(text "$work/out")"
}
good ids tokens -m "$smollm2" -f "$work/doc" -p 'Where is é?' && {
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail 'ids are not one line'
    [ "$(tr ' ' '\n' <"$work/out")" = "$(cut -f 1 "$work/pieces")" ] || fail 'ids and pieces differ'
    cp "$work/out" "$work/ids"
}
# What run reads: the same number, and the same answer when they are given back to it.
good 'run on text' run -m "$smollm2" -f "$work/doc" -p 'Where is é?' -n 8 --json && cp "$work/out" "$work/run.json"
good 'run on tokens' run -m "$smollm2" --tokens "$work/ids" -n 8 --json &&
    json 'the tokens are those of run' "$work/out" "all(o[k] == json.load(open('$work/run.json'))[k] for k in
        ('prompt_tokens', 'tokens'))"
good 'tokens of tokens' tokens -m "$smollm2" --tokens "$work/ids" && same 'ids as given' "$work/ids" "$work/out"

# --system replaces the template's own message, in tokens and in run.
good 'system' tokens -m "$smollm2" -p hello --system 'Be brief.' --pieces &&
    { [ "$(text "$work/out" | head -n 1)" = '<|im_start|>systemBe brief.<|im_end|>' ] ||
        [ "$(text "$work/out" | sed -n 2p)" = 'Be brief.<|im_end|>' ] || fail "system: $(text "$work/out")"; }
n=$(wc -l <"$work/out")
good 'system in run' run -m "$smollm2" -p hello --system 'Be brief.' -n 1 --json &&
    json 'system in run' "$work/out" "o['prompt_tokens'] == $n"
good 'raw' tokens -m "$tiny/chat/gemma3.gguf" -p hello --raw --pieces &&
    { [ "$(text "$work/out")" = '<bos>hello' ] || fail "raw: $(text "$work/out")"; }
good 'pattern' tokens -m "$smollm2" -p hello --chat chatml --pieces &&
    { [ "$(text "$work/out" | head -n 1)" = '<|im_start|>user' ] || fail "chatml: $(text "$work/out")"; }

# A prompt longer than the context can be counted, though run would refuse it.
for i in $(seq 700); do echo "line $i of many"; done >"$work/long"
good 'longer than the context' tokens -m "$smollm2" -f "$work/long" &&
    { [ "$(wc -w <"$work/out")" -gt 8192 ] || fail 'the long prompt is short'; }
bad 'run refuses it' 'context is 8192' run -m "$smollm2" -f "$work/long"

bad 'no input' 'no input' tokens -m "$smollm2"
bad 'system and tokens' 'leave out --system' tokens -m "$smollm2" --tokens "$work/ids" --system x
bad 'system and raw' 'no place for a --system' tokens -m "$smollm2" -p x --raw --system y
bad 'raw and chat' 'exclude each other' tokens -m "$smollm2" -p x --raw --chat chatml
bad 'unknown chat' 'nochat' tokens -m "$smollm2" -p x --chat nochat
bad 'not in the vocabulary' 'not in the vocabulary' tokens -m "$smollm2" --tokens <(echo 1 2 999999)
bad 'policy options have no meaning' 'unknown option' tokens -m "$smollm2" -p x --budget 4
finish
