#!/bin/bash
# SPDX-License-Identifier: MIT
# Records that ship: packed results are reported as unpacked ones are, and every table and number of the documents is what
# scripts/results_tables.py makes of the records.
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.." || exit 1
export PYTHONDONTWRITEBYTECODE=1

python3 scripts/results_tables.py --check --winnow "$WINNOW" || fail 'documents and records differ'

# ---- Packed results ----
python3 tests/make_results.py --small "$work/run" || fail 'made-up results'
good 'a run' report "$work/run" --json
cp "$work/out" "$work/plain.json"
cp "$work/run/summary.csv" "$work/plain.csv"
cp "$work/run/results.jsonl" "$work/plain.jsonl"
gzip -n "$work/run/results.jsonl"
good 'a packed run' report "$work/run" --json
same 'a packed run' "$work/plain.json" "$work/out"
same 'the CSV of a packed run' "$work/plain.csv" "$work/run/summary.csv"
cp "$work/run/results.jsonl.gz" "$work/packed"
head -c "$(($(stat -c %s "$work/packed") / 2))" "$work/packed" >"$work/run/results.jsonl.gz"
bad 'a packed run that is cut off' 'is cut off' report "$work/run"
cp "$work/plain.jsonl" "$work/run/results.jsonl.gz"
bad 'a packed run that is not packed' 'is not what gzip writes' report "$work/run"
cp "$work/packed" "$work/run/results.jsonl.gz"

# ---- The script, in a copy of the documents with records of a run ----
tree=$work/tree
mkdir -p "$tree/docs/results" "$tree/docs/research"
cp -r scripts "$tree"
printf '# Words\n' >"$tree/README.md"
cat >"$tree/docs/research/results.md" <<'MD'
# Results

## New
<!-- table made mode=agnostic -->
<!-- end of table -->
The full cache has <!-- number made agnostic/all/full/full/macro.mean 1 -->0<!-- / --> points.

## Old
| a | b |
|---|---|
| 1 | 2 |
MD
printf 'docs/research/results.md: Old\n' >"$tree/docs/results/without-records.txt"
gunzip -k "$work/run/results.jsonl.gz"
tables() { python3 "$tree/scripts/results_tables.py" --winnow "$WINNOW" "$@" >"$work/out" 2>"$work/err"; }
tables --check && fail 'a table without its records was taken'
tables --add "$work/run" made || fail "records cannot be packed: $(cat "$work/err")"
grep -q "$work" "$tree/docs/results/made/run.json" && fail 'run.json names a folder of this machine'
tables --check && fail 'an empty table is what the records give'
grep -q 'a table or number is not what its records give' "$work/err" || fail "an empty table: $(cat "$work/err")"
tables || fail "tables cannot be written: $(cat "$work/err")"
tables --check || fail "what was written differs: $(cat "$work/err")"
python3 - "$work/plain.json" "$tree/docs/research/results.md" <<'PY' || fail 'the table has other numbers than the report'
import json, re, sys

run = json.load(open(sys.argv[1]))["runs"][0]
text = open(sys.argv[2]).read()
block = next(b for b in run["blocks"] if b["N"] == "all" and b["mode"] == "agnostic")
assert text.count("\n| agnostic |") == len(block["rows"])
for row in block["rows"]:
    c = row["macro"]
    size = row["kv_type"] if row["full"] else row["size"] + ("" if row["kv_type"] == "f16" else ", " + row["kv_type"])
    assert f"| agnostic | `{row['policy']}`" in text and f"| {size} | {c['n']} | {c['mean']:.1f} |" in text, row["label"]
full = next(r for r in block["rows"] if r["full"] and r["kv_type"] == "f16")
assert re.search(r"-->%.1f<!-- / --> points" % full["macro"]["mean"], text), text
PY

# ---- Shards, and what was to be decided ----
python3 - "$work/run" "$work" <<'PY'
import json, pathlib, shutil, sys

run, work = map(pathlib.Path, sys.argv[1:])
told = json.loads((run / "run.json").read_text())
a, b = sorted({r["policy"] for r in map(json.loads, open(run / "results.jsonl")) if r["size"] == "ratio=0.5"})[:2]
told["contrasts"] = [f"{a} vs {b} mode=agnostic size=ratio=0.5", f"{b} vs {a} mode=agnostic size=ratio=0.9"]
lines = (run / "results.jsonl").read_text().splitlines(True)
for name, part, command in (("whole", lines, []), ("s1", lines[::2], ["--shard", "1/2"]), ("s2", lines[1::2], ["--shard", "2/2"])):
    (work / name).mkdir()
    told["command"] = ["winnow", "eval", *command, "--out", str(work / name)]
    (work / name / "run.json").write_text(json.dumps(told))
    (work / name / "results.jsonl").write_text("".join(part))
PY
printf '{"v": 1, "key": "torn' >>"$work/s1/results.jsonl"
good 'the whole' report "$work/whole" --json
cp "$work/out" "$work/plain.json"
tables --add "$work/s1" "$work/s2" shards || fail "shards cannot be packed: $(cat "$work/err")"
grep -q -- '--shard' "$tree/docs/results/shards/run.json" && fail 'packed shards are still called shards'
printf '\n<!-- table shards contrasts -->\n<!-- end of table -->\nThey differ by <!-- number shards contrast/0/delta 2 -->?<!-- / -->, in short <!-- contrast shards 0 -->?<!-- / -->.\n' >>"$tree/docs/research/results.md"
tables || fail "a table of contrasts cannot be written: $(cat "$work/err")"
python3 - "$work/plain.json" "$tree/docs/research/results.md" <<'PY' || fail 'the contrasts have other numbers than the report'
import json, sys

