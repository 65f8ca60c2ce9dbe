# SPDX-License-Identifier: MIT
# winnow calibrate quality and --keep-quality: from texts to a bound on what is lost, and bad input.
. "$(dirname "$0")/lib.sh"
calibrates quality
small='length=40,next=8,pieces=36'
head -c 40000 "$text" >"$work/text.txt"
head -c 900 "$text" >"$work/doc.txt"
on_doc=(-m "$model" -f "$work/doc.txt" -t 1 --raw)

bad 'as servers have it' 'the option for that is --keep-quality 0.9' run "${on_doc[@]}" -n 1 --policy auto+quality:q=0.9
bad 'no profile yet' 'for --keep-quality needs a calibration profile of kind quality .*winnow calibrate quality' run "${on_doc[@]}" -n 1 --keep-quality 0.9
good 'into the cache folder' calibrate quality -m "$model" -f "$work/text.txt" --set $small -t 1 && {
    json 'profile' "$made" 'o["kind"] == "quality" and o["settings"]["quantile"] == 0.95 and o["settings"]["measured_pieces"] == 36'
    json 'losses' "$made" 'len(o["results"]["dropped"]) == 12 == len(o["results"]["replay"]) and o["results"]["replay"] == sorted(o["results"]["replay"])
        and all(0 <= x <= 1 for x in o["results"]["replay"])'
    json 'what stays' "$made" 'o["results"]["replay_kept"] == sorted(o["results"]["replay_kept"], reverse=True)'
    json 'held out' "$made" 'len(o["results"]["replay_held_out"]) == 5 and all(row[3] == 12 for row in o["results"]["replay_held_out"])'
    json 'no gate, no kvgate' "$made" '"kvgate" not in o["results"]'
    [ "$(grep -c 'held out' "$work/out")" -ge 5 ] || fail "the report does not say how held-out texts fare: $(cat "$work/out")"
}
good 'two threads' calibrate quality -m "$model" -f "$work/text.txt" --set $small -t 2 -o "$work/two.json" && same 'any number of threads' "$made" "$work/two.json"
good 'the profile is shown' profile show "$made" && grep -q replay_kept "$work/out" || fail 'profile show does not list what stays'

