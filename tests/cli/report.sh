# SPDX-License-Identifier: MIT
# winnow report: intervals as an independent program computes them, shards that give what the whole run gives, one page
# that refers to nothing outside and has the report's JSON, texts that stay texts, limits, and input that is refused by line. cli_page
# looks at the page in a browser.
. "$(dirname "$0")/lib.sh"

python3 tests/lib/make_results.py --small "$work/whole" || fail 'made-up results'
good 'a run' report "$work/whole"
for file in report.html summary.txt summary.csv maps.csv; do
    [ -s "$work/whole/$file" ] || fail "no $file"
done
cmp -s "$work/out" "$work/whole/summary.txt" || fail 'standard output is not summary.txt'
grep -q 'Uninformative (agnostic), and left out of the means: vt at N = 1024' "$work/out" || fail 'the uninformative task is not listed'
grep -Eq 'about [0-9]+ of them exclude 0 by chance' "$work/out" || fail 'multiple comparisons are not mentioned'
cp "$work/whole/report.html" "$work/first.html"
cp "$work/whole/summary.csv" "$work/first.csv"
good 'the run again' report "$work/whole"
same 'the page twice' "$work/first.html" "$work/whole/report.html"
same 'the CSV twice' "$work/first.csv" "$work/whole/summary.csv"

# ---- Statistics against Python: another bootstrap over the same streams of random numbers ----
good 'as JSON' report "$work/whole" --json --compare snapkv,lagkv
cp "$work/out" "$work/whole.json"
cat >"$work/check.py" <<'PY'
import csv, json, math, re, sys

MASK = (1 << 64) - 1


class Random:
    """xoshiro256**, filled by splitmix64 from the FNV-1a hash of a key."""

    def __init__(self, key):
        h = 0xCBF29CE484222325
        for byte in key.encode():
            h = (h ^ byte) * 0x100000001B3 & MASK
        self.s = []
        for _ in range(4):
            h = (h + 0x9E3779B97F4A7C15) & MASK
            z = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
            z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
            self.s.append(z ^ z >> 31)

    def below(self, n):
        rotl = lambda x, k: (x << k | x >> 64 - k) & MASK
        while True:
            s = self.s
            x = rotl(s[1] * 5 & MASK, 7) * 9 & MASK
            t = s[1] << 17 & MASK
            s[2] ^= s[0]
            s[3] ^= s[1]
            s[1] ^= s[2]
            s[0] ^= s[3]
            s[2] ^= t
            s[3] = rotl(s[3], 45)
            if x < (1 << 64) - (1 << 64) % n:
                return x % n


