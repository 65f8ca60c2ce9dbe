#!/bin/bash
# SPDX-License-Identifier: MIT
# scripts/rerun.py: a record is run again, and its answers are compared.
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.." || exit 1
llama=$tiny/tiny-llama.gguf
need_file "$llama"
export PYTHONDONTWRITEBYTECODE=1
tree=$work/tree
mkdir -p "$tree/docs/src" "$tree/records"
cp -r scripts "$tree"
records() { python3 "$tree/scripts/records.py" --winnow "$WINNOW" "$@" >"$work/out" 2>"$work/err"; }

# A record is run again: its command without the folder, with the contrasts of the record; fewer samples are a part of it.
echo 'snapkv vs full mode=agnostic size=ratio=0.5' >"$work/contrasts.txt"
good 'a run of a model' eval -m "$llama" -t 1 --quiet --no-gate --tasks niah_single_1 --lengths 600 --samples 3 --seed 5 --policies snapkv --contrasts "$work/contrasts.txt" \
    --out "$work/again"
records --add "$work/again" again || fail "a run cannot be taken in: $(cat "$work/err")"
rerun() { python3 "$tree/scripts/rerun.py" --winnow "$WINNOW" --file "tiny-llama.gguf=$llama" "$@" >"$work/out" 2>"$work/err"; }
rerun again || fail "a record cannot be run again: $(cat "$work/err")"
grep -q 'of 6 answers that both have: 6 texts, 6 answers and 6 scores are the same' "$work/out" || fail "again: $(cat "$work/out")"
rerun again --samples 2 --out "$work/fewer" || fail "fewer samples: $(cat "$work/err")"
grep -q 'of 4 answers that both have: 4 texts, 4 answers' "$work/out" || fail "fewer: $(cat "$work/out")"
cmp -s "$work/fewer/contrasts.txt" "$work/contrasts.txt" || fail 'the contrasts are not those of the record'
rerun nobody && fail 'a record that is not there was run'
grep -q 'there is no run nobody' "$work/err" || fail "nobody: $(cat "$work/err")"
python3 - "$tree/records/runs/again" <<'PY'
import gzip, json, pathlib, sys

path = pathlib.Path(sys.argv[1]) / "results.jsonl.gz"
rows = [json.loads(line) | {"pred": "another answer"} for line in gzip.decompress(path.read_bytes()).splitlines()]
path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))
PY
rerun again --samples 2 && fail 'other answers on the same kernel were not noticed'
grep -q '4 texts, 0 answers' "$work/out" || fail "other answers: $(cat "$work/out")"

# A run with a profile that does not ship, and a file that is another one now.
seq -f 'Sentence number %g says that all is well.' 1 400 >"$work/text.txt"
good 'a run of a text' eval -m "$llama" -t 1 --quiet --tasks ppl --text "$work/text.txt" --lengths 256 --samples 1 --policies snapkv --out "$work/of-text"
sed -i 's|"--quiet"|"--quiet","--profile","/elsewhere/mine.json"|' "$work/of-text/run.json"
records --add "$work/of-text" of-text || fail "a run of a text cannot be taken in: $(cat "$work/err")"
rerun of-text --file "text.txt=$work/text.txt" || fail "a run with a profile of its own: $(cat "$work/err" "$work/out")"
grep -q "the profile 'mine.json', which does not ship" "$work/out" && grep -q 'of 2 answers that both have: 2 texts' "$work/out" || fail "a profile: $(cat "$work/out")"
sed 's/well/bad/' "$work/text.txt" >"$work/other.txt"
rerun of-text --file "text.txt=$work/other.txt"
grep -q "text: the file is another one than the record's" "$work/out" || fail "another text: $(cat "$work/out")"
rerun of-text && fail 'a text that is not here was not missed'
grep -q 'say where it is with --file text.txt=PATH' "$work/err" || fail "no text: $(cat "$work/err")"

# The perturbation study has texts and no answers.
good 'a perturbation study' eval --study perturbation -m "$llama" -t 1 --quiet --text "$work/text.txt" --lengths 256 --samples 2 --ratios 0.8 --out "$work/perturbed"
records --add "$work/perturbed" perturbed || fail "a study cannot be taken in: $(cat "$work/err")"
rerun perturbed --file "text.txt=$work/text.txt" || fail "a study cannot be run again: $(cat "$work/err" "$work/out")"
grep -q 'of 4 changes that both have: 4 of the same token, 4 the same' "$work/out" || fail "the study: $(cat "$work/out")"
finish
