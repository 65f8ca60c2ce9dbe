# SPDX-License-Identifier: MIT
# winnow bench roofline: peaks that the CPU has, parts that add up, shares that follow from them.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
need_file "$tiny/tiny-llama-q4_0.gguf"
small=(--lengths 96,64 --reps 2 --decode-tokens 5 --ratio 0.5 -t 1)

good 'as JSON' bench roofline -m "$tiny/tiny-llama.gguf" "${small[@]}" --json && {
    json 'peaks' "$work/out" '[p["peak"] for p in o["peaks"]] == ["read bandwidth", "float32", "bf16", "int8"]'
    json 'memory and float32 exist everywhere' "$work/out" 'all(p["rate"] > 1e6 and p["how"] for p in o["peaks"][:2])'
    json 'others are measured or null' "$work/out" 'all((p["rate"] is None) == (p["how"] == "") for p in o["peaks"])'
    json 'lengths and phases' "$work/out" \
        '[(l["n"], [p["phase"] for p in l["phases"]]) for l in o["lengths"]] == [(n, ["prefill", "decode full", "decode compressed", "next chunk"]) for n in (96, 64)]'
    json 'the parts add up' "$work/out" \
        'all(abs(sum(q["ms"] for q in p["parts"]) - p["ms"]) < 1e-6 * p["ms"] for l in o["lengths"] for p in l["phases"])'
    json 'so do their floors' "$work/out" \
        'all(abs(sum(q["floor_ms"] for q in p["parts"]) - p["floor_ms"]) < 1e-6 * p["ms"] for l in o["lengths"] for p in l["phases"])'
    json 'rates are work by time' "$work/out" \
        'all(abs(q["ops_per_s"] * q["ms"] - 1e3 * q["ops"]) <= 1e-6 * q["ops"] for l in o["lengths"] for p in l["phases"] for q in p["parts"])'
    # The attention of prompts is bf16 where the CPU and the kernels have that, which the name of the machine says.
    json 'floors follow from work and peaks' "$work/out" \
        'all(abs(q["floor_ms"] - 1e3 * max(q["bytes"] / o["peaks"][0]["rate"], q["ops"] / o["peaks"][2 if "bf16" in o["machine"] and p["phase"] in ("prefill", "next chunk") and q["part"] == "attention" else 1]["rate"])) <= 1e-6 * q["floor_ms"] for l in o["lengths"] for p in l["phases"] for q in p["parts"])'
    json 'half is kept' "$work/out" 'all(l["kept_tokens_mean"] == l["n"] / 2 for l in o["lengths"])'
    # 5 tokens, 4 layers with 4 query heads of 32 elements; decoding begins one token after the prompt.
    json 'attention of decoding, by hand' "$work/out" \
        'all(l["phases"][1]["parts"][1]["ops"] == 4 * 4 * 4 * 32 * sum(l["n"] + 2 + i for i in range(5)) for l in o["lengths"])'
    json 'with half the entries' "$work/out" \
        'all(l["phases"][2]["parts"][1]["ops"] == 4 * 4 * 4 * 32 * sum(l["n"] // 2 + 2 + i for i in range(5)) for l in o["lengths"])'
    json 'a chunk over them, as long as the prompt' "$work/out" \
        'all(l["phases"][3]["tokens"] == l["n"] and l["phases"][3]["parts"][1]["ops"] == 4 * 4 * 4 * 32 * sum(l["n"] // 2 + 1 + i for i in range(l["n"])) for l in o["lengths"])'
    json 'the same weights in both' "$work/out" \
        'all(l["phases"][1]["parts"][0]["bytes"] == l["phases"][2]["parts"][0]["bytes"] > 0 for l in o["lengths"])'
    json 'measured without timers too' "$work/out" \
        'all((p["untimed_ms"] is None) == (p["phase"] in ("prefill", "next chunk")) for l in o["lengths"] for p in l["phases"])'
}
# Keys are there without observing anything, so that a policy that looks at them alone has no such work.
good 'quantised weights' bench roofline -m "$tiny/tiny-llama-q4_0.gguf" "${small[@]}" --policy knorm --json && {
    json 'are compared with int8 products or memory' "$work/out" \
        'all(q["limit"] in ("int8", "read bandwidth") for l in o["lengths"] for p in l["phases"] for q in p["parts"] if q["part"] in ("weights", "logits"))'
    json 'no work of observation' "$work/out" 'all(p["parts"][2]["ops"] == 0 for l in o["lengths"] for p in l["phases"])'
}
good 'as a table' bench roofline -m "$tiny/tiny-llama.gguf" "${small[@]}" && {
    grep -Eq '^peaks with these threads: read bandwidth [0-9.]+ GB/s' "$work/out" || fail "peaks: $(cat "$work/out")"
    [ "$(grep -Ec '^  (weights|attention|logits|all) +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ %' "$work/out")" -eq 32 ] ||
        fail "rows: $(cat "$work/out")"
}
bad 'longer than the context' 'do not fit' bench roofline -m "$tiny/tiny-llama.gguf" --lengths 9000000
bad 'no policy of that name' 'snapkw' bench roofline -m "$tiny/tiny-llama.gguf" --lengths 64 --policy snapkw
finish