def interval(strata, key, rounds=10000):
    """strata: lists of clusters, which are lists of differences."""
    r = Random(key)
    means = []
    for _ in range(rounds):
        of_strata = 0.0
        for clusters in strata:
            n_draw = len(clusters) - 1 if len(strata) > 1 else len(clusters)
            assert n_draw > 0, "a stratum of one cluster draws from all, which is not done here"
            drawn = [clusters[r.below(len(clusters))] for _ in range(n_draw)]
            of_strata += sum(map(sum, drawn)) / sum(map(len, drawn))
        means.append(of_strata / len(strata))
    means.sort()
    return means[rounds // 40], means[rounds - rounds // 40 - 1]


rows = {}
probes = {}
with open(sys.argv[1] + "/results.jsonl", encoding="utf-8") as f:
    for line in f:
        o = json.loads(line)
        key = (o["mode"], o["task"], o["N"])
        if o["index"] >= 900000:
            if o["kv_type"] == "f16":
                probes.setdefault(key, []).append(o["score"])
        else:
            rows.setdefault(key, {}).setdefault((o["policy"], o["size"], o["kv_type"]), {})[o["index"], o["turn"]] = o


def clusters(mode, task, n, method):
    full, comp = rows[mode, task, n][("full", "full", "f16")], rows[mode, task, n][method]
    groups = {}
    for sample in sorted(full):
        o = comp[sample]
        # Cells of a grid, else contexts; in ascending order.
        key = round(1000 * o["depth"]) if task == "passkey64" else o["index"]
        groups.setdefault(key, []).append(100 * (o["score"] - full[sample]["score"]))
    return [groups[k] for k in sorted(groups)]


with open(sys.argv[2], encoding="utf-8") as f:
    report = json.load(f)["runs"][0]
checked = 0
for block in report["blocks"]:
    informative = [t for t in block["tasks"] if t["informative"]]
    for t in block["tasks"]:
        scores = probes[block["mode"], t["task"], t["N"]]
        assert t["informative"] == (100 * sum(scores) / len(scores) >= 25), t
    for row in block["rows"]:
        method = (row["policy"], row["size"], row["kv_type"])
        if method == ("full", "full", "f16"):
            continue
        strata = [clusters(block["mode"], t["task"], t["N"], method) for t in informative]
        delta = sum(sum(map(sum, s)) / sum(map(len, s)) for s in strata) / len(strata)
        assert abs(delta - row["macro"]["delta"]) < 1e-6, (method, delta, row["macro"])
        if method != ("snapkv", "ratio=0.75", "f16") or block["mode"] != "agnostic":
            continue
        keys = [("macro", 0 if block["N"] == "all" else block["N"], row["macro"], strata)]
        if block["N"] != "all":
            keys += [(c["task"], c["N"], c, [clusters("agnostic", c["task"], c["N"], method)]) for c in row["tasks"]]
        for name, n, cell, s in keys:
            if sum(map(len, s)) >= 6 and len({d for x in s for c in x for d in c}) > 1:
                lo, hi = interval(s, f"boot|{name}|{n}|{row['config']}|42")
                assert abs(lo - cell["lo"]) < 1e-6 and abs(hi - cell["hi"]) < 1e-6, (name, n, method, lo, hi, cell)
                checked += 1
            elif sum(map(len, s)) < 6:
                assert cell["lo"] is None and cell["verdict"] == "~", cell
assert checked >= 6, checked
assert report["compare"] and all(v["a"] == "snapkv" and v["b"] == "lagkv" for v in report["compare"])
# An area by hand, from the same means.
for block in report["blocks"]:
    for c in block["curves"]:
        area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(c["points"], c["points"][1:]))
        assert abs(area / c["points"][-1][0] - c["auc"]) < 1e-6, c
assert any(block["curves"] for block in report["blocks"])
with open(sys.argv[1] + "/summary.csv", encoding="utf-8", newline="") as f:
    lines = list(csv.DictReader(f))
macro = {(x["mode"], x["N"], x["config"]): x for x in lines if x["task"] == "macro"}
for block in report["blocks"]:
    for row in block["rows"]:
        x = macro[block["mode"], str(block["N"]), row["config"]]
        assert math.isclose(float(x["mean"]), row["macro"]["mean"], rel_tol=1e-9), x
        assert math.isclose(float(x["meta_bytes"]), row["macro"]["meta_bytes"], rel_tol=1e-9), x
# First tokens and their interval in every form; what stood in for data of a task.
z = 1.959963984540054
for x in lines:
    if x["task"] != "passkey64" or not x["fgt"]:
        continue
    n, share = int(x["n"]), float(x["fgt"])
    mid, half = (share + z * z / 2 / n) / (1 + z * z / n), z * math.sqrt(share * (1 - share) / n + z * z / 4 / n / n) / (1 + z * z / n)
    assert abs(float(x["fgt_lo"]) - (mid - half)) < 1e-9 and abs(float(x["fgt_hi"]) - (mid + half)) < 1e-9, x
    assert int(x["clusters"]) == min(n, 5) and x["stand_ins"] == "generated prose in place of essays", x
for block in report["blocks"]:
    for row in block["rows"]:
        for c in row["tasks"]:
            assert c["fgt_lo"] <= c["fgt"] <= c["fgt_hi"], c
assert report["too_long"] == 3 and len(report["stand_ins"]) == 2
assert "3 samples were left out: they are longer than the model's context." in report["notes"]
# Maps: the same cells as in --json.
with open(sys.argv[1] + "/maps.csv", encoding="utf-8", newline="") as f:
    cells = list(csv.DictReader(f))
