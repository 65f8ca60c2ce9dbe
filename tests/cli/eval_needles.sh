# SPDX-License-Identifier: MIT
# A real model looks for numbers in text: the full cache finds them, a policy that forgets the middle of the text does
# not, and one that scores entries finds more than that.
. "$(dirname "$0")/lib.sh"
model=$models/smollm2-135m.gguf
need_file "$model"
good 'needles' eval -m "$model" -t 1 --quiet --no-gate --tasks niah_single_1,niah_single_2 --lengths 512 --samples 2 \
    --policies streaming_llm:sinks=4,recent=0,snapkv --ratios 0.75 --modes agnostic,aware --out "$work/needles"
python3 - "$work/needles/results.jsonl" <<'PY' || fail 'needles'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
score = {}
for r in rows:
    key = r["policy"].split(":")[0], r["mode"]
    score[key] = score.get(key, 0) + r["score"]
print(score)
for mode in "agnostic", "aware":
    assert score["full", mode] == 4, f"the full cache misses one, {mode}"
    assert score["streaming_llm", mode] == 0, f"an evicted number is found, {mode}"
assert score["snapkv", "aware"] >= 2
PY
