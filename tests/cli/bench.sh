# SPDX-License-Identifier: MIT
# winnow bench batch, bench observe and bench methods: what they print, not how fast anything is.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
small=(-m "$tiny/tiny-llama.gguf" --lengths 96,64 --reps 2 -t 1)

good 'observe' bench observe "${small[@]}" --json --csv "$work/o.csv" && {
    json 'lengths' "$work/out" '[l["n"] for l in o["lengths"]] == [96, 64]'
    json 'every row of every length' "$work/out" 'all(len(l["figures"]) == 11 for l in o["lengths"])'
    json 'spreads' "$work/out" \
        'all(f["ms"] is None or f["ms"]["min"] <= f["ms"]["median"] <= f["ms"]["max"] for l in o["lengths"] for f in l["figures"])'
    json 'window attention is measured' "$work/out" \
        'all(f["ms"]["median"] > 0 for l in o["lengths"] for f in l["figures"] if f["what"].startswith("window: att"))'
    [ "$(grep -c . "$work/o.csv")" -eq 26 ] || fail "observe: rows of the CSV: $(cat "$work/o.csv")"
}
good 'observe, as a table' bench observe "${small[@]}" && {
    grep -Eq 'window: attention and scores +[0-9.]+ +[0-9.]+ %.*target 3 %' "$work/out" || fail "no target: $(cat "$work/out")"
}

list=full,snapkv:window=16,kernel=5+adakv,lagkv
good 'methods' bench methods "${small[@]}" --policies $list --json --csv "$work/m.csv" && {
    json 'recipes of the list, at both lengths' "$work/out" \
        '[m["recipe"] for m in o["methods"]] == 2 * ["full", "snapkv:window=16,kernel=5+adakv", "lagkv"]'
    json 'all measured' "$work/out" 'all(m["measured"] and m["observe_ms"]["min"] >= 0 for m in o["methods"])'
    json 'half is kept' "$work/out" '[m["kept_tokens_mean"] for m in o["methods"]][:2] == [96, 48]'
    py "$work/m.csv" <<'PY' || fail "methods: CSV: $(cat "$work/m.csv")"
import csv, sys
rows = list(csv.DictReader(line for line in open(sys.argv[1]) if not line.startswith("#")))
sys.exit(not (len(rows) == 6 and all(r["why"] == "" and float(r["score_ms"]) >= 0 and None not in r.values() for r in rows)))
PY
}
# Policies that record the same while reading share a reading; windows and skipped tokens count, keys do not.
readings() {
    good "readings of $2" bench methods "${small[@]}" --policies "$2" --json &&
        json "$1 readings for $2" "$work/out" "o['observed_readings'] == $1 and o['plain_readings'] > $1 / 2"
}
readings 1 snapkv,adakv,criticalkv
readings 1 full,knorm,lagkv,kvcompose-aware,random
readings 2 snapkv,snapkv:window=16
readings 3 expected_attention,expected_attention:n_sink=2,h2o
readings 3 compilerkv-strict,compilerkv,noncausal

# A method whose profile is missing is listed, not refused; every preset can be measured or says why not.
all=(bench methods -m "$tiny/tiny-llama.gguf" --lengths 64 --reps 1 -t 1)
good 'all presets' "${all[@]}" --json --csv "$work/all.csv" && {
    cp "$work/out" "$work/all.json"
    json 'why' "$work/out" 'all(m["measured"] != bool(m["why"]) for m in o["methods"])'
    json 'only profiles are missing' "$work/out" 'all(m["measured"] or m["why"].startswith("needs a profile") for m in o["methods"])'
    json 'the list is that of winnow methods' "$work/out" 'len(o["methods"]) > 8 and o["methods"][0]["recipe"] == "full"'
    json 'a reading for each kind of record' "$work/out" \
        'o["observed_readings"] == len({m["recorded"] for m in o["methods"] if m["measured"]}) < len(o["methods"]) / 2'
    json 'one figure for a reading' "$work/out" \
        'len({m["extra_prefill_ms"]["median"] for m in o["methods"] if m["recorded"] == "window attention (window 32)" and m["measured"]}) == 1'
}
# Every row of the list, finite numbers, and the same ones in every form.
good 'all presets, as a table' "${all[@]}" --csv "$work/table.csv" && cp "$work/out" "$work/table" &&
    good 'all presets, as Markdown' "${all[@]}" --markdown --csv "$work/md.csv" && cp "$work/out" "$work/md" &&
    { py "$work" <<'PY' || fail 'methods: the forms differ'; }
import csv, json, math, re, sys
work = sys.argv[1]
def rows(name):
    with open(f"{work}/{name}.csv") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))
def near(a, b, digits):
    assert math.isfinite(a) and abs(a - b) <= 0.51 * 10 ** -digits + 0.005, (a, b)
costs = ("read", "observe", "score", "select", "compact")
names = [m["recipe"] for m in json.load(open(f"{work}/all.json"))["methods"]]
for table in "all", "table", "md":
    assert [r["recipe"] for r in rows(table)] == names
