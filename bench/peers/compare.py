#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares winnow with other engines on the same tokens, one after the other: compare.py --text FILE [options]

    bench/peers/compare.py --text share/text/FILE --length 2048 --decode 32 --reps 3 --csv peers.csv

Every round runs each engine once, in another order each time; ratios are formed within a round, then medians are taken.
Prints one Markdown table; --csv writes every number. The Python engines get environments of their own in the cache folder,
made at first use: OpenVINO GenAI takes 0.3 GB; kvpress 5.6 GB, because PyPI's PyTorch for x86-64 always brings CUDA's
libraries. llama.cpp is the one of `make peers`. An engine that is not available is named and left out."""
import argparse
import csv
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time

from environments import CACHE, Missing, environment
from protocol import peak_bytes

HERE = os.path.dirname(os.path.abspath(__file__))


def say(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


def from_cpuinfo(key):
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.split(":")[0].strip() == key), "")


# ---- Engines ----

def without_amx(env):
    """AMX ends processes on virtual machines that show it but do not allow it."""
    if "amx_tile" in from_cpuinfo("flags").split():
        env = dict(env, ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16", DNNL_MAX_CPU_ISA="AVX512_CORE_BF16")
    return env


class Process:
    """A program that is talked to by lines."""

    def __init__(self, name, command, timeout, env=None):
        self.name, self.timeout, self.rest = name, timeout, b""
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=env,
                                      bufsize=0)

    def send(self, text):
        try:
            self.child.stdin.write(text.encode() + b"\n")
        except BrokenPipeError:
            pass  # receive() says how it ended

    def receive(self):
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.child.stdout], [], [], self.timeout)
            more = os.read(self.child.stdout.fileno(), 1 << 16) if ready else b""
            if not ready:
                raise Missing(f"{self.name} said nothing for {self.timeout} s")
            if not more:
                raise Missing(f"{self.name} ended with code {self.child.wait()}: {self.last_words()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def last_words(self):
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")

    def close(self):
        self.child.kill()
        self.child.wait()
        self.errors.close()


class JsonEngine:
    """An engine that speaks the lines of protocol.py."""

    def __init__(self, name, command, args, env=None):
        self.process = Process(name, command, args.timeout, env)
        self.about = json.loads(self.process.receive())["about"]

    def run(self, tokens, decode, keep):
        self.process.send(json.dumps({"tokens": tokens, "decode": decode, "keep": keep}))
        return json.loads(self.process.receive())

    def close(self):
        self.process.close()


class LlamaEngine:
    """The program of `make peers` (bench/llama/serve.h)."""

    def __init__(self, args, n_ctx):
        program = os.path.join(CACHE, "peers", "llama", "winnow-peer")
        if not os.access(program, os.X_OK):
            raise Missing("llama.cpp: `make peers` builds one for this CPU")
        self.process = Process("llama.cpp", [program], args.timeout)
        version, *flags = self.ask("about").split()
        self.about = f"llama.cpp, ggml {version}, built for this CPU ({' '.join(flags)}), f16 cache, flash attention"
        self.ask(f"open {n_ctx} 1 512 {args.threads} {args.model_path}")

    def ask(self, request):
        self.process.send(request)
        while (line := self.process.receive()).startswith("at "):
            pass
        if line.split()[0] != "ok":
            raise Missing(f"llama.cpp: {line}")
        return line[3:]

    def run(self, tokens, decode, keep):
        words = " ".join(map(str, tokens))
        self.ask("reset")
        first_ms = float(self.ask(f"feed 0 {words}"))
        decode_ms = float(self.ask("steps 1 " + " ".join(map(str, (tokens * decode)[:decode]))))
        return {"first_ms": first_ms, "decode_ms": decode_ms, "ids": None, "peak_bytes": peak_bytes(self.process.child.pid)}

    def close(self):
        self.process.close()


class Winnow:
    """The command itself, a process for every run: loading is not part of its times."""

    def __init__(self, args):
        self.args, self.about = args, f"winnow, f16 cache, {args.threads} threads"

    def run(self, tokens, decode, keep):
        with tempfile.NamedTemporaryFile("w", suffix=".ids") as f:
            print(*tokens, file=f, flush=True)
            command = [self.args.winnow, "run", "-m", self.args.model_path, "--tokens", f.name, "-n", str(decode + 1),
                       "-t", str(self.args.threads), "--json"]
            # Pooled as kvpress does (kvpress_engine.py); the preset takes the maximum.
            size = ["--policy", "snapkv:window=32,kernel=7,pool=avg", "--budget", str(keep)] if keep else []
            done = subprocess.run(command + size, stdout=subprocess.PIPE, check=True, timeout=self.args.timeout)
        o = json.loads(done.stdout)
        n = max(len(o["tokens"]) - 1, 0)  # fewer where the model ends its text
        return {"first_ms": o["ttft_ms"], "decode_ms": 1e3 * decode / o["decode_tps"] if n and o["decode_tps"] else None,
                "ids": o["tokens"], "peak_bytes": o["peak_rss_bytes"]}

    def close(self):
        pass


def open_engine(kind, args, n_ctx):
    if kind == "winnow":
        return Winnow(args)
    if kind == "llama.cpp":
        return LlamaEngine(args, n_ctx)
    name, _, dtype = kind.partition(" ")
    env = without_amx(dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    command = [environment(name, say), os.path.join(HERE, f"{name}_engine.py"), args.model_path, str(args.threads)]
    return JsonEngine(kind, command + ([dtype] if dtype else []), args, env)


# Rows of the table: name, engine, whether the cache is compressed.
ROWS = [
    ("winnow, full cache", "winnow", False),
    ("winnow, SnapKV", "winnow", True),
    ("llama.cpp", "llama.cpp", False),
    ("OpenVINO GenAI", "openvino", False),
    ("kvpress SnapKV, float32", "kvpress float32", True),
    ("kvpress SnapKV, bfloat16", "kvpress bfloat16", True),
]


def too_slow(kind, asked):
    """Why an engine that nobody asked for by its full name is better left out here; None otherwise."""
    features = (from_cpuinfo("flags") or from_cpuinfo("Features")).split()
    if kind == "kvpress bfloat16" and kind not in asked and not {"avx512_bf16", "amx_bf16", "bf16"} & set(features):
        return f"{kind}: this CPU has no bfloat16 arithmetic, and PyTorch takes about six times as long as in float32; " \
               f"--engines '{kind}' measures it all the same"
    return None


def open_rows(args, n_ctx):
    """[(name, engine, compressed)] and the engines' descriptions; what is missing is said."""
    engines, rows, asked = {}, [], set(args.engines.split(","))
    more = [(w.partition("=")[0], w.partition("=")[2], False) for w in args.worker]
    for name, kind, compressed in ROWS + more:
        if (name, kind, compressed) not in more and not {kind, kind.split()[0]} & asked:
            continue
        try:
            if why := too_slow(kind, asked):
                raise Missing(why)
            if kind not in engines:
                start = time.monotonic()
                is_worker = (name, kind, compressed) in more
                engines[kind] = JsonEngine(name, kind.split(), args) if is_worker else open_engine(kind, args, n_ctx)
                say(f"{kind}: ready after {time.monotonic() - start:.0f} s")
            rows.append((name, engines[kind], compressed))
        except Missing as why:
            say(f"left out: {why}")
    return rows, list(engines.values())


