#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures servers on devices of ggml in one run:

    scripts/devices_bench.py -m MODEL.gguf [--length 2048] [--answer 32] [--keep 0.125] [--rounds 3]

    cpu        llama.cpp's server on the CPU;
    wrapped    winnow serve --devices cpu, everything kept;
    rpc        llama.cpp's server with two RPC devices over the loopback interface;
    relay      winnow serve around two such devices, over its relay, everything kept;
    kept       the same with a part kept;

All servers run at once, with one thread and workers of their own. They are asked in turn, so that other work of the machine affects all of them.
Each round has a prompt of its own. The script prints medians over rounds as CSV. Ratios are of each round: `wrapped` to `cpu`, the others to `rpc`.
"""
import argparse
import os
import statistics
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
from llama_server import Server, Worker, ids  # noqa: E402

BESIDE = {"wrapped": "cpu", "relay": "rpc", "kept": "rpc"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--answer", type=int, default=32)
    p.add_argument("--keep", type=float, default=0.125)
    p.add_argument("--rounds", type=int, default=3)
    return p.parse_args()


def worker(a, workers):
    """The address of a new worker with ggml's kernels."""
    workers.append(Worker(f"{a.build}/winnow"))
    if not workers[-1].started:
        sys.exit("a worker did not start")
    return f"127.0.0.1:{workers[-1].port}"


def start(a, servers, workers):
    context = a.length + a.answer + 64
    rest = ["-t", "1"]
    plain = [f"{a.build}/plain_llama_server", "-m", a.model, "-c", str(context), "-np", "1", "-b", "512", "--cache-ram", "0", "--fit", "off", "--host", "127.0.0.1", "--port", "0", *rest]
    ours = [f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", "1", "--context", str(context)]

    def pair(before=""):
        return ",".join(before + worker(a, workers) for _ in range(2))

    servers["cpu"] = Server([*plain, "-ngl", "0"])
    servers["wrapped"] = Server([*ours, "--policy", "full", "--devices", "cpu", "--", *rest])
    servers["rpc"] = Server([*plain, "--rpc", pair(), "-dev", "RPC0,RPC1", "-ngl", "99", "-ts", "1,1"])
    servers["relay"] = Server([*ours, "--policy", "full", "--devices", pair("rpc:"), "--", *rest])
    servers["kept"] = Server([*ours, "--ratio", str(1 - a.keep), "--devices", pair("rpc:"), "--", *rest])


def main():
    a = arguments()
    servers, workers, got = {}, [], {}
    try:
        start(a, servers, workers)
        for r in range(a.rounds):
            prompt = ids(a.length, 100 + r, 100, 20000)
            names = list(servers)[r % len(servers):] + list(servers)[:r % len(servers)]
            for name in names:
                t = servers[name].complete(prompt, a.answer, cache_prompt=False)["timings"]
                if t["prompt_n"] != a.length:
                    sys.exit(f"{name} read {t['prompt_n']} tokens of {a.length}")
                got.setdefault(name, []).append((t["predicted_per_token_ms"], t["prompt_per_token_ms"]))
    finally:
        for s in servers.values():
            s.stop()
        for w in workers:
            w.end()
    print("server,ms of a decoded token,ratio,lowest,highest,ms of a prompt's token,ratio of that,beside")
    for name in servers:
        row = [statistics.median(x[i] for x in got[name]) for i in range(2)]
        beside = BESIDE.get(name)
        ratios = [[x[i] / y[i] for x, y in zip(got[name], got[beside])] if beside else [] for i in range(2)]
        decode = [f"{f(ratios[0]):.2f}" if beside else "" for f in (statistics.median, min, max)]
        print(f"{name},{row[0]:.2f},{','.join(decode)},{row[1]:.2f},{f'{statistics.median(ratios[1]):.2f}' if beside else ''},{beside or ''}")


main()
