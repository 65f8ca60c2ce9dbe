# SPDX-License-Identifier: MIT
# winnow profile show and import: what is printed and drawn, files of other programs, bad input.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
tests=$(dirname "$0")/..
export WINNOW_CACHE=$work/cache # nobody's own profiles
for kind in srh layers compiler; do
    python3 "$tests/lib/make_profile.py" "$kind" 0123456789abcdef0123456789abcdef 3 4 2 32 >"$work/$kind.json"
done

good 'srh' profile show "$work/srh.json" && {
    grep -q '^profile of kind srh$' "$work/out" || fail 'srh: kind'
    grep -q '^model 0123456789abcdef0123456789abcdef: 3 layers, 4 query heads, 2 KV heads of 32 elements$' "$work/out" || fail 'srh: model'
    grep -Eq '^  text +"none, made for tests"$' "$work/out" || fail 'srh: data'
    grep -Eq '^  srh_mean +\[3\]\[4\] +[0-9.]+ to [0-9.]+, mean' "$work/out" || fail 'srh: range'
    grep -q '@' "$work/out" || fail 'srh: no map'
}
rm -rf "$work/made" && mkdir "$work/made"
good 'a picture' profile show "$work/layers.json" --map "$work/made/map.svg" &&
    python3 -c 'import sys, xml.etree.ElementTree as t; r = t.parse(sys.argv[1]).getroot(); sys.exit(sum(1 for x in r.iter() if x.tag.endswith("title")) != 3)' "$work/made/map.svg" || fail 'map.svg is not a picture of 3 layers'
good 'compiler' profile show "$work/compiler.json" --map "$work/made/map.svg" && grep -q 'entropy_edges' "$work/out" || fail 'compiler'

sed 's/"text": *"/"t\\u001bx\\u009bt": "\xc2\x9b31m /' "$work/srh.json" >"$work/hostile.json"
good 'control characters' profile show "$work/hostile.json" && {
    LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$work/out" && fail 'control characters reach the terminal'
    grep -Eq '^  t\?x\?t +"\?31m none, made for tests"$' "$work/out" || fail "control characters: $(grep 'made for' "$work/out" | cat -v)"
}

bad 'no profile' 'winnow profile show FILE' profile show
bad 'no such file' "nonexistent" profile show /nonexistent
bad 'the map over the profile' 'is an input' profile show "$work/srh.json" --map "$work/srh.json"
head -c 200 "$work/srh.json" >"$work/cut.json"
bad 'a file cut short' 'not JSON' profile show "$work/cut.json"
echo '{"0": [0, 1]}' >"$work/foreign.json"
bad 'a foreign file' 'winnow profile import' profile show "$work/foreign.json"
# A small file that says that it has gigabytes.
py "$work" <<'PY'
import json, sys
model = {"fingerprint": "0123456789abcdef0123456789abcdef", "n_layer": 4096, "n_head": 4, "n_head_kv": 2, "n_embd_head": 32}
json.dump({"format": "winnow-profile-1", "kind": "inputgate", "model": model, "settings": {"form": "mlp", "n_embd": 16384, "hidden": 15},
           "results": {"layers": [""] * 4096}}, open(sys.argv[1] + "/nothing.json", "w"))