assert {x["score"] for x in cells} == {"score", "fgt", "partial", "contains"}, {x["score"] for x in cells}
for block in report["blocks"]:
    for m in block.get("maps", []):
        mine = [[int(x["length"]), float(x["depth"]), float(x["value"]), int(x["n"])] for x in cells
                if (x["mode"], x["task"], x["config"], x["score"]) == (block["mode"], m["task"], m["config"], m["score"])]
        assert mine == m["cells"], (mine, m)
# The highest mean of each size, against each other: the numbers of --compare.
compared = {(v["mode"], str(v["N"]), v["size"]): v for v in report["compare"]}
n_winners = 0
for block in report["blocks"]:
    by = {row["config"]: row for row in block["rows"]}
    for w in block.get("winners", []):
        all_of = [w["best"]] + [o["config"] for o in w["others"]]
        assert set(all_of) == {r["config"] for r in block["rows"] if not r["full"] and (r["size"], r["kv_type"]) == (w["size"], w["kv_type"])}
        means = [by[c]["macro"]["mean"] for c in all_of]
        assert means == sorted(means, reverse=True), means
        for o in w["others"]:
            assert o["verdict"] == ("~" if o["lo"] is None or o["lo"] <= 0 <= o["hi"] else "+"), o
            v, sign = compared[block["mode"], str(block["N"]), w["size"]], 1 if by[w["best"]]["policy"] == "snapkv" else -1
            if {by[w["best"]]["policy"], by[o["config"]]["policy"]} == {"snapkv", "lagkv"}:
                assert math.isclose(o["delta"], sign * v["delta"], abs_tol=1e-9), (o, v)
                if sign == 1:
                    assert (o["lo"], o["hi"]) == (v["lo"], v["hi"]), (o, v)
                n_winners += 1
assert n_winners == 3, n_winners
# A paper's table by task: its row at 0.5, winnow's mean over the lengths of each task, and the share of the full cache's.
(table,) = (t for t in report["papers"] if t["table"].startswith("RULER-16K by task, LagKV by share removed, Llama"))
(row,) = (r for r in table["rows"] if r["method"] == "0.5")
assert table["ours"] and table["columns"][:4] == ["SK1", "SK2", "SK3", "MK1"] and row["cells"][2] == {"column": "SK3", "value": "88.4"}
ours = {o["task"]: o for o in row["ours"]}
for task in ("niah_single_1", "niah_single_2", "niah_multikey_1"):
    def mean(method):
        by_length = [rows[m, t, n][method] for m, t, n in rows if (m, t) == ("agnostic", task)]
        return sum(100 * sum(o["score"] for o in x.values()) / len(x) for x in by_length) / len(by_length)
    x, full = mean(("lagkv", "ratio=0.5", "f16")), mean(("full", "full", "f16"))
    assert math.isclose(ours[task]["value"], x) and math.isclose(ours[task]["kept"], 100 * x / full), (task, ours[task], x, full)
    assert ours[task]["method"] == "lagkv f16"
assert ours["niah_single_3"]["value"] is None
PY
python3 "$work/check.py" "$work/whole" "$work/whole.json" 2>"$work/err" || fail "statistics: $(tail -n 3 "$work/err")"

# ---- Two protocols in one table of a paper: the context alone, and where the question is known ----
python3 tests/lib/make_results.py "$work/modes"
good 'two protocols' report "$work/modes" --json
python3 - "$work/out" 2>"$work/err" <<'PY' || fail "areas: $(tail -n 3 "$work/err")"
import json, math, sys
(run,) = json.load(open(sys.argv[1]))["runs"]
(table,) = (t for t in run["papers"] if t["table"].startswith("RULER-4096, area under the score"))
for method, policy in (("SnapKV", "snapkv"), ("KVCompose", "kvcompose")):
    (row,) = (r for r in table["rows"] if r["method"] == method)
    assert [o["mode"] for o in row["ours"]] == ["agnostic", "known"], row
    for o, mode in zip(row["ours"], ("agnostic", "aware"), strict=True):
        (points,) = [c["points"] for b in run["blocks"] for c in b["curves"]
                     if (b["mode"], b["N"], c["policy"]) == (mode, "all", policy)]
        area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(points, points[1:]))
        area += (1 - points[-1][0]) * points[-1][1] / 2  # to a point (1, 0)
        assert math.isclose(o["value"], area, rel_tol=1e-8), (method, mode, o, area)
