#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prompts that `winnow serve` compresses while it reads them (--evict): chunks.py WINNOW"""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading

from llama_server import TINY, Most, Server, check, finish, ids

winnow = sys.argv[1]
MODEL = f"{TINY}/tiny-llama.gguf"
ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = 256  # tokens that the server computes at once


def serve(*options, model=MODEL, slots=1):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", str(slots), *options, "--", "-t", "1", "-b", str(BATCH), "-ub", str(BATCH)])


def kv(s):
    return s.ask("/winnow/kv").json


def ask(s, prompt, n_predict=4, **more):
    return s.ask("/completion", {"prompt": prompt, "n_predict": n_predict, "ignore_eos": True, **more})


with serve("--policy", "full") as s:
    row = kv(s)["bytes_of_a_token"]
    check("full is read whole", ask(s, ids(2000, 1)).status == 200 and "chunk" not in kv(s)["slots"][0], kv(s))

# A prompt that would not fit whole is read in chunks, and the cap holds.
CAP = 1300  # with room for growth blocks and pages
for policy in ("keydiff", "snapkv", "knorm", "auto"):
    with serve("--policy", policy, "--ratio", "0.75", "--kv-bytes", str(CAP * row)) as s:
        # auto may note the queries of a prompt, which take memory too.
        check(f"{policy}: a short prompt is read whole", policy == "auto" or ask(s, ids(900, 2)).status == 200 and "chunk" not in kv(s)["slots"][0], kv(s))
        most = Most(s)
        r = ask(s, ids(3000, 1), cache_prompt=False)
        top, said = most.end(), kv(s)
        slot = said["slots"][0]
        check(f"{policy}: a long prompt is answered", r.status == 200 and r.json["tokens_evaluated"] == 3000, r.text[:300])
        check(f"{policy}: the cap held", top <= CAP * row, top, CAP * row)
        check(f"{policy}: it was compressed several times", slot["compressed"] and slot["chunk"] >= 128 and said["compressions"] > 4 and said["compressions_failed"] == 0, said)
        check(f"{policy}: what stays is the size", 750 <= slot["entries"] <= 750 + 128 + 4, slot)
        r = ask(s, ids(3000, 1) + ids(100, 3))
        check(f"{policy}: the conversation goes on", r.status == 200 and (policy in ("snapkv", "auto") or r.json["timings"]["cache_n"] >= 3000), r.json["timings"])
        r = ask(s, ids(6000, 4))
        check(f"{policy}: what fits in no chunks is refused", r.status == 400 and "in chunks" in r.text, r.text[:300])

