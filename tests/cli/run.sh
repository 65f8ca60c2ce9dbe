# SPDX-License-Identifier: MIT
# winnow run on good input.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
need_file "$tiny/tiny-llama.gguf"
need_file "$tiny/tiny-gemma3.gguf"

for i in $(seq 8); do
    echo "Note $i: the harbour of town number $i opens at $((i % 12 + 1)) o'clock and closes late."
done >"$work/doc.txt"
question='When does the harbour of town number 3 open?'

# adds_up NAME FILE: reading and compressing take all of the time to the first token.
adds_up() {
    json "$1: times add up" "$2" '0 < o["prefill_ms"] and 0 <= o["compress_ms"] and o["prefill_ms"] + o["compress_ms"] <= 1.0001 * o["ttft_ms"]'
}

# The JSON object: exactly the fields of the contract, with their types.
good 'run --json' run -f "$work/doc.txt" -p "$question" -n 8 --json && {
    fields='{"prompt_tokens", "kept_tokens_mean", "kv_bytes_full", "kv_bytes", "kv_rotated", "peak_rss_bytes", "load_ms",
             "prefill_ms", "compress_ms", "ttft_ms", "decode_tps", "prefill_tps", "text", "tokens"}'
    json 'fields' "$work/out" "set(o) == $fields"
    json 'integers' "$work/out" \
        'all(type(o[k]) is int for k in ("prompt_tokens", "kv_bytes", "kv_bytes_full", "peak_rss_bytes"))'
    json 'reals' "$work/out" 'all(isinstance(o[k], (int, float)) and o[k] >= 0 for k in ("kept_tokens_mean",
        "load_ms", "prefill_ms", "compress_ms", "ttft_ms", "decode_tps", "prefill_tps"))'
    json 'text' "$work/out" 'type(o["text"]) is str and o["text"] != ""'
    json 'tokens' "$work/out" '0 < len(o["tokens"]) <= 8 and all(type(t) is int for t in o["tokens"])'
    json 'full cache kept whole' "$work/out" \
        'o["kept_tokens_mean"] == o["prompt_tokens"] and o["kv_bytes"] == o["kv_bytes_full"]'
    json 'times' "$work/out" 'o["prefill_tps"] > 0 and o["ttft_ms"] >= o["prefill_ms"] > 0'
    adds_up 'full' "$work/out"
    json 'memory' "$work/out" 'o["peak_rss_bytes"] > o["kv_bytes"]'
    cp "$work/out" "$work/full.json"
}

# The answer alone goes to stdout, and is the text of the object.
good 'plain answer' run -f "$work/doc.txt" -p "$question" -n 8 &&
    py "$work/out" "$work/full.json" <<'PY' || fail 'stdout is not the answer'
import json, sys
answer = open(sys.argv[1], encoding="utf-8").read()
text = json.load(open(sys.argv[2], encoding="utf-8"))["text"]
sys.exit(0 if answer == (text if text.endswith("\n") else text + "\n") else 1)
PY
grep -q 'tok/s' "$work/err" || fail 'no summary on stderr'
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than a summary on stderr: $(cat "$work/err")"

# What follows depends on no model: one of four layers, whose tokens are bytes.
tiny_llama=(-m "$tiny/tiny-llama.gguf")
good 'tiny' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" -n 8 --json && cp "$work/out" "$work/tiny.json"

# Sizes.
good 'budget' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --budget 64 -n 4 --json && {
    json 'average of 64' "$work/out" 'abs(o["kept_tokens_mean"] - 64) < 0.01'
    json 'fewer bytes' "$work/out" 'o["kv_bytes"] < o["kv_bytes_full"] / 2'
    json 'compression takes time' "$work/out" 'o["compress_ms"] > 0'
}
good 'ratio' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy knorm --ratio 0.75 -n 2 --json &&
    json 'a quarter' "$work/out" 'abs(o["kept_tokens_mean"] - 0.25 * o["prompt_tokens"]) < 1'
good 'ratio 0' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy snapkv --ratio 0 -n 8 --json && {
    json 'all' "$work/out" 'o["kept_tokens_mean"] == o["prompt_tokens"]'
    python3 -c 'import json, sys; a, b = (json.load(open(p)) for p in sys.argv[1:])
sys.exit(a["tokens"] != b["tokens"])' "$work/out" "$work/tiny.json" || fail 'ratio 0 changes the answer'
}
good 'bytes' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy replay --kv-bytes 256K -n 2 --json &&
    json 'bytes fit' "$work/out" '0.9 * 256 * 1024 < o["kept_tokens_mean"] * 4 * 2 * 128 <= 256 * 1024'
good 'no size' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy snapkv -n 2 --json && {
    json 'half' "$work/out" 'abs(o["kept_tokens_mean"] - 0.5 * o["prompt_tokens"]) < 1'
    grep -q 'ratio 0.5' "$work/err" || fail 'the assumed ratio is not said'
}
good 'budget larger than the prompt' run "${tiny_llama[@]}" -p "$question" --budget 5000 -n 2 --json &&
    json 'stays whole' "$work/out" 'o["kept_tokens_mean"] == o["prompt_tokens"]'

# Context only: the question does not count.
good 'context only' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --context-only --budget 64 -n 4 --json &&
    json 'context only keeps 64' "$work/out" 'abs(o["kept_tokens_mean"] - 64) < 0.01'

