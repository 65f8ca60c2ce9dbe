# SPDX-License-Identifier: MIT
# winnow chat: its answers are those of `run`, turns that were taken back leave no trace, conversations go on from files, and a
# context without an end stays within its bounds. conversation.py types at a terminal.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
need_file "$models/smollm2-135m.gguf"
export XDG_STATE_HOME=$work/state
doc=$work/doc.txt more=$work/more.txt
for i in $(seq 1 12); do echo "The keeper of tower $i is called Name$i and has $((i * 7)) lamps."; done >"$doc"
echo 'A note was added: the bridge is closed.' >"$more"
long="Tell me more of this: $(for i in $(seq 1 12); do echo -n "tower $i has $((i * 3)) doors, "; done)and so on."
first='Who keeps tower 3?' second='And how many lamps has it?'
ratio=(--policy snapkv:window=8+adakv --ratio 0.4)

# talk NAME LINES ARGS...: a conversation of these lines, which must end well; answers are in $work/out.
talk() {
    local name=$1 lines=$2 code
    shift 2
    printf '%b' "$lines" | "$WINNOW" chat "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ "$code" -eq 0 ] || fail "$name: exit code $code: $(cat "$work/err")"
    [ "$code" -eq 0 ]
}

# ---- A turn is what `run` says ----
# as_run NAME ARGS...
as_run() {
    local name=$1
    shift
    good "$name: run" run -m "$model" "$@" -n 16 -p "$first" && cp "$work/out" "$work/run"
    local args=()
    for a in "$@"; do [ "$a" = --context-only ] || args+=("$a"); done
    talk "$name" "$first" -m "$model" "${args[@]}" -n 16 && same "$name" "$work/run" "$work/out"
}
as_run 'a document' -f "$doc" --context-only "${ratio[@]}"
as_run 'everything' -f "$doc" --context-only --policy full
as_run 'a chosen policy' -f "$doc" --context-only --budget 64
as_run 'a quantised cache' -f "$doc" --context-only --kv-type q8_0 --kv-tail 32 --policy knorm --budget 50
as_run 'by layer' -f "$doc" --context-only --policy snapkv --ratio 0.5 --evict layer
as_run 'while generating' -f "$doc" --context-only --policy snapkv:window=8 --budget 64 --evict-every 4
as_run 'settled' -f "$doc" --context-only --policy lagkv:sink=4,lag=16
as_run 'no document'
as_run 'a system message' --system 'Be brief.'
as_run 'without a template' --raw
as_run 'sampled' -f "$doc" --context-only --temp 1.5 --seed 7
as_run 'control tokens' -f "$doc" --context-only --special
good 'a long prompt' run -m "$model" --policy snapkv --budget 64 -n 16 -p "$long" && cp "$work/out" "$work/run"
talk 'a long prompt' "$long" -m "$model" --policy snapkv --budget 64 -n 16 && same 'a long prompt' "$work/run" "$work/out"

# ---- Turns that were taken back ----
# undone NAME ARGS...: after `/undo` a question gets the answer that it gets without the turn.
undone() {
    local name=$1
    shift
    talk "$name" "$first\n$second" -m "$model" "$@" -n 12 && cp "$work/out" "$work/straight"
    talk "$name: taken back" "$first\n$long\n/undo\n$second" -m "$model" "$@" -n 12 || return
    tail -n "$(wc -l <"$work/straight")" "$work/out" >"$work/all"
    tail -n +2 "$work/straight" >"$work/a"
    tail -n "$(wc -l <"$work/a")" "$work/out" >"$work/b"
    same "$name: after /undo" "$work/a" "$work/b"
    grep -q '1 turns are left' "$work/err" || fail "$name: $(cat "$work/err")"
}
undone 'everything' -f "$doc" --policy full
undone 'no document' --policy full
undone 'compressed meanwhile' -f "$doc" --policy snapkv:window=8 --budget 64
undone 'without a window' -f "$doc" --policy knorm --budget 64
undone 'a ratio' -f "$doc" "${ratio[@]}"
undone 'sums' -f "$doc" --policy h2o --budget 64
undone 'while generating' -f "$doc" --policy snapkv:window=8 --budget 64 --evict-every 4
undone 'new positions' -f "$doc" --context endless --budget 100
talk 'the first turn' "$long\n/undo\n$second" -m "$model" -f "$doc" "${ratio[@]}" -n 12 && tail -n 1 "$work/out" >"$work/b"
talk 'without it' "$second" -m "$model" -f "$doc" "${ratio[@]}" -n 12 && tail -n 1 "$work/out" >"$work/a"
same 'the first turn taken back' "$work/a" "$work/b"

