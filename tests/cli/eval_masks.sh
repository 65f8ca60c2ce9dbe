# SPDX-License-Identifier: MIT
# winnow eval --mask-heads: the answers of `winnow run --mask-heads`, and those of the full cache without masks.
. "$(dirname "$0")/lib.sh"
llama=$tiny/tiny-llama.gguf
need_file "$llama"
options=(eval -m "$llama" -t 1 --quiet --tasks niah_single_1 --lengths 800 --samples 1 --chat none)

sample_ids "$llama" "${options[@]:6}"

for phase in all decode; do
    good "$phase" "${options[@]}" --policies snapkv --ratios 0 --batch 1 --no-early-stop \
        --mask-heads 0-0,1-2/random:3:1 --mask-phase $phase --out "$work/$phase"
    for mask in 0-0,1-2 random:3:1; do
        good "run $mask $phase" run -m "$llama" -t 1 --tokens "$work/prompt.ids" -n 128 --json --mask-heads $mask --mask-phase $phase
        py "$work/$phase" "$work/out" $mask $phase <<'PY' || fail "$mask $phase"
import json, sys
folder, answer, mask, phase = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3], sys.argv[4]
rows = [json.loads(line) for line in open(folder + "/results.jsonl")]
configs = {c["config_id"]: c for c in json.load(open(folder + "/run.json"))["configs"]}
assert len(rows) == len(configs) == 5, (len(rows), len(configs))  # the full cache; two masks, each with full and snapkv
(plain,) = [r for r in rows if "mask" not in r]
assert plain["policy"] == "full" and "mask" not in configs[plain["config"]]
masked = [r for r in rows if r.get("mask") == mask]
assert sorted(r["policy"] for r in masked) == ["full", "snapkv"], masked
text = "".join(c if ord(c) >= 32 else "\n" for c in answer["text"].strip()).strip()
for r in masked:  # at ratio 0 SnapKV keeps everything
    c = configs[r["config"]]
    assert c["mask"] == mask and c.get("mask_phase", "all") == phase and c["reference"] == plain["config"], c
    assert r["pred"] == text and r["gen_tokens"] == len(answer["tokens"]), (r["pred"], text)
    assert r["pred"] != plain["pred"], r
    if phase == "decode":  # the first token is predicted before anything is masked; what follows is fed as a prompt is
        assert r["fgt"] is None and r["kl"] is None, r
    else:
        assert r["kl"] > 0, r
PY
    done
done

# The mean of the values in place of 0 is another config, with the answer of `winnow run`.
good 'mean' "${options[@]}" --policies snapkv --ratios 0 --batch 1 --no-early-stop --mask-heads 0-0,1-2 --mask-phase decode \
    --mask-form mean --out "$work/mean"
good 'run, mean' run -m "$llama" -t 1 --tokens "$work/prompt.ids" -n 128 --json --mask-heads 0-0,1-2 --mask-phase decode --mask-form mean
py "$work/mean" "$work/out" "$work/decode" <<'PY' || fail 'mean'
import json, sys
def rows(folder):
    configs = {c["config_id"]: c for c in json.load(open(folder + "/run.json"))["configs"]}
    masked = [r for r in map(json.loads, open(folder + "/results.jsonl")) if r.get("mask") == "0-0,1-2"]
    return masked, [configs[r["config"]] for r in masked]
mean, configs = rows(sys.argv[1])
zero, others = rows(sys.argv[3])
text = "".join(c if ord(c) >= 32 else "\n" for c in json.load(open(sys.argv[2]))["text"].strip()).strip()
assert len(mean) == 2 and {r["pred"] for r in mean} == {text}, (mean, text)
assert {c["mask_form"] for c in configs} == {"mean"} and not any("mask_form" in c for c in others)
assert {r["config"] for r in mean}.isdisjoint(r["config"] for r in zero) and {r["pred"] for r in zero} != {text}
PY

# Each mask is a method of its own in the report, and the full cache without masks is what all are compared with.
good 'report' report "$work/all" --json
py "$work/out" <<'PY' || fail 'report'
import json, sys
report = json.load(open(sys.argv[1]))
rows = report["runs"][0]["blocks"][0]["rows"]
assert sorted((r["policy"], r["more"]) for r in rows) == sorted(
    [("full", "")] + [(p, "mask=" + m) for p in ("full", "snapkv") for m in ("0-0,1-2", "random:3:1")]), rows
for r in rows:
    assert (r["macro"]["delta"] is None) == (r["more"] == ""), r
PY

good 'compare' report "$work/all" --json --compare snapkv,full
py "$work/out" <<'PY' || fail 'compare: with the full cache under the same mask, and without masks'
import json, sys
assert len(json.load(open(sys.argv[1]))["runs"][0]["compare"]) == 4
PY

# Scores that name masked heads belong to the run. A score falls, or rises, from head to head.
py "$work" <<'PY'
import json, sys
m = json.load(open(sys.argv[1] + "/all/run.json"))["model"]
n, heads = m["n_layer"] * m["n_head"], list(range(m["n_head"]))
for name, sign in ("falling", -1), ("rising", 1):
    score = [[0.5 + sign * (l * m["n_head"] + h) / (4 * n) for h in heads] for l in range(m["n_layer"])]
    json.dump({"format": "winnow-profile-1", "kind": "srh", "settings": {}, "data": {},
               "model": {k: m[k] for k in ("fingerprint", "n_layer", "n_head", "n_head_kv", "n_embd_head")},
               "results": {"srh": [sorted(heads, key=lambda h: -s[h]) for s in score], "srh_mean": score}},
              open(f"{sys.argv[1]}/{name}.json", "w"))
PY
scored=("${options[@]}" --policies snapkv --ratios 0.5 --mask-heads srh:top3 --out "$work/scored")
good 'scores of heads' "${scored[@]}" --profile "$work/falling.json"
good 'scores of heads, again' "${scored[@]}" --profile "$work/falling.json"
bad 'other scores of heads' '"mask_profile" differs' "${scored[@]}" --profile "$work/rising.json"

refused() { bad "$1" "$2" "${options[@]}" --out "$work/made/x" "${@:3}"; }
refused 'no such head' 'no query head 77-0' --mask-heads none/77-0
refused 'no list of heads' 'LAYER-HEAD' --mask-heads all
refused 'no masks' '--mask-heads is empty' --mask-heads /
refused 'a phase' "'often' is unknown" --mask-heads 0-0 --mask-phase often
refused 'a phase without heads' 'name them with --mask-heads' --mask-phase decode
WINNOW_CACHE=$work/cache refused 'no scores of heads' '--mask-heads needs a calibration profile of kind srh .*winnow calibrate srh' --mask-heads srh:top3
seq -f 'Sentence number %g says that all is well.' 1 40 >"$work/text.txt"
bad 'a text' 'masks nothing of --text' eval -m "$llama" --tasks ppl --text "$work/text.txt" --lengths 300 --samples 1 \
    --mask-heads 0-0 --mask-phase decode --out "$work/made/x"

finish
