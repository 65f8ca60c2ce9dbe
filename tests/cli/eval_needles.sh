# SPDX-License-Identifier: MIT
# A real model looks for a number in the middle of a text: the full cache finds it, a policy that forgets the middle does
# not, and one that keeps what the model needs to repeat its context does. (What SnapKV keeps of a number are its first
# digits: the archive of records, older/older.md.) Records say whether a policy keeps the number for any score.
. "$(dirname "$0")/lib.sh"
model=$models/smollm2-135m.gguf
need_file "$model"

needles() {
    local name=$1
    shift
    good "$name" eval -m "$model" -t 1 --quiet --no-gate --tasks niah_grid --needle num --out "$work/$name" "$@"
}

needles found --lengths 512 --depths 50 --trials 2 --policies streaming_llm,kvzip --ratios 0.75 --modes agnostic,aware
python3 - "$work/found/results.jsonl" <<'PY' || fail 'what is found'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
score = {}
for r in rows:
    key = r["policy"], r["mode"]
    score[key] = score.get(key, 0) + r["score"]
print(score)
assert len(rows) == 12
for mode in "agnostic", "aware":
    assert score["full", mode] == 2, f"the full cache misses one, {mode}"
    assert score["kvzip", mode] == 2, f"a number that was kept is missed, {mode}"
    assert score["streaming_llm", mode] == 0, f"an evicted number is found, {mode}"
PY

# SnapKV's window holds a number at the end of the context and none in its middle; where the question is compressed too,
# the window is its.
needles protected --lengths 384 --depths 50,100 --policies snapkv:window=64 --ratios 0.5 --modes agnostic,aware
python3 - "$work/protected/results.jsonl" <<'PY' || fail 'what is protected'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
end = {r["index"]: r["depth"] for r in rows}
last = max(end, key=end.get)
assert len(rows) == 8 and len(end) == 2
for r in rows:
    print(r["policy"], r["mode"], r["depth"], r["ctx_tokens"], r["protected"])
    if r["policy"] == "full":
        assert r["protected"] is None
    elif r["mode"] == "agnostic" or r["index"] != last:
        assert r["protected"] is (r["index"] == last)
PY
finish
