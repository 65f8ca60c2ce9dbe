# SPDX-License-Identifier: MIT
# winnow ppl and winnow bench on small input.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
need_file "$tiny/tiny-llama.gguf"

for i in $(seq 10); do
    echo "The train number $i leaves the station in the morning and comes back in the evening of the same day."
done >"$work/text.txt"

good 'full' ppl -f "$work/text.txt" --json && {
    json 'fields' "$work/out" '{"ppl", "scored_tokens", "prefix_tokens", "kept_tokens_mean"} <= set(o)'
    json 'all but the first token are scored' "$work/out" 'o["scored_tokens"] == o["text_tokens"] - 1'
    # A text of repeated sentences is easy, but not free.
    json 'sane' "$work/out" '1.0 < o["ppl"] < 20'
}
n=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["text_tokens"])' "$work/out")
good 'full, second half' ppl -f "$work/text.txt" --prefix $((n / 2)) --json && {
    json 'half is scored' "$work/out" "o['scored_tokens'] == $((n - n / 2))"
    cp "$work/out" "$work/full"
}
good 'ratio 0' ppl -f "$work/text.txt" --policy snapkv --ratio 0 --json && {
    json 'everything kept' "$work/out" "o['kept_tokens_mean'] == $((n / 2))"
    python3 -c 'import json, sys; a, b = (json.load(open(p))["ppl"] for p in sys.argv[1:])
sys.exit(abs(a - b) > 1e-6 * a)' "$work/out" "$work/full" || fail 'ratio 0 is not the full cache'
}
good 'few entries' ppl -f "$work/text.txt" --policy streaming_llm --budget 8 --json && {
    json '8 kept' "$work/out" 'o["kept_tokens_mean"] == 8'
    python3 -c 'import json, sys; a, b = (json.load(open(p))["ppl"] for p in sys.argv[1:])
sys.exit(not a > b)' "$work/out" "$work/full" || fail 'forgetting the text does not hurt'
}
for when in layer chunk:40; do
    good "evict $when" ppl -f "$work/text.txt" --policy streaming_llm --budget 8 --evict $when --json &&
        json "$when: 8 kept" "$work/out" 'o["kept_tokens_mean"] == 8'
done
# Masked heads: hundreds of them hurt, wherever they are; a list that is wrong is refused.
good 'masked' ppl -f "$work/text.txt" --mask-heads random:200:1 --json && {
    python3 -c 'import json, sys; a, b = (json.load(open(p))["ppl"] for p in sys.argv[1:])
sys.exit(not a > 2 * b)' "$work/out" "$work/full" || fail 'masking heads does not hurt'
}
bad 'no such head' 'no query head 30-0: layers are 0 to 29, heads 0 to 8' ppl -f "$work/text.txt" --mask-heads 30-0
bad 'not a list' 'LAYER-HEAD' ppl -f "$work/text.txt" --mask-heads all
WINNOW_CACHE=$work/cache bad 'no scores of heads' '--mask-heads srh:top3 needs a calibration profile of kind srh .*winnow calibrate srh' \
    run -m "$tiny/tiny-llama.gguf" -p x --mask-heads srh:top3
# Random weights cannot predict: the perplexity is near the size of the vocabulary, for any content of the cache.
ids 120 >"$work/ids"
good 'plain output' ppl -m "$tiny/tiny-llama.gguf" --tokens "$work/ids" -n 100 &&
    { grep -Eq '^ppl [0-9.]+ ' "$work/out" || fail "ppl: $(cat "$work/out")"; }
grep -q 'read 100 of 120' "$work/err" || fail 'what was not read is not said'

good 'bench' bench -m "$tiny/tiny-llama.gguf" --lengths 64,128 --reps 2 --decode-tokens 9 --budget 40 --csv "$work/b.csv" --json && {
    json 'lengths' "$work/out" '[l["n"] for l in o["lengths"]] == [64, 128]'
    json 'speeds and ratios' "$work/out" 'all(len(l["figures"]) == 12 for l in o["lengths"])'
    json 'positive' "$work/out" 'all(0 < f["min"] <= f["median"] <= f["max"] for l in o["lengths"] for f in l["figures"])'
    json 'kept' "$work/out" 'all(l["kept_tokens_mean"] == 40 for l in o["lengths"])'
    json 'bytes' "$work/out" 'all(c["kv_bytes"] >= c["entry_bytes"] > 0 for l in o["lengths"] for c in l["caches"])'
    [ "$(grep -vc '^#' "$work/b.csv")" -eq 25 ] || fail "the table has $(wc -l <"$work/b.csv") lines"
}
good 'bench table' bench -m "$tiny/tiny-llama.gguf" --lengths 64 --reps 1 --decode-tokens 4 --budget 40 &&
    { grep -q 'llama.cpp' "$work/out" || fail 'bench names no llama.cpp'; }
finish
