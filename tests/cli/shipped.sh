# SPDX-License-Identifier: MIT
# The profiles that come with the command: found without any option, whole, of the model they are named after.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
mkdir -p "$work/cache/models"
seq 1300 | awk '{ print 500 + ($1 * 37) % 900 }' >"$work/ids"
head -400 "$work/ids" >"$work/fewer"
head -160 "$work/ids" >"$work/few"
checked=0
for file in share/profiles/*/*.json; do
    good "show $file" profile show "$file"
    json "$file: made by the command" "$file" '"effort" in o["settings"] and o["data"]["texts"][0]["name"] == "calibration.txt"'
    checked=$((checked + 1))
done
py share/profiles/* <<'PY' || fail 'profiles of one folder are of several models'
import json, pathlib, sys
for folder in map(pathlib.Path, sys.argv[1:]):
    prints = {json.load(open(f))["model"]["fingerprint"] for f in folder.glob("*.json")}
    assert len(prints) == 1 and len(prints.pop()) == 32, (folder, prints)
PY
# Texts keep the bytes that profiles were made from (64-bit FNV-1a): else no command makes those again.
py share/profiles/*/*.json <<'PY' || fail 'a text is not what a profile was made from'
import json, pathlib, sys
def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{h:016x}"
there = {path.name: (path.stat().st_size, fnv(path.read_bytes())) for path in pathlib.Path("share/text").rglob("*.txt")}
for path in sys.argv[1:]:
    for text in json.load(open(path))["data"]["texts"]:
        assert there[text["name"]] == (text["bytes"], text["hash"]), (path, text, there[text["name"]])
PY
# The statistics were shipped as digits before they were texts; these are the hashes of the numbers that the digits had.
py share/profiles <<'PY' || fail 'the statistics of queries are not the numbers that were shipped as digits'
import base64, hashlib, json, sys
hashes = {"smollm2-135m": "698b7b2da50a189eb6ce38b95febf14e9c8c832c2fc063bb83f5a58264971cab",
          "qwen2.5-coder-0.5b": "da1d255950e1ade89ae7dcc1cf3db439e34123aea495327e10b5bda0c4ab29a1"}
for model, known in hashes.items():
    results = json.load(open(f"{sys.argv[1]}/{model}/stats.json"))["results"]
    numbers = b"".join(base64.b64decode(x, validate=True) for key in ("query_mean", "query_std", "query_corr", "filter") for x in results[key])
    assert hashlib.sha256(numbers).hexdigest() == known, model
PY
for file in {smollm2-135m,qwen2.5-coder-0.5b}/{srh,layers,heads,stats,compiler-b128,compiler-b512,compiler-b1024,curves,shares}; do
    [ -f "share/profiles/$file.json" ] || fail "there is no profile $file"
done
for file in {smollm2-135m,qwen2.5-coder-0.5b}/{gate,inputgate} {smollm2-135m,qwen2.5-coder-0.5b,gemma-3-270m}/quality {gemma-3-270m,qwen2.5-coder-1.5b}/{shares,gate}; do
    [ -f "share/profiles/$file.json" ] || fail "there is no profile $file"
done
for policy in qfilters expected_attention-stats headkv criticalkv-headkv duoattention compresskv compresskv-traditional compilerkv lukv keydiff-shares kvgate kvzap triattention; do
    WINNOW_CACHE=$work/cache good "$policy" plan -m "$models/smollm2-135m.gguf" --tokens "$work/few" --policy "$policy" --budget $([ $policy = compilerkv ] && echo 256 || echo 128) -o "$work/plan.json"
done

# A quality in place of a size, with what was calibrated: some entries go, more of them where less is asked for, and a bound is met
# by one that was measured.
head -c 2400 share/text/held-out.txt >"$work/doc.txt"
on_doc=(-m "$models/smollm2-135m.gguf" -f "$work/doc.txt" --raw -n 1 -t 1)
for q in 0.6 0.9; do
    WINNOW_CACHE=$work/cache good "quality $q" run "${on_doc[@]}" --json --keep-quality $q && cp "$work/out" "$work/quality-$q.json"
done
py "$work"/quality-0.[69].json share/profiles/smollm2-135m/quality.json <<'PY' || fail 'the sizes are not those of the profile'
import json, sys
low, high, profile = (json.load(open(p)) for p in sys.argv[1:])
served = lambda q: any(loss <= 1 - q for name in ("replay", "kvgate", "inputgate") for loss in profile["results"].get(name, []))
ok = served(0.6) and served(0.9) and 0 < low["kept_tokens_mean"] < high["kept_tokens_mean"] < high["prompt_tokens"]
sys.exit(0 if ok else f"{low} {high}")
PY
for scorer in replay kvgate kvzap:recent=32; do # the gates that ship are those that were measured
    WINNOW_CACHE=$work/cache good "$scorer keeps a quality" plan -m "$models/smollm2-135m.gguf" --tokens "$work/few" --policy $scorer --keep-quality 0.6 -o "$work/plan.json"
