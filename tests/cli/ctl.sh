# SPDX-License-Identifier: MIT
# winnow ctl: what it asks a server for, and what it says of replies that are no page or no list. tests/server/page.py asks a real one.
. "$(dirname "$0")/lib.sh"

# A server that answers by the path's prefix, and writes down what it was asked.
python3 - "$work" <<'PY' &
import os, socket, sys
work = sys.argv[1]
PAGE = b"<html>" + b"x" * 200000 + b"</html>"


def reply(head, body):
    return b"HTTP/1.1 " + head + b"\r\n\r\n" + body


def sized(status, body):
    return reply(b"%s\r\nContent-Type: text/html\r\ncontent-length: %d" % (status, len(body)), body)


answers = {"page": sized(b"200 OK", PAGE),
           "no-length": reply(b"200 OK", PAGE),
           "cut": sized(b"200 OK", PAGE)[:1000],
           "chunked": reply(b"200 OK\r\nTransfer-Encoding: chunked", b"6\r\n<html>\r\n0\r\n\r\n"),
           "key": sized(b"401 Unauthorized", b"{}"),
           "none": sized(b"404 Not Found", b"no"),
           "busy": sized(b"409 Conflict", b'{"error": {"message": "it is empty"}}'),
           "broken": sized(b"500 Internal Server Error", b"\xff"),
           "other": b"SSH-2.0-OpenSSH\r\n",
           "why": sized(b"200 OK", b'{"requests": [{"slot": 1, "read": 40, "from_slot": 300, "parked": 7, "document": 2, "differs_at": 12, "cause": "tools have changed", '
                                   b'"before": "Today is ", "was": "Monday\\u001b[2J", "is": "\\"Tuesday\\""}, {"slot": 0, "read": 5, "from_slot": 0, "parked": 0, "document": 0}]}'),
           "empty": sized(b"200 OK", b'{"requests": []}'),
           "old": sized(b"200 OK", b'{"slots": []}'),
           "nothing": b""}
listeners = [socket.create_server(("127.0.0.1", 0))]
port = listeners[0].getsockname()[1]
try:
    listeners.append(socket.create_server(("::1", port), family=socket.AF_INET6))
except OSError:
    pass
with open(f"{work}/port.new", "w") as f:
    f.write(f"{port} {len(listeners)}\n")
os.rename(f"{work}/port.new", f"{work}/port")


def serve(listener):
    while True:
        c = listener.accept()[0]
        asked = b""
        while b"\r\n\r\n" not in asked:
            part = c.recv(65536)
            if not part:
                break
            asked += part
        with open(f"{work}/asked", "wb") as f:
            f.write(asked)
        name = asked.split(b" ")[1].split(b"/")[1].decode() if b" /" in asked else ""
        try:
            c.sendall(answers.get(name, answers["page"]))
        except OSError:
            pass
        c.close()


import threading
for listener in listeners[1:]:
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
serve(listeners[0])
PY
server=$!
for ((i = 0; i < 300; i++)); do
    [ ! -f "$work/port" ] || break
    sleep 0.1
done
read -r port n_families <"$work/port"
url=http://127.0.0.1:$port

