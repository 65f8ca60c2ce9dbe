# SPDX-License-Identifier: MIT
# New positions for kept tokens: prompts and answers longer than the context (8192 tokens for the tiny models).
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
need_file "$tiny/tiny-gemma3.gguf"

m=$tiny/tiny-llama.gguf
ids 300 9 >"$work/short"
ids 9000 9 >"$work/long"

# A short prompt, in every phase; the plan itself speaks of positions in the text.
for when in end layer chunk:64; do
    good "evict $when" run -m "$m" --tokens "$work/short" --policy streaming_llm+rerotate --budget 64 --evict $when -n 4 --json && {
        json "$when: 64 stay" "$work/out" 'o["kept_tokens_mean"] == 64'
        json "$when: the full size is known" "$work/out" 'o["kv_bytes_full"] > 2 * o["kv_bytes"]'
    }
done
good 'heads with tokens of their own' run -m "$m" --tokens "$work/short" --policy snapkv:window=8+rerotate --budget 64 --evict-every 4 -n 12 --json &&
    json 'heads with tokens of their own: 64 stay' "$work/out" 'o["kept_tokens_mean"] == 64'
good plan plan -m "$m" --tokens "$work/short" --policy streaming_llm+rerotate --budget 64 -o "$work/plan.json" && {
    json 'plan: the recipe' "$work/plan.json" 'o["policy"].endswith("+rerotate") and o["n_tokens"] == 300'
    json 'plan: positions in the text' "$work/plan.json" \
        'all(h == [0, 1, 2, 3] + list(range(240, 300)) for l in o["layers"] for h in l["heads"])'
}

# Longer than the context: exactly with new positions and chunks.
good 'long prompt' run -m "$m" --tokens "$work/long" --policy streaming_llm-rerotated --budget 128 --evict chunk:256 -n 4 --json && {
    json 'long prompt: all were read' "$work/out" 'o["prompt_tokens"] == 9000 and o["kept_tokens_mean"] == 128'
    json 'long prompt: an answer' "$work/out" 'len(o["tokens"]) > 0'
}
bad 'long prompt at its end' 'context is 8192' run -m "$m" --tokens "$work/long" --policy streaming_llm+rerotate --budget 128
bad 'long prompt by layer' 'context is 8192' run -m "$m" --tokens "$work/long" --policy streaming_llm+rerotate --budget 128 --evict layer
bad 'long prompt, original positions' 'context is 8192' run -m "$m" --tokens "$work/long" --policy streaming_llm --budget 128 --evict chunk
bad 'long prompt, all kept' 'context is 8192' run -m "$m" --tokens "$work/long" --policy full+rerotate --evict chunk
bad 'long prompt of which too much stays' 'keep less or read smaller chunks' \
    run -m "$m" --tokens "$work/long" --policy streaming_llm+rerotate --budget 8000 --evict chunk:256
good 'ppl after a long prefix' ppl -m "$m" --tokens "$work/long" -n 9000 --prefix 8900 --policy streaming_llm+rerotate --budget 128 --evict chunk:256 --json &&
    json 'ppl after a long prefix: scored' "$work/out" 'o["prefix_tokens"] == 8900 and o["scored_tokens"] == 100'
bad 'ppl of a long text' 'more than the model' ppl -m "$m" --tokens "$work/long" -n 9000 --policy streaming_llm --budget 128 --evict chunk:256

# What cannot have new positions, and why.
bad 'ragged heads' 'rerotate cannot be combined with adakv' run -m "$m" --tokens "$work/short" --policy adakv+rerotate --budget 64
bad 'ragged layers' 'rerotate cannot be combined with pyramid' run -m "$m" --tokens "$work/short" --policy snapkv+pyramid+rerotate --budget 64
bad 'a phase in which it meets its own traces' 'compares heads by position' \
    run -m "$m" --tokens "$work/short" --policy snapkv:cross_head=1+rerotate --budget 64 --evict chunk:64
bad 'a part that does not exist' 'did you mean "rerotate"' run -m "$m" --tokens "$work/short" --policy snapkv+rerotated --budget 64
"$WINNOW" run -m "$tiny/tiny-gemma3.gguf" --tokens "$work/short" --policy streaming_llm+rerotate --budget 64 -n 2 \
    >"$work/out" 2>"$work/err" </dev/null && fail 'sliding windows are accepted'
grep -q 'sliding window' "$work/err" || fail "sliding windows: $(cat "$work/err")"

finish
