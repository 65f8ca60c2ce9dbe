# SPDX-License-Identifier: MIT
# winnow calibrate gradient: from texts to factors of layers, which kvzip:norm=gradient reads, and bad input.
. "$(dirname "$0")/lib.sh"
calibrates gradient
small='pieces=3,length=24,draws=2'
head -c 4000 "$text" >"$work/text.txt"
head -c 300 "$text" >"$work/doc.txt"
plan=(plan -m "$model" -f "$work/doc.txt" -t 1 --raw --policy kvzip:norm=gradient --ratio 0.5)

bad 'no profile yet' 'profile of kind gradient .*winnow calibrate gradient' "${plan[@]}" -o "$work/none.json"
good 'into the cache folder' calibrate gradient -m "$model" -f "$work/text.txt" --set $small -t 1 && {
    json 'profile' "$made" 'o["kind"] == "gradient" and o["settings"]["pieces"] == 3 and o["settings"]["length"] == 24 and
        o["settings"]["draws"] == 2 and o["settings"]["step"] == 0.05'
    json 'factors' "$made" 'len(o["results"]["gradient"]) == o["model"]["n_layer"] and min(o["results"]["gradient"]) > 0 and
        abs(sum(o["results"]["gradient"]) / o["model"]["n_layer"] - 1) < 1e-6'
    json 'halves' "$made" '[len(h) for h in o["results"]["halves"]] == [o["model"]["n_layer"]] * 2 and o["results"]["halves"][0] != o["results"]["halves"][1]'
    grep -q 'factors of layers, 3 pieces of 24 tokens' "$work/out" || fail "the report has no factors: $(cat "$work/out")"
}
good 'two threads' calibrate gradient -m "$model" -f "$work/text.txt" --set $small -t 2 -o "$work/two.json" && same 'any number of threads' "$made" "$work/two.json"
good 'the profile is shown' profile show "$made" && grep -q gradient "$work/out" || fail 'profile show does not list the factors'
good 'a plan' "${plan[@]}" -o "$work/plan.json" && json 'a plan' "$work/plan.json" '"norm=gradient" in o["policy"]'
bad 'more tokens than a batch' 'length' calibrate gradient -m "$model" -f "$work/text.txt" --set length=513 -o "$work/none.json"
bad 'no step' 'step' calibrate gradient -m "$model" -f "$work/text.txt" --set step=0 -o "$work/none.json"
head -c 10 "$text" >"$work/short"
bad 'a short text' 'the text' calibrate gradient -m "$model" -f "$work/short" --set $small -o "$work/none.json"
finish
