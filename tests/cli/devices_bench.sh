# SPDX-License-Identifier: MIT
# `bench --devices`: the same columns, with winnow's full and compressed cache on devices around others. No times are checked.
. "$(dirname "$0")/lib.sh"
need_backend
model=$tiny/tiny-llama.gguf
need_file "$model"
free_port
start_worker --device CPU
small=(bench -m "$model" --lengths 300 --reps 2 --decode-tokens 8 --peer own -t 1)

good 'sessions' "${small[@]}" --json && cp "$work/out" "$work/session"
for devices in "cpu" "rpc:127.0.0.1:$port,cpu --layers 3,1"; do
    # shellcheck disable=SC2086
    good "$devices" "${small[@]}" --json --csv "$work/d.csv" --devices $devices || continue
    py "$work/session" "$work/out" <<'PY' || fail "$devices: $(cat "$work/out")"
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert set(b) == set(a) | {"devices"}
names = lambda o: [[(f["phase"], f["engine"], f.get("against")) for f in l["figures"]] for l in o["lengths"]]
assert names(a) == names(b) and all(f["median"] > 0 for l in b["lengths"] for f in l["figures"])
assert a["lengths"][0]["kept_tokens_mean"] == b["lengths"][0]["kept_tokens_mean"] == 37
full, compressed = b["lengths"][0]["caches"]
decoded = 8 + 1  # the first of a turn is not timed
assert full["entries"] == (300 + decoded) * 8 and compressed["entries"] == (37 + decoded) * 8, (full, compressed)
assert compressed["kv_bytes"] < full["kv_bytes"] / 2
PY
    [ "$(grep -c '^[^#]' "$work/d.csv")" = 13 ] || fail "rows of the CSV: $(cat "$work/d.csv")"
done
good 'a table' "${small[@]}" --devices cpu && grep -q "ours on cpu, llama.cpp on this machine's CPU" "$work/out" || fail "the devices are not named: $(cat "$work/out")"

# What cannot be had is one sentence.
bad 'no such device' "there is no device 'gpu7': this ggml has .*CPU" "${small[@]}" --devices gpu7
bad 'a device twice' 'named twice' "${small[@]}" --devices cpu,CPU
bad 'too few layers' "'3' are 3 layers, and this model has 4" "${small[@]}" --devices cpu --layers 3
bad 'layers of no device' 'name them' "${small[@]}" --layers 4
bad 'the backend' '--bridge is for the CPU' "${small[@]}" --devices cpu --bridge
bad 'CPU time' '--cpu-time is for the CPU' "${small[@]}" --devices cpu --cpu-time
bad 'a second pass' 'a second time' "${small[@]}" --devices cpu --policy kvzip
kill $worker
wait $worker 2>/dev/null || true
code=0
"$WINNOW" "${small[@]}" --devices "rpc:127.0.0.1:$port" >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 1 ] && [ "$(grep -c . "$work/err")" = 1 ] && grep -q "127.0.0.1:$port cannot be reached" "$work/err" || fail "nobody there: $code, $(cat "$work/err")"
finish
