# SPDX-License-Identifier: MIT
# winnow calibrate inputgate and published gates: from texts or files to a scorer that is asked while tokens are read.
. "$(dirname "$0")/lib.sh"
calibrates inputgate
small=pieces=3,length=80
ids 200 >"$work/ids"

bad 'no gates yet' 'kind inputgate .*winnow calibrate inputgate' plan -m "$model" --tokens "$work/ids" --policy kvzap --ratio 0.5 -o "$work/made/p.json"
two_texts
good 'into the cache folder' calibrate inputgate -m "$model" -f "$work/texts" --set $small -t 1 &&
    json 'profile' "$made" 'o["kind"] == "inputgate" and o["settings"]["target"] == "kvzip" and o["settings"]["form"] == "linear" and
        len(o["results"]["thresholds"]) == 4 and o["results"]["thresholds"] == sorted(o["results"]["thresholds"]) and
        len(o["results"]["layers"]) == o["model"]["n_layer"] and len({len(x) for x in o["results"]["layers"]}) == 1'
for line in '^gates on hidden states from kvzip: [0-9]+ entries of each of 8 heads' '^words.txt +[-0-9.]+ +[-0-9.]+$' \
    '^threshold that keeps 12.5 %: tau=-?[0-9.]+$'; do
    grep -qE "$line" "$work/out" || fail "the report has no /$line/: $(cat "$work/out")"
done
seq -s ', ' 700 >"$work/few.txt" # each text makes two pieces where it can
good 'as long as the text lets pieces be' calibrate inputgate -m "$model" -f "$work/few.txt" --effort quick -t 1 -o "$work/few.json" &&
    json 'half a text' "$work/few.json" 'o["settings"]["pieces"] == 2 and 1000 <= o["settings"]["length"] < 3000'
tau=$(sed -n 's/^threshold that keeps 50 %: tau=//p' "$work/out")
good 'what is in it' profile show "$made" && grep -q '^layers, ' "$work/out" || fail "no table of layers: $(cat "$work/out")"

plan 'budget' --policy kvzap --budget 60 && json 'the size is exact' "$work/plan.json" "sum($counts) == 60 * 8 and len(set($counts)) > 1"
plan 'threshold' --policy "inputgate:recent=8+threshold:tau=$tau,window=8" && json 'threshold' "$work/plan.json" "8 * 12 < sum($counts) < 8 * 200"
plan 'the last stay' --policy fastkvzip+equal --budget 60 && json 'the last stay' "$work/plan.json" \
    'all(h[-4:] == [196, 197, 198, 199] and h[:4] == [0, 1, 2, 3] for l in o["layers"] for h in l["heads"])'
plan 'KVzip+ itself' --policy kvzip_plus --budget 60 && json 'KVzip+ itself' "$work/plan.json" "sum($counts) == 60 * 8"

# In every phase, and while decoding.
for evict in end layer chunk:64; do
    good "evict $evict" run -m "$model" --tokens "$work/ids" --policy inputgate+equal --ratio 0.5 --evict $evict --evict-every 8 -n 24 --json &&
        json "evict $evict" "$work/out" 'abs(o["kept_tokens_mean"] - 100) < 0.2'
done
good 'a threshold while decoding' run -m "$model" --tokens "$work/ids" --policy "inputgate+threshold:tau=$tau,window=8" --evict chunk:64 --evict-every 8 -n 24 --json

good 'KVzip+ as target' calibrate inputgate -m "$model" -f "$text" --set $small,target=kvzip_plus -t 1 -o "$work/plus.json" &&
    json 'KVzip+ as target' "$work/plus.json" 'o["settings"]["target"] == "kvzip_plus"'
good 'two threads' calibrate inputgate -m "$model" -f "$work/texts" --set $small -t 2 -o "$work/two.json"
same 'two threads' "$made" "$work/two.json"
killed "$work/cut.json.journal" '2 6' calibrate inputgate -m "$model" -f "$work/texts" --set $small -o "$work/cut.json"
good 'killed and taken up' calibrate inputgate -m "$model" -f "$work/texts" --set $small -t 1 -o "$work/cut.json"
same 'killed and taken up' "$made" "$work/cut.json"
# An evaluation reads once for policies with and without a profile, and goes on from one mode's piece to the next one's.
good 'asked in an evaluation' eval -m "$model" --no-gate --tasks niah_single_2 --lengths 600 --samples 1 --modes agnostic,aware,aware_full --policies keydiff,kvzap,inputgate+equal \
    --ratios 0.5 --profile "$made" -t 1 --quiet --out "$work/asked" &&
    py "$work/asked/results.jsonl" <<'PY' || fail "not every policy answered in every mode: $(cat "$work/err")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
