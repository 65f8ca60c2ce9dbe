#!/bin/bash
# SPDX-License-Identifier: MIT
# Asks one question about examples/document.txt twice, with the full cache and with a compressed one, and shows what
# the compression cost and saved: demo.sh [WINNOW]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
winnow=${1:-build/winnow}
document=examples/document.txt
question='What is the access code of the north dome?'
policy=(--policy snapkv --budget 1024)

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
ask() { "$winnow" run --json -f "$document" -p "$question" -n 32 "$@"; }

echo "Document: $document, $(wc -w <"$document") words. Question: $question"
echo "Reading it with the full cache ..."
ask >"$out/full.json"
echo "Reading it again, then compressing the cache: ${policy[*]} ..."
ask "${policy[@]}" >"$out/compressed.json"

python3 - "$out/full.json" "$out/compressed.json" <<'PY'
import json
import sys

full, small = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
mib = 1024 * 1024
rows = [
    ("entries per layer and head", "kept_tokens_mean", "{:,.0f}", 1),
    ("KV cache, MiB", "kv_bytes", "{:.1f}", mib),
    ("time to first token, s", "ttft_ms", "{:.2f}", 1000),
    ("decode, tokens/s", "decode_tps", "{:.1f}", 1),
]
print(f"\n{full['prompt_tokens']} tokens read.\n")
print(f"{'':28}{'full':>12}{'compressed':>12}{'ratio':>9}")
for label, key, form, unit in rows:
    a, b = full[key] / unit, small[key] / unit
    ratio = f"{b / a:.2f}x" if a else "-"
    print(f"{label:28}{form.format(a):>12}{form.format(b):>12}{ratio:>9}")
for label, answer in (("full cache", full), ("compressed", small)):
    print(f"\nAnswer, {label}: {' '.join(answer['text'].split())}")
PY
