# SPDX-License-Identifier: MIT
# --devices of `run`, `ppl`, `chat` and `ask`: a sequence of libllama on winnow's devices is compressed and answers as a session does.
. "$(dirname "$0")/lib.sh"
need_backend
model=$tiny/tiny-llama.gguf
need_file "$model"
ids 600 >"$work/ids"

free_port
start_worker --device CPU

# Several threads ask the gates of the default policy, and keep their scores.
demo=$models/smollm2-135m.gguf
need_file "$demo"
head -c 1200 examples/document.txt >"$work/demo.txt"
for times in 1 2 3; do
    good "gates by several threads, $times" run -m "$demo" --devices cpu -t 4 -f "$work/demo.txt" -p 'Who?' --ratio 0.75 -n 1
done

# alike NAME OPTIONS...: the perplexity after compressing is the session's, but for rounding, and as much is kept.
alike() {
    local name=$1
    good "$name: a session" ppl -m "$model" --tokens "$work/ids" -t 1 --json "${@:2}" && cp "$work/out" "$work/session"
    for devices in cpu "rpc:127.0.0.1:$port,cpu"; do
        good "$name on $devices" ppl -m "$model" --tokens "$work/ids" -t 1 --json --devices "$devices" "${@:2}" || continue
        py "$work/session" "$work/out" <<'PY' || fail "$name on $devices: $(cat "$work/session" "$work/out")"
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert a["kept_tokens_mean"] == b["kept_tokens_mean"] and a["scored_tokens"] == b["scored_tokens"]
assert abs(a["nll_mean"] - b["nll_mean"]) < 0.02 * a["nll_mean"]
PY
    done
}
alike 'whole' --policy full
alike 'positions' --policy streaming_llm --budget 40
alike 'keys' --policy keydiff --ratio 0.7
alike 'window queries' --policy snapkv --ratio 0.5
alike 'sums of attention' --policy h2o --ratio 0.5
alike 'sums of attention, and values' --policy vatp --ratio 0.5 --evict chunk:128
alike 'chunks' --policy keydiff --budget 100 --evict chunk:128
alike 'a ratio in chunks' --policy keydiff --ratio 0.75 --evict chunk:128
alike 'slack between chunks' --policy keydiff --ratio 0.75 --evict chunk:128 --chunk-slack 1.5

# The record says what a prompt in chunks took: less than the whole and more than what stays; slack takes more, and leaves as much.
for slack in 1 2; do
    good "chunks with slack $slack" run -m "$model" --tokens "$work/ids" -n 1 --json --devices cpu --policy keydiff --budget 64 --evict chunk:128 --chunk-slack "$slack" &&
        json "chunks with slack $slack" "$work/out" "o['chunks']['chunk'] == 128 and o['compress_ms'] > 0 and o['kv_bytes'] < o['chunks']['kv_peak_bytes'] < o['kv_bytes_full'] and o['kept_tokens_mean'] == 64" &&
        python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["chunks"]["kv_peak_bytes"])' "$work/out" >"$work/peak$slack"
done
[ "$(cat "$work/peak1")" -lt "$(cat "$work/peak2")" ] || fail "slack takes no more: $(cat "$work/peak1" "$work/peak2")"

