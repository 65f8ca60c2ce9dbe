# SPDX-License-Identifier: MIT
# winnow calibrate shares: from texts to head budgets that any scorer takes, and what is refused.
. "$(dirname "$0")/lib.sh"
calibrates shares
small=pieces=2,shortest=60,longest=100,extra=140
ids 200 >"$work/ids"

bad 'no shares yet' 'kind shares .*winnow calibrate shares' plan -m "$model" --tokens "$work/ids" --policy keydiff+shares -o "$work/made/p.json"
two_texts
good 'into the cache folder' calibrate shares -m "$model" -f "$work/texts" --set $small -t 1 --dump "$work/one.csv" &&
    json 'profile' "$made" 'o["kind"] == "shares" and o["settings"]["target"] == "kvzip" and len(o["results"]["size"]) == 6 and
        all(abs(sum(map(sum, k)) / 8 - f) < 1e-6 for f, k in zip(o["results"]["size"], o["results"]["share"])) and
        o["settings"]["measured_pieces"] == 6 and set(o["results"]["overlap"]["texts"]) == {"words.txt", "numbers.txt"} and
        all(0 < x <= 1 for k in ("halves", "lengths", "extra") for x in o["results"]["overlap"][k])'
for line in '^layer   0 ' '^two halves of the pieces ' '^shorter and longer pieces ' '^the longest pieces and the others ' '^words.txt and the others '; do
    grep -q "$line" "$work/out" || fail "the report has no /$line/: $(cat "$work/out")"
done
good 'what is in it' profile show "$made" && grep -q '^share, ' "$work/out" || fail "no table of shares: $(cat "$work/out")"

for scorer in keydiff expected_attention random snapkv:window=16; do
    plan "$scorer" --policy "$scorer+shares" --budget 60 && {
        json "$scorer: the size is exact" "$work/plan.json" "sum($counts) == 60 * 8"
        json "$scorer: heads differ" "$work/plan.json" "len(set($counts)) > 1"
    }
    [ "$scorer" = keydiff ] && cp "$work/plan.json" "$work/keydiff.json"
done
plan 'the preset' --policy keydiff-shares --budget 60 && same 'the preset is the recipe' "$work/keydiff.json" "$work/plan.json"

# Reading layer by layer leaves the entries that compressing at the end does; chunks and decoding work too.
for evict in end layer chunk:64; do
    good "evict $evict" run -m "$model" --tokens "$work/ids" --policy keydiff+shares --ratio 0.5 --evict $evict --evict-every 8 -n 24 --json &&
        json "evict $evict" "$work/out" 'abs(o["kept_tokens_mean"] - 100) < 0.2'
done

bad 'below what was measured' '^winnow: .*measured down to 3\.[0-9]+ % of the entries, and the size leaves 2\.5 %' \
    plan -m "$model" --tokens "$work/ids" --policy keydiff+shares --budget 5 -o "$work/made/p.json"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than one line: $(cat "$work/err")"
good 'another target' calibrate shares -m "$model" -f "$text" --set $small --target kvcompose -t 1 -o "$work/kvcompose.json" &&
    json 'another target' "$work/kvcompose.json" 'o["settings"]["target"] == "kvcompose"'
plan 'the other target' --policy keydiff+shares --budget 60 --profile "$work/kvcompose.json"
bad 'of another model' 'was made for another model' plan -m "$models/tiny/tiny-qwen2.gguf" --tokens "$work/ids" --policy keydiff+shares --budget 60 \
    --profile "$made" -o "$work/made/p.json"

for after in 0.1 0.2 0.3; do
    timeout -s KILL $after "$WINNOW" calibrate shares -m "$model" -f "$work/texts" --set $small -o "$work/cut.json" --dump "$work/cut.csv" >/dev/null 2>&1 </dev/null
done
good 'killed and taken up, two threads' calibrate shares -m "$model" -f "$work/texts" --set $small -t 2 -o "$work/cut.json" --dump "$work/cut.csv"
same 'killed and taken up' "$made" "$work/cut.json"
same 'killed and taken up: measurements' "$work/one.csv" "$work/cut.csv"

bad 'no such target' 'target .*kvzip' calibrate shares -m "$model" -f "$text" --target snapkv -o "$work/made/s.json"
head -c 60 "$text" >"$work/short.txt"
bad 'text too short' 'at least 60' calibrate shares -m "$model" -f "$work/short.txt" --set $small -o "$work/made/s.json"
finish
