#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts what servers send to two workers for a token, and measures what distance costs, in one run:

    scripts/devices_traffic.py -m MODEL.gguf [--length 300] [--answer 24] [--keep 0.125] [--delays 0,0.5,5,20] [--rounds 3]

    rpc        llama.cpp's server with two RPC devices;
    around     the same server with two devices of winnow around such ones, without a policy;
    serve      winnow serve around two, everything kept, with what policies of requests need;
    kept       the same with a part kept.

Between a server and each of its workers is a relay, which counts messages and bytes, and holds back what goes to the worker for the delay: that is
what a round trip takes longer. Servers are asked in turn. The script prints CSV: medians over rounds, and ratios of each round to `rpc` with the
same delay. Messages, round trips and bytes of a token are differences of a long answer and a short one to a prompt, over both workers. A node's MiB are the keys and
values of its layers after the answer.
"""
import argparse
import collections
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "server"))
from llama_server import Server, Worker, ids  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--build", default=os.path.join(here, "..", "build"))
    p.add_argument("--length", type=int, default=300)
    p.add_argument("--answer", type=int, default=24)
    p.add_argument("--keep", type=float, default=0.125)
    p.add_argument("--delays", default="0,0.5,5,20", help="milliseconds that a round trip takes longer")
    p.add_argument("--rounds", type=int, default=3)
    return p.parse_args()


SHORT = 8  # by then a prompt was compressed


class Counter:
    """Counts messages in a stream of ggml's RPC: of requests a byte, a size and the data; of answers a size and the data."""

    def __init__(self, is_request):
        self.head = 9 if is_request else 8
        self.left, self.seen = 0, b""
        self.messages = self.bytes = 0

    def take(self, data):
        self.bytes += len(data)
        while data:
            if self.left > 0:
                n = min(self.left, len(data))
                self.left, data = self.left - n, data[n:]
                continue
            n = min(self.head - len(self.seen), len(data))
            self.seen, data = self.seen + data[:n], data[n:]
            if len(self.seen) == self.head:
                self.left = int.from_bytes(self.seen[-8:], "little")
                self.messages += 1
                self.seen = b""


class Relay:
    """The connections between a server and one of its workers, which is started here."""

    def __init__(self, a, workers):
        worker = Worker(f"{a.build}/winnow")
        workers.append(worker)
        if not worker.started:
            sys.exit("a worker did not start")
        self.port = worker.port
        self.delay, self.counters = 0.0, []
        self.asked, self.trips = False, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            asked, answers = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.port))
            for s in (asked, answers):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            requests, replies = Counter(True), Counter(False)
            self.counters.append((requests, replies))
            held, more = collections.deque(), threading.Condition()
            threading.Thread(target=self.hold, args=(asked, requests, held, more), daemon=True).start()
            threading.Thread(target=self.release, args=(answers, held, more), daemon=True).start()
            threading.Thread(target=self.give_back, args=(answers, asked, replies), daemon=True).start()

    def hold(self, source, counter, held, more):
        data = b"-"
        while data:
            try:
                data = source.recv(1 << 18)
            except OSError:
                data = b""
            counter.take(data)
            self.asked = self.asked or bool(data)
            with more:
                held.append((time.monotonic() + self.delay, data))
                more.notify()

    @staticmethod
    def release(to, held, more):
        while True:
            with more:
                while not held:
                    more.wait()
                due, data = held.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    to.shutdown(socket.SHUT_RDWR)
                    return
                to.sendall(data)
            except OSError:
                return

    def give_back(self, source, to, counter):
        try:
            while data := source.recv(1 << 18):
                counter.take(data)
                self.trips += self.asked
                self.asked = False
                to.sendall(data)
            to.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def counts(self):
        """Messages to the worker, how often it answered what came before, bytes to it and bytes from it."""
        messages, to, back = (sum(x) for x in zip((0, 0, 0), *((q.messages, q.bytes, r.bytes) for q, r in self.counters)))
        return [messages, self.trips, to, back]


