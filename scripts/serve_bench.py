#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast and how large llama.cpp's server is without us, over the backend with everything kept, and with a part kept, in one run:

    scripts/serve_bench.py -m MODEL.gguf [--lengths 1024,4096] [--clients 1,4,16] [--answer 32] [--keep 0.25] [--rounds 1] [-t 2]

All servers run at once and are asked in turn, so that what else the machine does meets all of them. Every client sends one prompt of its own, of which
nothing is in a cache. Printed are medians over clients and rounds: seconds to the first token, from the first to the second, to the end of
the last answer, tokens a second of all clients together once all are decoding, MiB of the process's own memory at the end; and ratios to the plain server.
"""
import argparse
import http.client
import json
import os
import statistics
import sys
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
from llama_server import Server, ids  # noqa: E402


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


def start(a):
    """The servers by name."""
    slots, context = max(a.clients), max(a.lengths) + a.answer + 64
    rest = ["-t", str(a.threads)]
    plain = [f"{a.build}/plain_llama_server", "-m", a.model, "-c", str(min(a.most + slots * 512, slots * context)), "-np", str(slots), "-kvu", "-b", "512", "--cache-ram", "0",
             "--host", "127.0.0.1", "--port", "0", "--slot-save-path", "/proc", *rest]
    ours = [f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", str(slots), "--context", str(context)]
    return {"plain": Server(plain), "full": Server([*ours, "--policy", "full", "--", *rest]), "kept": Server([*ours, "--ratio", str(1 - a.keep), "--", *rest])}


def own_memory(s):
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("RssAnon")).split()[1]) / 1024


def ask(s, n, seed, answer, barrier, times):
    """Appends the times at which tokens came, from the moment at which all clients ask."""
    body = {"prompt": ids(n, seed, 100, 20000), "n_predict": answer, "temperature": 0, "ignore_eos": True, "stream": True, "cache_prompt": False}
    c = http.client.HTTPConnection(*s.address(), timeout=1800)
    barrier.wait()
    begun = time.monotonic()
    c.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    r, came = c.getresponse(), []
    for line in r:
        if line.startswith(b"data: "):
            came += [time.monotonic() - begun] * len(json.loads(line[6:]).get("tokens", []) or [0])
    c.close()
    times.append(came)


def measure(s, n, clients, a, seed):
    barrier, times = threading.Barrier(clients), []
    threads = [threading.Thread(target=ask, args=(s, n, seed + i, a.answer, barrier, times)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    last_first, first_last = max(x[0] for x in times), min(x[-1] for x in times)
    together = sum(sum(last_first < y <= first_last for y in x) for x in times)
    span = first_last - last_first
    result = {"first": statistics.median(x[0] for x in times), "gap": statistics.median(x[1] - x[0] for x in times),
              "all": max(x[-1] for x in times), "rate": together / span if span > 0 else float("nan"), "memory": own_memory(s)}
    for i in range(max(a.clients)):
        s.ask(f"/slots/{i}?action=erase", "{}")
    return result


def main():
    a = arguments()
    servers = start(a)
    print("tokens clients server  first s   gap s   all s   tok/s   MiB | to plain: first    all  tok/s   MiB", flush=True)
    try:
        for s in servers.values():
            measure(s, 64, 1, a, 1)
        for n in a.lengths:
            for clients in a.clients:
                if n * clients > a.most:
                    continue
                got = {name: [] for name in servers}
                for r in range(a.rounds):
                    for name in list(servers)[r % 3:] + list(servers)[:r % 3]:
                        got[name].append(measure(servers[name], n, clients, a, 1000 * r + n))
                middle = {name: {k: statistics.median(x[k] for x in rows) for k in rows[0]} for name, rows in got.items()}
                for name, x in middle.items():
                    to = {k: x[k] / middle["plain"][k] for k in x}
                    print(f"{n:6d} {clients:7d} {name:6s} {x['first']:8.2f} {x['gap']:7.3f} {x['all']:7.1f} {x['rate']:7.1f} {x['memory']:5.0f} | "
                          f"{to['first']:15.2f} {to['all']:6.2f} {to['rate']:6.2f} {to['memory']:5.2f}", flush=True)
    finally:
        for s in servers.values():
            s.stop()


main()
