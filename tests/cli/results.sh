#!/bin/bash
# SPDX-License-Identifier: MIT
# Records that ship: packed results are reported as unpacked ones are, and every number of the pages is what scripts/records.py
# computes from the records.
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.." || exit 1
export PYTHONDONTWRITEBYTECODE=1

python3 scripts/records.py --check --winnow "$WINNOW" || fail 'pages, numbers and records differ'

# ---- Packed results ----
python3 tests/lib/make_results.py --small "$work/run" || fail 'made-up results'
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

# ---- The script, in a copy of the tree with records of a run ----
tree=$work/tree
mkdir -p "$tree/docs/src/research" "$tree/records" "$tree/share/profiles/model"
cp -r scripts "$tree"
gunzip -k "$work/run/results.jsonl.gz"
python3 - "$work/run" "$work" "$tree" <<'PY'
import json, pathlib, sys

run, work, tree = map(pathlib.Path, sys.argv[1:])
told = json.loads((run / "run.json").read_text())
rows = list(map(json.loads, open(run / "results.jsonl")))
a, b = sorted({r["policy"] for r in rows if r["size"] == "ratio=0.5"})[:2]
told["contrasts"] = [f"{a} vs {b} mode=agnostic size=ratio=0.5", f"{b} vs {a} mode=agnostic size=ratio=0.9"]
lines = (run / "results.jsonl").read_text().splitlines(True)
for name, part, command in (("whole", lines, []), ("s1", lines[::2], ["--shard", "1/2"]), ("s2", lines[1::2], ["--shard", "2/2"])):
    (work / name).mkdir()
    told["command"] = ["winnow", "eval", *command, "--out", str(work / name)]
    (work / name / "run.json").write_text(json.dumps(told))
    (work / name / "results.jsonl").write_text("".join(part))
(tree / "share/profiles/model/kind.json").write_text(json.dumps({"results": {"list": [1, 2.5, 4], "a b": 0.25, "t": [[3, 2, 1]]}}))
(tree / "docs/src/research/page.md").write_text(
    f"<!-- A = whole:agnostic/all/ -->\n# Page\n\nFull {{{{whole:agnostic/all/full/full/score}}}} of {{{{/score n}}}}; {{{{whole:contrast/0 whole}}}}; "
    f"{{{{A:{a}/ratio=0.5/less_full ci}}}}; {{{{profile:model/kind/list/1 2}}}} {{{{profile:model/kind/a~b 2}}}} "
    "{{count:model/kind/list/above:2 0}} {{common:model/kind,model/kind/t/layer:2 0}}\n")
PY
printf '{"v": 1, "key": "torn' >>"$work/s1/results.jsonl"
records() { python3 "$tree/scripts/records.py" --winnow "$WINNOW" "$@" >"$work/out" 2>"$work/err"; }
records --render && fail 'a page with unknown numbers was rendered'
grep -q 'docs/src/research/page.md: records/numbers.csv has no whole:agnostic/all/full/full/score' "$work/err" || fail "an unknown number: $(cat "$work/err")"
records --add "$work/s1" "$work/s2" whole || fail "shards cannot be taken in: $(cat "$work/err")"
grep -q -- '--shard' "$tree/records/runs/whole/run.json" && fail 'shards are still called shards'
grep -q "$work" "$tree/records/runs/whole/run.json" "$tree/records/RUNS.csv" && fail 'a record names a folder of this machine'
records --numbers --render || fail "numbers cannot be written: $(cat "$work/err")"
records --check || fail "what was written differs: $(cat "$work/err")"
good 'the whole' report "$work/whole" --json
cp "$work/out" "$work/plain.json"
python3 - "$work/out" "$tree/docs/research/page.md" <<'PY' || fail 'the page has other numbers than the report'
import json, sys