done
for q in 0 1 1.2 -1 nan much; do
    WINNOW_CACHE=$work/cache bad "quality $q" '--keep-quality|not a number|no number' run "${on_doc[@]}" --keep-quality $q
done

# A table that was found and does not serve the size or the options is left out: one line, and the plan of the method without
# a table. One that was named is refused.
table=share/profiles/smollm2-135m/compiler-b512.json
plan() { printf '%s\n' plan -m "$models/smollm2-135m.gguf" --tokens "$work/fewer" -o "$work/made/plan.json" "$@"; }
export WINNOW_CACHE=$work/cache
left_out() { # NAME SIZE-OPTION SIZE RECIPE NEUTRAL-RECIPE
    rm -rf "$work/made" && mkdir "$work/made"
    mapfile -t args < <(plan --policy "$5" "$2" "$3")
    good "$1, no table" "${args[@]}" && cp "$work/made/plan.json" "$work/without.json"
    mapfile -t args < <(plan --policy "$4" "$2" "$3")
    good "$1" "${args[@]}" || return
    [ "$(grep -c 'warning' "$work/err")" -eq 1 ] && grep -q 'compiler profile that was found is left out' "$work/err" ||
        fail "$1: not one line that says so: $(cat "$work/err")"
    py "$work/without.json" "$work/made/plan.json" <<'PY' || fail "$1: not the plan without a table"
import json, sys
a, b = (json.load(open(name)) for name in sys.argv[1:])
a.pop("policy", None), b.pop("policy", None)
sys.exit(a != b)
PY
    mapfile -t args < <(plan --policy "$4" "$2" "$3" --profile "$table")
    bad "$1, named" 'compilerkv: the compiler profile was made' "${args[@]}"
}
left_out 'a budget' --budget 20 compilerkv compilerkv:table=none
left_out 'a ratio' --ratio 0.95 compilerkv-strict compilerkv-strict:table=none
left_out 'another window' --budget 300 compilerkv:window=32 compilerkv:window=32,table=none
mapfile -t args < <(plan --policy compilerkv --budget 300 --profile "$table")
good 'a size that it serves' "${args[@]}"
# 110 is less than half of its 512, and as much of 400 tokens as 512 of 1862: its share is a half, which serves from a quarter on.
mapfile -t args < <(plan --policy compilerkv --budget 110 --profile "$table")
good 'a share that it serves' "${args[@]}" && { grep -q 'made for a budget of 512, not 110' "$work/err" || fail "no word of the budget: $(cat "$work/err")"; }
# Of the tables that ship, the nearest is read; of two that are as near, the larger.
for of in 90:128 128:128 180:128 256:512 400:512 900:1024; do
    mapfile -t args < <(plan --policy compilerkv --budget ${of%:*} --tokens "$work/$([ ${of%:*} -lt 400 ] && echo fewer || echo ids)")
    good "the nearest table, $of" "${args[@]}" || continue
    read -r said < <(sed -n 's/.*made for a budget of \([0-9]*\), not.*/\1/p' "$work/err"; echo "${of%:*}")
    [ "$said" = "${of#*:}" ] || fail "the table for ${of%:*} is that of $said: $(cat "$work/err")"
done

# A file in the cache folder that cannot be used hides nothing: what is shipped is read, and a line says why.
own=$work/cache/profiles/smollm2-135m
mkdir -p "$own"
for kind in compiler-b300 stats; do
    head -c 300 "share/profiles/smollm2-135m/${kind/b300/b512}.json" >"$own/$kind.json"
done
rm -rf "$work/made" && mkdir "$work/made"
mapfile -t args < <(plan --policy qfilters --budget 300)
good 'a cut file of a kind that is needed' "${args[@]}" && { grep -q 'stats.json.*passed over' "$work/err" || fail "not passed over: $(cat "$work/err")"; }
mapfile -t args < <(plan --policy compilerkv --budget 300)
good 'a cut file of a kind that is welcome' "${args[@]}" && { grep -q 'compiler-b300.json.*passed over' "$work/err" || fail "not passed over: $(cat "$work/err")"; }
mapfile -t args < <(plan --policy qfilters --budget 300 --profile "$own/stats.json")
bad 'a cut file that was named' 'stats.json.*not JSON' "${args[@]}"
finish