def start(a, servers, relays, workers):
    context = str(a.length + a.answer + 64)
    rest = ["-t", "1"]
    for name in ("rpc", "around", "serve", "kept"):
        relays[name] = [Relay(a, workers), Relay(a, workers)]
    plain = [f"{a.build}/plain_llama_server", "-m", a.model, "-c", context, "-np", "1", "-b", "512", "--cache-ram", "0", "--fit", "off", "--host", "127.0.0.1", "--port", "0"]
    servers["rpc"] = Server([*plain, "--rpc", ",".join(r.name for r in relays["rpc"]), "-dev", "RPC0,RPC1", "-ngl", "99", "-ts", "1,1", *rest])
    backend = subprocess.run([f"{a.build}/winnow", "backend", "--path"], capture_output=True, text=True, check=True).stdout.strip()
    env = {"GGML_BACKEND_PATH": backend, "WINNOW_DEVICES": ",".join("rpc:" + r.name for r in relays["around"])}
    servers["around"] = Server([*plain, "-dev", "WINNOW0,WINNOW1", "-ngl", "99", "-ts", "1,1", *rest], env)
    for name, kept in (("serve", ["--policy", "full"]), ("kept", ["--ratio", str(1 - a.keep)])):
        devices = ",".join("rpc:" + r.name for r in relays[name])
        servers[name] = Server([f"{a.build}/winnow", "serve", "-m", a.model, "--port", "0", "--slots", "1", "--context", context, *kept, "--devices", devices, "--", *rest])


def ask(servers, relays, name, prompt, n):
    """Milliseconds of a token, and what was sent and received meanwhile."""
    before = [sum(x) for x in zip(*(r.counts() for r in relays[name]))]
    t = servers[name].complete(prompt, n, cache_prompt=False)["timings"]
    after = [sum(x) for x in zip(*(r.counts() for r in relays[name]))]
    return t["predicted_per_token_ms"], [y - x for x, y in zip(before, after)]


def mib(server, name):
    if name in ("rpc", "around"):
        return ""
    return f"{sum(slot['bytes'] for slot in server.ask('/winnow/kv').json['slots']) / 2 / 2 ** 20:.2f}"


def main():
    a = arguments()
    servers, relays, workers = {}, {}, []
    try:
        start(a, servers, relays, workers)
        sent = {}
        for name in servers:
            prompt = ids(a.length, 7, 3, 200)
            few, many = (ask(servers, relays, name, prompt, n)[1] for n in (SHORT, a.answer))
            sent[name] = [(y - x) / (a.answer - SHORT) for x, y in zip(few, many)]
        node = {name: mib(servers[name], name) for name in servers}
        print("server,round trip longer by ms,ms of a token,ratio,lowest,highest,messages of a token,round trips,bytes to workers,bytes from workers,MiB of a node")
        for delay in map(float, a.delays.split(",")):
            for r in relays.values():
                for one in r:
                    one.delay = delay / 1000
            got = {name: [] for name in servers}
            for k in range(a.rounds):
                prompt = ids(a.length, 100 + k, 3, 200)
                names = list(servers)[k % len(servers):] + list(servers)[:k % len(servers)]
                for name in names:
                    got[name].append(ask(servers, relays, name, prompt, a.answer)[0])
            for name in servers:
                ratios = [x / y for x, y in zip(got[name], got["rpc"])]
                shown = "" if name == "rpc" else ",".join(f"{f(ratios):.2f}" for f in (statistics.median, min, max))
                print(f"{name},{delay:g},{statistics.median(got[name]):.2f},{shown or ',,'},{','.join(f'{x:.1f}' for x in sent[name])},{node[name]}", flush=True)
    finally:
        for s in servers.values():
            s.stop()
        for w in workers:
            w.end()


main()
