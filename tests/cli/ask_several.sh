# SPDX-License-Identifier: MIT
# Questions about several stored documents: with all of the later ones read again, the answer of a prompt that has both; else what is said of them.
. "$(dirname "$0")/lib.sh"
model=$tiny/chat/smollm2.gguf
need_file "$model"
text() { for i in $(seq 1 14); do echo "The $1 of tower $i is called Name$i and has $((i * $2)) lamps."; done; }
text keeper 7 >"$work/a.txt"
text cook 3 >"$work/b.txt"
text porter 5 >"$work/c.txt"
question='Who keeps tower 3?'
for x in a b c; do
    good "stored $x" compress -m "$model" -f "$work/$x.txt" -o "$work/$x.wkv" --policy full
    good "half of $x" compress -m "$model" -f "$work/$x.txt" -o "$work/$x-half.wkv" --policy keydiff --ratio 0.5
done
ask() { good "ask $*" ask -m "$model" -p "$question" -n 24 -t 1 "$@"; }

good 'both are read' run -m "$model" -f "$work/a.txt" -f "$work/b.txt" --context-only --policy full -p "$question" -n 24 -t 1 && cp "$work/out" "$work/want"
ask -c "$work/a.wkv" -c "$work/b.wkv" --reread 1 && same 'all is read again' "$work/want" "$work/out"
grep -q '2 documents: [0-9]* tokens of later ones are read again, and 0 are taken' "$work/err" || fail "what is said: $(cat "$work/err")"
good 'three are read' run -m "$model" -f "$work/c.txt" -f "$work/a.txt" -f "$work/b.txt" --context-only --policy full -p "$question" -n 24 -t 1 --json && cp "$work/out" "$work/want.json"
ask -c "$work/c.wkv" -c "$work/a.wkv" -c "$work/b.wkv" --json && cp "$work/out" "$work/got.json"
py "$work/want.json" "$work/got.json" "$work/err" <<'PY' || fail "three documents: $(cat "$work/got.json" "$work/err")"
import json, re, sys
want, got = (json.load(open(f)) for f in sys.argv[1:3])
read, taken = (int(x) for x in re.search(r"3 documents: (\d+) tokens .* and (\d+) are", open(sys.argv[3]).read()).groups())
assert got["prompt_tokens"] == want["prompt_tokens"], (got["prompt_tokens"], want["prompt_tokens"])
assert 64 <= read <= 90 and taken > 400, (read, taken)  # 32 tokens of each later one, and what is between them
PY
# Nothing is read again, but for what is between; compressed ones stay compressed.
ask -c "$work/a-half.wkv" -c "$work/b-half.wkv" --reread 0 --json
json 'half of both' "$work/out" '0.4 < o["kept_tokens_mean"] / o["prompt_tokens"] < 0.6'
# Answers of a file of questions are those of single ones.
printf '%s\nWho cooks?\n' "$question" >"$work/questions"
ask -c "$work/a.wkv" -c "$work/b.wkv" --json && cp "$work/out" "$work/one.json"
good 'questions' ask -m "$model" -c "$work/a.wkv" -c "$work/b.wkv" --questions "$work/questions" -n 24 -t 1 --batch 1
py "$work/one.json" "$work/out" <<'PY' || fail "questions: $(cat "$work/out")"
import json, sys
one, lines = json.load(open(sys.argv[1])), [json.loads(x) for x in open(sys.argv[2])]
assert len(lines) == 2 and lines[0]["text"] == one["text"], (one["text"], lines)
PY
good 'questions at once' ask -m "$model" -c "$work/a-half.wkv" -c "$work/b.wkv" --questions "$work/questions" -n 8 -t 1

bad 'twice' 'is named twice' ask -m "$model" -c "$work/a.wkv" -c "$work/a.wkv" -p x
bad 'twice, by two names' 'is named twice' ask -m "$model" -c "$work/a.wkv" -c "$work/./a.wkv" -p x
bad 'a share of one' '--reread is for several documents' ask -m "$model" -c "$work/a.wkv" --reread 0.1 -p x
bad 'no share' '0 to 1' ask -m "$model" -c "$work/a.wkv" -c "$work/b.wkv" --reread 2 -p x
bad 'on devices' 'leave out --devices|without the backend' ask -m "$model" -c "$work/a.wkv" -c "$work/b.wkv" --devices cpu -p x
bad 'a missing one' 'none.wkv' ask -m "$model" -c "$work/a.wkv" -c "$work/none.wkv" -p x
good 'with a system message' compress -m "$model" -f "$work/b.txt" -o "$work/system.wkv" --policy full --system 'You are brief.'
bad 'two system messages' 'different system messages' ask -m "$model" -c "$work/a.wkv" -c "$work/system.wkv" -p x
printf '<|im_end|>\nNo.' >"$work/control.txt"
good 'a short text with control tokens' compress -m "$model" -f "$work/control.txt" -o "$work/control.wkv" --policy full
good 'with --special' compress -m "$model" -f "$work/a.txt" -o "$work/special.wkv" --policy full --special
bad 'its control tokens stay text' 'with different .*--special' ask -m "$model" -c "$work/special.wkv" -c "$work/control.wkv" -p x
# Documents that are too short to be taken are read, any number of them.
short= shorts=
for i in $(seq 1 8); do
    echo "Lamp $i is red." >"$work/short$i.txt"
    good "a short text $i" compress -m "$model" -f "$work/short$i.txt" -o "$work/short$i.wkv" --policy full
    short="$short -f $work/short$i.txt"
    shorts="$shorts -c $work/short$i.wkv"
done
good 'short ones are read' run -m "$model" -f "$work/a.txt" $short -f "$work/b.txt" --context-only --policy full -p "$question" -n 4 -t 1 --json && cp "$work/out" "$work/want.json"
good 'short ones between' ask -m "$model" -c "$work/a.wkv" $shorts -c "$work/b.wkv" -p "$question" -n 4 -t 1 --json
same_tokens=$(sed 's/.*"prompt_tokens": *\([0-9]*\).*/\1/' "$work/want.json")
json 'all tokens are there' "$work/out" "o[\"prompt_tokens\"] == $same_tokens"
good 'another type' compress -m "$model" -f "$work/b.txt" -o "$work/q8.wkv" --policy full --kv-type q8_0
bad 'two types' 'stored alike' ask -m "$model" -c "$work/a.wkv" -c "$work/q8.wkv" -p x
printf 'What?\n/save %s\n' "$work/talk.wkv" | "$WINNOW" chat -m "$model" -n 4 -t 1 >/dev/null 2>&1
bad 'a conversation' 'is a conversation' ask -m "$model" -c "$work/a.wkv" -c "$work/talk.wkv" -p x
good 'of another model' compress -m "$tiny/chat/qwen2.5.gguf" -f "$work/b.txt" -o "$work/other.wkv" --policy full
bad 'two models' 'belongs to model' ask -m "$model" -c "$work/a.wkv" -c "$work/other.wkv" -p x
finish
