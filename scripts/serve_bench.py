#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures speed and memory of llama.cpp's server in one run: without winnow, over the backend with everything kept, and with a part kept. The server of
llama-cpp-python is measured too:

    scripts/serve_bench.py -m MODEL.gguf [--lengths 1024,4096] [--clients 1,4,16] [--answer 32] [--keep 0.25] [--rounds 1] [-t 2]

All servers run at once and are asked in turn, so that other work of the machine affects all of them. Every client sends its own prompt, and no part of it is
in a cache. It prints medians over clients and rounds: seconds to the first token, from the first to the second, and to the end of
the last answer. It also prints tokens a second of all clients together once all are decoding, and MiB of the process's own memory at the end.
Ratios are to the plain server.

`python` is `llama_cpp.server` of the private environment, over the same libllama. scripts/setup.sh python-server installs its packages; without them
it is left out. It answers one request after the other, never several clients at once. Its options make it compute the same as the others: only the last logits,
flash attention, and no request that ends another.
"""
import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
from llama_server import Server, ids  # noqa: E402

cache = os.environ.get("WINNOW_CACHE") or os.path.expanduser("~/.cache/winnow")


def numbers(text):
    return [int(x) for x in text.split(",")]


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--lengths", type=numbers, default=[1024, 4096])
    p.add_argument("--clients", type=numbers, default=[1, 4, 16])
    p.add_argument("--answer", type=int, default=32)
    p.add_argument("--keep", type=float, default=0.25)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--most", type=int, default=20000, help="tokens of all clients' prompts together, above which a cell is left out")
    p.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    return p.parse_args()


class PythonServer(Server):
    """`llama_cpp.server`, which says in uvicorn's words where it listens. It takes prompts as texts."""

    def address(self):
        return self.at if "Uvicorn running on" in self.log() else None

    def __init__(self, a, context):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.at = free.getsockname()
        super().__init__([python(), "-m", "llama_cpp.server", "--model", a.model, "--host", self.at[0], "--port", str(self.at[1]), "--n_ctx", str(context), "--n_batch", "512",
                          "--n_threads", str(a.threads), "--n_threads_batch", str(a.threads), "--logits_all", "false", "--flash_attn", "true", "--interrupt_requests", "false"])


def python():
    return os.path.join(cache, "python", "bin", "python")


