#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goes on in the terminal with what a server has parked, and in the server with what the terminal has.

    scripts/resumed_chats.py -m MODEL.gguf [--tokens 1000] [--csv FILE]

A chat begins with a text of about --tokens tokens. Everything is kept. The table has the tokens that were read, and seconds to the end of an answer of one token:

    terminal reads      `winnow chat` has the text for the first time. Its seconds are those of the whole command.
    terminal resumes    `winnow chat --state DIR --resume last`, after a server has parked the chat.
    server reads        a server without the folder.
    server goes on      a server with the folder, after the terminal has parked the chat.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
import tables  # noqa: E402
from llama_server import Server  # noqa: E402

FIELDS = ("way", "tokens_read", "s")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--tokens", type=int, default=1000, help="of the text, about")
    p.add_argument("--csv", help="writes the table to this file, too")
    p.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    return p.parse_args()


def text(n_tokens):
    rng = random.Random(5)
    with open(os.path.join(here, "..", "examples", "document.txt"), encoding="utf-8") as f:
        words = f.read().split()
    at = rng.randrange(100)
    return " ".join((words * (n_tokens // len(words) + 2))[at:at + n_tokens * 3 // 4])


def terminal(a, state, line, *options):
    """Seconds, tokens of the conversation and the answer."""
    begun = time.monotonic()
    done = subprocess.run([f"{a.build}/winnow", "chat", "-m", a.model, "-t", str(a.threads), "-n", "1", "--state", state, *options], input=line + "\n", capture_output=True, text=True)
    found = re.search(r"turns, (\d+) tokens", done.stderr)
    if done.returncode or not found:
        sys.exit(done.stderr[-800:])
    return time.monotonic() - begun, int(found[1]), done.stdout.rstrip("\n")


def server(a, state, messages):
    """Seconds, tokens that were read, tokens that were there, and the answer."""
    with Server([f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", "1", "--policy", "full", "--state", state, "--", "-t", str(a.threads)]) as s:
        begun = time.monotonic()
        reply = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 1, "temperature": 0}, timeout=3600)
        took = time.monotonic() - begun
        if reply.status != 200:
            sys.exit(reply.text[:500])
        t = reply.json["timings"]
        return took, t["prompt_n"], t["cache_n"], reply.json["choices"][0]["message"]["content"]


def main():
    a = arguments()
    first = text(a.tokens) + " Which color has the harbor?"
    rows = []
    with tempfile.TemporaryDirectory() as work:
        took, n, said = terminal(a, f"{work}/terminal", first)
        rows.append({"way": "terminal reads", "tokens_read": n, "s": f"{took:.2f}"})
        talk = [{"role": "user", "content": first}, {"role": "assistant", "content": said}, {"role": "user", "content": "And why?"}]
        took, n_goes_on, _, _ = server(a, f"{work}/terminal", talk)
        goes_on = {"way": "server goes on", "tokens_read": n_goes_on, "s": f"{took:.2f}"}
        took, n, _, _ = server(a, f"{work}/server", talk[:1])
        parked = n
        reads = {"way": "server reads", "tokens_read": n, "s": f"{took:.2f}"}
        took, n, _ = terminal(a, f"{work}/server", "And why?", "--resume", "last")
        rows += [{"way": "terminal resumes", "tokens_read": n - parked, "s": f"{took:.2f}"}, reads, goes_on]
    tables.show(FIELDS, rows, 18, a.csv)


main()
