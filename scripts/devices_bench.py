#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures servers on devices of ggml in one run:

    scripts/devices_bench.py -m MODEL.gguf [--length 2048] [--answer 16] [--keep 0.125] [--starts 1] [--rounds 3] [--turns 4] [--servers NAME,...] [--csv FILE]

    cpu        llama.cpp's server on the CPU, with weights as the file has them, as devices get them;
    again      the same once more: how far two equal servers differ;
    around     the same server with winnow's device around the CPU, without a policy: what its graphs cost as long as nothing is dropped;
    wrapped    winnow serve --devices cpu, everything kept, with what policies of requests need;
    rpc        llama.cpp's server with two workers over the loopback interface;
    relay      winnow serve with two workers, over its relay, everything kept;
    kept       the same with a part kept.

All servers run at once, with one thread and workers of their own. Each round has a prompt of its own. All servers read it, and then answer it
in turns: each turn goes on where the one before ended. So other work of the machine affects all servers. Some have the model's file in the same
memory, so that the CPU's caches have it for who comes next. Where a process has its weights changes how fast it reads them. So the order is another one in each turn, each server waits before its turn, and the
first token of a turn is not timed. --starts ends all servers and starts them again, so that their weights lie elsewhere. Ratios are of each turn, or of the reading in each round, to the servers that the columns name. The ratios of
CPU time are of all turns, or readings, together, of a server with its workers: other work of the machine changes them little, and they do not show
that one waits for another. A node's MiB are the keys and values of its layers, and all the memory of a worker's process, after the last answer. The
build needs `make server`.
"""
import argparse
import os
import random
import statistics
import subprocess
import sys
import time

import tables

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
from llama_server import Server, Worker, ids  # noqa: E402

NAMES = ["cpu", "again", "around", "wrapped", "rpc", "relay", "kept"]
BESIDE = {"again": ["cpu"], "around": ["cpu"], "wrapped": ["cpu"], "rpc": ["cpu"], "relay": ["wrapped", "rpc"], "kept": ["wrapped", "rpc"]}
COLUMNS = ["server", "compared with", "ms of a token", "ratio", "lowest", "highest", "CPU ms of a token", "ratio of CPU", "ms of a prompt's token", "ratio of reading",
           "CPU ms of a prompt's token", "ratio of CPU reading", "KV MiB of a node", "MiB of a worker"]
ASLEEP = 0.05  # seconds after which the threads of the one before sleep


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--answer", type=int, default=16, help="tokens of a turn")
    p.add_argument("--keep", type=float, default=0.125)
    p.add_argument("--starts", type=int, default=1, help="how often all servers are started")
    p.add_argument("--rounds", type=int, default=3, help="prompts of each start")
    p.add_argument("--turns", type=int, default=4)
    p.add_argument("--servers", type=lambda x: x.split(","), default=[x for x in NAMES if x != "again"], help="those of the list above; all but `again` without it")
    p.add_argument("--csv", help="writes the table to this file, too")
    return p.parse_args()


def worker(a, workers):
    """A new worker with ggml's kernels."""
    workers.append(Worker(f"{a.build}/winnow"))
    if not workers[-1].started:
        sys.exit("a worker did not start")
    return workers[-1]


