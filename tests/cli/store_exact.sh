# SPDX-License-Identifier: MIT
# winnow run --store: with any other documents in the folder, the answer is that of an empty folder, for policies of every kind.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
doc=$work/doc.txt longer=$work/longer.txt
for i in $(seq 1 6); do echo "The keeper of tower $i is called Name$i and has $((i * 7)) lamps."; done >"$doc"
{ cat "$doc"; for i in $(seq 7 9); do echo "A wolf came to tower $i and said that the moon is made of cheese $((i * 31))."; done; } >"$longer"
of=(-m "$model" --context-only -p 'Who keeps tower 3?' -n 12 --json -t 1)

# tokens FILE: those of an answer.
tokens() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens"])' "$1"; }

# same_answer ARGS...: without a folder; in one that has the beginning, under the same policy; and once the document is there.
same_answer() {
    rm -rf "$work/s"
    good "$*: plain" run "${of[@]}" -f "$longer" "$@" && tokens "$work/out" >"$work/plain" || return
    good "$*: the beginning" run "${of[@]}" -f "$doc" --store "$work/s" "$@"
    for time in beginning all; do
        good "$*: with $time" run "${of[@]}" -f "$longer" --store "$work/s" "$@" || return
        tokens "$work/out" >"$work/kept"
        same "$*: the answer where the folder has the $time" "$work/plain" "$work/kept"
    done
    json "$*: it was not found again" "$work/out" "o['store']['tokens'] > 200"
}
# Of attention windows, of whole prompts, of a second pass, of keys alone; budgets of layers, of heads, of the model; what moves, merges,
# recurs or slides; by the end, by chunks and by layers; and quantised caches.
while read -r args; do
    same_answer $args
done <<'ARGS'
--policy full
--policy streaming_llm --ratio 0.5
--policy streaming_llm-rerotated --ratio 0.5
--policy snapkv --ratio 0.5
--policy tova --ratio 0.5
--policy h2o --ratio 0.5
--policy knorm --budget 40
--policy keydiff --ratio 0.5
--policy pyramidkv --ratio 0.5
--policy adakv --ratio 0.5
--policy criticalkv --ratio 0.5
--policy expected_attention --ratio 0.5
--policy kvzip --ratio 0.5
--policy kvcompose --ratio 0.5
--policy replay --ratio 0.5
--policy replay-sampled --ratio 0.5
--policy keydiff-sampled --ratio 0.5
--policy kvzip-threshold
--policy lagkv:sink=4,lag=16
--policy lagkv:sink=4,lag=16 --ratio 0.5 --evict chunk
--policy cake --ratio 0.5
--policy snapkv-merge --ratio 0.5
--policy chunkkv --ratio 0.5
--policy laq --ratio 0.5
--policy keydiff --ratio 0.5 --evict chunk:64
--policy keydiff --ratio 0.5 --evict layer
--policy keydiff --kv-bytes 64K --kv-type q8_0 --kv-tail 32
--policy auto --ratio 0.5
ARGS
finish
