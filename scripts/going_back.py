#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goes back in conversations that lost their slot, in winnow's server and in llama.cpp's.

    scripts/going_back.py MODEL.gguf... [--csv FILE]

A chat of four turns and two other chats share one slot. Then the first chat goes back: it asks something else after its third question. After another chat it goes
on after its fourth answer. Models with recurrent layers or sliding windows cannot be cut at any token, so they read more than what is new. Nothing is
compressed, and both servers have 256 MiB for prompts that wait. The table has the tokens of each prompt, and those that were read.
"""
import argparse
import os
import random
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
import tables  # noqa: E402
from llama_server import Server  # noqa: E402

ROOM = 256  # MiB
FIELDS = ("model", "request", "prompt", "read", "read_by_llama-server")


def words(n, seed):
    rng = random.Random(seed)
    return " ".join(f"w{rng.randrange(5, 250)}" for _ in range(n))


def ask(s, messages):
    """The answer, the prompt's tokens and those that were read."""
    reply = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0, "ignore_eos": True}, timeout=1800)
    if reply.status != 200:
        sys.exit(reply.text[:500])
    x = reply.json
    return x["choices"][0]["message"]["content"] or ".", x["usage"]["prompt_tokens"], x["timings"]["prompt_n"]


def user(n, seed):
    return {"role": "user", "content": words(n, seed)}


def measure(command):
    """(prompt, read) of going back, and of going on."""
    with Server(command) as s:
        chat = [{"role": "system", "content": words(30, 1)}]
        for t in range(4):
            chat.append(user(25, 10 + t))
            chat.append({"role": "assistant", "content": ask(s, chat)[0]})
        ask(s, [user(60, 99)])
        ask(s, [user(60, 98)])
        back = ask(s, chat[:-3] + [user(20, 77)])
        ask(s, [user(60, 97)])
        return back[1:], ask(s, chat + [user(20, 78)])[1:]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("models", nargs="+")
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--csv")
    a = p.parse_args()
    rows = []
    for model in a.models:
        name = os.path.basename(model).removesuffix(".gguf")
        ours = measure([f"{a.build}/winnow", "serve", "-m", model, "--port", "0", "--slots", "1", "--context", "4096", "--policy", "full", "--park", f"{ROOM}M"])
        plain = measure([f"{a.build}/plain_llama_server", "-m", model, "-c", "4096", "-np", "1", "--cache-ram", str(ROOM), "--host", "127.0.0.1", "--port", "0"])
        rows += [dict(zip(FIELDS, (name, what, x[0], x[1], y[1]))) for what, x, y in zip(("back", "on"), ours, plain)]
        for row in rows[-2:]:
            print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    if a.csv:
        tables.write(a.csv, FIELDS, rows, [os.path.basename(m) for m in a.models])


main()