# The bounds are those of the losses: the largest worst loss but one of 24.
# --keep-quality: more quality, more entries; never more than all.
keep() {
    good "keep $1" run "${on_doc[@]}" -n 1 --json --keep-quality "$1" "${@:2}" && cp "$work/out" "$work/keep-$1.json"
}
q=$(python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))["results"]
print(1 - r["replay"][-1] - 1e-6, 1 - r["replay"][2] - 1e-6)' "$made")
low=${q% *} high=${q#* }
keep "$low" && keep "$high" && py "$work/keep-$low.json" "$work/keep-$high.json" <<'PY' || fail 'more quality does not keep more'
import json, sys
low, high = (json.load(open(p)) for p in sys.argv[1:])
ok = low["kept_tokens_mean"] < high["kept_tokens_mean"] < high["prompt_tokens"] and low["choice"]["policy"].startswith("replay+quality:q=")
sys.exit(0 if ok else f"{low} {high}")
PY
keep 0.999999 && json 'all of it' "$work/keep-0.999999.json" 'o["kept_tokens_mean"] == o["prompt_tokens"]' &&
    grep -q 'all entries stay' "$work/err" || fail "nothing says that all entries stay: $(cat "$work/err")"
good 'a named scorer' plan "${on_doc[@]}" --policy replay:m=16 --keep-quality "$low" -o "$work/plan.json" &&
    json 'a named scorer' "$work/plan.json" '"replay:form=sparse" in o["policy"] and "m=16" in o["policy"] and "quality:q=" in o["policy"]'
good 'ppl' ppl -m "$model" -f "$work/doc.txt" -t 1 --keep-quality "$low" --json && json 'ppl' "$work/out" 'o["kept_tokens_mean"] < o["prefix_tokens"]'

# With a gate both are measured, and the one with which less stays is taken.
good 'a gate' calibrate gate -m "$model" -f "$work/text.txt" --set pieces=3,length=80 -t 1
good 'both scorers' calibrate quality -m "$model" -f "$work/text.txt" --set $small -t 1 -o "$work/both.json" &&
    json 'both scorers' "$work/both.json" 'len(o["results"]["kvgate"]) == 12 and len(o["results"]["kvgate_held_out"]) == 5'
good 'kvgate by name' plan "${on_doc[@]}" --policy kvgate --keep-quality "$low" --profile "$work/both.json" -o "$work/plan.json" &&
    json 'kvgate by name' "$work/plan.json" 'o["policy"].startswith("kvgate+")'

# Gates on hidden states, too; and gates that are not those that were measured.
good 'gates on hidden states' calibrate inputgate -m "$model" -f "$work/text.txt" --set pieces=3,length=80 -t 1
good 'three scorers' calibrate quality -m "$model" -f "$work/text.txt" --set $small -t 1 -o "$work/three.json" &&
    json 'three scorers' "$work/three.json" 'len(o["results"]["inputgate"]) == 12 and len(o["settings"]["inputgate"]) == 16
        and o["results"]["kvgate"] == json.load(open(sys.argv[1].replace("three", "both")))["results"]["kvgate"]'
good 'kvzap by name' plan "${on_doc[@]}" --policy kvzap:recent=32 --keep-quality "$low" --profile "$work/three.json" -o "$work/plan.json" &&
    json 'kvzap by name' "$work/plan.json" 'o["policy"].startswith("inputgate:sinks=4,recent=32") and "quality:q=" in o["policy"]'
head -c 150 "$text" >"$work/short.txt" # within twice the pieces of the gates
for scorer in replay kvgate inputgate; do # the one with which least stays is taken
    python3 - "$work/three.json" $scorer >"$work/$scorer.json" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
for name in ("replay", "kvgate", "inputgate"):
    o["results"][name + "_kept"] = [0.1 if name == sys.argv[2] else 0.9] * 12
    o["results"][name] = [0.01] * 12
print(json.dumps(o))
PY
    good "takes $scorer" run -m "$model" -f "$work/short.txt" -t 1 --raw -n 1 --json --keep-quality 0.9 --profile "$work/$scorer.json" &&
        json "takes $scorer" "$work/out" "o['choice']['policy'].startswith('kvzap:recent=32+' if '$scorer' == 'inputgate' else '$scorer+')"
done
good 'other gates' calibrate inputgate -m "$model" -f "$work/text.txt" --set pieces=2,length=90 -t 1
bad 'a bound of other gates' 'another profile of kind inputgate' run "${on_doc[@]}" -n 1 --policy kvzap:recent=32 --keep-quality 0.9 --profile "$work/inputgate.json"
good 'a bound of other gates is not chosen by' run "${on_doc[@]}" -n 1 --json --keep-quality 0.9 --profile "$work/inputgate.json" &&
    json 'a bound of other gates is not chosen by' "$work/out" 'not o["choice"]["policy"].startswith("kvzap")'

# Bad input.
for q in 0 1 -0.5 1.5 nan 1e-9; do
    bad "quality $q" '--keep-quality|not a number|no number' run "${on_doc[@]}" -n 1 --keep-quality "$q"
done
bad 'a size too' 'exclude each other' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --ratio 0.5
bad 'scores that say nothing' 'second reading' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --policy snapkv
bad 'everything' 'second reading' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --policy full
bad 'by chunk' 'end of a prompt' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --policy replay --evict chunk
bad 'by layer' 'evict layer' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --evict layer
bad 'a scorer that was not measured' 'scores of kvgate' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --policy kvgate
sed 's/"fingerprint":"[0-9a-f]*"/"fingerprint":"0123456789abcdef0123456789abcdef"/' "$made" >"$work/other.json"
bad 'the profile of another model' 'another model|belongs to|fingerprint' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --profile "$work/other.json"
for fault in 's/"replay":\[/"replay":[0.99999,/' 's/"replay":/"other":/' 's/"dropped":\[0.0005/"dropped":[0.6/'; do
    sed "$fault" "$made" >"$work/bad.json"
    bad "damaged, $fault" 'bad.json' run "${on_doc[@]}" -n 1 --keep-quality 0.9 --profile "$work/bad.json"
done
bad 'too few pieces' '95 %' calibrate quality -m "$model" -f "$work/text.txt" --set length=40,next=8,pieces=20 -o "$work/made/x.json"
bad 'pieces too long' "context" calibrate quality -m "$model" -f "$work/text.txt" --set length=900000 -o "$work/made/x.json"
bad 'a passage longer than the piece' 'next is 50 and length 40' calibrate quality -m "$model" -f "$work/text.txt" --set length=40,next=50 -o "$work/made/x.json"
bad 'an unknown setting' 'did you mean length' calibrate quality -m "$model" -f "$work/text.txt" --set lenght=40 -o "$work/made/x.json"

# Shares below what was measured, and replay beyond the trained context.
good 'shares' calibrate shares -m "$model" -f "$work/text.txt" --set pieces=2,shortest=60,longest=80,extra=90 -t 1
bad 'shares for a size below the measured ones' 'measured down to' run "${on_doc[@]}" -n 1 --policy keydiff+shares --ratio 0.99
for i in $(seq 400); do echo "Note $i: nothing happened in town number $i."; done >"$work/long.txt"
bad 'replay beyond the trained context' 'context' run -m "$model" -f "$work/long.txt" -n 1 -t 1 --raw --policy replay --ratio 0.5
finish