# When entries are dropped. Layer by layer gives the same answer as at the end; chunks give another one.
for when in end layer chunk chunk:100; do
    good "evict $when" run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy snapkv --budget 96 --evict $when -n 8 --json && {
        json "$when: 96 stay" "$work/out" 'o["kept_tokens_mean"] == 96'
        json "$when: the full size is known" "$work/out" "o['kv_bytes_full'] == $(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["kv_bytes_full"])' "$work/tiny.json")"
        json "$when: fewer bytes" "$work/out" 'o["kv_bytes"] < o["kv_bytes_full"] / 2'
        json "$when: times" "$work/out" 'o["compress_ms"] > 0 and o["prefill_ms"] > 0'
        adds_up "$when" "$work/out"
        python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens"])' "$work/out" >"$work/when-${when%:*}"
    }
done
same 'layer and end' "$work/when-end" "$work/when-layer"
for every in 4 4:96 4:0.5 4:0.5:all; do
    good "evict every $every" run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy knorm --budget 96 --evict-every $every -n 9 --json &&
        json "evict every $every" "$work/out" 'o["kept_tokens_mean"] == 96'
done
good 'layer, context only' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --context-only --evict layer --policy lagkv:lag=32 -n 4 --json
good 'a target while generating' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy tova --budget 64 --evict-every 1:40 -n 8 --json &&
    json 'the prompt keeps its own size' "$work/out" 'o["kept_tokens_mean"] == 64'
good 'full in chunks' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --evict chunk:64 -n 8 --json &&
    json 'full in chunks keeps all' "$work/out" 'o["kept_tokens_mean"] == o["prompt_tokens"]'
# Rules that do nothing are no secret.
for policy in lagkv:lag=16,sink=4 duoattention-prompt full; do
    good "an interval for $policy" run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy "$policy" --evict-every 8 -n 4 &&
        [ "$(grep -c -- '--evict-every has no effect' "$work/err")" = 1 ] || fail "an interval for $policy: $(cat "$work/err")"
    good "no interval for $policy" run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy "$policy" -n 4 &&
        { ! grep -q 'has no effect' "$work/err" || fail "no interval for $policy: $(cat "$work/err")"; }
done
bad 'target below the window' 'target' run "${tiny_llama[@]}" -p x --policy snapkv --budget 64 --evict-every 4:8

# Every policy, KV type and the other attention. LagKV's last block alone is larger than a small budget.
ids 200 >"$work/ids"
for policy in full streaming_llm snapkv tova knorm adakv pyramidkv snapkv:window=8+adakv lagkv:lag=32; do
    good "policy $policy" run "${tiny_llama[@]}" --tokens "$work/ids" --policy "$policy" --budget 96 -n 2 --json
done
good 'own size' run "${tiny_llama[@]}" --tokens "$work/ids" --policy lagkv:lag=32 -n 2 --json && {
    json 'lagkv has its own size' "$work/out" 'o["kept_tokens_mean"] < 200'
    grep -q 'ratio' "$work/err" && fail 'lagkv needs no size, but one was assumed'
}
bytes=0
for type in q4_0 q8_0 f16 f32; do
    good "type $type" run "${tiny_llama[@]}" --tokens "$work/ids" --policy adakv --budget 96 --kv-type "$type" -n 2 --json &&
        json "$type takes more than the type before" "$work/out" "o['kv_bytes'] > $bytes"
    bytes=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["kv_bytes"])' "$work/out")
done
good 'a tail' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --kv-type q4_0 --kv-tail 64 --budget 96 -n 2 --json &&
    json 'an answer with a tail' "$work/out" 'len(o["tokens"]) > 0 and o["kv_rotated"] is True'
good 'no rotation' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --kv-type q4_0 --kv-rotate off --budget 96 -n 2 --json &&
    json 'no rotation' "$work/out" 'len(o["tokens"]) > 0 and o["kv_rotated"] is False'
good 'attention of ggml' run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --attn ggml --budget 96 -n 2 --json &&
    json 'an answer' "$work/out" 'len(o["tokens"]) > 0'

# The same seed gives the same text, another one another text; the number of threads changes nothing.
sampled() {
    good "$1" run "${tiny_llama[@]}" -p 'Tell a story.' --temp 1.5 --top-k 0 --top-p 1 -n 24 --seed "$2" && cp "$work/out" "$work/$1"
}
sampled first 7
sampled again 7
sampled other 8
same 'same seed' "$work/first" "$work/again"
cmp -s "$work/first" "$work/other" && fail 'another seed gives the same text'
for threads in 1 2; do
    good "-t $threads" run "${tiny_llama[@]}" -f "$work/doc.txt" -p "$question" --policy adakv --budget 64 -n 12 -t "$threads" --json &&
        python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens"])' "$work/out" >"$work/t$threads"
done
same '1 and 2 threads' "$work/t1" "$work/t2"

# Tokens as given; raw text; nothing to generate.
seq 40 | awk '{ print 100 + $1 }' >"$work/ids"
good 'tokens' run "${tiny_llama[@]}" --tokens "$work/ids" -n 2 --json && json 'as many as given' "$work/out" 'o["prompt_tokens"] == 40'
good 'raw' run "${tiny_llama[@]}" -p hello --raw -n 1 --json && json 'raw is short' "$work/out" 'o["prompt_tokens"] == 5'
good 'chat' run "${tiny_llama[@]}" -p hello --chat llama3 -n 1 --json
good '-n 0' run "${tiny_llama[@]}" -p hello -n 0 --json && json 'nothing' "$work/out" 'o["tokens"] == [] and o["text"] == ""'

# Random weights give random bytes: what comes out is valid UTF-8 all the same.
for seed in 1 2 3; do
    good "random text $seed" run -m "$tiny/tiny-gemma3.gguf" -p 'hello' --temp 2 --top-k 0 --top-p 1 -n 60 --seed $seed --raw &&
        { iconv -f UTF-8 -t UTF-8 "$work/out" >/dev/null 2>&1 || fail "stdout is not UTF-8 (seed $seed)"; }
done
finish
