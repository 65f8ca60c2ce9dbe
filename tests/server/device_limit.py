#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Devices whose memory ends: device_limit.py WINNOW

Here a worker is one, whose process may have a limited number of bytes of addresses. Limits are set between what two runs without a limit have needed.
A prompt whose full cache does not fit is refused, and runs when it is compressed in chunks. A server refuses it, too, and its other sequences go on.
"""
import atexit
import re
import resource
import subprocess
import sys
import tempfile

from llama_server import TINY, Server, Worker, check, finish, ids

winnow = sys.argv[1]
model = f"{TINY}/tiny-qwen3.gguf"
LONG, MIB = 6000, 1 << 20
work = tempfile.TemporaryDirectory()


class LimitedWorker(Worker):
    """One whose process may have `limit` bytes of addresses; None: any number."""

    def __init__(self, limit=None):
        def narrow():
            if limit:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        super().__init__(winnow, preexec_fn=narrow, env={"MALLOC_ARENA_MAX": "1"})
        atexit.register(self.process.kill)

    def peak(self):
        """The most bytes of addresses that it has had."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return 1024 * int(re.search(r"VmPeak:\s+(\d+)", f.read()).group(1))

    def lives(self):
        return self.process.poll() is None


tokens = f"{work.name}/ids"
with open(tokens, "w") as out:
    print(*ids(LONG, 1), file=out)


def run(w, budget):
    """Reads the long prompt in chunks of 128 tokens; a budget of more than it has keeps everything."""
    return subprocess.run([winnow, "run", "-m", model, "--tokens", tokens, "-n", "2", "-t", "1", "--json", "--devices", w.name, "--policy", "streaming_llm",
                           "--budget", str(budget), "--evict", "chunk:128"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def needed(budget):
    w = LimitedWorker()
    r = run(w, budget)
    check(f"{budget} without a limit", r.returncode == 0, r.returncode, r.stderr)
    peak = w.peak()
    w.end()
    return peak


whole, few = needed(2 * LONG), needed(64)
check("the full cache needs more", whole - few > 6 * MIB, whole, few)
limit = (whole + few) // 2
w = LimitedWorker(limit)
r = run(w, 2 * LONG)
check("the full cache does not fit", r.returncode == 1 and r.stderr.count("\n") == 1 and re.search(r"could not read a batch of 128 tokens after \d+", r.stderr),
      r.returncode, r.stderr)
check("the worker lives", w.lives())
w.end()
w = LimitedWorker(limit)
r = run(w, 64)
check("chunks fit", r.returncode == 0 and '"kept_tokens_mean": 64.0' in r.stdout, r.returncode, r.stderr)
w.end()


def serve(w):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", "2", "--context", "8000", "--policy", "full", "--devices", w.name, "--", "-t", "1",
                   "-b", "128", "-ub", "128"])


def peaks():
    """After a short prompt, and after a long one."""
    w = LimitedWorker()
    s = serve(w)
    s.complete(ids(200, 2), 4, id_slot=0)
    first = w.peak()
    s.complete(ids(LONG, 3), 4, id_slot=1)
    last = w.peak()
    s.stop()
    w.end()
    return first, last


first, last = peaks()
check("a long prompt needs more", last - first > 6 * MIB, first, last)
w = LimitedWorker((first + last) // 2)
s = serve(w)
before = s.complete(ids(200, 2), 4, id_slot=0)
r = s.ask("/completion", {"prompt": ids(LONG, 3), "n_predict": 4, "id_slot": 1})
check("a prompt that does not fit is refused", r.status >= 400 and "error" in r.json, r.status, r.text[:300])
check("the worker lives", w.lives())
again = s.complete(ids(200, 2) + before["tokens"] + ids(20, 4), 4, id_slot=0)
check("another sequence goes on", again["timings"]["predicted_n"] == 4 and again["timings"]["prompt_n"] < 60, again["timings"])
new = s.complete(ids(150, 5), 4, id_slot=1)
check("the slot takes another prompt", new["timings"]["predicted_n"] == 4, new["timings"])
s.stop()
w.end()
finish()
