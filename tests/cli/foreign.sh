# SPDX-License-Identifier: MIT
# The command on models of families that run through libllama, with a vocabulary: each sub-command works, or refuses with a
# sentence.
. "$(dirname "$0")/lib.sh"
foreign=$tiny/foreign
for name in olmo2 phi3 lfm2 gemma3n gemma4 gpt-oss granitehybrid qwen35 lfm2-attends bert mamba; do need_file "$foreign/$name.gguf"; done
export WINNOW_CACHE=$work/cache
if "$WINNOW" tokens -m "$foreign/olmo2.gguf" -p x 2>&1 | grep -q 'no backend'; then
    printf 'this build has no backend: families of others are refused\n'
    finish
fi
{
    printf 'the thin ant in the inn then and there:'
    seq -f ' %g' 240
} | tr -d '\n' >"$work/text"

for name in olmo2 phi3 lfm2 gemma3n gemma4 gpt-oss granitehybrid qwen35; do
    m=$foreign/$name.gguf
    good "$name: tokens" tokens -m "$m" -p 'the inn' && grep -qE '^[0-9]+( [0-9]+)+$' "$work/out" || fail "$name: no ids"
    good "$name: run" run -m "$m" -f "$work/text" -p what --policy snapkv --budget 64 -n 4 --json && {
        json "$name: run keeps what is asked for" "$work/out" 'o["kept_tokens_mean"] == 64'
        json "$name: run reads all" "$work/out" 'o["prompt_tokens"] > 800'
    }
    [ ! -s "$work/err" ] || fail "$name: run says $(cat "$work/err")"
    good "$name: a size alone" run -m "$m" -f "$work/text" -p what --ratio 0.75 -n 2 --json &&
        json "$name: what is chosen" "$work/out" "o['choice']['policy'] == 'keydiff-sampled:last=32,room=0.3' and o['kept_tokens_mean'] < o['prompt_tokens'] / 3.9"
    good "$name: a small size alone" run -m "$m" -f "$work/text" -p what --ratio 0.9 -n 2 --json &&
        json "$name: what is chosen then" "$work/out" "o['choice']['policy'] == 'keydiff-values-sampled:last=32,room=0.5' and o['kept_tokens_mean'] < o['prompt_tokens'] / 9"
    good "$name: plan" plan -m "$m" -f "$work/text" --policy keydiff --ratio 0.5 -o "$work/plan.json" &&
        json "$name: plan has the layers of the cache" "$work/plan.json" 'len(o["layers"]) >= 2'
    good "$name: ppl" ppl -m "$m" -f "$work/text" --policy snapkv --budget 64 --json &&
        json "$name: ppl scores the rest" "$work/out" 'o["scored_tokens"] > 300 and o["ppl"] > 1'
done

# A document is asked as the command reads it by itself, with the policy that is chosen.
for name in gemma3n gemma4; do
    m=$foreign/$name.gguf
    seq -s ' ' 60 >"$work/few"
    short=(-m "$m" -t 1 -n 8 --temp 0 --json)
    kept=(-f "$work/few" --budget 17 --kv-type f32)
    good "$name: a document at once" run "${short[@]}" "${kept[@]}" --context-only -p 'Which?' && cp "$work/out" "$work/at-once"
    good "$name: a document" compress -m "$m" -t 1 "${kept[@]}" -o "$work/few.wkv" && good "$name: asked" ask "${short[@]}" -c "$work/few.wkv" -p 'Which?' && {
        py "$work/at-once" "$work/out" <<'PY' || fail "$name: asked: $(cat "$work/at-once" "$work/out")"
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert all(a[k] == b[k] for k in ("tokens", "text", "kept_tokens_mean", "prompt_tokens"))
PY
    }
done

# A key that libllama divides by: no command lets it see the file. The other name has the same length, so that the file stays valid.
LC_ALL=C sed 's/olmo2\.attention\.head_count/olmo2.attention.head_kount/' "$foreign/olmo2.gguf" >"$work/heads.gguf"
LC_ALL=C sed 's/gemma4\.rope\.dimension_count/gemma4.rope.dimension_kount/; s/gemma4\.attention\.key_length/gemma4.attention.key_lenght/' \
    "$foreign/gemma4.gguf" >"$work/turns.gguf"
for command in 'run -p x' 'tokens -p x' "ppl -f $work/text --policy snapkv --budget 64" "plan -f $work/text --policy keydiff --ratio 0.5 -o $work/p.json" \
    "compress -f $work/text --policy snapkv --budget 64 -o $work/t.wkv" "ask --store $work/store -f $work/text -p x" 'bench -t 1 --lengths 512 --reps 1 --peer own' \
    "calibrate shares -f $work/text -o $work/s.json --effort quick" \
    "eval --out $work/none --tasks niah_single_1 --lengths 1024 --samples 1 --policies snapkv --ratios 0.5"; do
    # shellcheck disable=SC2086
    bad "no heads: ${command%% *}" 'olmo2.attention.head_count = 0, or lacks it: it must be 1 or more' $command -m "$work/heads.gguf"
