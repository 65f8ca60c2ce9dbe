# SPDX-License-Identifier: MIT
# --kv-peak and --chunk-slack: a prompt whose cache does not fit is read in chunks, and the cache stays below the peak.
. "$(dirname "$0")/lib.sh"
m=$tiny/tiny-llama.gguf
need_file "$m"
ids 2000 9 >"$work/ids"
on=(-m "$m" --tokens "$work/ids" -n 2 -t 1)
export WINNOW_CACHE=$work/cache

# Read whole where it fits, and then nothing is said of chunks.
good 'fits' run "${on[@]}" --ratio 0.75 --kv-peak 1G --chunk-slack 2 --json && {
    json 'fits: no chunks' "$work/out" '"chunks" not in o'
    grep -q 'in chunks' "$work/err" && fail 'fits: chunks are named'
    cp "$work/out" "$work/whole"
}
whole=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["kv_bytes_full"])' "$work/whole")
peak=$((whole * 6 / 10))

# In chunks otherwise: the same number stays, and the peak holds.
for how in '--policy keydiff --ratio 0.75' '--policy snapkv+adakv --budget 400' '--policy lagkv:lag=32 --ratio 0.75' '--ratio 0.75' \
    '--policy keydiff --ratio 0.75 --chunk-slack 1.5' '--policy keydiff --budget 300 --evict chunk:100' \
    '--policy snapkv --ratio 0.75 --kv-type q8_0'; do
    limit=$peak
    [[ $how == *q8_0* ]] && limit=$((peak * 17 / 32))
    good "$how" run "${on[@]}" $how --kv-peak "$limit" --json && {
        json "$how: chunks" "$work/out" "64 <= o['chunks']['chunk'] <= 2000 and o['chunks']['kv_peak_bytes'] <= $limit"
        json "$how: what stays" "$work/out" 'o["kv_bytes"] < o["chunks"]["kv_peak_bytes"] and 250 < o["kept_tokens_mean"] <= 500'
        [ "$(grep -c "read in chunks of [0-9]* tokens: .* --kv-peak allows" "$work/err")" -eq 1 ] || fail "$how: not said once: $(cat "$work/err")"
    }
done
good 'chunks, and nothing else' run "${on[@]}" --policy keydiff --ratio 0.75 --evict chunk:300 --json &&
    json 'chunks, and nothing else' "$work/out" "o['chunks']['chunk'] == 300 and o['kv_bytes'] < o['chunks']['kv_peak_bytes'] < 0.6 * o['kv_bytes_full']"
good 'chunks without a peak' run "${on[@]}" --policy keydiff --ratio 0.75 --evict chunk:300 --chunk-slack 2 --json &&
    json 'chunks without a peak' "$work/out" "o['chunks']['chunk'] == 300 and o['chunks']['slack'] == 2 and o['kept_tokens_mean'] == 500"
good 'ppl' ppl -m "$m" --tokens "$work/ids" --prefix 1900 --policy keydiff --ratio 0.75 --kv-peak "$peak" --json &&
    json 'ppl' "$work/out" "o['chunks']['kv_peak_bytes'] <= $peak"
# It compresses a prefix: a peak has to hold that alone.
good 'ppl: a prefix that fits' ppl -m "$m" --tokens "$work/ids" --prefix 500 --policy keydiff --ratio 0.5 --kv-peak "$peak" --json &&
    json 'ppl: a prefix that fits' "$work/out" "'chunks' not in o"
good 'ppl: what stays of a prefix' ppl -m "$m" --tokens "$work/ids" --prefix 1000 --policy keydiff --ratio 0.5 --kv-peak $((whole * 4 / 10)) --json &&
    json 'ppl: what stays of a prefix' "$work/out" "o['chunks']['kv_peak_bytes'] <= $((whole * 4 / 10)) and o['kept_tokens_mean'] == 500"

# The least that works is named, and works; a byte less does not.
bad 'too small a peak' 'allow at least' run "${on[@]}" --policy keydiff --ratio 0.75 --kv-peak 64K
least=$(sed -n 's/.*allow at least \([0-9]*\),.*/\1/p' "$work/err")
good 'the least peak' run "${on[@]}" --policy keydiff --ratio 0.75 --kv-peak "$least" --json &&
    json 'the least peak holds' "$work/out" "o['chunks']['kv_peak_bytes'] <= $least"
bad 'a byte less' 'allow at least' run "${on[@]}" --policy keydiff --ratio 0.75 --kv-peak $((least - 1))
bad 'too large a chunk' 'does not fit --kv-peak; use chunk:' run "${on[@]}" --policy keydiff --ratio 0.75 --kv-peak "$peak" --evict chunk:1900
chunk=$(sed -n 's/.*use chunk:\([0-9]*\),.*/\1/p' "$work/err")
good 'the chunk that fits' run "${on[@]}" --policy keydiff --ratio 0.75 --kv-peak "$peak" --evict "chunk:$chunk"

