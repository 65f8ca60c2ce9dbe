#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replays an agent's day on servers with and without winnow.

    scripts/agent_day.py -m MODEL.gguf [--what day|turns|days] [--park 48] [--requests 10000]

In a day, conversations with tools grow in turn. After each turn a sub-agent with a header of its own asks one question. Half of the day later the servers are
restarted. With `--what turns`, conversations of equal length grow in turn, without sub-agents and without a restart. All servers get the same requests, each
in its turn. Conversations go on with answers that the script has, so that the prompts are the same for all.

With `--what days`, days with other conversations follow each other until there were as many requests as `--requests` says. The table then has the memory of
each server after every tenth of them.

The servers:

    plain    llama.cpp's own, with --cache-ram PARK.
    never    winnow that keeps everything and never parks.
    parks    winnow that keeps everything, with --park PARK and a folder.
    kept     winnow that keeps a part (--keep), with the same --park and a folder.

It prints for each server the tokens that were read and the tokens that were there, and how many prompts waited in memory at most. It also prints seconds in all, seconds to the first token (median and
95th percentile), and MiB of the process's own memory at most. The last column is the share of answers that are those of `never`.
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
from llama_server import Server  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": name, "description": what, "parameters": {"type": "object", "properties": {arg: {"type": "string"}}, "required": [arg]}}}
         for name, what, arg in (("read_file", "Returns the text of a file.", "path"), ("search", "Finds lines of files that have a text.", "text"),
                                 ("run", "Runs a command and returns what it prints.", "command"))]
SHOWN = ("server", "tokens_read", "tokens_there", "held", "all_s", "first_token_s", "first_token_p95_s", "MiB", "same_answers")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--what", choices=("day", "turns", "days"), default="day")
    p.add_argument("--requests", type=int, default=10000, help="of --what days")
    p.add_argument("--conversations", type=int, default=5)
    p.add_argument("--turns", type=int, default=4)
    p.add_argument("--tokens", type=int, default=800, help="of a conversation's first prompt")
    p.add_argument("--grow", type=int, default=150, help="tokens that a turn adds")
    p.add_argument("--context", type=int, help="tokens of a slot; without it as many as are needed where a word has 4/3 tokens")
    p.add_argument("--slots", type=int, default=2)
    p.add_argument("--park", type=int, default=48, help="MiB")
    p.add_argument("--park-disk", type=int, default=8192, help="MiB")
    p.add_argument("--keep", type=float, default=0.25, help="what `kept` keeps")
    p.add_argument("--answer", type=int, default=16, help="tokens of an answer")
    p.add_argument("--only", default="plain,never,parks,kept", help="the servers")
    p.add_argument("--csv", help="writes the table to this file, too")
    p.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    return p.parse_args()


# ---- What is asked ----

def sentences():
    with open(os.path.join(here, "..", "examples", "document.txt"), encoding="utf-8") as f:
        return [x.strip() for x in re.split(r"(?<=[.!?])\s+", f.read()) if len(x) > 20]


def text(n_tokens, seed):
    """Sentences of about n_tokens tokens, in an order that the seed chooses."""
    rng, all_of_them, out, n = random.Random(seed), sentences(), [], 0
    while n < n_tokens:
        out.append(rng.choice(all_of_them))
        n += len(out[-1].split()) * 4 // 3 + 1
    return " ".join(out)


def header(a, agent):
    tools = "\n".join(json.dumps(t["function"]) for t in TOOLS) if agent else "none"
    return {"role": "system", "content": ("You are an agent that edits a repository. " if agent else "You look one thing up for another agent. ") + f"Your tools:\n{tools}"}


def requests(a, day=0):
    """What happens in turn: a list of messages, or None for a restart."""
    other = 1000000 * day
    talks = [[header(a, True), {"role": "user", "content": f"Task {i + other}. " + text(a.tokens - 200, i + other)}] for i in range(a.conversations)]
    out = []
    for t in range(a.turns):
        for i, talk in enumerate(talks):
            out.append(list(talk))
            talk.append({"role": "assistant", "content": f"I call read_file for step {t} of task {i}."})
            talk.append({"role": "user", "content": f"read_file returned: {text(a.grow - 40, other + 1000 * t + i)} What is next?"})
            if a.what != "turns":
                out.append([header(a, False), {"role": "user", "content": text(a.grow, other + 5000 + 100 * t + i) + " Which name occurs first?"}])
        if a.what == "day" and t == a.turns // 2 - 1:
            out.append(None)
    return out


def many_requests(a):
    """Days of requests, as many as are wanted."""
    n, day = 0, 0
    while n < a.requests:
        for messages in requests(a, day)[:a.requests - n]:
            yield messages
            n += 1
        day += 1