PY

# A paper's number is matched by what a recipe means: a preset with other options, or another type of cache, is another method.
python3 - "$work/modes" "$work/named" <<'PY'
import json, os, sys
os.makedirs(sys.argv[2])
names = {"snapkv": "paper-lagkv:ref=own", "lagkv": "lukv:epsilon=0.01+adakv", "kvcompose": "snapkv:kernel=31"}
for name in ("run.json", "results.jsonl"):
    with open(f"{sys.argv[1]}/{name}", encoding="utf-8") as f, open(f"{sys.argv[2]}/{name}", "w", encoding="utf-8") as to:
        text = f.read()
        for old, new in names.items():
            text = text.replace(f'"policy": "{old}"', f'"policy": "{new}"')
        if name == "run.json":
            text = json.dumps({**json.loads(text), "recipes": {"lukv:epsilon=0.01+adakv": "adakv-expected_attention"}})
        to.write(text)
PY
good 'recipes by their meaning' report "$work/named" --json
json 'recipes by their meaning' "$work/out" '{r["method"] for t in o["runs"][0]["papers"] for r in t["rows"]
    if any(x["value"] is not None for x in r["ours"])} == {"full cache", "AdaKV on expected attention", "StreamingLLM"}'
# ... and is shown under the name that it was asked for by, not under the name that its shortest recipe begins with.
json 'recipes by the name that was asked for' "$work/out" '{x["asked"] for t in o["runs"][0]["papers"] for r in t["rows"]
    for x in r["ours"] if x["value"] is not None and r["method"] == "AdaKV on expected attention"} == {"adakv-expected_attention"}'

# ---- Maps of another score ----
page_data "$work/whole/report.html" "$work/all_maps.json"
good 'maps of the first token' report "$work/whole" --niah-score fgt
grep -q 'first generated token as with the full cache by depth' "$work/out" || fail 'the summary has no map of the first token'
grep -q 'score by depth' "$work/out" && fail 'the summary has maps of the score, too'
page_data "$work/whole/report.html" "$work/page.json"
python3 - "$work/all_maps.json" "$work/page.json" 2>"$work/err" <<'PY' || fail "maps: $(tail -n 3 "$work/err")"
import json, sys
every, one = (sum(len(b.get("maps", [])) for b in json.load(open(path))["runs"][0]["blocks"]) for path in sys.argv[1:])
assert 0 < one < every, (one, every)
PY
good 'maps of the first token as JSON' report "$work/whole" --niah-score fgt --json
json 'maps of the first token as JSON' "$work/out" '{m["score"] for b in o["runs"][0]["blocks"] for m in b.get("maps", [])} == {"fgt"}'
bad 'unknown score of maps' "--niah-score 'kl' is unknown" report "$work/whole" --niah-score kl
good 'all maps again' report "$work/whole"

# More maps than a page has room for: it stays small, has the tasks' own scores first and names what it left out.
python3 tests/lib/make_results.py --wide "$work/wide"
good 'many maps' report "$work/wide"
page_data "$work/wide/report.html" "$work/page.json"
[ "$(wc -c <"$work/wide/report.html")" -lt 2000000 ] || fail "many maps: the page has $(wc -c <"$work/wide/report.html") bytes"
python3 - "$work/page.json" "$work/wide/maps.csv" 2>"$work/err" <<'PY' || fail "many maps: $(tail -n 3 "$work/err")"
import csv, json, sys
(run,) = json.load(open(sys.argv[1]))["runs"]
left = {(m["score"], m["mode"]): (m["n"], m["of"]) for m in run["maps_left_out"]}
assert left["partial", "aware"][0] > 0 and not any(score == "score" for score, _ in left), left
assert sum(len(b.get("maps", [])) for b in run["blocks"]) + sum(n for n, _ in left.values()) == 3 * 2 * 19, left
with open(sys.argv[2], encoding="utf-8", newline="") as f:
    assert sum(x["score"] == "score" for x in csv.DictReader(f)) == 2 * 19 * 16 * 14
