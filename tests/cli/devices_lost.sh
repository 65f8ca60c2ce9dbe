# SPDX-License-Identifier: MIT
# A worker that ends at any moment of a command: while the model is sent, while the prompt is read, compressed, stored or answered. Each time a
# sentence names its address and says what came first, and no file is left. Or the command was done already, and what it gave is what it gives
# else.
. "$(dirname "$0")/lib.sh"
need_backend
model=$tiny/tiny-llama.gguf
need_file "$model"
ids 200 >"$work/ids"
free_port
start_worker --device CPU

# A worker's relay that ends after a number of requests, counted over all connections: relay.py PORT MOST COUNT [again]. It writes its own port to
# standard output, and a byte for each request to the file COUNT. again: only that connection ends, and others are taken.
cat >"$work/relay.py" <<'PY'
import os, socket, sys, threading
port, most, count = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
lock, seen, counted = threading.Lock(), 0, os.open(count, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

def exactly(a, n):
    data = bytearray()
    while len(data) < n:
        some = a.recv(min(n - len(data), 1 << 20))
        if not some:
            raise EOFError
        data += some
    return data

def end(s):  # another thread may wait for it: close alone would end nothing
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    s.close()

def requests(a, b):
    global seen
    try:
        while True:
            head = exactly(a, 9)
            with lock:
                if seen == most and len(sys.argv) > 4:
                    seen += 1
                    raise EOFError
                if seen == most:
                    os._exit(0)
                seen += 1
                os.write(counted, b".")
            b.sendall(head + exactly(a, int.from_bytes(head[1:], "little")))
    except (EOFError, OSError):
        end(b)
        end(a)

def answers(a, b):
    try:
        while data := b.recv(1 << 16):
            a.sendall(data)
    except OSError:
        pass
    end(a)

while True:
    a = listener.accept()[0]
    b = socket.create_connection(("127.0.0.1", port))
    for s in (a, b):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=requests, args=(a, b), daemon=True).start()
    threading.Thread(target=answers, args=(a, b), daemon=True).start()
PY

# through MOST COMMAND...: a command whose second device is a worker, over a relay that ends after MOST requests. $code, $address; $again is for
# the relay. $input: what the command reads.
again=
input=/dev/null
through() {
    local most=$1 relay
    shift
    : >"$work/port"
    # shellcheck disable=SC2086
    python3 "$work/relay.py" "$port" "$most" "$work/count" $again >"$work/port" 2>/dev/null &
    relay=$!
    for _ in $(seq 100); do
        [ -s "$work/port" ] && break
        sleep 0.1
    done
    address=127.0.0.1:$(cat "$work/port")
    code=0
    "$WINNOW" "$@" --devices "cpu,rpc:$address" --layers 2,2 >"$work/out" 2>"$work/err" <"$input" || code=$?
    kill $relay 2>/dev/null
    wait $relay 2>/dev/null
}

# shown FILE: what is in it but for times.
shown() {
    case $1 in
        *.wkv) "$WINNOW" inspect "$1" --json && "$WINNOW" ask -m "$model" -c "$1" -p 'And now?' -n 8 --temp 0 -t 1 2>/dev/null ;;
        *.csv) grep -c '^[^#]' "$1" ;;
        *.run) python3 - "$1/results.jsonl" <<'PY' ;;
import json, os, sys
rows = [json.loads(line) for line in open(sys.argv[1])] if os.path.exists(sys.argv[1]) else []
for key in sorted(r["key"] for r in rows):
    print(key)
PY
        *) sed -E 's/"[a-z_]+_ms": [0-9.e+-]+//g' "$1" ;;
    esac
}

# nothing_left FILE: the command that failed stored nothing but what it had whole before: answers of an evaluation that are those of the whole run.
nothing_left() {
    case $1 in
        "$work/out") true ;;
        *.run) [ ! -e "$1" ] || [ -z "$(comm -23 <(shown "$1") "$work/whole")" ] ;;
        *) [ ! -e "$1" ] ;;
    esac
}

# at_any_moment NAME FILE COMMAND...: FILE is what the command writes, or - for its standard output. ways: of ending, as $again.
ways=('' again)
at_any_moment() {
    local name=$1 file=$2 all most
    shift 2
    [ "$file" = - ] && file=$work/out
    rm -rf "$file"
    again=
    through 1000000 "$@"
    [ $code = 0 ] || { fail "$name: $code, $(cat "$work/err")"; return; }
    shown "$file" >"$work/whole" || fail "$name: $file"
    all=$(wc -c <"$work/count")
    [ "$all" -gt 40 ] || fail "$name: only $all requests"
    for most in 0 2 $(seq 7 $((all / 7 + 1)) "$all") $((all - 1)); do
        for again in "${ways[@]}"; do
            rm -rf "$file"
            through "$most" "$@"
            if [ $code = 0 ]; then
                shown "$file" | cmp -s - "$work/whole" || fail "$name, $most of $all requests $again: another result"
                # Where another connection is made before anything is on the worker, nothing is lost.
                [ -n "$again" ] || [ "$most" -gt $((all / 2)) ] || fail "$name, $most of $all requests $again: exit code 0"
                continue
            fi
            [ $code = 1 ] || fail "$name, $most of $all requests $again: exit code $code, $(cat "$work/err")"
            tail -n 1 "$work/err" | grep -q "$address" || fail "$name, $most of $all requests $again: $(cat "$work/err")"
            # What came first is that a connection ended, with a request or while it began. That no other one can be made came later.
            [ "$most" -lt 20 ] || tail -n 1 "$work/err" | grep -Eq 'is lost: (it closed the connection|.* is no RPC server of ggml.*);' || fail "$name, $most of $all requests $again: $(cat "$work/err")"
            nothing_left "$file" || fail "$name, $most of $all requests $again: a file is left"
        done
    done
}

on=(-m "$model" -t 1 --policy keydiff --ratio 0.5)
at_any_moment 'an answer' - run "${on[@]}" --tokens "$work/ids" -n 6 --temp 0
at_any_moment 'a plan' "$work/plan.json" plan "${on[@]}" --tokens "$work/ids" -o "$work/plan.json"
seq -s ' ' 200 >"$work/doc.txt"
at_any_moment 'a stored document' "$work/doc.wkv" compress "${on[@]}" --raw -f "$work/doc.txt" -o "$work/doc.wkv"
"$WINNOW" compress -m "$model" -t 1 --policy keydiff --ratio 0.5 --raw -f "$work/doc.txt" -o "$work/asked.wkv" 2>"$work/err" || fail "a document: $(cat "$work/err")"
ways=('')
at_any_moment 'a question' - ask -m "$model" -t 1 -c "$work/asked.wkv" -p 'And now?' -n 6 --temp 0
printf '%s\n' 'Who?' 'And now?' >"$work/lines"
input=$work/lines
at_any_moment 'a conversation' - chat "${on[@]}" --raw -n 4 --temp 0
input=/dev/null
at_any_moment 'a perplexity' - ppl "${on[@]}" --tokens "$work/ids" --json
ways=('' again)
at_any_moment 'an evaluation' "$work/eval.run" eval -m "$model" -t 1 --policies keydiff --ratios 0.5 --quiet --no-gate --batch 1 --tasks niah_single_1     --lengths 600 --samples 1 --answer-tokens 4 --out "$work/eval.run"
ways=('')
at_any_moment 'a benchmark' "$work/bench.csv" bench -m "$model" -t 1 --lengths 300 --reps 1 --decode-tokens 4 --peer own --csv "$work/bench.csv"
kill $worker
wait $worker 2>/dev/null || true
finish