def lacks_python_server():
    """Why the server of llama-cpp-python cannot be started; nothing where it can."""
    try:
        r = subprocess.run([python(), "-c", "import llama_cpp.server.__main__"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return (r.stderr.strip().splitlines() or ["it does not start"])[-1] if r.returncode else ""


def start(a):
    """The servers by name."""
    slots, context = max(a.clients), max(a.lengths) + a.answer + 64
    rest = ["-t", str(a.threads)]
    plain = [f"{a.build}/plain_llama_server", "-m", a.model, "-c", str(min(a.most + slots * 512, slots * context)), "-np", str(slots), "-kvu", "-b", "512", "--cache-ram", "0",
             "--host", "127.0.0.1", "--port", "0", "--slot-save-path", "/proc", *rest]
    ours = [f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", str(slots), "--context", str(context)]
    servers = {"plain": Server(plain), "full": Server([*ours, "--policy", "full", "--", *rest]), "kept": Server([*ours, "--ratio", str(1 - a.keep), "--", *rest])}
    why = lacks_python_server()
    if why:
        print(f"without llama_cpp.server (scripts/setup.sh python-server): {why}", file=sys.stderr, flush=True)
    else:
        servers["python"] = PythonServer(a, context)
    return servers


def own_memory(s):
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("RssAnon")).split()[1]) / 1024


def cut(s, text, n):
    """The first n tokens of a text."""
    return s.ask("/tokenize", {"content": text, "add_special": True, "parse_special": False}).json["tokens"][:n]


def prompt_of(s, n, seed):
    """A made-up text, and its n tokens: the same for servers that take texts and those that take tokens."""
    text = s.ask("/detokenize", {"tokens": ids(2 * n + 16, seed, 100, 20000)}).json["content"]
    text = s.ask("/detokenize", {"tokens": cut(s, text, n)}).json["content"]
    return text, cut(s, text, n)


def body_of(s, prompt, answer, end):
    """What a server is asked, and the route."""
    text, tokens = prompt
    if isinstance(s, PythonServer):
        return "/v1/completions", {"prompt": text, "max_tokens": answer, "temperature": 0, "logit_bias": {str(end): -100}, "stream": True}
    return "/completion", {"prompt": tokens, "n_predict": answer, "temperature": 0, "ignore_eos": True, "stream": True, "cache_prompt": False}


def n_tokens(data):
    """The number of tokens that an event brings."""
    if data == b"[DONE]":
        return 0
    event = json.loads(data)
    if "choices" in event: # one token, or the end
        return event["choices"][0]["finish_reason"] is None
    return len(event.get("tokens", []) or [0])


def ask(s, path, body, barrier, times):
    """Appends the times at which tokens came, from the moment at which all clients ask."""
    c = http.client.HTTPConnection(*s.address(), timeout=1800)
    barrier.wait()
    begun = time.monotonic()
    c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    r, came = c.getresponse(), []
    for line in r:
        if line.startswith(b"data: "):
            came += [time.monotonic() - begun] * n_tokens(line[6:].strip())
    c.close()
    times.append(came)


def measure(s, prompts, a, end):
    barrier, times = threading.Barrier(len(prompts)), []
    threads = [threading.Thread(target=ask, args=(s, *body_of(s, p, a.answer, end), barrier, times)) for p in prompts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    last_first, first_last = max(x[0] for x in times), min(x[-1] for x in times)
    together = sum(sum(last_first < y <= first_last for y in x) for x in times)
    span = first_last - last_first
    result = {"first": statistics.median(x[0] for x in times), "gap": statistics.median(x[1] - x[0] for x in times),
              "all": max(x[-1] for x in times), "rate": together / span if span > 0 else float("nan"), "memory": own_memory(s)}
    for i in range(0 if isinstance(s, PythonServer) else max(a.clients)):
        s.ask(f"/slots/{i}?action=erase", "{}")
    return result


def end_of(s):
    """The token that ends an answer."""
    return s.ask("/tokenize", {"content": s.ask("/props").json["eos_token"], "parse_special": True}).json["tokens"][-1]


def main():
    a = arguments()
    servers = start(a)
    print("tokens clients server  first s   gap s   all s   tok/s   MiB | to plain: first    all  tok/s   MiB", flush=True)
    try:
        end = end_of(servers["plain"])
        for s in servers.values():
            measure(s, [prompt_of(servers["plain"], 64, 1)], a, end)
        for n in a.lengths:
            for clients in a.clients:
                if n * clients > a.most:
                    continue
                got = {name: [] for name in servers}
                for r in range(a.rounds):
                    prompts = [prompt_of(servers["plain"], n, 1000 * r + n + i) for i in range(clients)]
                    for name in list(servers)[r % len(servers):] + list(servers)[:r % len(servers)]:
                        got[name].append(measure(servers[name], prompts, a, end))
                middle = {name: {k: statistics.median(x[k] for x in rows) for k in rows[0]} for name, rows in got.items()}
                for name, x in middle.items():
                    to = {k: x[k] / middle["plain"][k] for k in x}
                    print(f"{n:6d} {clients:7d} {name:6s} {x['first']:8.2f} {x['gap']:7.3f} {x['all']:7.1f} {x['rate']:7.1f} {x['memory']:5.0f} | "
                          f"{to['first']:15.2f} {to['all']:6.2f} {to['rate']:6.2f} {to['memory']:5.2f}", flush=True)
    finally:
        for s in servers.values():
            s.stop()


main()