# A longer prompt of a model with head budgets is read in chunks by itself, and said so. A model of a longer context is needed.
long=$work/long.gguf
python3 - "$m" "$long" <<'PY'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = data.index(b"llama.context_length") + len(b"llama.context_length")
assert struct.unpack_from("<II", data, at) == (4, 8192)
struct.pack_into("<I", data, at + 4, 16384)
open(sys.argv[2], "wb").write(data)
PY
head -c 6000 "$(dirname "$0")/../../share/text/calibration.txt" >"$work/text.txt"
good 'head budgets' calibrate shares -m "$long" -f "$work/text.txt" --set pieces=2,shortest=60,longest=80,extra=90 -t 1
ids 8200 9 >"$work/many"
by_itself=(-m "$long" --tokens "$work/many" -n 1 -t 1 --ratio 0.75 --json)
good 'by itself' run "${by_itself[@]}" && {
    json 'by itself: chunks' "$work/out" "o['chunks']['chunk'] == 2048 and o['chunks']['kv_peak_bytes'] < 0.6 * o['kv_bytes_full'] and o['kept_tokens_mean'] == 2050"
    json 'by itself: no more than two chunks beside what stays' "$work/out" "o['chunks']['kv_peak_bytes'] <= o['kv_bytes'] + 2 * 2048 / 8200 * o['kv_bytes_full']"
    grep -q 'read in chunks of 2048 tokens, because the prompt is long: .*; --evict end reads it whole' "$work/err" || fail "by itself: not said: $(cat "$work/err")"
}
for how in '--evict end' '--policy keydiff-shares' '--kv-peak 1G'; do
    good "whole: $how" run "${by_itself[@]}" $how && json "whole: $how" "$work/out" '"chunks" not in o'
done
good 'not so long' run -m "$long" --tokens "$work/ids" -n 1 -t 1 --ratio 0.75 --json && json 'not so long' "$work/out" '"chunks" not in o'

# A policy that keeps more than the size says is no way around the peak.
ids 300 9 >"$work/few"
for policy in paper-lagkv kvpress-simlayerkv; do
    bad "$policy keeps more" 'keeps more than the size says; use keydiff' run -m "$m" --tokens "$work/few" -n 1 -t 1 --policy $policy --ratio 0.75 --kv-peak 230K
done
good 'as much as that' run -m "$m" --tokens "$work/few" -n 1 -t 1 --policy paper-lagkv --ratio 0.75 --kv-peak "$(sed -n 's/.*policy had \([0-9]*\) bytes.*/\1/p' "$work/err")"

# Chunks that leave fewer entries than a policy looks with give a line, which names a chunk that does not.
short=(-m "$m" --tokens "$work/few" -n 1 -t 1 --policy snapkv --ratio 0.75)
good 'short chunks' run "${short[@]}" --evict chunk:100 &&
    grep -q 'chunk of 100 tokens leaves 25 entries, fewer than the 32 tokens .*: from --evict chunk:128 on' "$work/err" || fail "short chunks: $(cat "$work/err")"
good 'chunks that are not short' run "${short[@]}" --evict chunk:128 && grep -q 'shrinks\|fewer than' "$work/err" && fail "chunks that are not short: $(cat "$work/err")"
good 'one chunk' run "${short[@]}" --evict chunk:300 && grep -q 'fewer than' "$work/err" && fail "one chunk: $(cat "$work/err")"

# What does not go together.
bad 'nothing is dropped' 'full keeps everything' run "${on[@]}" --policy full --ratio 0.75 --kv-peak "$peak"
bad 'needs the whole prompt' 'second time; use keydiff' run "${on[@]}" --policy kvzip --ratio 0.75 --kv-peak "$peak"
bad 'needs the whole prompt, in chunks' 'second time; use --evict end, or keydiff' run "${on[@]}" --policy kvzip --ratio 0.75 --evict chunk
bad 'read whole all the same' 'leave out --evict end' run "${on[@]}" --ratio 0.75 --kv-peak "$peak" --evict end
bad 'by layer' 'leave out --evict layer' run "${on[@]}" --ratio 0.75 --kv-peak "$peak" --evict layer
bad 'no size' 'say what stays' run "${on[@]}" --kv-peak "$peak"
bad 'a size above the peak' 'no room for a chunk' run "${on[@]}" --kv-bytes 2M --kv-peak 1M
bad 'slack without chunks' 'give --evict chunk or --kv-peak' run "${on[@]}" --ratio 0.5 --chunk-slack 2
bad 'slack for blocks' 'judges each block once' run "${on[@]}" --policy lagkv --ratio 0.5 --evict chunk --chunk-slack 2
bad 'less than the size' '1 to 1024' run "${on[@]}" --ratio 0.5 --evict chunk --chunk-slack 0.5
bad 'with a store' '--store does not go with --kv-peak' run -m "$m" -f "$work/ids" --context-only --ratio 0.5 --kv-peak 1M --store "$work/s"
finish