settings = {"form": "linear", "n_embd": 32768}
json.dump({"format": "winnow-profile-1", "kind": "inputgate", "model": model, "settings": settings,
           "results": {"layers": ["A" * (((2 * 32768 + 2) * 4 + 2) // 3 * 4)] + [""] * 4095}}, open(sys.argv[1] + "/most.json", "w"))
PY
bad 'gates of no layer' 'gates of no layer' profile show "$work/nothing.json"
bad 'very many numbers' '268443648 numbers; tables of up to 268435456' profile show "$work/most.json"
bad 'half a command' 'needs one of: show, import' profile

# Thresholds of two layers, two entropy bins and two perplexity bins: the map of the mean has (1 + 0) / 2 in its first cell and 0 elsewhere.
compiler=$(ls share/profiles/smollm2-135m/compiler-b*.json | head -1)
py "$work" "$compiler" <<'PY'
import json, sys
o = json.load(open(sys.argv[2]))
L, H = o["model"]["n_layer"], o["model"]["n_head"]
r = o["results"]
r.update(entropy_edges=[1.0], ppl_edges=[2.0], default_ppl_bin=0, tau=[[[1.0 if l % 2 == 0 else 0.0, 0.0], [0.0, 0.0]] for l in range(L)])
r.pop("tau_learned", None); r.pop("tau_from", None)
o["settings"].update(entropy_bins=2, ppl_bins=2)
json.dump(o, open(sys.argv[1] + "/tau.json", "w"))
PY
good 'thresholds' profile show "$work/tau.json" --map "$work/tau.svg" && {
    grep -A3 '^tau, mean over the layers$' "$work/out" >"$work/mean"
    grep -q "perplexity bin across, entropy bin down; '.' = 0 .. '@' = 0.5$" "$work/mean" || fail "thresholds: $(cat "$work/mean")"
    sed -n 3p "$work/mean" | grep -q ' 0  @\.$' || fail "thresholds: $(cat "$work/mean")"
    sed -n 4p "$work/mean" | grep -q ' 1  \.\.$' || fail "thresholds: $(cat "$work/mean")"
    grep -A3 '^tau, bin = entropy bin \* 2 + perplexity bin$' "$work/out" | sed -n 3p | grep -q ' 0  @\.\.\.$' || fail 'thresholds of layers'
    grep -q 'perplexity bin' "$work/tau.svg" || fail 'the picture has no thresholds by perplexity'
}

# ---- import: the shapes of the model come from its profile of query statistics ----
good 'stats' calibrate stats -m "$model" --set pieces=1,length=64 -o "$work/stats.json"
good 'show stats' profile show "$work/stats.json" && grep -q 'filter, length of the vectors' "$work/out" || fail 'stats: no map of vectors'
py "$work" <<'PY'
import json, sys
work = sys.argv[1]
m = json.load(open(f"{work}/stats.json"))["model"]
L, H, G = m["n_layer"], m["n_head"], m["n_head_kv"]
json.dump({f"{l}-{h}": [l + h, l] for l in range(L) for h in range(H)}, open(f"{work}/scores.json", "w"))
open(f"{work}/gates.tsv", "w").write("".join("\t".join(str((l + g) % 3 / 2) for g in range(G)) + "\n" for l in range(L)))
PY
ids 600 >"$work/ids"
plan() { good "$1" plan -m "$model" --tokens "$work/ids" --policy "$2" --budget 100 --profile "$work/made.json" -o "$work/plan.json"; }
good 'as heads' profile import --kind heads -m "$model" "$work/scores.json" -o "$work/made.json" &&
    json 'as heads' "$work/made.json" 'o["kind"] == "heads" and o["results"]["score"][0][1] == 0.5 and o["data"]["file"] == "scores.json"' &&
    plan 'headkv' headkv
good 'as trad' profile import --kind trad -m "$model" "$work/scores.json" -o "$work/made.json" &&
    json 'as trad' "$work/made.json" 'o["kind"] == "srh" and set(o["results"]) == {"trad", "trad_mean"}' &&
    plan 'compresskv-traditional' compresskv-traditional+uniform
good 'as duo' profile import --kind duo --sink 8 --recent 16 -m "$model" "$work/gates.tsv" -o "$work/made.json" &&
    json 'as duo' "$work/made.json" 'o["settings"]["sink"] == 8 and o["results"]["alpha"][0][1] == 0.5' &&
    plan 'duoattention' duoattention:sinks=8
bad 'no kind' 'say what the file is with --kind' profile import "$work/scores.json" -o "$work/made/x.json"
bad 'no output' 'with -o' profile import --kind heads "$work/scores.json"
bad 'no file' 'winnow profile import' profile import --kind heads -o "$work/made/x.json"
bad 'another word' 'say srh, trad, heads, duo, layers, kvzap or fastkvzip' profile import --kind head -m "$model" "$work/scores.json" -o "$work/made/x.json"
bad 'the wrong kind' 'is not a number' profile import --kind duo -m "$model" "$work/scores.json" -o "$work/made/x.json"
bad 'no such foreign file' 'nonexistent' profile import --kind duo -m "$model" /nonexistent -o "$work/made/x.json"
bad 'over itself' 'is an input' profile import --kind heads -m "$model" "$work/scores.json" -o "$work/scores.json"
finish
