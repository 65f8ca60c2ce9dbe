#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rough clients of all kinds at once, for a while: abuse.py WINNOW [SECONDS [CLIENTS [SEED]]]

Clients of `winnow serve` leave, send half a request, or do not read. They ask for slots that others have, and save, restore and erase them. They come from other
origins, or send data that is no request. Meanwhile /health and ordinary requests are answered, and at the end no memory is held. The default is 20 seconds;
3600 are for a long run.
"""
import collections
import contextlib
import http.client
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time

from llama_server import TINY, Server, check, finish, ids, post, until

winnow = sys.argv[1]
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20
n_clients = int(sys.argv[3]) if len(sys.argv) > 3 else 24
seed = int(sys.argv[4]) if len(sys.argv) > 4 else 7
SLOTS = 3
HEAD = b"POST /completion HTTP/1.1\r\nHost: localhost\r\n"
HALVES = [b"", b"G", b"POST /compl", HEAD, HEAD + b"Content-Length: 5000\r\n\r\n{\"prompt\"", HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\n{", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
          HEAD + b"Content-Length: 99999999999\r\n\r\n", HEAD + b"Content-Length: 30000000\r\n\r\n" + b" " * 100000]
NONSENSE = [b"\x16\x03\x01\x02\x00\x01\x00", b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET " + b"/" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            HEAD + b"Content-Length: -1\r\n\r\n", HEAD + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\n{}   ", HEAD + b"X: " + b"y" * 50000 + b"\r\n\r\n", HEAD + b"X: y\r\n" * 3000 + b"\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes(range(256)) * 8]
POLICIES = [{}, {"policy": "full"}, {"policy": "snapkv", "budget": 64}, {"policy": "knorm", "ratio": 0.7}, {"policy": "keydiff", "budget": 100}, {"policy": "none"}, {"budget": -1}, {"document": "notes"}, {"document": "no"}]
BODIES = [b"", b"{", b"[" * 5000, b"7", b'"x"', b"null", b"{}", b"\xff\xfe", b'{"prompt": {}}', b'{"prompt": [1, "x", [2]]}', b'{"messages": {}}', b'{"messages": [{"role": 7}]}', b'{"prompt": "x", "n_predict": -7}',
          b'{"prompt": "x", "n": 99}', b'{"prompt": "x", "id_slot": 99}', b'{"filename": "../x"}', b'{"filename": ""}', b'{"filename": "' + b"a" * 5000 + b'"}', b'{"prompt": "x", "n_predict": 1, "grammar": "root ::="}',
          b'{"prompt": "x", "n_predict": 1, "json_schema": {"type": "no"}}', b'{"prompt": "' + b"w1 " * 30000 + b'"}']
ROUTES = ["/completion", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/infill", "/tokenize", "/detokenize", "/apply-template", "/embedding", "/v1/messages/count_tokens",
          "/winnow/slots/0?action=erase", "/slots/1?action=save", "/slots/2?action=restore", "/slots/9?action=erase", "/slots/0?action=no", "/v1/chat/completions/control", "/v1/streams/lookup", "/no/route"]
SHOWN = ["/", "/health", "/slots", "/props", "/metrics", "/winnow/kv", "/v1/models", "/winnow/page?slot=0", "/winnow/page?slot=1", "/winnow/page?document=notes", "/v1/stream?conv_id=a", "/lora-adapters", "/no/route"]

counts, lock, ends = collections.Counter(), threading.Lock(), time.monotonic() + seconds


def goes_on():
    return time.monotonic() < ends


class Client(threading.Thread):
    """One that does one rough thing after the other."""

    def __init__(self, s, number):
        super().__init__()
        self.s, self.rng = s, random.Random(seed * 1000 + number)

    def body(self):
        r = self.rng
        body = {"prompt": ids(r.choice([3, 60, 200, 400]), r.randrange(30)), "n_predict": r.choice([0, 1, 5, 30]), "ignore_eos": True, "stream": r.random() < 0.5, "winnow": r.choice(POLICIES)}
        if r.random() < 0.3:
            body["id_slot"] = r.randrange(SLOTS)
        if r.random() < 0.1:
            body["n"] = r.randrange(1, SLOTS + 1)
        return body

    def chat(self):
        body = self.body()
        words = " ".join(f"w{x}" for x in body.pop("prompt"))
        most = body.pop("n_predict")
        return {**body, "messages": [{"role": "user", "content": words}], "max_tokens": most}

    def whole(self, method, path, body=None, headers=()):
        c = http.client.HTTPConnection(*self.s.address(), timeout=300)
        with contextlib.closing(c):
            c.request(method, path, body, {"Content-Type": "application/json", **dict(headers)})
            reply = c.getresponse()
            reply.read()
        return reply.status

    def asks(self):
        if self.rng.random() < 0.6:
            return self.whole("POST", self.rng.choice(["/completion", "/v1/completions"]), json.dumps(self.body()))
        return self.whole("POST", self.rng.choice(["/v1/chat/completions", "/v1/messages"]), json.dumps(self.chat()))

    def sends(self, data, stay, reads=True):
        with self.s.connect() as c:
            if not reads:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sendall(data)
            c.settimeout(stay)
            with contextlib.suppress(TimeoutError):
                while reads and c.recv(65536):
                    pass
            if not reads:
                time.sleep(stay)
        return None

    def leaves(self):
        body = {**self.body(), "n_predict": 3000, "stream": self.rng.random() < 0.7}
        headers = ("X-Conversation-Id: a",) if self.rng.random() < 0.4 else ()
        return self.sends(post(body, headers=headers), self.rng.random(), self.rng.random() < 0.8)

    def half(self):
        return self.sends(self.rng.choice(HALVES), 2 * self.rng.random())

    def nonsense(self):
        return self.sends(self.rng.choice(NONSENSE), 1)

    def wrong(self):
        return self.whole("POST", self.rng.choice(ROUTES), self.rng.choice(BODIES))

    def looks(self):
        return self.whole(self.rng.choice(["GET", "GET", "GET", "HEAD", "OPTIONS", "DELETE"]), self.rng.choice(SHOWN))

    def acts(self):
        action, slot = self.rng.choice(["save", "save", "restore", "erase"]), self.rng.randrange(SLOTS)
        return self.whole("POST", f"/slots/{slot}?action={action}", json.dumps({"filename": f"f{self.rng.randrange(3)}"}))

    def comes_from_elsewhere(self):
        status = self.whole("POST", self.rng.choice(ROUTES), self.rng.choice(BODIES[:-1]), [self.rng.choice([("Origin", "http://evil.example"), ("Host", "evil.example")])])
        check("a page of others is refused", status == 403, status)
        return status

    def run(self):
        kinds = [self.asks] * 4 + [self.leaves, self.half, self.nonsense, self.wrong, self.looks, self.acts, self.acts, self.comes_from_elsewhere]
        while goes_on():
            kind = self.rng.choice(kinds)
            try:
                status = kind()
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__  # a connection that was cut; that the server lives is seen below
            with lock:
                counts[kind.__name__, status] += 1


def own(s):
    """Threads, open files and the memory in KiB of the server, without the pages of files."""
    folder = f"/proc/{s.process.pid}"
    with open(f"{folder}/status", encoding="ascii") as f:
        lines = dict(line.split(":", 1) for line in f)
    return int(lines["Threads"]), len(os.listdir(f"{folder}/fd")), int(lines["RssAnon"].split()[0])


def kv(s):
    return s.ask("/winnow/kv").json


def rests(s):
    check("all slots are free", until(lambda: not any(x["busy"] for x in kv(s)["slots"]), 120), kv(s))
    for i in range(SLOTS):
        check("a slot is erased", s.ask(f"/slots/{i}?action=erase", "{}").status == 200)


with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".txt") as notes:
    notes.write("w1 w2 w3 " * 50)
    notes.flush()
    with Server([winnow, "serve", "-m", f"{TINY}/tiny-llama.gguf", "--port", "0", "--slots", str(SLOTS), "--budget", "150", "--policy", "keydiff", "--save", folder,
                 "--document", f"notes={notes.name}", "--timeout", "5", "--", "-t", "1"]) as s:
        check("the document is read", until(lambda: kv(s)["documents"][0]["ready"]))
        rests(s)
        held, before = kv(s)["bytes"], None
        clients = [Client(s, i) for i in range(n_clients)]
        for c in clients:
            c.start()
        first = time.monotonic() + seconds / 10
        n_answered = 0
        while goes_on() and s.process.poll() is None:
            check("/health", s.ask("/health", timeout=60).status == 200)
            status = s.ask("/completion", {"prompt": ids(100, 1), "n_predict": 3}, timeout=300).status
            check("an ordinary request is answered", status == 200, status)
            n_answered += 1
            if not before and time.monotonic() > first:
                before = own(s)
            time.sleep(0.05)
        for c in clients:
            c.join(400)
        check("every client came to an end", not any(c.is_alive() for c in clients))
        check("the server lives", s.process.poll() is None, s.process.poll(), s.log()[-3000:])
        rests(s)
        check("keys and values are those of the document alone", kv(s)["bytes"] <= held, held, kv(s))
        check("threads of clients have ended", until(lambda: own(s)[0] < 40, 60), own(s))
        after = own(s)
        # What a heap keeps goes up and down with what came last; a leak in each request would be far more.
        check("memory is flat", not before or after[2] - before[2] < 65536, before, after)
        check("files are closed", after[1] < 60, after)
        check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])
print(f"{sum(counts.values())} rough requests and {n_answered} ordinary ones in {seconds:.0f} s; threads, files and KiB {before} early on, {after} at the end")
for (kind, status), n in sorted(counts.items(), key=str):
    print(f"  {kind}: {status}: {n}")
finish()
