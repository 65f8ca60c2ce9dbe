# SPDX-License-Identifier: MIT
# winnow calibrate: profiles where methods find them, runs that are killed and go on, bad input. Tiny models answer no
# question, so their answers are fed.
. "$(dirname "$0")/lib.sh"
calibrates srh
numbered >"$work/text.txt"
small=facts=3,lengths=2,depths=3,shortest=560,longest=600,steps=12,forced=always
srh=(calibrate srh -m "$model" -f "$work/text.txt" --set "$small")

# ---- The default place, outputs, and the preset that reads the profile ----
good srh "${srh[@]}" --dump "$work/dump.csv" --export-probes "$work/probes.jsonl" --map "$work/map.svg"
grep -q 'scores are of 18 probes' "$work/out" || fail "report: $(cat "$work/out")"
json 'the profile' "$made" 'o["kind"] == "srh" and o["settings"]["facts"] == 3 and o["settings"]["k"] == 1 and
    o["results"]["forced"] and o["results"]["counted"] == 18 and o["data"]["texts"][0]["name"] == "text.txt"'
[ -e "$work/cache/profiles/tiny-llama/srh.journal" ] && fail 'the journal is left'
[ "$(wc -l <"$work/dump.csv")" -eq $((1 + 18 * 16)) ] || fail "dump: $(wc -l <"$work/dump.csv") lines"
[ "$(wc -l <"$work/probes.jsonl")" -eq 18 ] || fail "probes: $(wc -l <"$work/probes.jsonl") lines"
python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$work/map.svg" || fail 'the map is no XML'
for policy in 'compresskv:window=4+uniform' compresskv+uniform; do
    good "$policy finds it" plan -m "$model" --raw -p "$(head -c 300 "$work/text.txt")" --policy "$policy" --budget 40 -o "$work/plan.json"
done

# ---- Stopped and taken up again ----
good 'in one go' "${srh[@]}" -o "$work/whole.json" -t 1 --dump "$work/whole.csv"
same 'the same file twice' "$work/whole.json" "$made"

# started SIGNAL LINES: a run that gets the signal as soon as its journal has LINES lines.
started() {
    ended_by "$1" "$work/part.json.journal" "$2" "${srh[@]}" -o "$work/part.json" -t 1 --dump "$work/part.csv"
}
started INT 3
[ "$code" -eq 130 ] || fail "Ctrl-C: exit code $code, $(cat "$work/err")"
grep -q 'goes on from' "$work/err" || fail "Ctrl-C says: $(cat "$work/err")"
[ -e "$work/part.json" ] && fail 'Ctrl-C leaves a profile'
before=$(wc -l <"$work/part.json.journal")
started KILL $((before + 3))
[ "$code" -eq 137 ] || fail "SIGKILL: exit code $code"
[ "$(wc -l <"$work/part.json.journal")" -gt "$before" ] || fail 'the second run did not go on'
printf '{"unit":"forced probe' >>"$work/part.json.journal"

# What belongs to another run is refused, and stays.
cp "$work/part.json.journal" "$work/journal"
bad 'another setting' 'another steps: 12, and now it is 13' "${srh[@]/steps=12/steps=13}" -o "$work/part.json"
bad 'another effort' 'another effort' "${srh[@]}" -o "$work/part.json" --effort paper
bad 'another text' 'another texts' calibrate srh -m "$model" -f "$0" --set "$small" -o "$work/part.json"
bad 'another model' 'another fingerprint' calibrate srh -m "$tiny/tiny-qwen2.gguf" -f "$work/text.txt" --set "$small" -o "$work/part.json"
same 'the journal' "$work/part.json.journal" "$work/journal"

good 'the rest' "${srh[@]}" -o "$work/part.json" -t 2 --dump "$work/part.csv"
same 'profile of an interrupted run' "$work/whole.json" "$work/part.json"
same 'dump of an interrupted run' "$work/whole.csv" "$work/part.csv"
[ -e "$work/part.json.journal" ] && fail 'the journal is left'

