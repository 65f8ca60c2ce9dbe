#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many requests of many clients: soak.py WINNOW [REQUESTS [CLIENTS]]

32 clients ask a server of four slots, in streams and at once, with and without a document, with policies of their own; some leave in the middle. No
request may fail, none may wait while many that came later are served, and when all is quiet memory is what it was after the first tenth. 200 requests
unless said otherwise; 10000 are for a long run.

Then conversations go on in turn, a quarter as many requests. They are longer than the context and more than the slots, so room is made and slots are parked, in
memory and in a folder.
"""
import http.client
import json
import queue
import random
import socket
import sys
import tempfile
import threading
import time

from llama_server import TINY, Server, check, finish, ids, until

winnow = sys.argv[1]
n_requests = int(sys.argv[2]) if len(sys.argv) > 2 else 200
n_clients = int(sys.argv[3]) if len(sys.argv) > 3 else 32
SLOTS = 4


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


def resident(s):
    """KiB of the server's own memory: its mappings without a file."""
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("RssAnon")).split()[1])


def kv(s):
    return s.ask("/winnow/kv").json


def body_of(i, random_of):
    """A request: what it asks, and whether its client leaves."""
    winnow_field = random_of.choice([{}, {}, {"policy": "snapkv", "budget": 64}, {"policy": "knorm", "ratio": 0.7}, {"document": "notes"}, {"policy": "full"}])
    text = words(random_of.choice([5, 30, 120, 250]), i % 40) + f" {i}"
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": random_of.choice([1, 4, 12]), "temperature": 0, "ignore_eos": True,
            "stream": random_of.random() < 0.5, "winnow": winnow_field}
    leaves = random_of.random() < 0.03
    if leaves:
        body.update(max_tokens=2000, stream=True)
    return body, leaves


class Client(threading.Thread):
    def __init__(self, s, work, report):
        super().__init__()
        self.s, self.work, self.report = s, work, report

    def leave(self, body):
        data = json.dumps(body).encode()
        with socket.create_connection(self.s.address()) as c:
            c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))
            c.settimeout(300)
            return None if c.recv(100).startswith(b"HTTP/1.1 200") else "a client that would leave was refused"

    def ask(self, body):
        c = http.client.HTTPConnection(*self.s.address(), timeout=300)
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        if r.status != 200:
            return f"status {r.status}: {text[:300]}"
        ends = text.rstrip().endswith("data: [DONE]") if body["stream"] else json.loads(text)["choices"][0]["finish_reason"] == "length"
        return None if ends and '"error"' not in text else f"no whole answer: {text[-300:]}"

    def run(self):
        while True:
            try:
                i, body, leaves = self.work.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            try:
                wrong = self.leave(body) if leaves else self.ask(body)
            except OSError as error:
                wrong = f"{type(error).__name__}: {error}"
            self.report(i, start, time.monotonic(), wrong)