PY

# ---- Shards ----
for i in 0 1 2; do
    python3 tests/lib/make_results.py --small "$work/shard$i" --shard $i/3
done
good 'shards' report "$work/shard2" "$work/shard0" "$work/shard1" -o "$work/merged.html" --json --compare snapkv,lagkv
cat >"$work/same.py" <<'PY'
import json, sys

a, b = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
for o in (a, b):
    for run in o["runs"]:
        del run["folders"], run["info"]
sys.exit(a != b)
PY
python3 "$work/same.py" "$work/whole.json" "$work/out" || fail 'shards are not what the whole run is'
[ ! -e "$work/shard0/report.html" ] || fail 'a shard got a report of its own'
python3 tests/lib/make_results.py --small "$work/other" --model other-model
good 'two runs' report "$work/whole" "$work/other" -o "$work/both.html" --json
json 'two runs' "$work/out" 'len(o["runs"]) == 2 and {r["model"] for r in o["runs"]} == {"smollm2-135m", "other-model"}'
page_data "$work/both.html" "$work/page.json"
json 'two runs in a page' "$work/page.json" 'len(o["runs"]) == 2'
# The same answers twice count once; with another score they are refused.
cp -r "$work/shard0" "$work/twice"
head -n 40 "$work/shard0/results.jsonl" >>"$work/twice/results.jsonl"
good 'repeated answers' report "$work/twice" --json
json 'repeated answers' "$work/out" 'o["runs"][0]["repeated"] == 40'
head -n 1 "$work/shard0/results.jsonl" | sed 's/"score": [01].0/"score": 0.5/' >>"$work/twice/results.jsonl"
bad 'contradicting answers' "line 1 and '.*' line .* different scores" report "$work/twice"

# ---- The page ----
cat >"$work/page.py" <<'PY'
import html.parser, json, re, sys

path, hostile = sys.argv[1], sys.argv[2] == "hostile"
with open(path, encoding="utf-8", newline="") as f:
    text = f.read()
assert len(text.encode()) < 2e6, len(text)
tags, attributes = [], []


class Reader(html.parser.HTMLParser):
    def handle_starttag(self, tag, attrs):
        tags.append(tag)
        attributes.extend(attrs)


Reader().feed(text)
assert tags.count("script") == 2 and not {"link", "img", "iframe", "object", "base"} & set(tags), tags
for key, value in attributes:
    assert not key.startswith("on") and key != "src", (key, value)
    assert key != "href" or value.startswith("#"), value
assert "url(" not in text and "@import" not in text and "default-src 'none'" in text
assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "document.write" not in text
assert "\u2028" not in text and "<img" not in text and "<script>alert" not in text
(data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
assert not set("<>&") & set(data), "markup in the data"
(run,) = json.loads(data)["runs"]
assert run["info"]["command"] and "configs" not in run["info"]
cases = [c for b in run["blocks"] for c in b.get("cases", [])]
assert cases and all("What is the special magic number" in c["question"] for c in cases)
if hostile:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028<!--&lt; ]]> \"'`${alert(3)}"
    assert any(evil in c["of_method"] for c in cases) and any(evil in c["task"] for c in cases)
    assert any(evil == r["policy"] for b in run["blocks"] for r in b["rows"]) and evil in run["info"]["command"]
else:
    assert {r["policy"]: r["asked"] for b in run["blocks"] for r in b["rows"]} == {"full": "full", "snapkv": "paper-snapkv", "lagkv": "lagkv"}
