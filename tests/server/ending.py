#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Slow and silent clients of `winnow serve`, and its end: ending.py WINNOW

Half requests in any number stop neither /health nor other requests, and are cut off after a while. There is always room for /health. SIGTERM ends the
server in every state of its clients.
"""
import contextlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

from llama_server import TINY, Server, check, finish, ids, post, rest_of, until

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"
LONG = {"prompt": ids(50, 1), "n_predict": 8000, "temperature": 0, "ignore_eos": True, "stream": True, "n_probs": 5}
HEAD = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def serve(*options, slots=2, rest=()):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", str(slots), *options, "--", "-t", "1", *rest])


def kv(s):
    return s.ask("/winnow/kv").json


def busy(s):
    return [x["busy"] for x in kv(s)["slots"]]


def send(s, data):
    c = s.connect()
    c.sendall(data)
    return c


def is_closed(c, seconds=60):
    """Whether the server closes a connection; what it says before does not matter."""
    c.settimeout(seconds)
    try:
        while c.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


# What a client may have sent when it stops.
HALVES = {"nothing": b"", "a letter": b"P", "half a line": b"POST /compl", "half a head": HEAD, "half a name": HEAD + b"Content-Le", "no body": HEAD + b"Content-Length: 100\r\n\r\n",
          "half a body": HEAD + b"Content-Length: 100\r\n\r\n{\"p", "half a large body": HEAD + b"Content-Length: 60000000\r\n\r\n{\"prompt\": \"" + b"w1 " * 5000,
          "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\n{\"prompt\"", "a chunk and no end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
          "a promise": HEAD + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", "a body that a GET has": b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
          "a second request": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea"}

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

# Half requests, 300 at once and one after the other: the server goes on for all others.
with serve("--policy", "keydiff", "--budget", "100") as s:
    for at_once in (7, 300):
        halves = [send(s, list(HALVES.values())[i % len(HALVES)]) for i in range(at_once)]
        for path in "/health", "/v1/health", "/winnow/kv", "/metrics", "/slots", "/":
            for _ in range(3):
                check(f"{path} with {at_once} half requests", s.ask(path, timeout=60).status == 200)
        check(f"a completion with {at_once} half requests", s.complete(ids(50, 2), 3)["tokens_predicted"] == 3)
        for c in halves:
            c.close()
    with s.connect() as c:
        data = post({"prompt": "w1 " * 100, "n_predict": 1})
        for i in range(0, len(data), 100):
            c.sendall(data[i:i + 100])
            time.sleep(0.05)
        reply = c.recv(65536)
        check("one that comes in pieces is answered", reply.startswith(b"HTTP/1.1 200 OK"), reply)
    # As many as the server takes, and more: the oldest give way.
    many = min(1400, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    halves = [send(s, list(HALVES.values())[i % len(HALVES)]) for i in range(many)]
    check(f"/health with {many} half requests", all(s.ask("/health", timeout=60).status == 200 for _ in range(20)))
    check(f"a completion with {many} half requests", s.complete(ids(50, 3), 3)["tokens_predicted"] == 3)
    for c in halves:
        c.close()
    # More complete requests than can be answered: /health is answered, and the others get 503 with Retry-After.
    holders = [send(s, post(LONG)) for _ in range(2)]
    check("all slots are taken", until(lambda: all(busy(s))))
    waiting = [send(s, post({"prompt": ids(20, 4), "n_predict": 2})) for _ in range(min(900, many))]
    check("/health with as many requests as are answered", all(s.ask("/health", timeout=60).status == 200 for _ in range(20)))
    if many > 900:
        # Threads of requests that came have all begun once one is refused.
        refused = []
        check("one more is refused", until(lambda: refused.append(s.ask("/winnow/kv", timeout=60)) or refused[-1].status == 503), refused[-1].text)
        check("with the reason", refused[-1].headers["Retry-After"] and "later" in refused[-1].text, refused[-1].text)
    for c in waiting + holders:
        c.close()
    check("afterwards it goes on", until(lambda: s.ask("/winnow/kv").status == 200 and not any(busy(s))) and s.complete(ids(50, 5), 3)["tokens_predicted"] == 3)

# Where few files may be open the server takes fewer connections, and goes on.
for n_files in 160, 300:
    with Server(["bash", "-c", f'ulimit -n {n_files}; exec "$@"', "serve", winnow, "serve", "-m", model, "--port", "0", "--", "-t", "1"]) as s:
        halves = [send(s, list(HALVES.values())[i % len(HALVES)]) for i in range(600)]
        check(f"/health with {n_files} open files", all(s.ask("/health", timeout=60).status == 200 for _ in range(20)))
        check(f"a completion with {n_files} open files", s.complete(ids(50, 3), 3)["tokens_predicted"] == 3)
        for c in halves:
            c.close()
        check(f"SIGTERM with {n_files} open files", s.stop() == 0, s.log()[-500:])

# What comes too slowly is cut off, even if some of it comes again and again; and so is who does not read.
with serve("--policy", "keydiff", "--budget", "100", "--timeout", "1") as s:
    for name, data in HALVES.items():
        with send(s, data) as c:
            check(f"{name} is cut off", is_closed(c))
    def drip(c, first, drop):
        with contextlib.suppress(OSError):
            c.sendall(first)
            while True:
                c.sendall(drop)
                time.sleep(0.1)
    for name, first, drop in [("a head", HEAD, b"X-Drop: 1\r\n"), ("a name", HEAD, b"X"), ("a body", HEAD + b"Content-Length: 60000000\r\n\r\n", b" "),
                              ("chunks", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"), ("a second request", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD, b"X")]:
        with s.connect() as c:
            thread = threading.Thread(target=drip, args=(c, first, drop), daemon=True)
            thread.start()
            check(f"{name} that comes in drops without an end is cut off", is_closed(c))
            thread.join(60)
    with s.connect() as c:
        body = post(b"{\"prompt\": \"w1\", \"n_predict\": 1" + b" " * 400000 + b"}")
        for i in range(0, len(body), 10000):
            c.sendall(body[i:i + 10000])
            time.sleep(0.05)
        reply = c.recv(65536)
        check("a body that takes longer, of which enough comes, is read", reply.startswith(b"HTTP/1.1 200 OK"), reply)
    with s.connect() as c:
        c.setsockopt(1, 8, 4096)  # SOL_SOCKET, SO_RCVBUF
        c.sendall(post({**LONG, "n_predict": 20000}))
        check("who does not read has a slot", until(lambda: any(busy(s))))
        check("and loses it", until(lambda: not any(busy(s)), 60), kv(s))

# SIGTERM ends it in every state of its clients. The bound is for one that hangs; it takes a second or two.
def deaf(s):
    c = s.connect()
    c.setsockopt(1, 8, 4096)
    c.sendall(post({**LONG, "n_predict": 20000}))
    return c


def holding(s, *requests):
    """A stream on slot 0, and requests that want it."""
    keep = [send(s, post({**LONG, "id_slot": 0}))]
    check("slot 0 is taken", until(lambda: busy(s)[0]))
    return keep + [send(s, r) for r in requests]


def left(s):
    c = send(s, post({**LONG, "id_slot": 0}, headers=("X-Conversation-Id: c",)))
    c.recv(100)
    c.close()
    return []


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


CASES = {"nobody": lambda s: [], "a stream": lambda s: [send(s, post(LONG))], "a whole answer": lambda s: [send(s, post({**LONG, "stream": False}))],
         "a stream under X-Conversation-Id": lambda s: [send(s, post(LONG, headers=("X-Conversation-Id: c",)))], "the same, its client has left": left,
         "a whole answer under X-Conversation-Id": lambda s: [send(s, post({**LONG, "stream": False}, headers=("X-Conversation-Id: c",)))],
         "several answers": lambda s: [send(s, post({**LONG, "n": 2}))], "several prompts": lambda s: [send(s, post({**LONG, "stream": False, "prompt": ["w1", "w2", "w3", "w4"]}))],
         "a save of a busy slot": lambda s: holding(s, post({"filename": "z"}, "/slots/0?action=save"), post({"filename": "y"}, "/slots/0?action=save")),
         "an erase and a restore": lambda s: holding(s, post({}, "/winnow/slots/0?action=erase"), post({"filename": "z"}, "/slots/0?action=restore")),
         "looks at a busy slot": lambda s: holding(s, get("/winnow/page?slot=0"), get("/winnow/page?slot=0")),
         "requests for a busy slot": lambda s: holding(s, *[post({**LONG, "id_slot": 0}) for _ in range(3)], *[post(LONG) for _ in range(5)]),
         "a client that does not read": lambda s: [deaf(s)], "clients that say nothing": lambda s: [s.connect() for _ in range(3)],
         "half requests": lambda s: [send(s, x) for x in HALVES.values()], "300 half requests": lambda s: [send(s, list(HALVES.values())[i % len(HALVES)]) for i in range(300)],
         "connections that are kept": lambda s: [send(s, get("/health")) for _ in range(3)], "100 that wait": lambda s: holding(s, *[post(LONG) for _ in range(100)]),
         "what the server shows": lambda s: holding(s, *[get(p) for p in ("/metrics", "/slots", "/winnow/kv", "/props", "/v1/stream?conv_id=c")])}
for name, case in CASES.items():
    with tempfile.TemporaryDirectory() as folder, serve("--policy", "keydiff", "--budget", "100", "--save", folder) as s:
        keep = case(s)
        time.sleep(0.3)
        s.process.terminate()
        try:
            status = s.process.wait(20)
        except subprocess.TimeoutExpired:
            status = "it still runs"
        check(f"SIGTERM among {name}", status == 0, status, s.log()[-500:])
        for c in keep:
            c.close()
# While documents are read, for which the server itself asks.
with tempfile.NamedTemporaryFile("w", suffix=".txt") as long:
    long.write("The quick brown fox jumps over the lazy dog. " * 500)
    long.flush()
    for wait in (0, 0.5):
        with Server([winnow, "serve", "-m", f"{TINY}/../smollm2-135m.gguf", "--port", "0", "--document", f"a={long.name}", "--", "-t", "1"]) as s:
            keep = [send(s, post({"messages": [{"role": "user", "content": "x"}], "winnow": {"document": "a"}}, "/v1/chat/completions")) for _ in range(3)]
            time.sleep(wait)
            s.process.terminate()
            try:
                status = s.process.wait(60)
            except subprocess.TimeoutExpired:
                status = "it still runs"
            check("SIGTERM while a document is read", status == 0, status, s.log()[-500:])
            for c in keep:
                c.close()
finish()