def run_all(s, requests):
    """Asks all, and returns (start, end, fault) of each."""
    work, done, lock = queue.Queue(), {}, threading.Lock()
    for r in requests:
        work.put(r)

    def report(i, start, end, wrong):
        with lock:
            done[i] = (start, end, wrong)
    clients = [Client(s, work, report) for _ in range(n_clients)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    return done


def overtaken(done):
    """The most requests that came after another one and were through before it: with fair waiting as many as clients wait or are served."""
    spans = sorted((start, end) for start, end, _ in done.values())
    most = 0
    for k, (_, end) in enumerate(spans):
        n = 0
        for later_start, later_end in spans[k + 1:]:
            if later_start > end:
                break
            n += later_end < end
        most = max(most, n)
    return most


def quiet(s):
    check("all slots are free at the end", until(lambda: not any(x["busy"] for x in kv(s)["slots"]), 60), kv(s))
    for i in range(SLOTS):
        s.ask(f"/slots/{i}?action=erase", "{}")


random_of = random.Random(7)
requests = [(i, *body_of(i, random_of)) for i in range(n_requests)]
with tempfile.NamedTemporaryFile("w", suffix=".txt") as notes:
    notes.write(words(300, 5))
    notes.flush()
    with Server([winnow, "serve", "-m", f"{TINY}/tiny-llama.gguf", "--port", "0", "--slots", str(SLOTS), "--budget", "150", "--park", "8M", "--policy", "keydiff",
                 "--document", f"notes={notes.name}", "--", "-t", "1"]) as s:
        started = time.monotonic()
        first = run_all(s, requests[:max(n_clients, n_requests // 10)])
        quiet(s)
        before, held = resident(s), kv(s)["bytes"]
        rest = run_all(s, requests[len(first):])
        quiet(s)
        after, seconds = resident(s), time.monotonic() - started
        faults = [wrong for _, _, wrong in [*first.values(), *rest.values()] if wrong]
        check("no request failed", not faults, len(faults), faults[:5])
        check("all were answered", len(first) + len(rest) == n_requests)
        check("keys and values are those of the document alone", kv(s)["bytes"] == held, held, kv(s))
        check("nothing could not be compressed", kv(s)["compressions_failed"] == 0, kv(s))
        # Buffers of sockets and of the heap come and go; a leak of one prompt's cache in each request would be far more.
        check("memory is flat", after - before < 16384, before, after)
        # A request's turn comes when those before it have theirs, but a long one may be overtaken by short ones on the other slots.
        most = overtaken(rest)
        check("waiting is fair", most <= 8 * n_clients, most)
        print(f"{n_requests} requests of {n_clients} clients in {seconds:.0f} s; own memory {before} KiB after {len(first)}, {after} KiB at the end; "
              f"at most {most} later requests were through before another; {kv(s)['compressions']} compressed")
        check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])

# ---- Conversations that last ----

TALKS, CONTEXT, LONGEST = 12, 512, 5


class Talker(threading.Thread):
    """Goes on with some conversations in turn; one that has grown long begins again."""

    def __init__(self, s, seeds, n):
        super().__init__()
        self.s, self.seeds, self.n = s, list(seeds), n
        self.faults, self.removed, self.begun = [], 0, 0

    def begin(self, seed):
        self.begun += 1
        return [{"role": "system", "content": words(6, seed)}]

    def run(self):
        random_here = random.Random(self.seeds[0])
        talks = {seed: self.begin(seed) for seed in self.seeds}
        for k in range(self.n):
            seed = self.seeds[k % len(self.seeds)]
            talk = talks[seed]
            talk.append({"role": "user", "content": words(random_here.choice([4, 8, 16]), random_here.randrange(1000))})
            a = self.s.ask("/v1/chat/completions", {"messages": talk, "max_tokens": random_here.choice([1, 4, 12]), "temperature": 0, "ignore_eos": True})
            if a.status != 200:
                self.faults.append(a.text[:300])
                return
            talk.append({"role": "assistant", "content": a.json["choices"][0]["message"]["content"] or "."})
            self.removed = max(self.removed, int(a.headers.get("X-Winnow-Removed", 0)))
            if a.json["usage"]["total_tokens"] > LONGEST * CONTEXT:
                talks[seed] = self.begin(seed)


def talk_all(s, n):
    talkers = [Talker(s, range(k, TALKS, 4), n // 4) for k in range(4)]
    for t in talkers:
        t.start()
    for t in talkers:
        t.join()
    return talkers


n_talk = max(n_requests // 4, 40)
with tempfile.TemporaryDirectory() as folder, Server([winnow, "serve", "-m", f"{TINY}/tiny-llama.gguf", "--port", "0", "--slots", "3", "--context", str(CONTEXT), "--policy", "keydiff",
                                                      "--ratio", "0.5", "--park", "2M", "--park-disk", "4M", "--state", folder, "--", "-t", "1"]) as s:
    started = time.monotonic()
    first = talk_all(s, n_talk // 4)
    before = resident(s)
    rest = talk_all(s, n_talk - n_talk // 4)
    after, now = resident(s), kv(s)["parked"]
    faults = [x for t in first + rest for x in t.faults]
    check("no turn failed", not faults, faults[:3], s.log()[-600:])
    check("conversations are parked and come back", now["parked"] > 0 and now["used"] > 0, now)
    check("parked ones keep their limits", now["bytes"] <= now["bytes_most"] and until(lambda: kv(s)["parked"]["disk_bytes"] <= 4 << 20), now)
    check("memory of long conversations is flat", after - before < 16384, before, after)
    if n_requests >= 1000:
        check("conversations are longer than the context", max(t.removed for t in rest) > CONTEXT)
    print(f"{n_talk} turns of {TALKS} conversations in {time.monotonic() - started:.0f} s; own memory {before} KiB after a quarter, {after} KiB at the end; "
          f"at most {max(t.removed for t in first + rest)} tokens removed from one; {now['parked']} times parked, {now['used']} times back")
    check("SIGTERM ends this one", s.stop() == 0, s.log()[-500:])
finish()