# ---- Another system message ----
# The document is read again after it.
for size in --policy=full --policy=knorm; do
    talk 'a system message from the start' "$first" -m "$model" -f "$doc" "$size" --ratio 0.4 -n 12 --system 'Be brief.' && tail -n 1 "$work/out" >"$work/a"
    talk 'a system message later' "$second\n/system Be brief.\n$first" -m "$model" -f "$doc" "$size" --ratio 0.4 -n 12 && tail -n 1 "$work/out" >"$work/b"
    same "a system message later ($size)" "$work/a" "$work/b"
done

# ---- Sizes hold turn after turn ----
talk 'a budget' "$long\n$long\n$long\nWell?\n/stats" -m "$model" -f "$doc" --policy snapkv:window=8 --budget 64 -n 8 &&
    awk '/^entries/ { exit !($2 < 64 + 128 + 2 * 8) }' "$work/err" || fail "a budget over turns: $(cat "$work/err")"
talk 'a ratio' "$long\n$long\n$long\n/stats" -m "$model" -f "$doc" --policy knorm --ratio 0.5 -n 8 &&
    awk '/^turns/ { n = $3 } /^entries/ { exit !($2 > 0.45 * n && $2 < 0.5 * n + 256) }' "$work/err" || fail "a ratio counts all turns: $(cat "$work/err")"
talk 'changes' "/policy knorm\n/size 50\n$long\n$second\n/size 0.5\n/policy auto\n/stats\n/reread\n$first" -m "$model" -f "$doc" -n 8 ||
    fail "changes on the way: $(cat "$work/err")"

# ---- Files ----
# goes_on NAME ARGS...: a conversation that was saved and opened goes on as if it had not been.
goes_on() {
    local name=$1
    shift
    talk "$name" "$first\n$long\n$second" -m "$model" "$@" -n 12 && tail -n 1 "$work/out" >"$work/a"
    talk "$name: saved" "$first\n$long\n/save $work/talk.wkv" -m "$model" "$@" -n 12
    local context=()
    case "$*" in *endless*) context=(--context endless) ;; esac
    talk "$name: goes on" "$second\n/stats" -m "$model" -c "$work/talk.wkv" "${context[@]}" -n 12 && tail -n 1 "$work/out" >"$work/b"
    same "$name: goes on" "$work/a" "$work/b"
    grep -q '^turns     3,' "$work/err" || fail "$name: turns of the file are missing: $(cat "$work/err")"
    printf '%s\n' "$first" "$second" >"$work/questions"
    good "$name: asked" ask -m "$model" -c "$work/talk.wkv" -p "$second" -n 12 && tail -n 1 "$work/out" >"$work/b" && same "$name: asked" "$work/a" "$work/b"
    good "$name: asked twice" ask -m "$model" -c "$work/talk.wkv" --questions "$work/questions" --batch 1 -n 12 &&
        python3 -c 'import json, sys; print(json.loads(sys.stdin.read().splitlines()[1])["text"].rstrip("\n").split("\n")[-1])' <"$work/out" >"$work/b" && same "$name: asked twice" "$work/a" "$work/b"
}
goes_on 'full' -f "$doc" --policy full
goes_on 'compressed' -f "$doc" "${ratio[@]}"
goes_on 'no document' --system 'Be brief.' --policy full
goes_on 'new positions' -f "$doc" --context endless --budget 100
talk 'a turn of the file taken back' "/undo\n$second" -m "$model" -c "$work/talk.wkv" -n 12 --policy full

# --resume: a conversation in three parts is one conversation, with or without a new turn.
talk 'in one go' "$first\n$second\n$long" -m "$model" -n 12 --policy full && cp "$work/out" "$work/a"
: >"$work/b"
for turn in "$first" "$second" "$long"; do
    talk 'resumed' "$turn" -m "$model" -n 12 --policy full --resume "$work/resumed.wkv" && cat "$work/out" >>"$work/b"