PY
good 'the page again' report "$work/whole"
python3 "$work/page.py" "$work/whole/report.html" plain 2>"$work/err" || fail "the page: $(cat "$work/err")"
python3 tests/lib/make_results.py --small "$work/hostile" --hostile
good 'hostile texts' report "$work/hostile"
python3 "$work/page.py" "$work/hostile/report.html" hostile 2>"$work/err" || fail "hostile: $(cat "$work/err")"
# Files of a folder that are none: a pipe is not waited for, a device is not read.
for file in results.jsonl results.jsonl.gz run.json; do
    for to in pipe /dev/zero; do
        rm -rf "$work/odd"
        cp -r "$work/whole" "$work/odd"
        rm "$work/odd/${file%.gz}" "$work"/odd/report.html
        if [ $to = pipe ]; then mkfifo "$work/odd/$file"; else ln -s $to "$work/odd/$file"; fi
        bad "$file: $to" "odd/$file' is not a regular file" report "$work/odd"
    done
done
# Control characters of texts that runs have, and of names, do not reach the terminal.
rm -rf "$work/odd"
cp -r "$work/whole" "$work/odd"
py "$work/odd" <<'PY' || fail 'no run with control characters'
import json, sys
path = sys.argv[1] + "/run.json"
o = json.load(open(path))
o["remarks"] = ["red \x1b[31m, bell \x07, \x9b31m and \x7f end"]
json.dump(o, open(path, "w"))
path = sys.argv[1] + "/results.jsonl"
lines = open(path).read().splitlines()
o = json.loads(next(x for x in lines if '"policy": "snapkv"' in x or '"policy":"snapkv"' in x))
o.update(key="left out", index=77, left_out="because\x1b[2J\x9b of\nthis")
open(path, "w").write("\n".join(lines + [json.dumps(o)]) + "\n")
PY
good 'control characters' report "$work/odd"
grep -q 'red ?\[31m, bell ?, ?31m and ? end' "$work/out" || fail "a remark: $(grep red "$work/out" | cat -v)"
grep -q 'because?\[2J? of' "$work/out" || fail "why it was left out: $(grep because "$work/out" | cat -v)"
LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$work/out" "$work/odd/summary.txt" && fail 'control characters reach the terminal'
sed -i '1s/"task": *"/&\xc2\x9b31m/' "$work/odd/results.jsonl"
bad 'a name with a control character' 'line 1: "task" has a control character' report "$work/odd"
# A program without its data files has no page to write, and says where it looked.
mkdir "$work/empty" "$work/alone"
cp "$WINNOW" "$work/alone/winnow"
"$work/alone/winnow" report "$work/whole" -o "$work/none.html" >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q 'papers.csv, which comes with winnow, is neither at .*; install winnow again' "$work/err" && [ ! -e "$work/none.html" ] ||
    fail "no shared files: $(cat "$work/err")"
# Numbers of the papers are checked, too.
mkdir -p "$work/alone/share/pages"
cp share/pages/report.html "$work/alone/share/pages"
sed '3s/,aware_full,/,aware_half,/' share/papers.csv >"$work/alone/share/papers.csv"
"$work/alone/winnow" report "$work/whole" -o "$work/none.html" >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q "papers.csv' line 3: mode is 'aware_half'" "$work/err" || fail "damaged papers.csv: $(cat "$work/err")"
cp share/papers.csv "$work/alone/share"
echo '<p>another page</p>' >"$work/alone/share/pages/report.html"
"$work/alone/winnow" report "$work/whole" -o "$work/none.html" >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q 'is not the page that comes with winnow' "$work/err" || fail "another page: $(cat "$work/err")"

# ---- Limits ----
"$WINNOW" report "$work/whole" --fail-if 'macro_delta<-5@r=.75' >/dev/null 2>"$work/err"
[ $? -eq 4 ] || fail "a broken limit: exit code $?"
grep -q 'macro_delta of' "$work/err" || fail "a broken limit: $(cat "$work/err")"
python3 - "$work/few" "$work/whole" <<'PY'
import json, os, sys
os.makedirs(sys.argv[1])
with open(sys.argv[2] + "/results.jsonl") as f, open(sys.argv[1] + "/results.jsonl", "w") as to:
    to.writelines(l for l in f if (o := json.loads(l))["task"] == "niah_single_1" and o["N"] == 512 and o["index"] < 5)
