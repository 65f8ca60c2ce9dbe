#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may ask `winnow serve`: origins.py WINNOW

Pages of others, and names of hosts that the server does not have, get 403 on every route, llama.cpp's included, and nothing of what they ask is done; programs,
`winnow ctl` and the server's own page go on. All forms of hosts and origins: tests/unit/origins.c.
"""
import itertools
import json
import os
import subprocess
import sys
import tempfile

from llama_server import TINY, Server, check, finish, ids, post, reads_documents

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"


def serve(*options, slots=1, rest=()):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", str(slots), *options, "--", "-t", "1", *rest])


def request(line, *headers, body=b""):
    """A request as bytes; with `Connection: close`, so that all that comes is its reply."""
    lines = [line, *headers, "Connection: close", *([f"Content-Length: {len(body)}"] if body else [])]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(s, line, *headers, body=b""):
    reply = s.raw(request(line, *headers, body=body))
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else reply


POSTS = ["/completion", "/completions", "/v1/completions", "/chat/completions", "/v1/chat/completions", "/v1/chat/completions/control", "/v1/responses", "/responses",
         "/v1/messages", "/v1/messages/count_tokens", "/v1/audio/transcriptions", "/audio/transcriptions", "/infill", "/embedding", "/embeddings", "/v1/embeddings",
         "/rerank", "/reranking", "/v1/rerank", "/tokenize", "/detokenize", "/apply-template", "/lora-adapters", "/props", "/slots/0?action=erase", "/slots/0?action=save",
         "/winnow/slots/0?action=erase", "/winnow/slots/0?action=save", "/v1/streams/lookup", "/cors-proxy", "/tools", "/no/such/route", "/"]
GETS = ["/", "/index.html", "/sw.js", "/health", "/v1/health", "/metrics", "/props", "/models", "/v1/models", "/lora-adapters", "/slots", "/v1/stream?conv_id=x", "/cors-proxy", "/tools",
        "/winnow/kv", "/winnow/page?slot=0", "/winnow/page?document=notes", "/no/such/route", "//slots", "/%73lots"]

with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".txt") as notes:
    notes.write("w1 w2 w3 " * 30)
    notes.flush()
    with serve("--save", folder, "--policy", "keydiff", "--budget", "100", "--document", f"notes={notes.name}") as s:
        host, port = s.address()
        here = f"Host: {host}:{port}"
        check("the document is read", reads_documents(s))
        s.complete(ids(200, 1), 3)
        before = s.ask("/slots").json[0]
        held = s.ask("/winnow/kv").json["slots"][0]["tokens"]
        # A page of another origin, one that was found by another name, and one without an origin that loads from another site.
        others = {"another origin": (here, "Origin: http://evil.example"), "another port": (here, f"Origin: http://{host}:{port + 1}"), "no origin": (here, "Origin: null"),
                  "another name": (f"Host: evil.example:{port}", f"Origin: http://evil.example:{port}"), "another name alone": ("Host: evil.example",), "no host": (),
                  "two hosts": (here, "Host: evil.example"), "two origins": (here, f"Origin: http://{host}:{port}", "Origin: http://evil.example"),
                  "another scheme": (here, f"Origin: https://{host}:{port}"), "another site": (here, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")}
        lines = [("GET", p) for p in GETS] + [("HEAD", "/slots"), ("OPTIONS", "/completion"), ("OPTIONS", "*"), ("OPTIONS", "/no/such/route"), ("DELETE", "/v1/stream?conv_id=x"),
                                              ("DELETE", "/slots"), ("PUT", "/props"), ("PATCH", "/props")] + [("POST", p) for p in POSTS]
        body = json.dumps({"prompt": "w1", "n_predict": 1, "filename": "evil", "messages": [{"role": "user", "content": "w1"}], "content": "w1", "id_slot": 0}).encode()
        for (name, headers), (method, path) in itertools.product(others.items(), lines):
            got = status(s, f"{method} {path} HTTP/1.1", *headers, "Content-Type: text/plain", body=body if method == "POST" else b"")
            check(f"{name}: {method} {path}", got == 403, got)
        for version, headers in itertools.product(("1.0", "1.1"), others.values()):
            check(f"HTTP/{version}, {headers}", status(s, f"POST /completion HTTP/{version}", *headers, body=body) == 403)
        check("an upgrade to another protocol", status(s, "GET /slots HTTP/1.1", here, "Origin: http://evil.example", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                                                       "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==") == 403)
        for line in "GET http://evil.example/slots HTTP/1.1", f"GET http://{host}:{port}/slots HTTP/1.1", "POST http://evil.example/completion HTTP/1.1":
            check(line, status(s, line, here) == 403)
        reply = s.raw(request("OPTIONS /completion HTTP/1.1", here, "Origin: http://evil.example", "Access-Control-Request-Method: POST"))
        check("the reply allows nothing, and says why", b"access-control" not in reply.lower() and b"--cors-origins" in reply and b'"permission_error"' in reply, reply)
        reply = s.raw(request("GET /winnow/kv HTTP/1.1", "Host: evil.example"))
        check("nor shows a thing, and says how a name is given", b"--host-name" in reply and b"slots" not in reply, reply)
        # A body that is refused is not waited for.
        check("half a request is refused at once", b" 403 " in s.raw(post({"prompt": "w1"}, length=1000, headers=("Origin: http://evil.example",))))
        # A refused request in front of another one on the same connection takes nothing of it with it.
        two = s.raw(request("POST /slots/0?action=erase HTTP/1.1", here, "Origin: http://evil.example", body=b"{}").replace(b"Connection: close", b"Connection: keep-alive") +
                    request("POST /slots/0?action=erase HTTP/1.1", here, body=b"{}"))
        check("a refused request ends its connection", two.count(b"HTTP/1.1") == 1 and b" 403 " in two, two)
        after = s.ask("/slots").json[0]
        check("nothing of it was done", os.listdir(folder) == [] and after["id_task"] == before["id_task"] and s.ask("/winnow/kv").json["slots"][0]["tokens"] == held, before, after)

        # Allowed requests work: programs by any address, the page, and links to the page.
        own = f"Origin: http://{host}:{port}"
        for name, headers in {"a program": (here,), "localhost": (f"Host: localhost:{port}",), "upper case": ("hOST: LOCALHOST",), "IPv6": (f"Host: [::1]:{port}",), "an address": ("Host: 10.0.0.7",),
                              "the page": (here, own, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors"), "the page by another address": (f"Host: [::1]:{port}", f"Origin: http://[::1]:{port}"),
                              "behind another port": ("Host: localhost:9000", "Origin: http://localhost:9000"), "typed by the user": (here, "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate")}.items():
            check(f"{name} asks", status(s, "POST /completion HTTP/1.1", *headers, body=b'{"prompt": "w1", "n_predict": 1}') == 200)
            check(f"{name} looks", status(s, "GET /winnow/page?document=notes HTTP/1.1", *headers) == 200)
        check("a link to the page", status(s, "GET / HTTP/1.1", here, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate") == 200)
        check("a preflight of the page", status(s, "OPTIONS /completion HTTP/1.1", here, own) == 200)
        check("the page erases a slot", status(s, "POST /winnow/slots/0?action=erase HTTP/1.1", here, own, body=b"{}") == 200 and s.ask("/winnow/kv").json["slots"][0]["tokens"] == 0)
        page = os.path.join(folder, "page.html")
        done = subprocess.run([winnow, "ctl", "page", "--url", f"http://localhost:{port}", "--document", "notes", "-o", page], capture_output=True, text=True, timeout=120)
        check("winnow ctl", done.returncode == 0 and os.path.getsize(page) > 1000, done.stderr)
        os.remove(page)

# Names and origins in the server's options.
with serve("--host-name", "box.lan", "--host-name", "Chat", rest=("--cors-origins", "https://chat.example")) as s:
    port = s.address()[1]
    for name, headers, good in [("a name", ("Host: box.lan",), True), ("the other one", (f"Host: CHAT:{port}", f"Origin: http://chat:{port}"), True), ("no name", ("Host: box",), False),
                                ("an origin", ("Host: box.lan", "Origin: https://chat.example"), True), ("another one", ("Host: box.lan", "Origin: http://chat.example"), False),
                                ("an origin by a name that is none", ("Host: chat.example", "Origin: https://chat.example"), False)]:
        check(name, status(s, "GET /winnow/kv HTTP/1.1", *headers) == (200 if good else 403))
with serve(rest=("--api-prefix", "/llm")) as s:
    for path in "/llm/", "/llm/slots", "/llm/winnow/kv", "/slots":
        check(f"behind a prefix: {path}", status(s, f"GET {path} HTTP/1.1", "Host: evil.example") == 403)
    check("links lead to the page behind a prefix", status(s, "GET /llm/ HTTP/1.1", "Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate") == 200)
    check("and to nothing else", status(s, "GET /llm/slots HTTP/1.1", "Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate") == 403)
with serve("--api-key", "secret") as s:
    check("a key does not help another page", status(s, "GET /slots HTTP/1.1", "Host: localhost", "Origin: http://evil.example", "Authorization: Bearer secret") == 403)
    check("nor another name", status(s, "GET /health HTTP/1.1", "Host: evil.example") == 403)
    check("and is asked for", status(s, "GET /slots HTTP/1.1", "Host: localhost") == 401)
for name in ("a:80", "http://a", "", "a,b", "*"):
    done = subprocess.run([winnow, "serve", "-m", model, "--port", "0", "--host-name", name], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(f"no name: '{name}'", done.returncode == 2 and "--host-name" in done.stderr, done.returncode, done.stderr[-300:])
finish()
