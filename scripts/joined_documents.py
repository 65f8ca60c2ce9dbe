#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Asks about pairs of documents that are joined, and about pairs that are read again.

    scripts/joined_documents.py -m MODEL.gguf [--pairs 16] [--csv FILE]

The first document of a pair says who lives where, and the second one which number the house in a place has. Questions need the first one, the second one, or
both. The ways:

    again    both texts are in the prompt, and are read.
    plain    each document was read alone, and nothing of the second one is read again ("reread": 0).
    joined   its first tokens are read again, as many as the server does by itself; --share SHARE says others.

It prints for each way and kind of question the share of right answers with a 95 % interval (pairs are drawn again). It also prints the tokens that were read
for a pair before its first question, and the seconds to the first token of that question (median).
"""
import argparse
import http.client
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
import tables  # noqa: E402
from llama_server import Server, until  # noqa: E402

PEOPLE = "Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Karla Leon Maria Nils Olga Peter Rosa Simon Tina Victor".split()
PLACES = "Lima Oslo Cairo Quito Paris Tokyo Madrid Athens Dublin Prague Vienna Warsaw Zagreb Lisbon Berlin Boston Nairobi Havana Seoul Riga".split()
KINDS = ("first", "second", "both")
SHOWN = ("way", *KINDS, "tokens_read", "first_token_s")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--pairs", type=int, default=16, help="16 at most")
    p.add_argument("--facts", type=int, default=6, help="of a document")
    p.add_argument("--filler", type=int, default=8, help="other sentences of a document")
    p.add_argument("--share", type=float, action="append", default=[], help="another share to read again")
    p.add_argument("--options", default="--policy full", help="of winnow serve")
    p.add_argument("--csv", help="writes the table to this file, too")
    p.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    return p.parse_args()


# ---- What is asked ----

def sentences():
    with open(os.path.join(here, "..", "examples", "document.txt"), encoding="utf-8") as f:
        return [x.strip() for x in re.split(r"(?<=[.!?])\s+", f.read().replace("\n", " ")) if 40 < len(x) < 160]


class Pair:
    """Two documents, and questions about them with their answers."""

    def __init__(self, a, k):
        rng = random.Random(k)
        people, places = rng.sample(PEOPLE, a.facts), rng.sample(PLACES, a.facts)
        numbers = rng.sample(range(100, 1000), a.facts)
        self.texts = [self.text(rng, [f"{x} lives in {y}." for x, y in zip(people, places)], a.filler),
                      self.text(rng, [f"The house in {y} has the number {z}." for y, z in zip(places, numbers)], a.filler)]
        self.asked = [q for x, y, z in zip(people, places, numbers)
                      for q in (("first", f"In which city does {x} live?", y), ("second", f"Which number has the house in {y}?", str(z)),
                                ("both", f"Which number has the house in the city where {x} lives?", str(z)))]

    @staticmethod
    def text(rng, facts, n_filler):
        lines = facts + rng.sample(sentences(), n_filler)
        rng.shuffle(lines)
        return " ".join(lines)


# ---- Asking ----

def ask(server, pair, question, field):
    """The answer, seconds to its first token, and the tokens that the server says it has read."""
    system = "\n\n".join(pair.texts) if field is None else None
    messages = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": question + " Answer with one word."}]
    body = {"messages": messages, "max_tokens": 12, "temperature": 0, "stream": True, "timings_per_token": True, "winnow": field or {}}
    c = http.client.HTTPConnection(*server.address(), timeout=3600)
    begun, first, came, n = time.monotonic(), None, "", 0
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = c.getresponse()
    if reply.status != 200:
        sys.exit(reply.read().decode()[:500])
    for line in reply:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            n = event.get("timings", {}).get("prompt_n", n)
            part = (event["choices"][0]["delta"].get("content") or "") if event.get("choices") else ""
            first = time.monotonic() - begun if part and first is None else first
            came += part
    c.close()
    return came, first or 0.0, n


def read_again(server):
    """Tokens that were read to join the last documents."""
    found = re.findall(r"documents joined: (\d+) tokens read", server.log())
    return int(found[-1]) if found else 0


def run(server, pairs, name, share):
    """Right answers of each pair and kind, tokens and seconds of first questions."""
    right, tokens, seconds = [], [], []
    for k, pair in enumerate(pairs):
        of = {kind: [] for kind in KINDS}
        field = None if share is None else {"documents": [f"{k}a", f"{k}b"], **({"reread": share} if share >= 0 else {})}
        for i, (kind, question, answer) in enumerate(pair.asked):
            came, first, n = ask(server, pair, question, field)
            of[kind].append(answer.lower() in came.lower())
            if i == 0:
                tokens.append(n + (read_again(server) if field else 0))
                seconds.append(first)
        right.append(of)
        print(f"\r{name}: {k + 1} of {len(pairs)}   ", end="", file=sys.stderr, flush=True)
    return right, tokens, seconds


def interval(right, kind):
    """Share of right answers, and bounds by drawing pairs again."""
    rng, shares = random.Random(1), [statistics.mean(of[kind]) for of in right]
    drawn = sorted(statistics.mean(rng.choices(shares, k=len(shares))) for _ in range(2000))
    return f"{statistics.mean(shares):.2f} ({drawn[50]:.2f} to {drawn[1949]:.2f})"


def main():
    a = arguments()
    pairs = [Pair(a, k) for k in range(min(a.pairs, 16))]
    ways = {"again": None, "plain": 0.0, "joined": -1.0, **{f"reread {x:g}": x for x in a.share}}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        documents = []
        for k, pair in enumerate(pairs):
            for name, text in zip("ab", pair.texts):
                with open(f"{folder}/{k}{name}", "w", encoding="utf-8") as f:
                    f.write(text)
                documents += ["--document", f"{k}{name}={f.name}"]
        with Server([f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", "2", "--context", "4096", *a.options.split(), *documents, "--", "-t", str(a.threads)]) as server:
            until(lambda: all(d["ready"] for d in server.ask("/winnow/kv").json["documents"]), 3600)
            for name, share in ways.items():
                right, tokens, seconds = run(server, pairs, name, share)
                rows.append({"way": name, **{kind: interval(right, kind) for kind in KINDS}, "tokens_read": round(statistics.mean(tokens)), "first_token_s": f"{statistics.median(seconds):.2f}"})
    print(file=sys.stderr)
    tables.show(SHOWN, rows, 22, a.csv)


main()