with open(sys.argv[1] + "/run.json", "w") as f:
    f.write('{"model": "x"}')
PY
good 'too few samples to break a limit' report "$work/few" --fail-if 'macro_delta<99'
grep -q 'is not checked: it has too few samples for an interval' "$work/err" || fail "too few samples: $(cat "$work/err")"
rm -rf "$work/whole/report.html"
bad 'a limit of no result' 'no result is meant' report "$work/whole" --fail-if 'macro_delta<-5@policy=nobody'
bad 'a limit of no size' 'no result is meant' report "$work/whole" --fail-if 'macro_delta<-5@r=.123'
[ ! -e "$work/whole/report.html" ] || fail 'a limit of no result: a report was written'
good 'a limit that is kept' report "$work/whole" --fail-if 'macro_delta<-99@r=.75'

# ---- Files that a writer left unfinished, and bad input ----
cp -r "$work/shard0" "$work/torn"
printf '{"v":1,"task":"vt","N":10' >>"$work/torn/results.jsonl"
good 'a torn last line' report "$work/torn" --json
json 'a torn last line' "$work/out" 'o["runs"][0]["torn"] == 1'
printf '\n' >>"$work/torn/results.jsonl"
good 'a damaged last line' report "$work/torn"
head -n 1 "$work/shard0/results.jsonl" >>"$work/torn/results.jsonl"
bad 'a damaged line' 'results.jsonl. line [0-9]+: not JSON' report "$work/torn"

mkdir "$work/run"
cp "$work/whole/run.json" "$work/run"
line=$(head -n 1 "$work/whole/results.jsonl")
# refused NAME PATTERN SED: the second line is refused, and named.
refused() {
    printf '%s\n' "$line" >"$work/run/results.jsonl"
    printf '%s\n' "$line" | sed "$3" >>"$work/run/results.jsonl"
    printf '%s\n' "$line" >>"$work/run/results.jsonl"
    bad "$1" "run/results.jsonl. line 2: .*$2" report "$work/run"
}
refused 'another version' 'version 2' 's/"v": 1/"v": 2/'
refused 'no task' 'no text "task"' 's/"task"/"tusk"/'
refused 'a number as task' 'no text "task"' 's/"task": "[a-z_0-9]*"/"task": 3/'
refused 'a control character' 'control character' 's/"mode": "/&\\u0007/'
refused 'no index' '"index" is not' 's/"index"/"idx"/'
refused 'a negative index' '"index" is not' 's/"index": 0/"index": -1/'
refused 'a broken length' '"N" is not' 's/"N": [0-9]*/"N": 1.5/'
refused 'a score beyond 1' '"score" is 17' 's/"score": [01].0/"score": 17/'
refused 'a text as score' '"score" is not a number' 's/"score": [01].0/"score": "1"/'
refused 'another policy under the same name' "has the policy 'x' here" 's/"policy": "[a-z]*"/"policy": "x"/'
refused 'not an object' 'not a JSON object' 's/.*/[]/'

bad 'no folder' 'no folder' report
bad 'a folder that is not there' 'cannot open' report "$work/none"
bad 'a file' 'is not a folder' report "$work/whole/run.json"
bad 'an empty folder' 'run.json' report "$work/empty"
bad 'a folder twice' 'named twice' report "$work/whole" "$work/whole/."
: >"$work/run/results.jsonl"
bad 'no answers' 'no answers yet' report "$work/run"
printf '{"model":' >"$work/run/run.json"
bad 'a broken run.json' 'run.json. line 1: not JSON' report "$work/run"
bad 'one policy' 'does not name two' report "$work/whole" --compare snapkv
bad 'an unknown policy' 'did you mean snapkv' report "$work/whole" --compare snapkw,lagkv
bad 'a broken limit' 'write MEASURE' report "$work/whole" --fail-if 5
bad 'the results as output' 'is an input' report "$work/whole" -o "$work/whole/results.jsonl"
bad 'no place' 'there is no folder' report "$work/whole" -o "$work/none/r.html"
finish