for m, r in zip(json.load(open(f"{work}/all.json"))["methods"], rows("all")):
    assert m["measured"] == (r["why"] == "") == (r["percent"] != ""), r
    if not m["measured"]:
        continue
    for key, column in (("plain_prefill_ms", "plain"), ("extra_prefill_ms", "read"), ("share_percent", "percent"),
                        *((c + "_ms", c) for c in costs[1:])):
        for spread, end in (("median", "" if column == "percent" else "_ms"), ("min", "_min"), ("max", "_max")):
            near(float(r[column + end]), m[key][spread], 2)
    all_ms = sum(m[k]["median"] for k in ("extra_prefill_ms", "observe_ms", "score_ms", "select_ms", "compact_ms"))
    near(100 * all_ms / m["plain_prefill_ms"]["median"], m["share_percent"]["median"], 2)
    if m["extra_peak_bytes"] is not None:
        near(float(r["extra_mib"]), m["extra_peak_bytes"] / 2**20, 2)
def same(line, r, numbers, first_digits):
    found = [float(x) for x in numbers(line)]
    want = [float(r[c + "_ms"]) for c in costs] + [float(r["percent" + e]) for e in ("", "_min", "_max")]
    assert len(found) >= len(want), line
    for i, (a, b) in enumerate(zip(found, want)):
        near(a, b, first_digits if i < 2 else 1)
for name, pattern, digits in ("table", "  {} ", 1), ("md", "| `{}` |", 0):
    lines = open(f"{work}/{name}").read().splitlines()
    for r in rows(name):
        line, = [l for l in lines if l.startswith(pattern.format(r["recipe"]))]
        line = line[len(pattern.format(r["recipe"])):]
        if r["why"]:
            assert r["why"] in line
        else:
            same(line, r, lambda l: re.findall(r"-?\d+(?:\.\d+)?", l), digits)
PY
good 'markdown' bench methods "${small[@]}" --policies snapkv --markdown &&
    { grep -Eq '^\| `snapkv` \| +-?[0-9]' "$work/out" || fail "markdown: $(cat "$work/out")"; }

# Several sequences at once: every number of sequences in every round, caches of different lengths.
good 'batch' bench batch "${small[@]}" --sequences 1,3,2 --decode-tokens 9 --ratio 0.75 --json && {
    json 'lengths and numbers of sequences' "$work/out" \
        '[(l["n"], [r["sequences"] for r in l["results"]]) for l in o["lengths"]] == [(96, [1, 3, 2]), (64, [1, 3, 2])]'
    json 'every figure' "$work/out" 'all(len(r["figures"]) == 9 for l in o["lengths"] for r in l["results"])'
    json 'spreads' "$work/out" \
        'all(0 < f["min"] <= f["median"] <= f["max"] for l in o["lengths"] for r in l["results"] for f in r["figures"])'
    json 'one sequence against itself' "$work/out" \
        'all(f["median"] == 1 for l in o["lengths"] for f in l["results"][0]["figures"] if "over_sequences" in f)'
    json 'a quarter is kept on average' "$work/out" \
        'all(abs(r["kept_per_head"]["mean"] - l["n"] / 4) <= 1 for l in o["lengths"] for r in l["results"])'
    json 'and caches differ' "$work/out" \
        'all(r["kept_per_head"]["most"] >= 2 * r["kept_per_head"]["fewest"] for l in o["lengths"] for r in l["results"][1:])'
    json 'full caches are larger' "$work/out" \
        'all(r["kv_bytes_full"] > r["kv_bytes_compressed"] > 0 for l in o["lengths"] for r in l["results"])'
}
good 'batch, as a table' bench batch "${small[@]}" --sequences 2 --decode-tokens 3 && {
    [ "$(grep -Ec '^ +2 +([0-9.]+ +){3}([0-9.]+x *){6}$' "$work/out")" -eq 2 ] || fail "batch: $(cat "$work/out")"
}
bad 'no sequences' 'is empty' bench batch -m "$tiny/tiny-llama.gguf" --sequences ,
bad 'too many sequences' '1 to 64' bench batch -m "$tiny/tiny-llama.gguf" --sequences 65
bad 'no number' 'not a whole number' bench batch -m "$tiny/tiny-llama.gguf" --sequences 2,x
bad 'no room to decode' 'do not fit' bench batch -m "$tiny/tiny-llama.gguf" --sequences 2 --lengths 9000000
bad 'longer than the context' 'do not fit' bench observe -m "$tiny/tiny-llama.gguf" --lengths 9000000
bad 'no policy of that name' 'snapkw' bench methods -m "$tiny/tiny-llama.gguf" --lengths 64 --policies snapkw
bad 'two forms' 'exclude' bench methods -m "$tiny/tiny-llama.gguf" --json --markdown
bad 'no such part of bench' 'unexpected' bench paint
"$WINNOW" help bench observe >"$work/out" && grep -q 'winnow bench observe' "$work/out" || fail 'help of a two-word command'
finish
