# SPDX-License-Identifier: MIT
# winnow compress, ask and inspect: the answers of stored documents are those of `run`, nothing is lost, and what cannot be
# used is refused.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
doc=$work/doc.txt more=$work/more.txt
for i in $(seq 1 12); do echo "The keeper of tower $i is called Name$i and has $((i * 7)) lamps."; done >"$doc"
echo 'A note was added: the bridge is closed.' >"$more"
small=(-m "$model" --policy snapkv:window=8+adakv --ratio 0.4)

# tokens FILE: those of the JSON objects in a file, one list a line.
tokens() { python3 -c 'import json, sys
for line in open(sys.argv[1]): print(json.loads(line)["tokens"])' "$1"; }

# same_answer NAME ARGS...: `ask` after `compress` with these arguments says what `run --context-only` says.
same_answer() {
    local name=$1
    shift
    good "$name: run" run "$@" -f "$doc" --context-only -p 'Who keeps tower 3?' -n 24 --json && cp "$work/out" "$work/run"
    good "$name: compress" compress "$@" -f "$doc" -o "$work/doc.wkv" || return
    good "$name: ask" ask -m "$model" -c "$work/doc.wkv" -p 'Who keeps tower 3?' -n 24 --json || return
    tokens "$work/run" >"$work/a"
    tokens "$work/out" >"$work/b"
    same "$name: answers" "$work/a" "$work/b"
    json "$name: fields" "$work/out" "set(json.load(open('$work/run'))) - {'chunks'} == set(o) and o['prompt_tokens'] == json.load(open('$work/run'))['prompt_tokens'] and o['kept_tokens_mean'] == json.load(open('$work/run'))['kept_tokens_mean']"
}
same_answer 'ragged' "${small[@]}"
same_answer 'a quantised cache with a tail' "${small[@]}" --kv-type q8_0 --kv-tail 32
same_answer 'q4_0' "${small[@]}" --kv-type q4_0
same_answer 'everything' -m "$model" --policy full
same_answer 'new positions' -m "$model" --policy streaming_llm-rerotated --budget 60 --evict chunk:100
same_answer 'settled' -m "$model" --policy lagkv:sink=4,lag=16
# What was noted of entries while they were read is stored with them, so that more can be added under the same rules.
same_answer 'sums of attention' -m "$model" --policy h2o --ratio 0.4
grep -aq '"numbers":{"attn_sum":[1-9]' "$work/doc.wkv" || fail 'sums of attention are not stored'
same_answer 'without a template' "${small[@]}" --raw
same_answer 'control tokens' "${small[@]}" --special --system 'Be brief.'

# What is printed.
good 'compress' compress "${small[@]}" -f "$doc" -o "$work/doc.wkv" --json &&
    json 'what was stored' "$work/out" "o['prompt_tokens'] > 100 and 0 < o['kv_bytes'] < o['kv_bytes_full'] and o['file_bytes'] == $(stat -c %s "$work/doc.wkv")"
long=$work/$(printf '%0251d' 0).wkv
good 'the longest name' compress "${small[@]}" -f "$doc" -o "$long" && [ "$(stat -c %s "$long")" -eq "$(stat -c %s "$work/doc.wkv")" ] || fail 'the longest name: no whole file'
rm -f "$long"
good 'the default policy' compress -m "$model" -f "$doc" -o "$work/default.wkv" && grep -q 'policy: .* overrides' "$work/err" || fail 'the default policy is not said'
cp "$work/doc.wkv" "$work/before"
printf 'Who keeps tower 3?\r\n\nHow many lamps has tower 5?\nWho?\n' >"$work/questions"
good 'a file of questions' ask -m "$model" -c "$work/doc.wkv" --questions "$work/questions" -n 9 && cp "$work/out" "$work/together" && {
    [ "$(wc -l <"$work/out")" -eq 3 ] || fail "not a line for each question: $(cat "$work/out")"
    sed -n 2p "$work/out" >"$work/second"
    json 'a question' "$work/second" "o['question'] == 'How many lamps has tower 5?' and len(o['tokens']) <= 9"
}
good 'one after the other' ask -m "$model" -c "$work/doc.wkv" --questions "$work/questions" -n 9 --batch 1 && {
    tokens "$work/out" >"$work/a"
    tokens "$work/together" >"$work/b"
    same 'together or one after the other' "$work/a" "$work/b"
}
good 'one of them alone' ask -m "$model" -c "$work/doc.wkv" -p 'How many lamps has tower 5?' -n 9 --json && {
    tokens "$work/out" >"$work/c"
    sed -n 2p "$work/a" | cmp -s - "$work/c" || fail 'a question alone has another answer'
}
good 'the text' ask -m "$model" -c "$work/doc.wkv" -p 'Who?' -n 5
same 'asking changed the file' "$work/before" "$work/doc.wkv"
good 'inspect' inspect "$work/doc.wkv" && grep -q '^tokens ' "$work/out" && grep -q '40 % removed' "$work/out" || fail "inspect: $(cat "$work/out")"
good 'inspect as JSON' inspect "$work/doc.wkv" --json &&
    json 'what is in it' "$work/out" "o['format'] == 'winnow-wkv' and o['document'].startswith('The keeper') and len(o['tokens']) == o['n_tokens'] and len(o['layers']) > 0 and all(p == sorted(p) for l in o['layers'] for p in l['heads'])"
cp "$work/out" "$work/stored.json"
good 'a plan' plan "${small[@]}" -f "$doc" --context-only -o "$work/plan.json"
good 'inspect a plan' inspect "$work/plan.json" && grep -q 'of .* tokens' "$work/out"
json 'the same entries' "$work/stored.json" "[l['heads'] for l in o['layers']] == [l['heads'] for l in json.load(open('$work/plan.json'))['layers']]"

# Adding documents: what both together would have been, where nothing is dropped.
good 'full' compress -m "$model" --policy full -f "$doc" -o "$work/full.wkv"
good 'added' compress -m "$model" -c "$work/full.wkv" -f "$more" -o "$work/both.wkv"
good 'asked' ask -m "$model" -c "$work/both.wkv" -p 'What is closed?' -n 12 --json && tokens "$work/out" >"$work/a"
good 'both at once' run -m "$model" --policy full -f "$doc" -f "$more" --context-only -p 'What is closed?' -n 12 --json && tokens "$work/out" >"$work/b"
same 'added or read at once' "$work/a" "$work/b"
good 'added under a recipe' compress -m "$model" -c "$work/doc.wkv" -f "$more" -o "$work/both.wkv"
good 'its recipe' inspect "$work/both.wkv" --json && json 'its recipe' "$work/out" "o['size'] == {'ratio': 0.4} and o['document'].endswith('closed.\n')"
same 'adding changed the file' "$work/before" "$work/doc.wkv"

# Several processes ask at once.
for i in 1 2 3; do "$WINNOW" ask -m "$model" -c "$work/doc.wkv" -p 'Who?' -n 5 >"$work/answer$i" 2>/dev/null </dev/null & done
wait
same 'asked at once' "$work/answer1" "$work/answer2"
same 'asked at once' "$work/answer1" "$work/answer3"

# Refused inputs leave no files.
made=$work/made
bad 'no output' 'Name a file with -o' compress "${small[@]}" -f "$doc"
bad 'no document' 'give one with -f' compress "${small[@]}" -o "$made/x.wkv"
bad 'no such folder' 'there is no folder' compress "${small[@]}" -f "$doc" -o "$made/none/x.wkv"
bad 'over the document' 'is an input' compress "${small[@]}" -f "$doc" -o "$doc"
bad 'a device' 'not a regular file' compress "${small[@]}" -f "$doc" -o /dev/full
bad 'a policy that needs the question' 'judges a document by its question' compress -m "$model" --policy kvcompose-aware --ratio 0.5 -f "$doc" -o "$made/x.wkv"
bad 'while generating' 'leave it out' compress "${small[@]}" --evict-every 8 -f "$doc" -o "$made/x.wkv"
bad 'an unknown policy' 'unknown|no method' compress -m "$model" --policy nothing -f "$doc" -o "$made/x.wkv"
bad 'added with a recipe' 'leave out --policy' compress "${small[@]}" -c "$work/doc.wkv" -f "$more" -o "$made/x.wkv"
for option in '--kv-type q8_0' '--kv-tail 32' '--kv-rotate off' '--evict chunk'; do
    bad "added with $option" "leave out ${option%% *}\$" compress -m "$model" $option -c "$work/doc.wkv" -f "$more" -o "$made/x.wkv"
    bad "asked with $option" "leave out ${option%% *}," ask -m "$model" $option -c "$work/doc.wkv" -p 'Who?'
done
bad 'asked with a profile' 'leave out --profile' ask -m "$model" --profile "$work" -c "$work/doc.wkv" -p 'Who?'
bad 'added to itself' 'is an input' compress -m "$model" -c "$work/doc.wkv" -f "$more" -o "$work/doc.wkv"
bad 'no stored document' 'Name a stored one' ask -m "$model" -p 'Who?'
bad 'no question' 'no question' ask -m "$model" -c "$work/doc.wkv"
bad 'two kinds of questions' 'exclude each other' ask -m "$model" -c "$work/doc.wkv" -p 'Who?' --questions "$work/questions"
echo >"$work/empty"
bad 'an empty file of questions' 'no question' ask -m "$model" -c "$work/doc.wkv" --questions "$work/empty"
bad 'no such file' 'cannot open' ask -m "$model" -c "$work/none.wkv" -p 'Who?'
bad 'a folder' 'is a directory' ask -m "$model" -c "$work" -p 'Who?'
bad 'a text' 'no stored cache' ask -m "$model" -c "$doc" -p 'Who?'
bad 'another model' 'belongs to model' ask -m "$tiny/tiny-qwen2.gguf" -c "$work/doc.wkv" -p 'Who?'
head -c 9000 "$work/doc.wkv" >"$work/cut.wkv"
bad 'cut off' 'cut off' ask -m "$model" -c "$work/cut.wkv" -p 'Who?'
bad 'inspecting what is cut off' 'cut off' inspect "$work/cut.wkv"
cp "$work/doc.wkv" "$work/flipped.wkv"
printf '\377' | dd of="$work/flipped.wkv" bs=1 seek=70000 conv=notrunc 2>/dev/null
bad 'a changed byte' 'checksum' ask -m "$model" -c "$work/flipped.wkv" -p 'Who?'
cp "$work/doc.wkv" "$work/newer.wkv"
printf '\002' | dd of="$work/newer.wkv" bs=1 seek=12 conv=notrunc 2>/dev/null
bad 'a newer version' 'newer program' ask -m "$model" -c "$work/newer.wkv" -p 'Who?'
cp "$work/doc.wkv" "$work/order.wkv"
printf '\001\002\003\004' | dd of="$work/order.wkv" bs=1 seek=8 conv=notrunc 2>/dev/null
bad 'another byte order' 'byte order' ask -m "$model" -c "$work/order.wkv" -p 'Who?'
python3 -c 'print("long " * 4000)' >"$work/long"
bad 'a question longer than the context' 'context has room' ask -m "$model" -c "$work/doc.wkv" --questions "$work/long"
bad 'inspecting nothing' 'which file' inspect
bad 'inspecting a text' 'neither a stored document nor a keep-plan' inspect "$doc"

# A disk that is full, or read-only.
mkdir "$work/disk"
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k none "$work/disk" 2>/dev/null; then
    "$WINNOW" compress "${small[@]}" -f "$doc" -o "$work/disk/x.wkv" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq 1 ] || fail "a full disk: exit code, $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "a full disk: not one line: $(cat "$work/err")"
    [ -z "$(ls -A "$work/disk")" ] || fail "a full disk: left $(ls -A "$work/disk")"
    mount -o remount,ro "$work/disk"
    bad 'a read-only disk' 'cannot write' compress "${small[@]}" -f "$doc" -o "$work/disk/x.wkv"
    umount "$work/disk"
fi

# Processes that are killed while they store: what was acknowledged is whole, and so is everything else that is there.
mkdir "$work/killed"
for i in $(seq 1 "${WNW_KILLS:-12}"); do
    "$WINNOW" compress -m "$model" --policy full -f "$doc" -o "$work/killed/$((i % 3)).wkv" >/dev/null 2>"$work/killed.err" </dev/null &
    pid=$!
    sleep "0.$(printf '%03d' $((i * 37 % 120)))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null && touch "$work/killed.acknowledged.$((i % 3))"
    for f in "$work"/killed/*.wkv; do
        [ ! -e "$f" ] || "$WINNOW" inspect "$f" >/dev/null 2>"$work/err" || fail "killed: $(cat "$work/err")"
    done
done
for i in 0 1 2; do
    [ ! -e "$work/killed.acknowledged.$i" ] || [ -e "$work/killed/$i.wkv" ] || fail "killed: document $i was acknowledged and is gone"
done
# Two that write the same file: one of them is there, whole.
for i in 1 2; do "$WINNOW" compress -m "$model" --policy full -f "$doc" -o "$work/killed/both.wkv" >/dev/null 2>&1 </dev/null & done
wait
good 'two writers' inspect "$work/killed/both.wkv"
finish