# Several at once share the cap.
with serve("--policy", "keydiff", "--budget", "200", "--kv-bytes", str(CAP * row), slots=3) as s:
    most, seen = Most(s), []
    threads = [threading.Thread(target=lambda i=i: seen.append(ask(s, ids(2000 + 100 * i, i)).status)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("several long prompts", 200 in seen and set(seen) <= {200, 503}, seen)
    check("the cap held for all", most.end() <= CAP * row, most.bytes)

# Policies that cannot, and a server that shall not.
for options, words in ((("--policy", "replay"), "cannot compress a prompt while it is read"), (("--policy", "lagkv"), "keeps some of every block"), (("--policy", "keydiff", "--evict", "end"), "while it is read,")):
    with serve(*options, "--ratio", "0.75", "--kv-bytes", str(CAP * row)) as s:
        r = ask(s, ids(3000, 1))
        check(f"{options}: refused", r.status == 400 and words in r.text, r.text[:300])
        if options[1] != "keydiff":
            r = ask(s, ids(3000, 1), winnow={"policy": "keydiff"})
            check(f"{options}: a request brings one that can", r.status == 200 and kv(s)["slots"][0]["chunk"] > 0, r.text[:300])

# Always, without a cap. Requests whose policies cannot are read whole.
with serve("--policy", "keydiff", "--ratio", "0.75", "--evict", "chunk:300") as s:
    most = Most(s)
    r = ask(s, ids(3000, 1))
    check("chunks without a cap", r.status == 200 and kv(s)["slots"][0]["chunk"] == 300 and most.end() < 1900 * row, most.bytes, kv(s))
    for policy in ("replay", "full"):
        r = ask(s, ids(1000, 2), winnow={"policy": policy})
        check(f"{policy} is read whole", r.status == 200 and "chunk" not in kv(s)["slots"][0], kv(s)["slots"][0])

# A policy of blocks judges each once, so that earlier chunks stay as they are. Its own size is as good as a given one.
for size, least, most in ((("--ratio", "0.5"), 0.5, 0.5), ((), 0.2, 0.6)):
    with serve("--policy", "lagkv:lag=32,sink=4", "--evict", "chunk:300", *size) as s:
        top = Most(s)
        r = ask(s, ids(3000, 1), n_predict=1)
        said = kv(s)
        slot = said["slots"][0]
        check(f"lagkv {size}: in chunks", r.status == 200 and slot["chunk"] == 300 and said["compressions"] > 4 and said["compressions_by_fallback"] == said["compressions_failed"] == 0, said)
        check(f"lagkv {size}: what stays", 3000 * least - 2 <= slot["entries"] <= 3000 * most + 3 * 32 and top.end() < 2400 * row, slot, top.bytes)
        before = slot["entries"]
        r = ask(s, ids(3000, 1) + ids(400, 2), n_predict=1)
        grown = kv(s)["slots"][0]["entries"] - before
        check(f"lagkv {size}: goes on", r.json["timings"]["cache_n"] >= 2999 and 400 * least - 64 <= grown <= 400, grown, r.json["timings"])

# A long prompt of a model with head budgets is read in chunks by itself. A model of a longer context is needed.
with tempfile.TemporaryDirectory() as folder:
    data = bytearray(open(MODEL, "rb").read())
    at = data.index(b"llama.context_length") + len(b"llama.context_length")
    assert struct.unpack_from("<II", data, at) == (4, 8192)
    struct.pack_into("<I", data, at + 4, 16384)
    model, text = pathlib.Path(folder) / "long.gguf", pathlib.Path(folder) / "text.txt"
    model.write_bytes(data)
    text.write_text((ROOT / "share/text/calibration.txt").read_text()[:6000])
    os.environ["WINNOW_CACHE"] = folder  # the profile goes there, and the server finds it
    made = subprocess.run([winnow, "calibrate", "shares", "-m", model, "-f", text, "--set", "pieces=2,shortest=60,longest=80,extra=90", "-t", "1"], capture_output=True, text=True)
    check("head budgets", made.returncode == 0, made.stderr)
    for options, chunk in (((), 2048), (("--evict", "end"), None), (("--policy", "keydiff-shares"), None)):
        with serve("--ratio", "0.75", "--context", "16384", *options, model=str(model)) as s:
            r = ask(s, ids(8150, 1))
            check(f"{options}: not so long", r.status == 200 and "chunk" not in kv(s)["slots"][0], r.text[:300], kv(s)["slots"][0])
            r = ask(s, ids(8300, 2))
            check(f"{options}: long", r.status == 200 and kv(s)["slots"][0].get("chunk") == chunk, r.text[:300], kv(s)["slots"][0])

for options, words in ((("--evict", "layer"), "chunk or chunk:C"), (("--evict", "chunk:100"), "at least 128"), (("--evict", "chunk:"), "chunk:C takes C tokens"), (("--evict", "chunk:0"), "chunk:C takes C tokens"), (("--evict", "soon"), "unknown"),
                       (("--evict", "chunk", "--policy", "full"), "removes nothing"), (("--evict", "chunk", "--policy", "replay"), "queries of the whole prompt"), (("--evict", "chunk", "--policy", "lagkv", "--kv-bytes", "1G"), "some of every block"), (("--evict", "chunk", "--keep-quality", "0.9"), "whole prompts")):
    p = subprocess.run([winnow, "serve", "-m", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=60)
    check(f"{options}: one sentence", p.returncode == 2 and words in p.stderr and p.stderr.count("\n") == 1, p.returncode, p.stderr)
finish()