# Chunks that fit a peak: the device never has more, and as much stays as without. What always fits is read whole.
ids 2000 9 >"$work/many"
on=(run -m "$model" --tokens "$work/many" -n 1 --json -t 1)
good 'a prompt without a peak' "${on[@]}" --devices cpu --policy keydiff --ratio 0.75
peak=$(($(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["kv_bytes_full"])' "$work/out") * 7 / 10))
for devices in cpu "cpu,rpc:127.0.0.1:$port --layers 1,3"; do
    for how in '--policy keydiff --ratio 0.75' '--policy snapkv+adakv --budget 400' '--ratio 0.75' '--policy keydiff --budget 300 --chunk-slack 1.5'; do
        # shellcheck disable=SC2086
        good "a peak: $devices, $how" "${on[@]}" --devices $devices $how --kv-peak "$peak" && {
            json "a peak: $devices, $how" "$work/out" "64 <= o['chunks']['chunk'] <= 2000 and o['kv_bytes'] < o['chunks']['kv_peak_bytes'] <= $peak and 250 < o['kept_tokens_mean'] <= 500"
            [ "$(grep -c "read in chunks of [0-9]* tokens: .* --kv-peak allows" "$work/err")" -eq 1 ] || fail "a peak: not said once: $(cat "$work/err")"
        }
    done
done
good 'a peak above all' "${on[@]}" --devices cpu --policy keydiff --ratio 0.75 --kv-peak 1G && json 'a peak above all' "$work/out" '"chunks" not in o'
bad 'too small a peak' 'allow at least' "${on[@]}" --devices cpu --policy keydiff --ratio 0.75 --kv-peak 64K
least=$(sed -n 's/.*allow at least \([0-9]*\),.*/\1/p' "$work/err")
good 'the least peak' "${on[@]}" --devices cpu --policy keydiff --ratio 0.75 --kv-peak "$least" &&
    json 'the least peak holds' "$work/out" "o['chunks']['kv_peak_bytes'] <= $least"
bad 'a byte less' 'allow at least' "${on[@]}" --devices cpu --policy keydiff --ratio 0.75 --kv-peak $((least - 1))
good 'ppl with a peak' ppl -m "$model" --tokens "$work/many" --prefix 1900 --policy keydiff --ratio 0.75 --kv-peak "$peak" --json --devices cpu &&
    json 'ppl with a peak' "$work/out" "o['chunks']['kv_peak_bytes'] <= $peak and o['kv_bytes'] < o['kv_bytes_full']"

# Dropped entries are gone: with few of them the text is harder, and takes less memory.
good 'much is kept' ppl -m "$model" --tokens "$work/ids" --json --devices cpu --policy streaming_llm --budget 290 && cp "$work/out" "$work/much"
good 'little is kept' ppl -m "$model" --tokens "$work/ids" --json --devices cpu --policy streaming_llm --budget 8 &&
    json 'less memory' "$work/out" "o['kept_tokens_mean'] == 8 and o['nll_mean'] != $(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["nll_mean"])' "$work/much")"

good 'an answer' run -m "$model" --tokens "$work/ids" -n 8 --temp 0 --json --policy keydiff --ratio 0.5 && cp "$work/out" "$work/session"
good 'an answer on devices' run -m "$model" --tokens "$work/ids" -n 8 --temp 0 --json --policy keydiff --ratio 0.5 --devices cpu &&
    json 'half is kept' "$work/out" 'o["kept_tokens_mean"] == 300 and len(o["tokens"]) == 8 and o["kv_bytes"] < o["kv_bytes_full"]'
good 'one token' run -m "$model" --tokens "$work/ids" -n 1 --json --policy keydiff --ratio 0.5 --devices cpu &&
    json 'memory goes back at once' "$work/out" 'o["kv_bytes"] < 0.7 * o["kv_bytes_full"]'
good 'what auto chooses' run -m "$model" --tokens "$work/ids" -n 4 --temp 0 --json --ratio 0.5 --devices "cpu,rpc:127.0.0.1:$port" --layers 1,3 &&
    json 'half is kept' "$work/out" 'o["kept_tokens_mean"] == 300 and "sampled" not in o["choice"]["policy"]'
good 'an empty answer' run -m "$model" --tokens "$work/ids" -n 0 --json --devices cpu &&
    json 'nothing is said' "$work/out" 'o["text"] == "" and o["kept_tokens_mean"] == 600'

# A short prompt may have fewer tokens than a policy protects: a ratio makes that less, as in a session.
short=$tiny/chat/smollm2.gguf
for on in '' '--devices cpu'; do
    good "a short prompt $on" run -m "$short" -p 'Which?' --policy vatp --ratio 0.5 -n 1 --json $on &&
        json "less is kept $on" "$work/out" 'o["kept_tokens_mean"] < o["prompt_tokens"]'
done
# What libllama refuses comes with its reason.
odd=$tiny/foreign/gemma4.gguf
"$WINNOW" run -m "$odd" -p 'Which?' -n 1 --kv-type q4_0 --devices cpu >"$work/out" 2>"$work/err" && fail 'a context that libllama refuses'
grep -q 'context of [0-9]* tokens of type q4_0 on WINNOW0: .' "$work/err" || fail "a refused context: $(cat "$work/err")"

# Its heads have other lengths in layers with a window, and sessions give all of them one.
seq -s ' ' 60 >"$work/few.txt"
good 'a document of heads that differ' compress -m "$odd" -t 1 -f "$work/few.txt" --budget 17 -o "$work/odd.wkv" && {
    "$WINNOW" ask -m "$odd" -t 1 -c "$work/odd.wkv" -p 'Which?' -n 1 --devices cpu >"$work/out" 2>"$work/err" && fail 'a state that libllama refuses'
    grep -q 'does not take the [0-9]* stored tokens on these devices: .' "$work/err" || fail "a refused state: $(cat "$work/err")"
}

# A conversation drops as much as one with a session: of the document, and of turns that are long enough.
for i in $(seq 30); do echo "Room $i has a door, and its key hangs on hook $((i * 7 % 31))."; done >"$work/doc.txt"
long=$(seq -s ' ' 100 160)
printf '%s\n' "Which key is on hook 7?" /stats "Remember these: $long" /undo "Remember those: $long" "And now?" /stats "/save $work/talk.txt" >"$work/lines"
talk() {
    "$WINNOW" chat -m "$tiny/tiny-qwen3.gguf" -f "$work/doc.txt" --temp 0 -n 4 -t 1 --policy keydiff --ratio 0.5 "$@" <"$work/lines" >"$work/out" 2>"$work/err" ||
        fail "chat $*: $(cat "$work/err")"
}
need_file "$tiny/tiny-qwen3.gguf"
talk && cp "$work/err" "$work/session"
talk --devices cpu
py "$work/session" "$work/err" <<'PY' || fail "a conversation: $(cat "$work/session" "$work/err")"
import re, sys
def dropped(path):
    text = open(path).read()
    return [int(read) - float(kept) for read, kept in re.findall(r"turns +\d+, (\d+) tokens read.*?entries +([\d.]+)", text, re.S)]
a, b = map(dropped, sys.argv[1:])
assert len(a) == 2 and a[0] > 200 and a[1] >= a[0], a
assert a[0] == b[0] and b[1] > b[0] and abs(a[1] - b[1]) <= 8, (a, b)  # answers may differ, and what template text comes after them
PY
[ -s "$work/talk.txt" ] || fail 'the text of a conversation on devices is not saved'
printf '%s\n' "Which key?" "/save $work/made.wkv" "/policy snapkv" >"$work/lines"
"$WINNOW" chat -m "$tiny/tiny-qwen3.gguf" --temp 0 -n 2 --devices cpu <"$work/lines" >"$work/out" 2>"$work/err" && fail 'what chats on devices lack has exit code 0'
grep -q 'saved as text' "$work/err" && grep -q 'stay as they were' "$work/err" && [ ! -e "$work/made.wkv" ] || fail "what chats on devices lack: $(cat "$work/err")"

# A stored document goes into the devices' cache with what was dropped, and every question has it as it was.
good 'a document' compress -m "$model" -f "$work/doc.txt" --raw --policy keydiff --ratio 0.5 -o "$work/doc.wkv"
printf '%s\n' "Which key is on hook 7?" "Which room?" "Which key is on hook 7?" >"$work/questions"
asked=(ask -m "$model" -c "$work/doc.wkv" --questions "$work/questions" --temp 0 -n 4 -t 1)
good 'questions' "${asked[@]}" && cp "$work/out" "$work/session"
for devices in cpu "cpu,rpc:127.0.0.1:$port"; do
    good "questions on $devices" "${asked[@]}" --devices "$devices" && py "$work/session" "$work/out" <<'PY' || fail "questions on $devices: $(cat "$work/out")"
import json, sys
a, b = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
assert len(a) == len(b) == 3
assert all(x["prompt_tokens"] == y["prompt_tokens"] and x["kept_tokens_mean"] == y["kept_tokens_mean"] for x, y in zip(a, b))
assert b[0]["tokens"] == b[2]["tokens"]
PY
done
# Long questions are computed in another way, which looks at rows that nothing sees: they must not be those of dropped entries.
good 'a document without its first tokens' compress -m "$short" -f "$work/doc.txt" --policy knorm --ratio 0.5 -o "$work/knorm.wkv"
for n in 20 100 200 400; do
    good "a question of $n letters" ask -m "$short" -c "$work/knorm.wkv" -p "$(printf 'a%.0s' $(seq "$n"))" --devices cpu -n 2 -t 1
done
good 'in f32' compress -m "$short" -f "$work/doc.txt" --policy knorm --ratio 0.5 --kv-type f32 -o "$work/f32.wkv"
bad 'dropped entries in f32' 'store it with --kv-type f16' ask -m "$short" -c "$work/f32.wkv" -p who --devices cpu
bad 'a folder of documents' 'leave out --store' ask -m "$model" --store "$work/folder" -f "$work/doc.txt" -p who --devices cpu

# What cannot be had is one sentence.
bad 'a chat without an end' 'context endless' chat -m "$tiny/tiny-qwen3.gguf" --devices cpu --context endless
bad 'a chat without its device' "there is no device 'gpu7'" chat -m "$tiny/tiny-qwen3.gguf" --devices gpu7
on=(-m "$model" --tokens "$work/ids" --policy keydiff --ratio 0.5 --devices cpu)
bad 'no such device' "there is no device 'gpu7': this ggml has .*CPU" run -m "$model" --tokens "$work/ids" --devices gpu7
bad 'a device twice' "named twice" ppl -m "$model" --tokens "$work/ids" --devices cpu,CPU
bad 'a server twice' "is the same server" run -m "$model" --tokens "$work/ids" --devices "rpc:127.0.0.1:$port,rpc:localhost:$port"
bad 'layers of no device' 'name them' run -m "$model" --tokens "$work/ids" --layers 4
bad 'too few layers' "'2,1' are 3 layers, and this model has 4" run -m "$model" --tokens "$work/ids" --devices "cpu,rpc:127.0.0.1:$port" --layers 2,1
bad 'layers' 'for sessions on the CPU' run "${on[@]}" --evict layer
bad 'chunks of blocks' 'fits no chunks on --devices' run -m "$model" --tokens "$work/ids" --policy lagkv --ratio 0.5 --devices cpu --evict chunk:100
bad 'chunks of what is judged whole' 'does not go with this policy' run -m "$model" --tokens "$work/ids" --policy compactor --ratio 0.5 --devices cpu --evict chunk:100
bad 'again and again' '--evict-every is for sessions' run "${on[@]}" --evict-every 10
bad 'a tail' '--kv-tail is for sessions' run "${on[@]}" --kv-type q8_0 --kv-tail 32
bad 'a cache in f32' '--kv-type f16' run "${on[@]}" --kv-type f32
good 'a whole cache in f32' run -m "$model" --tokens "$work/ids" --kv-type f32 --devices cpu -n 1 -t 1 --json &&
    json 'its bytes' "$work/out" "o['kv_bytes'] >= 600 * 2048 and o['kept_tokens_mean'] == 600"
bad 'a folder' 'leave out --store' run "${on[@]}" --store "$work/folder"
bad 'a second pass' 'a second time' run -m "$model" --tokens "$work/ids" --policy kvzip --ratio 0.5 --devices cpu

# A worker that speaks another version, and one that is gone.
cat >"$work/relay.py" <<'PY'
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def pipe(a, b, change):
    while data := a.recv(1 << 16):
        if change and len(data) > 8:  # the size of the answer, and the version
            data, change = data[:8] + bytes([data[8] + 1]) + data[9:], False
        b.sendall(data)
    b.close()
while True:
    a, b = listener.accept()[0], socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=pipe, args=(a, b, False), daemon=True).start()
    threading.Thread(target=pipe, args=(b, a, True), daemon=True).start()
PY
python3 "$work/relay.py" "$port" >"$work/relay" 2>/dev/null &
relay=$!
head -n 1 < <(exec tail -n +1 -s 0.05 --pid=$relay -F "$work/relay" 2>/dev/null) >/dev/null
code=0
"$WINNOW" run -m "$model" --tokens "$work/ids" --devices "rpc:127.0.0.1:$(head -n 1 "$work/relay")" >"$work/out" 2>&1 || code=$?
[ "$code" = 1 ] && [ "$(wc -l <"$work/out")" = 1 ] && grep -q 'speaks version' "$work/out" || fail "another version: $code, $(cat "$work/out")"
kill $relay $worker
wait $relay $worker 2>/dev/null || true
code=0
"$WINNOW" run -m "$model" --tokens "$work/ids" --devices "rpc:127.0.0.1:$port" >"$work/out" 2>&1 || code=$?
[ "$code" = 1 ] && [ "$(wc -l <"$work/out")" = 1 ] && grep -q "127.0.0.1:$port cannot be reached" "$work/out" || fail "nobody there: $code, $(cat "$work/out")"
finish