# ---- Bad input ----
bad 'no kind' 'needs one of: srh' calibrate
bad 'unknown kind' 'needs one of: srh' calibrate shr
bad 'effort' "choose quick, normal or paper" "${srh[@]}" --effort little
bad 'setting' 'did you mean lengths' calibrate srh -m "$model" -f "$work/text.txt" --set lenghts=3
bad 'no such text' 'cannot open' calibrate srh -m "$model" -f nowhere.txt
bad 'a folder without texts' 'no \*\.txt' calibrate srh -m "$model" -f "$work/cache"
bad 'a short text' 'the text has 1[0-9]* tokens' calibrate srh -m "$model" -f "$work/text.txt" -o "$work/made/p.json" --set longest=2000
bad 'a short context' 'too short for a probe' calibrate srh -m "$model" -f "$work/text.txt" -o "$work/made/p.json" --set shortest=100,longest=150
bad 'no answers' 'answers none of 18 probes' "${srh[@]/forced=always/forced=auto}" -o "$work/made/p.json"
bad 'output over an input' 'input of this command' "${srh[@]}" -o "$work/text.txt"
bad 'no folder for the picture' 'there is no folder' "${srh[@]}" -o "$work/x.json" --map "$work/none/map.svg"
bad 'dump over the profile' 'named by two options' "${srh[@]}" -o "$work/x.json" --dump "$work/x.json"
ln -s "$work" "$work/link"
bad 'picture over the dump' 'named by two options' "${srh[@]}" -o "$work/x.json" --dump "$work/y" --map "$work/link/../$(basename "$work")/y"
bad 'dump over the model' 'input of this command' "${srh[@]}" -o "$work/x.json" --dump "$model"
# Journals that are damaged in the middle, or no files: refused by line, and left as they are.
started INT 4
[ "$(wc -l <"$work/part.json.journal")" -ge 4 ] || fail 'no journal of a few lines'
cp "$work/part.json.journal" "$work/journal"
damaged() { # damaged NAME PATTERN SED-PROGRAM
    sed "$3" "$work/journal" >"$work/part.json.journal"
    cp "$work/part.json.journal" "$work/edited"
    bad "$1" "$2" "${srh[@]}" -o "$work/part.json"
    same "$1: the journal" "$work/part.json.journal" "$work/edited"
}
damaged 'a line cut in the middle' 'line 3 of the journal .* is not JSON; remove the file' '3s/..$//'
damaged 'a line twice' 'line 4 of the journal .* is not what was expected there' '3p'
damaged 'a line that is missing' 'line 2 of the journal .* is not what was expected there' '2d'
damaged 'an empty line' 'line 3 of the journal .* is not JSON' '3s/.*//'
damaged 'a result that is none' 'has a result of .* that cannot be used' '2s/"result":.*/"result":[1]}/'
damaged 'a unit of nobody' 'line 2 of the journal .* is not what was expected there' '2s/.*/{"unit":"\\u001b[31m","result":{}}/'
rm "$work/part.json.journal"
mkfifo "$work/part.json.journal"
bad 'a pipe' 'is not a journal' "${srh[@]}" -o "$work/part.json"
rm "$work/part.json.journal"
mkdir "$work/part.json.journal"
bad 'a folder' 'opening the journal .* failed: Is a directory' "${srh[@]}" -o "$work/part.json"
rmdir "$work/part.json.journal"
mkdir "$work/texts"
mkfifo "$work/texts/a.txt"
bad 'a pipe among texts' 'a.txt. is not a regular file' calibrate srh -m "$model" -f "$work/texts" --set "$small" -o "$work/part.json"
as_others() { "$@"; }
[ "$(id -u)" -ne 0 ] || as_others() { setpriv --bounding-set=-dac_override,-dac_read_search "$@"; }
if as_others true 2>/dev/null; then
    mkdir -m 500 "$work/shut"
    as_others "$WINNOW" "${srh[@]}" -o "$work/shut" >"$work/out" 2>"$work/err"
    [ $? -eq 2 ] && grep -q 'opening the journal .*shut/srh.journal.* failed: Permission denied' "$work/err" || fail "a folder that may not be written: $(cat "$work/err")"
fi
printf 'my diary\n' >"$work/x.json.journal"
bad 'a file of that name' 'not a journal' "${srh[@]}" -o "$work/x.json"
[ "$(cat "$work/x.json.journal")" = 'my diary' ] || fail 'a file was overwritten'
finish
