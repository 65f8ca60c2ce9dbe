#!/bin/bash
# SPDX-License-Identifier: MIT
# Asks examples/document.txt with the full cache, then stores it compressed and asks the stored file two questions, and
# shows what that cost and saved: demo.sh [WINNOW]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
winnow=${1:-build/winnow}
document=examples/document.txt
first='What is the access code of the north dome?'
second='Who founded the station?'

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
answer=(-n 24 --json)

echo "Document: $document, $(wc -w <"$document") words."
echo "Reading it, and answering from the full cache ..."
"$winnow" run -f "$document" --context-only -p "$first" "${answer[@]}" >"$out/full.json"
echo "Reading it once more, compressing the cache and storing it: winnow compress --budget 1024 ..."
"$winnow" compress -f "$document" --budget 1024 -o "$out/document.wkv"
echo "Asking the stored document: winnow ask ..."
"$winnow" ask -c "$out/document.wkv" -p "$first" "${answer[@]}" >"$out/first.json"
"$winnow" ask -c "$out/document.wkv" -p "$second" "${answer[@]}" >"$out/second.json"

python3 - "$first" "$second" "$out/full.json" "$out/first.json" "$out/second.json" <<'PY'
import json
import sys

first, second = sys.argv[1:3]
full, small, more = (json.load(open(path, encoding="utf-8")) for path in sys.argv[3:])
mib = 1024 * 1024
rows = [
    ("entries per layer and head", "kept_tokens_mean", "{:,.0f}", 1),
    ("KV cache, MiB", "kv_bytes", "{:.1f}", mib),
    ("decode, tokens/s", "decode_tps", "{:.1f}", 1),
    ("time to first token, s", "ttft_ms", "{:.2f}", 1000),
]
print(f"\n{'':28}{'read, full':>12}{'stored':>12}{'ratio':>9}")
for label, key, form, unit in rows:
    a, b = full[key] / unit, small[key] / unit
    ratio = f"{b / a:.2f}x" if a else "-"
    print(f"{label:28}{form.format(a):>12}{form.format(b):>12}{ratio:>9}")
for question, label, answer in ((first, "full cache", full), (first, "stored", small), (second, "stored", more)):
    print(f"\n{question}\n  {label}, after {answer['ttft_ms'] / 1000:.2f} s: {' '.join(answer['text'].split())}")
PY
