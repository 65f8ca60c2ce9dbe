#!/bin/bash
# SPDX-License-Identifier: MIT
# Reads examples/document.txt twice, with the full cache and with 1,024 entries kept, stores both, and asks both the same
# two questions: demo.sh [WINNOW]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
winnow=${1:-build/winnow}
document=examples/document.txt
first='What is the access code of the north dome?'
second='Who founded the station?' # the full cache answers it, and nothing follows the answer that is made up

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

echo "Document: $document, $(wc -w <"$document") words."
echo "Reading it, keeping every entry of the cache: winnow compress --policy full ..."
"$winnow" compress -f "$document" --policy full -o "$out/full.wkv"
echo "Reading it, keeping 1024 entries per layer and head: winnow compress --budget 1024 ..."
"$winnow" compress -f "$document" --budget 1024 -o "$out/kept.wkv"
echo "Asking both: winnow ask ..."
for cache in full kept; do
    "$winnow" ask -c "$out/$cache.wkv" -p "$first" -n 32 --json >"$out/$cache-first.json"
    "$winnow" ask -c "$out/$cache.wkv" -p "$second" -n 32 --json >"$out/$cache-second.json"
done

python3 - "$out" "$first" "$second" <<'PY'
import json
import os
import sys

out, *questions = sys.argv[1:]
MIB = 1024 * 1024


def answer(cache, question):
    with open(f"{out}/{cache}-{('first', 'second')[question]}.json", encoding="utf-8") as f:
        return json.load(f)


full, kept = answer("full", 0), answer("kept", 0)
rows = [
    ("entries per layer and head", "{:,.0f}", full["kept_tokens_mean"], kept["kept_tokens_mean"]),
    ("KV cache, MiB", "{:.1f}", full["kv_bytes"] / MIB, kept["kv_bytes"] / MIB),
    ("stored file, MiB", "{:.1f}", *(os.path.getsize(f"{out}/{cache}.wkv") / MIB for cache in ("full", "kept"))),
    ("answering, tokens/s", "{:.1f}", full["decode_tps"], kept["decode_tps"]),
]
print(f"\n{'':28}{'full':>12}{'1024 kept':>12}{'ratio':>9}")
for label, form, a, b in rows:
    print(f"{label:28}{form.format(a):>12}{form.format(b):>12}{f'{b / a:.2f}x' if a else '-':>9}")
for i, question in enumerate(questions):
    print(f"\n{question}")
    for cache, label in (("full", "full"), ("kept", "1024 kept")):
        said = " ".join(answer(cache, i)["text"].split())
        sentence, end, rest = said.partition(". ")
        print(f"  {label:10} {sentence}{'.' if end else ''}{' ...' if rest or not said.endswith('.') else ''}")
PY
cat <<EOF

The demo model is a toy of 135 million parameters: it finds facts, it cannot summarise. Next:
  $winnow chat -f $document --budget 1024   talk about the document
  $winnow run -m FILE.gguf -f YOUR.txt -p "QUESTION"   with your own model and text
  $winnow doctor                                       checks this machine
EOF