done
same 'a conversation in parts' "$work/a" "$work/b"
talk 'nothing was said' '/stats' -m "$model" -n 12 --resume "$work/resumed.wkv"
bad 'two files' 'exclude each other' chat -m "$model" -c "$work/talk.wkv" --resume "$work/resumed.wkv"
bad 'another ending' 'ends with .wkv' chat -m "$model" --resume "$work/talk.txt"
bad 'a document again' 'leave out -f' chat -m "$model" -f "$doc" --resume "$work/resumed.wkv"
cp "$doc" "$doc.wkv"
bad 'no session' 'no stored cache' chat -m "$model" --resume "$doc.wkv"
talk 'a document' "/save $work/doc.wkv" -m "$model" -f "$doc" "${ratio[@]}"
good 'and asked' ask -m "$model" -c "$work/doc.wkv" -p "$first" -n 16 && cp "$work/out" "$work/a"
talk 'and talked about' "$first" -m "$model" -c "$work/doc.wkv" -n 16 && same 'a stored document' "$work/a" "$work/out"
good 'compressed' compress -m "$model" --policy full -f "$doc" -o "$work/full.wkv"
good 'added' compress -m "$model" -c "$work/full.wkv" -f "$more" -o "$work/both.wkv"
talk 'documents added one by one' "$first\n/undo\n$second\n/save $work/talk.wkv" -m "$model" -c "$work/both.wkv" -n 8
talk 'and saved' "$first" -m "$model" -c "$work/talk.wkv" -n 8
talk 'a text for a turn' "/file $more\nWhat is closed?\n/save $work/talk.txt" -m "$model" -n 8 && grep -q '^> (a text of 40 bytes)' "$work/talk.txt" || fail 'a text for a turn'
cp "$work/out" "$work/a"
good 'as a document' run -m "$model" -f "$more" --context-only --policy full -p 'What is closed?' -n 8 && same 'a text for a turn' "$work/out" "$work/a"
talk 'two texts' "/file $more\nWhat is closed?" -m "$model" -f "$doc" --policy full -n 8 && cp "$work/out" "$work/a"
good 'two documents' run -m "$model" -f "$doc" -f "$more" --context-only --policy full -p 'What is closed?' -n 8 && same 'two texts' "$work/out" "$work/a"
talk 'kept' "$first" -m "$model" -f "$doc" "${ratio[@]}" --store "$work/store" -n 12 && cp "$work/out" "$work/a"
talk 'found' "$first\n$long\n/undo\n$second" -m "$model" -f "$doc" "${ratio[@]}" --store "$work/store" -n 12 && head -n 1 "$work/out" >"$work/b"
grep -q 'come from the store' "$work/err" || fail "the store: $(cat "$work/err")"
same 'a document of the store' "$work/a" "$work/b"

# ---- A context without an end ----
# The model says that it was trained for 512 tokens.
python3 - "$model" "$work/short.gguf" <<'PY' || fail 'no model with a short context'
import struct, sys
data = open(sys.argv[1], "rb").read()
key = b"llama.context_length" + struct.pack("<I", 4)
at = data.index(key) + len(key)
open(sys.argv[2], "wb").write(data[:at] + struct.pack("<I", 512) + data[at + 4:])
PY
short=$work/short.gguf
for i in $(seq 1 25); do printf '%s %d\n/stats\n' "$long" "$i"; done >"$work/lines"
"$WINNOW" chat -m "$short" -f "$doc" --context endless --budget 120 -n 60 <"$work/lines" >"$work/out" 2>"$work/err" || fail "endless: $(tail -n 3 "$work/err")"
python3 - "$work/err" <<'PY' || fail "endless: $(tail -n 9 "$work/err")"
import re, sys
text = open(sys.argv[1]).read()
read = [int(x) for x in re.findall(r"turns .*, (\d+) tokens", text)]
past = [int(x) for x in re.findall(r"context +(\d+) of 512, endless", text)]
memory = [float(x) for x in re.findall(r"memory +([\d.]+) MiB", text)]
sys.exit(not (len(read) == 25 and read[-1] > 3000 and max(past) <= 512 and memory[-1] <= 2 * memory[1] and "error" not in text))
PY
talk 'all of a short one' "$first\n$second" -m "$model" --policy full -n 12 && cp "$work/out" "$work/a"
talk 'all of a short one, endless' "$first\n$second" -m "$model" --context endless -n 12 && same 'nothing is dropped that fits' "$work/a" "$work/out"
for policy in streaming_llm knorm h2o tova; do
    talk "endless $policy" "$long\n$long\n$long\n$long\n/stats" -m "$short" --context endless --policy $policy -n 20
done