# ---- Measuring ----

def measure(args, tokens, rows):
    """{name: [answer of each round]}"""
    results = {name: [] for name, _, _ in rows}
    for round_ in range(args.reps + 1):  # the first warms up: graphs are compiled, files are read
        for k in range(len(rows)):
            name, engine, compressed = rows[(k + round_) % len(rows)]
            n = tokens if round_ else tokens[:64]
            answer = engine.run(n, args.decode, max(len(n) // 8, 32) if compressed else None)
            if round_:
                results[name].append(answer)
                say(f"round {round_}: {name}: {answer['first_ms']:.0f} ms to the first token")
    return results


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def ratio_in_rounds(ours, theirs, key):
    """How many times as fast (or as large) theirs is: medians of ratios within a round."""
    return median([t[key] / o[key] if t[key] and o[key] else None for o, t in zip(ours, theirs)])


def agreement(ours, theirs):
    """First ids that are the same as ours; None where there is nothing to compare."""
    if ours["ids"] is None or theirs["ids"] is None:
        return None
    same = 0
    for a, b in zip(ours["ids"], theirs["ids"]):
        if a != b:
            break
        same += 1
    return f"{same} of {min(len(ours['ids']), len(theirs['ids']))}"


# ---- Reporting ----

COLUMNS = ["engine", "first token ms", "prefill tok/s", "decode tok/s", "peak MiB", "against", "first token", "decode", "peak",
           "same ids"]


def table(args, rows, results):
    lines = []
    for name, _, compressed in rows:
        r = results[name]
        base = "winnow, SnapKV" if compressed else "winnow, full cache"
        ours = results.get(base) if base != name else None
        first, decode = median([x["first_ms"] for x in r]), median([x["decode_ms"] for x in r])
        ratios = ["", "", "", "", ""]
        if ours:
            f, d, m = (ratio_in_rounds(ours, r, k) for k in ("first_ms", "decode_ms", "peak_bytes"))
            ratios = [base, f"{f:.2f}x", f"{d:.2f}x" if d else "", f"{1 / m:.2f}x", agreement(ours[0], r[0]) or ""]
        lines.append([name, f"{first:.0f}", f"{args.length * 1e3 / first:.1f}",
                      f"{args.decode * 1e3 / decode:.1f}" if decode else "-",
                      f"{median([x['peak_bytes'] for x in r]) / 2**20:.0f}", *ratios])
    return lines


def print_markdown(lines):
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print("\n`first token` and `decode`: how many times as fast winnow is; `peak`: its memory as a share of the other's.")


def write_csv(path, args, results):
    with open(path + ".new", "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(["engine", "length", "round", "first_ms", "decode_ms", "decode_tokens", "peak_bytes"])
        for name, rounds in results.items():
            for i, r in enumerate(rounds, 1):
                out.writerow([name, args.length, i, r["first_ms"], r["decode_ms"], args.decode, r["peak_bytes"]])
    os.replace(path + ".new", path)


# ---- Arguments ----

def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--winnow", default="build/winnow")
    p.add_argument("--model", default="smollm2-135m", help="GGUF file, or a name that winnow knows")
    p.add_argument("--text", required=True, help="file whose first tokens are the prompt")
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--decode", type=int, default=32)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--engines", default="winnow,llama.cpp,openvino,kvpress",
                   help="some of these; `kvpress float32` and `kvpress bfloat16` also alone. bfloat16 runs only where the "
                   "CPU computes it, or where it is named")
    p.add_argument("--worker", action="append", default=[], metavar="NAME=COMMAND",
                   help="another engine, a command that speaks the lines of protocol.py")
    p.add_argument("--timeout", type=float, default=1800, help="seconds of silence after which an engine counts as hanging")
    p.add_argument("--csv")
    args = p.parse_args()
    named = os.path.join(CACHE, "models", args.model + ".gguf")
    args.model_path = os.path.abspath(named if os.path.exists(named) else args.model)
    if not os.path.exists(args.model_path):
        p.error(f"no model {args.model}")
    if args.length < 64 or args.decode < 1 or args.reps < 1 or args.threads < 1:
        p.error("at least 64 tokens, 1 to decode, 1 round and 1 thread")
    return args


def prompt_tokens(args):
    done = subprocess.run([args.winnow, "tokens", "-m", args.model_path, "-f", args.text, "--raw"], stdout=subprocess.PIPE,
                          check=True)
    tokens = list(map(int, done.stdout.split()))
    if len(tokens) < args.length:
        sys.exit(f"compare: {args.text} has {len(tokens)} tokens, fewer than {args.length}; give a longer --text")
    return tokens[:args.length]


def main():
    args = parse_args()
    tokens = prompt_tokens(args)
    before = os.getloadavg()[0]
    rows, engines = open_rows(args, args.length + args.decode + 1)
    try:
        results = measure(args, tokens, rows)
    except (Missing, subprocess.SubprocessError) as why:
        sys.exit(f"compare: {why}")
    finally:
        for engine in engines:
            engine.close()
    print(f"{from_cpuinfo('model name')}, {args.threads} threads; {os.path.basename(args.model_path)}, {args.length} tokens, "
          f"{args.decode} decoded, {args.reps} rounds; compressed: {max(args.length // 8, 32)} entries per head; "
          f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after\n")
    for engine in engines:
        print(f"- {engine.about}")
    print()
    print_markdown(table(args, rows, results))
    if args.csv:
        write_csv(args.csv, args, results)


main()
