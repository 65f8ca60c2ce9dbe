# SPDX-License-Identifier: MIT
# winnow bench observe and winnow bench methods: what they print, not how fast anything is.
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
    python3 - "$work/m.csv" <<'PY' || fail "methods: CSV: $(cat "$work/m.csv")"
import csv, sys
rows = list(csv.DictReader(line for line in open(sys.argv[1]) if not line.startswith("#")))
sys.exit(not (len(rows) == 6 and all(r["why"] == "" and float(r["score_ms"]) >= 0 and None not in r.values() for r in rows)))
PY
}
# A method whose profile is missing is listed, not refused; every preset can be measured or says why not.
good 'all presets' bench methods -m "$tiny/tiny-llama.gguf" --lengths 64 --reps 1 -t 1 --json && {
    json 'why' "$work/out" 'all(m["measured"] != bool(m["why"]) for m in o["methods"])'
    json 'the list is that of winnow methods' "$work/out" 'len(o["methods"]) > 8 and o["methods"][0]["recipe"] == "full"'
}
good 'markdown' bench methods "${small[@]}" --policies snapkv --markdown &&
    { grep -Eq '^\| `snapkv` \| +-?[0-9]' "$work/out" || fail "markdown: $(cat "$work/out")"; }

bad 'longer than the context' 'do not fit' bench observe -m "$tiny/tiny-llama.gguf" --lengths 9000000
bad 'no policy of that name' 'snapkw' bench methods -m "$tiny/tiny-llama.gguf" --lengths 64 --policies snapkw
bad 'two forms' 'exclude' bench methods -m "$tiny/tiny-llama.gguf" --json --markdown
bad 'no such part of bench' 'unexpected' bench paint
"$WINNOW" help bench observe >"$work/out" && grep -q 'winnow bench observe' "$work/out" || fail 'help of a two-word command'
finish
