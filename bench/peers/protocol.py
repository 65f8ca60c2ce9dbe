# SPDX-License-Identifier: MIT
"""How compare.py and the engines talk: one JSON object per line. An engine says what it is once its model is loaded,
{"about": ...}, then answers each request {"tokens": [...], "decode": N, "keep": K} with the time to the first token, that of
the N tokens after it, their ids and the most memory it has used. K is the number of entries to keep per layer and KV head,
null to keep all."""
import json
import sys


def peak_bytes(pid="self"):
    """The most memory that was resident in the process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))


def serve(about, run):
    """run(tokens, decode, keep) -> (milliseconds to the first token, those of the others, ids)."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not get between the answers
    print(json.dumps({"about": about}), file=out, flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        first_ms, decode_ms, ids = run(ask["tokens"], ask["decode"], ask["keep"])
        print(json.dumps({"first_ms": first_ms, "decode_ms": decode_ms, "ids": ids, "peak_bytes": peak_bytes()}),
              file=out, flush=True)