def start(a, servers, helpers):
    """Starts all servers, each with two workers where it has some."""
    context = str(a.length + a.turns * (a.answer + 1) + 64)
    rest = ["-t", "1"]
    plain = [f"{a.build}/plain_llama_server", "-m", a.model, "-c", context, "-np", "1", "-b", "512", "--cache-ram", "0", "--fit", "off", "--no-repack", "--host", "127.0.0.1", "--port", "0", *rest]
    ours = [f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", "1", "--context", context]
    for name in [x for x in a.servers if x in ("rpc", "relay", "kept")]:
        helpers[name] = []
        for _ in range(2):
            worker(a, helpers[name])
    pair = {name: ",".join(w.name for w in helpers.get(name, [])) for name in NAMES}
    backend = subprocess.run([f"{a.build}/winnow", "backend", "--path"], capture_output=True, text=True, check=True).stdout.strip()

    made = {
        "cpu": ([*plain, "-ngl", "0"], None),
        "again": ([*plain, "-ngl", "0"], None),
        "around": ([*plain, "-dev", "WINNOW0", "-ngl", "99"], {"GGML_BACKEND_PATH": backend, "WINNOW_DEVICES": "CPU"}),
        "wrapped": ([*ours, "--policy", "full", "--devices", "cpu", "--", *rest], None),
        "rpc": ([*plain, "--rpc", pair["rpc"].replace("rpc:", ""), "-dev", "RPC0,RPC1", "-ngl", "99", "-ts", "1,1"], None),
        "relay": ([*ours, "--policy", "full", "--devices", pair["relay"], "--", *rest], None),
        "kept": ([*ours, "--ratio", str(1 - a.keep), "--devices", pair["kept"], "--", *rest], None),
    }
    for name in a.servers:
        servers[name] = Server(*made[name])


def cpu_ms(processes):
    """What these processes have computed so far. A thread that ended is not counted; those that compute last as long as a server."""
    total = 0
    for p in processes:
        for task in os.listdir(f"/proc/{p.pid}/task"):
            try:
                with open(f"/proc/{p.pid}/task/{task}/schedstat", encoding="utf-8") as f:
                    total += int(f.read().split()[0])
            except OSError:
                pass
    return total / 1e6


class Times:
    """Milliseconds of a token: one number for each round or turn."""

    def __init__(self):
        self.ms, self.cpu = [], []


def measure(a, start_no, servers, helpers, read, decoded):
    """The times of each server: of reading in each round, and of decoding in each turn."""
    order = random.Random(1 + start_no)
    n_vocab = next(iter(servers.values())).ask("/v1/models").json["data"][0]["meta"]["n_vocab"]
    for r in range(a.rounds):
        prompts = dict.fromkeys(servers, ids(a.length, 100 + start_no * a.rounds + r, n_vocab // 10, n_vocab // 2))
        for turn in range(a.turns + 1):
            for name in order.sample(list(servers), len(servers)):
                processes = [servers[name].process, *(w.process for w in helpers.get(name, []))]
                time.sleep(ASLEEP)
                before = cpu_ms(processes)
                answer = servers[name].complete(prompts[name], a.answer if turn else 1)
                took = cpu_ms(processes) - before
                t = answer["timings"]
                new = a.length if turn == 0 else 1
                if t["prompt_n"] != new:
                    sys.exit(f"{name} read {t['prompt_n']} tokens, and {new} are new")
                prompts[name] = prompts[name] + answer["tokens"]
                times = decoded[name] if turn else read[name]
                times.ms.append(t["predicted_per_token_ms"] if turn else t["prompt_per_token_ms"])
                times.cpu.append(took / (a.answer if turn else a.length))
        print(f"start {start_no + 1} of {a.starts}, round {r + 1} of {a.rounds}", file=sys.stderr, flush=True)


def mib_of_process(process):
    """Memory of a process that no file backs."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("RssAnon")) / 1024


def row(name, beside, read, decoded, servers, helpers):
    ratios = [x / y for x, y in zip(decoded[name].ms, decoded[beside].ms)] if beside else []
    reading = [x / y for x, y in zip(read[name].ms, read[beside].ms)] if beside else []
    nodes = len(helpers.get(name, [])) or 1
    ours = name in ("wrapped", "relay", "kept")
    values = [name, beside, f"{statistics.median(decoded[name].ms):.2f}"]
    values += [f"{f(ratios):.3f}" if beside else "" for f in (statistics.median, min, max)]
    values += [f"{statistics.mean(decoded[name].cpu):.2f}", f"{sum(decoded[name].cpu) / sum(decoded[beside].cpu):.3f}" if beside else ""]
    values += [f"{statistics.median(read[name].ms):.2f}", f"{statistics.median(reading):.3f}" if beside else ""]
    values += [f"{statistics.mean(read[name].cpu):.2f}", f"{sum(read[name].cpu) / sum(read[beside].cpu):.3f}" if beside else ""]
    values += [f"{sum(slot['bytes'] for slot in servers[name].ask('/winnow/kv').json['slots']) / nodes / 2 ** 20:.2f}" if ours else ""]
    values += [f"{sum(mib_of_process(w.process) for w in helpers[name]) / nodes:.1f}" if name in helpers else ""]
    return dict(zip(COLUMNS, values))


def main():
    a = arguments()
    read, decoded = ({name: Times() for name in a.servers} for _ in range(2))
    for start_no in range(a.starts):
        servers, helpers = {}, {}
        try:
            start(a, servers, helpers)
            measure(a, start_no, servers, helpers, read, decoded)
            rows = [row(name, beside, read, decoded, servers, helpers) for name in servers for beside in [x for x in BESIDE.get(name, []) if x in servers] or [""]]
        finally:
            for s in servers.values():
                s.stop()
            for two in helpers.values():
                for w in two:
                    w.end()
    tables.show(COLUMNS, rows, 22, a.csv)


main()