# ---- Servers ----

class Asked:
    """A server, what it is started by, and what came of it."""

    def __init__(self, name, command):
        self.name, self.command, self.first, self.answers = name, command, [], []
        self.read = self.there = self.held = 0
        self.seconds = self.mib = 0.0
        self.server = Server(command)

    def count_held(self):
        """Prompts that wait in memory: winnow's server is asked, and llama.cpp's writes them to its log."""
        if self.name == "plain":
            counts = [int(n) for n in re.findall(r"cache state: (\d+) prompts", self.server.log())]
        else:
            counts = [self.server.ask("/winnow/kv").json["parked"]["in_memory"]]
        self.held = max([self.held, *counts])

    def restart(self):
        self.count_held()
        self.server.stop()
        self.server = Server(self.command)

    def ask(self, messages, answer):
        body = {"messages": messages, "max_tokens": answer, "temperature": 0, "stream": True, "timings_per_token": True, "cache_prompt": True}
        c = http.client.HTTPConnection(*self.server.address(), timeout=3600)
        begun, first, came, timings = time.monotonic(), None, "", {}
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = c.getresponse()
        if reply.status != 200:
            sys.exit(f"{self.name}: {reply.read().decode()[:500]}")
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            timings = event.get("timings", timings)
            part = (event["choices"][0]["delta"].get("content") or "") if event.get("choices") else ""
            if part and first is None:
                first = time.monotonic() - begun
            came += part
        c.close()
        self.seconds += time.monotonic() - begun
        self.first.append(first if first is not None else time.monotonic() - begun)
        self.read += timings.get("prompt_n", 0)
        self.there += timings.get("cache_n", 0)
        self.answers.append(came)
        self.mib = max(self.mib, own_memory(self.server))
        if self.name != "plain":
            self.count_held()

    def row(self, never):
        same = sum(x == y for x, y in zip(self.answers, never)) / len(never)
        p95 = sorted(self.first)[max(0, -(-95 * len(self.first) // 100) - 1)]
        return dict(zip(SHOWN, (self.name, self.read, self.there, self.held, f"{self.seconds:.1f}", f"{statistics.median(self.first):.2f}", f"{p95:.2f}", f"{self.mib:.0f}", f"{same:.2f}")))


def own_memory(s):
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("RssAnon")).split()[1]) / 1024


def start(a, folder):
    context = a.context or a.tokens + a.turns * a.grow * 3 // 2 + 500
    rest, names = ["-t", str(a.threads)], a.only.split(",")
    plain = [f"{a.build}/plain_llama_server", "-m", a.model, "-c", str(a.slots * context), "-np", str(a.slots), "-kvu", "-b", "512", "--cache-ram", str(a.park), "--host", "127.0.0.1", "--port", "0", "-lv", "4", *rest]  # it says what waits
    ours = [f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", str(a.slots), "--context", str(context)]
    parks = [*ours, "--park", f"{a.park}M", "--park-disk", f"{a.park_disk}M", "--state"]
    commands = {"plain": plain, "never": [*ours, "--policy", "full", "--park", "0", "--", *rest], "parks": [*parks, f"{folder}/parks", "--policy", "full", "--", *rest],
                "kept": [*parks, f"{folder}/kept", "--ratio", str(1 - a.keep), "--", *rest]}
    return [Asked(name, commands[name]) for name in commands if name in names]


def ask_all(a, servers, todo, n):
    """Asks every server in turn. Returns rows of memory, one for every tenth."""
    memory = []
    for k, messages in enumerate(todo):
        for s in servers[k % len(servers):] + servers[:k % len(servers)]:
            if messages is None:
                s.restart()
            else:
                s.ask(messages, a.answer)
        if (k + 1) % max(1, n // 10) == 0:
            memory += [{"server": s.name, "requests": k + 1, "MiB": f"{own_memory(s.server):.1f}", "tokens_read": s.read, "tokens_there": s.there} for s in servers]
        print(f"\r{k + 1} of {n}", end="", file=sys.stderr, flush=True)
    return memory


def main():
    a = arguments()
    todo = many_requests(a) if a.what == "days" else requests(a)
    with tempfile.TemporaryDirectory() as folder:
        servers = start(a, folder)
        try:
            memory = ask_all(a, servers, todo, a.requests if a.what == "days" else len(todo))
            for s in servers:
                s.count_held()
        finally:
            for s in servers:
                s.server.stop()
    print(file=sys.stderr)
    if a.what == "days":
        tables.show(list(memory[0]), memory, 18, a.csv)
        return
    never = next((s.answers for s in servers if s.name == "never"), servers[0].answers)
    tables.show(SHOWN, [s.row(never) for s in servers], 18, a.csv)


main()