# ---- What is refused: one line, and nothing is lost ----
# refused NAME CODE PATTERN LINES ARGS...
refused() {
    local name=$1 want=$2 pattern=$3 lines=$4 code
    shift 4
    printf '%b' "$lines" | "$WINNOW" chat "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ "$code" -eq "$want" ] || fail "$name: exit code $code, expected $want"
    [ "$(grep -Ec -- "$pattern" "$work/err")" -eq 1 ] || fail "$name: no one line /$pattern/: $(cat "$work/err")"
}
bad 'a document that does not fit' 'context endless' chat -m "$short" -f "$doc" -f "$doc" -f "$doc"
bad 'a document that does not fit' 'shorten it' chat -m "$model" -f "$doc" --context 100
bad 'another model' 'belongs to model' chat -m "$tiny/tiny-qwen2.gguf" -c "$work/doc.wkv"
bad 'no such file' 'cannot open' chat -m "$model" -c "$work/none.wkv"
bad 'a text' 'no stored cache' chat -m "$model" -c "$doc"
bad 'two documents' 'leave out -f' chat -m "$model" -c "$work/doc.wkv" -f "$doc"
bad 'another type' 'leave out --kv-type' chat -m "$model" -c "$work/doc.wkv" --kv-type q8_0
bad 'standard input' 'name a file' chat -m "$model" -f -
bad 'an unknown policy' 'unknown|no method' chat -m "$model" --policy nothing
bad 'a policy that needs the question' 'judges a document' chat -m "$model" --policy kvcompose-aware --ratio 0.5
bad 'a context' 'give endless' chat -m "$model" --context never
bad 'a share without an end' 'no end either' chat -m "$model" --context endless --ratio 0.5
bad 'too much without an end' 'leave no room' chat -m "$short" --context endless --budget 500
bad 'ragged heads without an end' 'cannot be combined' chat -m "$model" --context endless --policy adakv --budget 64
bad 'everything without an end' 'keeps everything' chat -m "$model" --context endless --policy full
bad 'a store without a document' 'give one with -f' chat -m "$model" --store "$work/store"
refused 'a question that does not fit' 2 'has room for' "$first\n$long $long $long $long\n$second\n/stats" -m "$short" -n 8
grep -q '^turns     2,' "$work/err" || fail "a question that does not fit: the others are lost: $(cat "$work/err")"
refused 'an unknown command' 2 'did you mean /stats' "/state\n$first\n/stats" -m "$model" -n 8
grep -q '^turns     1,' "$work/err" || fail 'an unknown command: the conversation did not go on'
refused 'a bad size' 2 'give a fraction' "/size 1.5" -m "$model"
refused 'a bad policy' 2 'unknown|no method' "/policy nothing" -m "$model"
refused 'nothing to take back' 2 'no turn' "/undo" -m "$model"
refused 'nothing to save' 2 'nothing to save' "/save $work/nothing.wkv" -m "$model"
refused 'no such text' 2 'cannot open' "/file $work/none" -m "$model"
refused 'over the document' 2 'is an input' "/save $doc" -m "$model" -f "$doc"
refused 'no such folder' 2 'there is no folder' "$first\n/save $work/none/x.wkv" -m "$model" -n 4
refused 'no template for it' 2 'no chat template' "/system Be brief." -m "$model" --raw
[ ! -e "$work/nothing.wkv" ] || fail 'nothing to save: a file'
talk 'slashes, and lines that go on' "//etc is a folder\nWell,\\\\\nis it?" -m "$model" -n 4 && [ "$(wc -l <"$work/out")" -ge 2 ] || fail 'slashes'
mkdir "$work/disk"
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k none "$work/disk" 2>/dev/null; then
    refused 'a full disk' 1 'No space' "$first\n/save $work/disk/x.wkv\n$second\n/stats" -m "$model" -f "$doc" --policy full -n 8
    grep -q '^turns     2,' "$work/err" || fail "a full disk: $(cat "$work/err")"
    [ -z "$(ls -A "$work/disk")" ] || fail "a full disk: left $(ls -A "$work/disk")"
    mount -o remount,ro "$work/disk"
    refused 'a read-only disk' 2 'cannot write' "$first\n/save $work/disk/x.wkv" -m "$model" -n 4
    refused 'a read-only disk for a text' 2 'cannot write' "$first\n/save $work/disk/x.txt" -m "$model" -n 4
    umount "$work/disk"
fi

# ---- At a terminal ----
mkdir "$work/typed"
ldd "$WINNOW" | grep -q libedit || export WNW_EDITS=no # lines are read as they come
python3 "$(dirname "$0")/conversation.py" "$WINNOW" "$model" "$work/typed" || fail 'at a terminal'
finish
