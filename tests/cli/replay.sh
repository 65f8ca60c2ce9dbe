# SPDX-License-Identifier: MIT
# The scorer replay from the command line: in each phase, with any number of threads, and where it has no place.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
m=$tiny/tiny-llama.gguf
ids 300 9 >"$work/ids"
ids 8300 9 >"$work/long"

good 'preset' plan -m "$m" --tokens "$work/ids" --policy replay --ratio 0.5 -t 1 -o "$work/one.json" &&
    json 'the size is exact' "$work/one.json" 'sum(len(h) for l in o["layers"] for h in l["heads"]) == 150 * 8'
good 'two threads' plan -m "$m" --tokens "$work/ids" --policy replay --ratio 0.5 -t 2 -o "$work/two.json" &&
    same 'as many threads as you like' "$work/one.json" "$work/two.json"
good 'exact' plan -m "$m" --tokens "$work/ids" --policy replay:form=exact --ratio 0.5 -o "$work/exact.json"
cmp -s "$work/one.json" "$work/exact.json" && fail 'exact chooses what sparse does, to the byte'
for when in end layer chunk:64; do
    good "evict $when" run -m "$m" --tokens "$work/ids" --policy replay+equal --ratio 0.5 --evict $when -n 4 --json &&
        json "evict $when" "$work/out" 'abs(o["kept_tokens_mean"] - 150) < 0.2'
done
# one_line NAME: the message is one line.
one_line() { [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$1: more than one line: $(cat "$work/err")"; }
bad 'all heads, layer by layer' 'see all layers' run -m "$m" --tokens "$work/ids" --policy replay --ratio 0.5 --evict layer -n 4
bad 'while decoding' 'needs every query of the prompt' run -m "$m" --tokens "$work/ids" --policy replay+equal --ratio 0.5 --evict-every 8 -n 4
one_line 'while decoding'
# The command refuses such a prompt for any policy; for programs the scorer does (unit_replay).
bad 'beyond the trained context' "the prompt has 8300 tokens and the model's context is 8192" \
    plan -m "$m" --tokens "$work/long" --policy replay --ratio 0.9 -o "$work/made/p.json"
one_line 'beyond the trained context'
finish