got = {(r["mode"], r["policy"]) for r in rows if "score" in r}
assert got >= {(m, p) for m in ("agnostic", "aware", "aware_full") for p in ("keydiff", "kvzap", "inputgate", "full")}, sorted(got)
PY
# Contrasts are meant under the rule of eviction that all methods of a run have.
echo 'kvzap vs keydiff mode=agnostic size=ratio=0.5' >"$work/contrasts"
good 'decided while decoding' eval -m "$model" --no-gate --tasks niah_single_2 --lengths 600 --samples 2 --modes agnostic --policies keydiff,kvzap --ratios 0.5 --evict-every 4 \
    --contrasts "$work/contrasts" --profile "$made" -t 1 --quiet --out "$work/decoding" && {
    grep -q 'does not compare' "$work/err" && fail "a contrast is said to stay open: $(cat "$work/err")"
    grep -q 'kvzap minus keydiff, .*: n = 2' "$work/out" || fail "a contrast is not measured: $(grep minus "$work/out")"
}
bad 'of another model' 'was made for another model' plan -m "$models/tiny/tiny-qwen2.gguf" --tokens "$work/ids" --policy kvzap --budget 60 \
    --profile "$made" -o "$work/made/p.json"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than one line: $(cat "$work/err")"
bad 'pieces too long' 'read twice, do not fit' calibrate inputgate -m "$model" -f "$text" --set length=900000 -o "$work/made/s.json"

# Files of tensors as KVzap and Fast KVzip publish them, made up.
py "$made" "$work" <<'PY'
import json, random, struct, sys
made, work = sys.argv[1:]
with open(made) as f:
    o = json.load(f)
n, L, H, G = (o["settings"]["n_embd"], *(o["model"][k] for k in ("n_layer", "n_head", "n_head_kv")))
rng = random.Random(1)
def write(name, shapes):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for key, shape in shapes.items():
        count = 1
        for x in shape:
            count *= x
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *[rng.gauss(0, 0.1) for _ in range(count)])
    text = json.dumps(header).encode()
    with open(f"{work}/{name}.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
write("linear", {f"layers.{i}.{k}": s for i in range(L) for k, s in {"weight": [G, n], "bias": [G]}.items()})
write("mlp", {f"layers.{i}.{k}": s for i in range(L)
              for k, s in {"0.weight": [16, n], "0.bias": [16], "2.weight": [G, 16], "2.bias": [G]}.items()})
write("fast", {f"{i}.{k}": s for i in range(L)
               for k, s in {"q_proj.weight": [H * 4, n], "q_proj.bias": [H * 4], "k_proj.weight": [G * 4, n], "q_norm.weight": [4],
                            "k_norm.weight": [4], "k_base": [G, 1, 3, 4], "b": [G, 1, H // G]}.items()})
write("wide", {f"layers.{i}.{k}": s for i in range(L) for k, s in {"weight": [G, n + 1], "bias": [G]}.items()})
PY
for row in linear:kvzap:linear mlp:kvzap:mlp fast:fastkvzip:attention; do
    IFS=: read -r file kind form <<<"$row"
    good "import $file" profile import --kind "$kind" -m "$model" "$work/$file.safetensors" -o "$work/$file.json" &&
        json "import $file" "$work/$file.json" "o['kind'] == 'inputgate' and o['settings']['form'] == '$form' and o['settings']['imported_as'] == '$kind'"
    plan "plan by $file" --policy "inputgate+equal" --budget 60 --profile "$work/$file.json" && json "plan by $file" "$work/plan.json" "set($counts) == {60}"
done
bad 'gates of another width' 'the gates read hidden states of' profile import --kind kvzap -m "$model" "$work/wide.safetensors" -o "$work/made/x.json"
bad 'no gates of that kind' 'no gates of Fast KVzip' profile import --kind fastkvzip -m "$model" "$work/mlp.safetensors" -o "$work/made/x.json"
bad 'not a file of tensors' 'safetensors' profile import --kind kvzap -m "$model" "$text" -o "$work/made/x.json"
head -c 2000 "$work/mlp.safetensors" >"$work/cut.safetensors"
bad 'a file that was cut' 'cut.safetensors' profile import --kind kvzap -m "$model" "$work/cut.safetensors" -o "$work/made/x.json"
finish