c, text = json.load(open(sys.argv[1]))["runs"][0]["contrasts"], open(sys.argv[2]).read()
assert f"| `{c[0]['a']}` | `{c[0]['b']}` | {c[0]['n']} | {c[0]['mean_a']:.1f} | {c[0]['mean_b']:.1f} |" in text, text
assert "| 0 | - | - | - | - | - | not measured |" in text and not c[1]["measured"]
assert "-->%.2f<!-- / -->, in short " % c[0]["delta"] in text and f"-->{c[0]['delta']:.1f} ({c[0]['lo']:.1f} .. {c[0]['hi']:.1f}), n = {c[0]['n']}, p " in text, c[0]
PY
sed -i 's/"seed": [0-9]*/"seed": 7/' "$work/s2/run.json"
tables --add "$work/s1" "$work/s2" shards && fail 'folders of two runs were packed as one'
grep -q "'seed' differs" "$work/err" || fail "folders of two runs: $(cat "$work/err")"

# ---- Texts that are a benchmark's are not packed ----
python3 - "$work/whole" "$work/theirs" <<'PY'
import json, pathlib, shutil, sys

whole, theirs = map(pathlib.Path, sys.argv[1:])
shutil.copytree(whole, theirs)
told = json.loads((theirs / "run.json").read_text())
task = json.loads(open(theirs / "results.jsonl").readline())["task"]
told["tasks"] = [{"task": task, "file": "0123456789abcdef"}]
(theirs / "run.json").write_text(json.dumps(told))
PY
tables --add "$work/theirs" theirs || fail "a run on a benchmark's file cannot be packed: $(cat "$work/err")"
python3 - "$work/theirs" "$tree/docs/results/theirs" <<'PY' || fail "a benchmark's questions were packed, or ours were not, or another member has changed"
import gzip, json, pathlib, sys

theirs, packed = map(pathlib.Path, sys.argv[1:])
task = json.loads((theirs / "run.json").read_text())["tasks"][0]["task"]
before = list(map(json.loads, open(theirs / "results.jsonl")))
after = list(map(json.loads, gzip.open(packed / "results.jsonl.gz", "rt")))
assert any(r["task"] == task and r["refs"] for r in before) and any(r["task"] != task and r["refs"] for r in before)
assert after == [r | {"question": "", "refs": []} if r["task"] == task else r for r in before]
PY
tables --check || fail "a run without a benchmark's texts: $(cat "$work/err")"
gzip -nc "$work/theirs/results.jsonl" >"$tree/docs/results/theirs/results.jsonl.gz"
tables --check && fail "a record with a benchmark's questions was taken"
grep -q 'results/theirs: has questions or references' "$work/err" || fail "a benchmark's questions: $(cat "$work/err")"
rm -r "$tree/docs/results/theirs"

# ---- Runs of other policies on the same samples ----
python3 - "$work/whole" "$work" <<'PY'
import json, pathlib, sys

whole, work = map(pathlib.Path, sys.argv[1:])
told, rows = json.loads((whole / "run.json").read_text()), list(map(json.loads, open(whole / "results.jsonl")))
a, b = told["contrasts"][0].split(" mode=")[0].split(" vs ")
full, kinds = {r["policy"] for r in rows if r["size"] == "full"}, {r["policy"] for r in rows}
for name, policies in (("first", kinds - {b}), ("second", full | {b})):
    (work / name).mkdir()
    said = {**told, "contrasts": told["contrasts"][:1] if name == "second" else [],
            "recipes": {k: v for k, v in told["recipes"].items() if k in policies}, "configs": [c for c in told["configs"] if c["recipe"] in policies]}
    (work / name / "run.json").write_text(json.dumps(said))
    # Times of the two differ, and nothing else.
    (work / name / "results.jsonl").write_text("".join(json.dumps({**r, "ms": {}} if name == "second" else r) + "\n" for r in rows if r["policy"] in policies))
PY
tables --join "$work/first" "$work/second" joined || fail "runs cannot be joined: $(cat "$work/err")"
good 'joined runs' report "$tree/docs/results/joined" --json
python3 - "$work/plain.json" "$work/out" <<'PY' || fail 'joined runs have other numbers than the whole'
import json, sys

whole, joined = (json.load(open(path))["runs"][0] for path in sys.argv[1:])
a, b = joined["contrasts"][0]["a"], joined["contrasts"][0]["b"]
assert all(joined["contrasts"][0][k] == whole["contrasts"][0][k] for k in ("n", "delta", "lo", "hi")), joined["contrasts"]
rows = [{(r["policy"], r["size"]): r["macro"]["mean"] for block in run["blocks"] if block["N"] == "all" for r in block["rows"]} for run in (whole, joined)]
assert {p for p, _ in rows[1]} == {p for p, _ in rows[0] if p in (a, b) or p.startswith("full")}, rows[1]
assert all(rows[0][k] == v for k, v in rows[1].items()), rows
PY
sed -i '1s/"pred": "/"pred": "not /' "$work/second/results.jsonl"
tables --join "$work/first" "$work/second" joined && fail 'runs that answered differently were joined'
grep -q 'was answered in two ways' "$work/err" || fail "runs that answered differently: $(cat "$work/err")"
sed -i '/"size": "full"/d' "$work/second/results.jsonl"
tables --join "$work/first" "$work/second" joined && fail 'runs without a common answer were joined'
grep -q 'no answer in common' "$work/err" || fail "runs without a common answer: $(cat "$work/err")"
sed -i 's/^## Old/## Older/' "$tree/docs/research/results.md"
tables --check && fail 'a table without records that nobody listed was taken'
grep -q "docs/research/results.md: Older: a table without records" "$work/err" && grep -q "'docs/research/results.md: Old' has records now, or is gone" "$work/err" ||
    fail "a heading that changed: $(cat "$work/err")"
finish