done
bad 'heads of two sizes' 'gemma4.attention.value_length = [0-9]+ and gemma4.attention.key_length = [0-9]+: both must be the same' run -m "$work/turns.gguf" -p x

m=$foreign/lfm2.gguf
good 'eval' eval --out "$work/eval" -m "$m" --tasks niah_single_1 --lengths 1024 --samples 1 --policies snapkv,h2o,kvzip --ratios 0.5 \
    --threads 1 || fail 'eval of a model with recurrent layers'
good 'bench' bench -m "$m" -t 1 --lengths 512 --reps 1 --decode-tokens 2 --peer own --json || fail 'bench'
good 'bench batch' bench batch -m "$foreign/olmo2.gguf" -t 1 --lengths 512 --reps 1 || fail 'bench batch'
good 'calibrate' calibrate shares -m "$m" -f "$work/text" -o "$work/shares.json" --effort quick -t 1 || fail 'calibrate'

# Variables of the environment are for programs of libllama; the contexts that the command drives know nothing of them.
good 'a clean environment' run -m "$foreign/phi3.gguf" -f "$work/text" -p what --policy snapkv --budget 64 -n 4 && cp "$work/out" "$work/clean"
for set in "WINNOW_POLICY=keydiff WINNOW_BUDGET=20" WINNOW_POLICY=none WINNOW_BUDGET=many WINNOW_RATIO=1.5 WINNOW_PLAIN=1; do
    # shellcheck disable=SC2086
    env $set "$WINNOW" run -m "$foreign/phi3.gguf" -f "$work/text" -p what --policy snapkv --budget 64 -n 4 >"$work/out" 2>"$work/err" ||
        fail "$set: $(cat "$work/err")"
    same "$set" "$work/clean" "$work/out"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$set: $(cat "$work/err")"
done

# Gates on hidden states: what attention reads is found in libllama's graphs.
for name in olmo2 lfm2 gemma4 qwen35; do
    m=$foreign/$name.gguf
    good "$name: calibrate inputgate" calibrate inputgate -m "$m" -f "$work/text" --set pieces=2,length=80 -t 1 -o "$work/gates.json" &&
        json "$name: gates of the layers with a cache" "$work/gates.json" \
            'o["kind"] == "inputgate" and len(o["results"]["layers"]) == o["model"]["n_layer"] and o["settings"]["n_embd"] == 64'
    good "$name: gates" run -m "$m" -f "$work/text" -p what --policy kvzap --profile "$work/gates.json" --budget 64 -n 2 --json &&
        json "$name: gates keep what is asked for" "$work/out" 'o["kept_tokens_mean"] == 64'
done
m=$foreign/lfm2.gguf

# Models without a cache.
bad 'no cache: bert' 'has no layer with a cache of keys and values: nothing can be evicted' run -m "$foreign/bert.gguf" -f "$work/text" -p x --policy snapkv --budget 64
bad 'no cache: plan of bert' 'has no layer with a cache of keys and values: nothing can be evicted' plan -m "$foreign/bert.gguf" -f "$work/text" --policy snapkv --budget 64 -o "$work/made/p.json"
bad 'no cache: mamba' 'mamba has recurrent layers alone' run -m "$foreign/mamba.gguf" -f "$work/text" -p x --policy snapkv --budget 64
bad 'no cache: plan of mamba' 'mamba has recurrent layers alone' \
    plan -m "$foreign/mamba.gguf" -f "$work/text" --policy snapkv --budget 64 -o "$work/made/p.json"

# libllama ends the process for a model of this family without a recurrent layer.
for command in 'run -p x' 'tokens -p x' 'serve --port 0'; do
    # shellcheck disable=SC2086
    bad "all layers attend: ${command%% *}" 'all layers of this lfm2 attend: libllama cannot compute' $command -m "$foreign/lfm2-attends.gguf"
done

# What cannot be had is refused.
bad 'bench roofline' 'lfm2 runs through libllama' bench roofline -m "$m" -t 1 --lengths 128
bad 'layer by layer' 'layer by layer is not possible' run -m "$m" -f "$work/text" -p x --policy snapkv --budget 64 --evict layer
bad 'the ggml attention' 'takes the own attention' run -m "$m" -f "$work/text" -p x --attn ggml
bad 'new positions with recurrent layers' 'count original positions' \
    run -m "$m" -f "$work/text" -p x --policy streaming_llm+rerotate --budget 64
bad 'new positions with a window' 'original positions|plain RoPE' \
    run -m "$foreign/gemma4.gguf" -f "$work/text" -p x --policy streaming_llm+rerotate --budget 64
bad 'queries of shared caches' 'statistics of queries of all layers' \
    run -m "$foreign/gemma3n.gguf" -f "$work/text" -p x --policy expected_attention --budget 64
finish
