#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Asks for facts of a conversation that is longer than the context of `winnow serve`.

    scripts/forgotten_facts.py -m MODEL.gguf [--context 512] [--times 3] [--conversations 3]

Each turn of a conversation tells the code of one room. The conversation has --times contexts, so winnow has removed most of its middle. Then it is asked for the
codes of early rooms, whose turns were evicted, and of the last rooms. The same is asked in a fresh context that has only the last turns. The system message
says that the answer is "unknown" where nobody has said the code.

An answer is right, or unknown, or invented: another number of four digits. The script prints these shares for both, and the difference of the shares of invented
codes of early rooms. The interval (95 %) is Newcombe's for two independent shares.
"""
import argparse
import os
import random
import re
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
from llama_server import Server  # noqa: E402

SYSTEM = {"role": "system", "content": "You keep the codes of rooms. Answer a question with the code alone. If nobody has told you the code of that room, answer: unknown"}
NAMES = "red blue green white black round square long narrow cold warm quiet old new north south east west upper lower inner outer first last".split()
PLACES = "hall office cellar kitchen library garage studio archive".split()
LAST = 2  # rooms at the end that are asked for


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--times", type=float, default=3, help="contexts that a conversation has")
    p.add_argument("--conversations", type=int, default=3)
    p.add_argument("--early", type=int, default=8, help="early rooms that each is asked for")
    p.add_argument("--ratio", default="0.5")
    p.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    return p.parse_args()


def turns_of(seed, n):
    """n turns and their rooms and codes."""
    rng = random.Random(seed)
    rooms = rng.sample([f"{x} {y}" for x in NAMES for y in PLACES], n)
    codes = rng.sample(range(1000, 10000), n)
    turns = []
    for room, code in zip(rooms, codes):
        turns.append([{"role": "user", "content": f"The code of the {room} is {code}. The {room} was cleaned on Monday, and nothing was missing there."},
                      {"role": "assistant", "content": f"I have noted the code of the {room}."}])
    return turns, rooms, codes


def ask(s, messages, room):
    messages = messages + [{"role": "user", "content": f"What is the code of the {room}?"}]
    reply = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 16, "temperature": 0}, timeout=1800)
    if reply.status != 200:
        sys.exit(reply.text[:500])
    return reply.json["choices"][0]["message"]["content"], int(reply.headers.get("X-Winnow-Removed", 0))


def kind(answer, code):
    numbers = re.findall(r"\b\d{4}\b", answer)
    return "right" if str(code) in numbers else "invented" if numbers else "unknown"


def wilson(k, n):
    z, p = 1.96, k / n
    middle, half = (p + z * z / (2 * n)) / (1 + z * z / n), z * ((p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5) / (1 + z * z / n)
    return middle - half, middle + half


def difference(k1, n1, k2, n2):
    """Of two shares, with Newcombe's interval."""
    (l1, u1), (l2, u2), p1, p2 = wilson(k1, n1), wilson(k2, n2), k1 / n1, k2 / n2
    return p1 - p2, p1 - p2 - ((p1 - l1) ** 2 + (u2 - p2) ** 2) ** 0.5, p1 - p2 + ((u1 - p1) ** 2 + (p2 - l2) ** 2) ** 0.5


def main():
    a = arguments()
    count = {(where, which): {"right": 0, "unknown": 0, "invented": 0} for where in ("long", "fresh") for which in ("early", "last")}
    command = [f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", "1", "--context", str(a.context), "--ratio", a.ratio, "--park", "0", "--", "-t", str(a.threads)]
    gone = 0
    with Server(command) as s:
        per_turn = len(s.ask("/tokenize", {"content": turns_of(0, 1)[0][0][0]["content"] * 2}).json["tokens"]) // 2 + 28
        n = int(a.times * a.context / per_turn)
        few = max(LAST, a.context // 5 // per_turn)
        for c in range(a.conversations):
            turns, rooms, codes = turns_of(c, n)
            early = [i * (n - 2 * few) // a.early for i in range(a.early)]
            for where, from_turn in (("long", 0), ("fresh", n - few)):
                messages = [SYSTEM] + [m for t in turns[from_turn:] for m in t]
                for i in early + list(range(n - LAST, n)):
                    answer, removed = ask(s, messages, rooms[i])
                    gone = max(gone, removed)
                    count[where, "last" if i >= n - LAST else "early"][kind(answer, codes[i])] += 1
            print(f"\r{c + 1} of {a.conversations}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{n} turns, {few} of them in the fresh context; at most {gone} tokens removed")
    print("context  rooms   n  right  unknown  invented")
    for (where, which), x in count.items():
        total = sum(x.values())
        print(f"{where:7s}  {which:5s} {total:3d}  {x['right'] / total:5.2f}  {x['unknown'] / total:7.2f}  {x['invented'] / total:8.2f}")
    one, two = count["long", "early"], count["fresh", "early"]
    d, low, high = difference(one["invented"], sum(one.values()), two["invented"], sum(two.values()))
    print(f"invented codes of early rooms, long less fresh: {d:+.2f} ({low:+.2f} to {high:+.2f})")


main()