# asked TEXT: the last question had that line.
asked() { tr -d '\r' <"$work/asked" | grep -qxF -e "$1" || fail "not asked: $1, but $(cat "$work/asked")"; }
page() { # page NAME ARGS...: writes the page
    local name=$1
    shift
    rm -f "$work/page.html"
    good "$name" ctl page -o "$work/page.html" "$@"
    [ "$(stat -c %s "$work/page.html" 2>/dev/null)" = 200013 ] || fail "$name: not the page"
}
page 'a slot' --url "$url" --slot 3
asked 'GET /winnow/page?slot=3 HTTP/1.0'
grep -qi '^authorization' "$work/asked" && fail 'a key that nobody gave'
page 'slot 0 without a word' --url "$url"
asked 'GET /winnow/page?slot=0 HTTP/1.0'
page 'a name with other characters' --url "$url/" --document 'a b&c/ä'
asked 'GET /winnow/page?document=a%20b%26c%2F%C3%A4 HTTP/1.0'
page 'a prefix and a key' --url "$url/page/under/" --slot 1 --api-key secret
asked 'GET /page/under/winnow/page?slot=1 HTTP/1.0'
asked 'Authorization: Bearer secret'
asked "Host: 127.0.0.1:$port"
LLAMA_API_KEY=other page 'a key of the environment' --url "$url"
asked 'Authorization: Bearer other'
page 'no length' --url "$url/no-length"
page 'a name of a host' --url "http://localhost:$port"
[ "$n_families" -lt 2 ] || {
    page 'IPv6' --url "http://[::1]:$port"
    asked "Host: [::1]:$port"
}

# refused CODE NAME PATTERN ARGS...: that exit code, one line that matches, no file.
refused() {
    local code=$1 name=$2 pattern=$3
    shift 3
    "$WINNOW" ctl page -o "$work/made" "$@" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq "$code" ] || fail "$name: exit code"
    [ "$(wc -l <"$work/err")" -eq 1 ] && grep -Eq -- "$pattern" "$work/err" || fail "$name: no /$pattern/ in $(cat "$work/err")"
    [ ! -e "$work/made" ] || fail "$name: a file is left"
    rm -f "$work/made"
}
refused 1 'a reply that is cut' 'bytes of 200013' --url "$url/cut"
refused 1 'a reply in pieces' 'Transfer-Encoding' --url "$url/chunked"
refused 2 'a key is wanted' 'api-key' --url "$url/key"
refused 2 'another server' 'no such page' --url "$url/none"
refused 2 'nothing to be seen' 'it is empty' --url "$url/busy"
refused 1 'an error that cannot be read' 'nothing that can be read' --url "$url/broken"
refused 1 'no HTTP' 'does not speak HTTP' --url "$url/other"
refused 1 'no reply' 'does not speak HTTP' --url "$url/nothing"

good 'why' ctl why --url "$url/why" --api-key secret
asked 'GET /why/winnow/kv HTTP/1.0'
asked 'Authorization: Bearer secret'
cat >"$work/want" <<'TEXT'
slot 1: 40 tokens read, 300 from the slot, 7 parked, 2 of a document
  differs from token 12 on: tools have changed
  before "Today is "
  was    "Monday\u001B[2J"
  is     "\"Tuesday\""
slot 0: 5 tokens read, 0 from the slot, 0 parked, 0 of a document
TEXT
"$WINNOW" ctl why --url "$url/why" >"$work/got" 2>&1
cmp -s "$work/want" "$work/got" || fail "why: $(cat "$work/got")"
"$WINNOW" ctl why --url "$url/empty" >"$work/got" 2>&1 && grep -q 'no prompt yet' "$work/got" || fail "why: none: $(cat "$work/got")"
for path in old key none broken; do
    "$WINNOW" ctl why --url "$url/$path" >"$work/got" 2>&1 && fail "why: $path is taken"
    [ "$(wc -l <"$work/got")" -eq 1 ] || fail "why: $path: $(cat "$work/got")"
done
kill $server
wait $server 2>/dev/null
refused 2 'nobody there' 'no server answers.*Connection refused' --url "$url"
refused 2 'no host' 'no.such.host.invalid' --url http://no.such.host.invalid
for bad in "http://127.0.0.1:$((port + 65536))" https://127.0.0.1 127.0.0.1:80 http:// http://h:x "http://h:123456789" 'http://h/a b' 'http://h?x' "http://$(printf 'h%.0s' {1..300})"; do
    refused 2 "an address: $bad" 'it is http://HOST:PORT' --url "$bad"
done
refused 2 'both' 'exclude each other' --url "$url" --slot 1 --document a
bad 'no file' '-o' ctl page --url "$url"
finish