run, text = json.load(open(sys.argv[1]))["runs"][0], open(sys.argv[2]).read()
block = next(b for b in run["blocks"] if b["N"] == "all" and b["mode"] == "agnostic")
full = next(r for r in block["rows"] if r["full"])["macro"]
c = run["contrasts"][0]
row = next(r for r in block["rows"] if r["policy"] == c["a"] and r["size"] == "ratio=0.5")["macro"]
want = f"Full {full['mean']:.1f} of {full['n']}; {c['delta']:.1f} ({c['lo']:.1f} .. {c['hi']:.1f}), n = {c['n']}, p "
assert text.startswith("<!-- Rendered from docs/src/research/page.md"), text
assert want in text, (want, text)
assert f"; {row['delta']:.1f} ({row['lo']:.1f} .. {row['hi']:.1f}); 2.50 0.25 2 100" in text, text
PY
# Tables of times: chosen rows and columns, numbers flush right; what is not there is named.
mkdir -p "$tree/records/speed"
printf '# a command\nmachine,what,tokens/s\nA,first words,1.5x\nB,second,2x\n' >"$tree/records/speed/times.csv"
table() { # OPTIONS
    printf '# Page\n\n{{table %s}}\n' "$1" >"$tree/docs/src/research/times.md"
    records --render
}
table 'times' || fail "a table of times: $(cat "$work/err")"
grep -qx '| B | second | 2x |' "$tree/docs/research/times.md" || fail "not the whole file: $(cat "$tree/docs/research/times.md")"
table 'times what=first_words show=tokens/s' || fail "a chosen row: $(cat "$work/err")"
[ "$(tail -3 "$tree/docs/research/times.md")" = '| tokens/s |
|---:|
| 1.5x |' ] || fail "not the row: $(cat "$tree/docs/research/times.md")"
for wrong in 'other' 'times machine=C' 'times show=size'; do
    table "$wrong" && fail "{{table $wrong}} was rendered"
    grep -q 'docs/src/research/times.md: .*records/speed/' "$work/err" || fail "{{table $wrong}}: $(cat "$work/err")"
done
rm "$tree/docs/src/research/times.md" "$tree/docs/research/times.md"
# The rule of verdicts, by hand: 0.01 * 3, 0.02 * 2, 0.03 * 1 (never below the one before).
python3 - "$tree/scripts" <<'PY' || fail 'verdicts do not follow their rule'
import sys

sys.path.insert(0, sys.argv[1])
import records

found = records.holm({"a": 0.02, "b": 0.01, "c": 0.03})
assert all(abs(found[k] - v) < 1e-12 for k, v in {"b": 0.03, "a": 0.04, "c": 0.04}.items()), found
assert records.holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
for low, high, p, p_page, said in ((1, 9, 0.01, 0.04, "**yes**"), (1, 9, 0.01, 0.06, "yes"), (-9, -1, 0.049, 0.5, "no"), (-9, -1, 0.05, 0.5, "not told"), (-4, 4, 1, 1, "equal"),
                                   (-5, 4, 1, 1, "not told"), (0.1, 4, 0.2, 0.2, "not told"), (None, None, 0.01, 0.01, "not told")):
    assert records.verdict({"low": low, "high": high, "p": p}, p_page) == said, (low, high, p, p_page)
# Less divergence is better, and 5 nats are no margin.
for low, high, p, said in ((-0.5, -0.1, 0.01, "**yes**"), (0.1, 0.5, 0.01, "**no**"), (-0.1, 0.1, 1, "not told"), (None, None, 1, "not told")):
    assert records.nearer({"low": low, "high": high, "p": p}, p) == said, (low, high, p)
# 100 samples with an interval of 3.92 points have a spread of 10 points: (1.96 + 0.84)^2 * 10^2 = 785 samples tell 1 point.
for low, high, n, said in ((-1.96, 1.96, 100, "780"), (0, 3.92, 1000, "7,800"), (0, 0.1, 2, "0"), (1, 1, 9, "–"), (None, None, 9, "–")):
    assert records.needs({"low": low, "high": high, "n": n}) == said, (low, high, n, records.needs({"low": low, "high": high, "n": n}))
PY
# A page, a number, the list of runs and an answer that somebody has changed.
changed() { # FILE SED-SCRIPT WHAT-IS-SAID
    cp "$tree/$1" "$work/saved"
    sed -i "$2" "$tree/$1"
    cmp -s "$tree/$1" "$work/saved" && fail "$1: nothing was changed"
    records --check && fail "$1 was changed, and nobody noticed"
    grep -q "$3" "$work/err" || fail "$1: $(cat "$work/err")"
    cp "$work/saved" "$tree/$1"
}
changed docs/research/page.md 's/Full/full/' 'not what its source'
changed records/numbers.csv '2s/,\([0-9]\)/,9\1/' 'the records give'
rm -f "$tree/docs/research/page.md"
records --check && fail 'a page that is gone was not missed'
records --render

# ---- Releases ----
records --pack 1.0.0 || fail "an archive cannot be made: $(cat "$work/err")"
[ -e "$tree/records/runs" ] && fail 'packed runs lie there still'
records --check || fail "numbers of an archive: $(cat "$work/err")"
records --unpack "$work/unpacked" && good 'a run of the archive' report "$work/unpacked/whole" --json
cp "$tree/records/winnow-records-1.0.0.tar.xz" "$work/archive"
records --pack 1.0.0 && same 'an archive of the same runs' "$work/archive" "$tree/records/winnow-records-1.0.0.tar.xz"
changed records/RUNS.csv 's/^whole,/other,/' 'RUNS.csv: not what the records are: other, whole'
mv "$tree/records/winnow-records-1.0.0.tar.xz" "$work/away"
records --check || fail "without the archive pages are compared with the numbers alone: $(cat "$work/err")"
mv "$work/away" "$tree/records/winnow-records-1.0.0.tar.xz"
sed -i 's/"seed": [0-9]*/"seed": 7/' "$work/s2/run.json"
records --add "$work/s1" "$work/s2" shards && fail 'folders of two runs were taken in as one'
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
records --add "$work/theirs" theirs || fail "a run on a benchmark's file cannot be packed: $(cat "$work/err")"
python3 - "$work/theirs" "$tree/records/runs/theirs" <<'PY' || fail "a benchmark's questions were packed, or ours were not, or another member has changed"
import gzip, json, pathlib, sys

theirs, packed = map(pathlib.Path, sys.argv[1:])
task = json.loads((theirs / "run.json").read_text())["tasks"][0]["task"]
before = list(map(json.loads, open(theirs / "results.jsonl")))
after = list(map(json.loads, gzip.open(packed / "results.jsonl.gz", "rt")))
assert any(r["task"] == task and r["refs"] for r in before) and any(r["task"] != task and r["refs"] for r in before)
assert after == [r | {"question": "", "refs": []} if r["task"] == task else r for r in before]
PY
records --check || fail "a run without a benchmark's texts: $(cat "$work/err")"
gzip -nc "$work/theirs/results.jsonl" >"$tree/records/runs/theirs/results.jsonl.gz"
records --check && fail "a record with a benchmark's questions was taken"
grep -q 'theirs: has questions or references' "$work/err" || fail "a benchmark's questions: $(cat "$work/err")"
rm -r "$tree/records/runs/theirs"

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
records --join "$work/first" "$work/second" joined || fail "runs cannot be joined: $(cat "$work/err")"
good 'joined runs' report "$tree/records/runs/joined" --json
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
records --join "$work/first" "$work/second" joined && fail 'runs that answered differently were joined'
grep -q 'was answered in two ways' "$work/err" || fail "runs that answered differently: $(cat "$work/err")"
sed -i '/"size": "full"/d' "$work/second/results.jsonl"
records --join "$work/first" "$work/second" joined && fail 'runs without a common answer were joined'
grep -q 'no answer in common' "$work/err" || fail "runs without a common answer: $(cat "$work/err")"
finish
