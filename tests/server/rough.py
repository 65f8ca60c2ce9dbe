#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`winnow serve` with rough clients, and where it must not start or go on: rough.py WINNOW

Slow writers and readers, bodies that are cut, too large or none, and clients that leave while they wait for a slot.
"""
import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from llama_server import TINY, Server, check, finish, ids, post, rest_of, until

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"


def serve(*options, slots=2):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", str(slots), *options, "--", "-t", "1"])


def kv(s):
    return s.ask("/winnow/kv").json


def free(s):
    return not any(x["busy"] for x in kv(s)["slots"])


with serve("--policy", "keydiff", "--budget", "100") as s:
    body = {"prompt": ids(400, 1), "n_predict": 8, "ignore_eos": True}
    # A body that comes in drops takes no slot until it is whole, and others are served meanwhile.
    with s.connect() as slow:
        text = post(body)
        for i in range(0, len(text) - 1, 1 + len(text) // 8):
            slow.sendall(text[i:i + 1 + len(text) // 8][:len(text) - 1 - i])
            check("others are served meanwhile", s.ask("/completion", {"prompt": ids(50, i), "n_predict": 2}).status == 200)
        check("a body that is not whole takes no slot", free(s))
        slow.sendall(text[-1:])
        check("a slow writer is answered", b"200 OK" in slow.recv(65536))
    # A reader that does not read: the others go on, and when it leaves its slot is free.
    with s.connect() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(post({"prompt": ids(300, 2), "n_predict": 20000, "ignore_eos": True, "stream": True, "n_probs": 5}))
        check("it has a slot", until(lambda: not free(s)))
        replies = [s.ask("/completion", {"prompt": ids(60, i), "n_predict": 4}).status for i in range(6)]
        check("a reader that does not read holds up nobody else", replies == [200] * 6, replies)
    check("and leaves its slot", until(lambda: free(s), 60), kv(s))
    # After a stream the connection ends, and the reply says so: a client that keeps connections opens another. After a whole answer it stays open.
    messages = [{"role": "user", "content": "w1 w2"}]
    for path, asked in (("/completion", {"prompt": ids(20, 3), "n_predict": 3}), ("/v1/chat/completions", {"messages": messages, "max_tokens": 3}),
                        ("/v1/messages", {"messages": messages, "max_tokens": 3}), ("/v1/responses", {"input": "w1 w2", "max_output_tokens": 3})):
        for stream in (False, True):
            c = http.client.HTTPConnection(*s.address(), timeout=60)
            c.request("POST", path, json.dumps({**asked, "stream": stream}), {"Content-Type": "application/json"})
            reply = c.getresponse()
            came, said = reply.read(), (reply.headers.get("Connection") or "").lower()
            check(f"{path}{' in a stream' * stream}: whether the connection ends is said", reply.status == 200 and (said == "close") == stream == (c.sock is None), reply.status, said, came[:500])
            if not stream:
                c.request("GET", "/health")
                check(f"{path}: the connection is used again", c.getresponse().status == 200)
            c.close()
    # Bodies that are none.
    for name, text in {"cut": post({"prompt": "x"}, 1000), "no JSON": post(b"\xff\xfe{"), "deep": post(b"[" * 100000), "a number": post(b"7"),
                       "empty": post(b""), "a field that is deep": post(b'{"prompt": "x", "winnow": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001),
                       "a long policy": post({"prompt": "x", "winnow": {"policy": "k" * 100000}}), "NUL": post(b'{"prompt": "a\\u0000b", "n_predict": 1}')}.items():
        with s.connect() as c:
            c.sendall(text)
            c.shutdown(socket.SHUT_WR)
            came = rest_of(c)
            good = b"HTTP/1.1 200" in came if name == "NUL" else not came or b"HTTP/1.1 4" in came or b"HTTP/1.1 5" in came
            check(f"a body: {name}", good, came[:300])
    check("a body of more than 64 MiB is refused", s.ask("/completion", b" " * (64 * 2**20 + 1)).status == 413)
    large = s.ask("/completion", {"prompt": "word " * 400000, "n_predict": 1})
    check("a prompt of two megabytes is too long", large.status == 400 and "context" in large.text, large.text[:300])
    check("the server goes on", s.ask("/completion", body).status == 200 and free(s), kv(s))

    # Clients that leave while they wait give their turn to the next one.
    stream = {"prompt": ids(200, 3), "n_predict": 20000, "ignore_eos": True, "stream": True}
    holders = [s.connect() for _ in range(2)]
    for c in holders:
        c.sendall(post(stream))
    check("all slots are taken", until(lambda: all(x["busy"] for x in kv(s)["slots"])))
    waiting = [s.connect() for _ in range(4)]
    for c in waiting:
        c.sendall(post(body))
    last = []
    thread = threading.Thread(target=lambda: last.append(s.ask("/completion", body).status))
    thread.start()
    time.sleep(0.2)
    for c in waiting + holders:
        c.close()
    thread.join(60)
    check("who stays is served", last == [200], last)
    check("nothing is left", until(lambda: free(s), 60), kv(s))

# SIGTERM in the middle of answers ends it at any moment.
def stream_in(server, seed):
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.ask("/completion", {"prompt": ids(300, seed), "n_predict": 20000, "ignore_eos": True, "stream": True})


for turn in range(6):
    with serve("--policy", "keydiff", "--budget", "100") as s:
        for k in range(5):
            threading.Thread(target=stream_in, args=(s, k), daemon=True).start()
        time.sleep(0.05 + 0.13 * turn)
        check(f"SIGTERM ends it among answers, {turn}", s.stop() == 0, s.log()[-500:])

# The program itself does not run without the backend in silence.
server = os.path.join(os.path.dirname(winnow), "winnow-llama-server")
for name, options, says in [("no device", [], "device WINNOW"), ("no layer on it", ["-dev", "WINNOW", "-ngl", "1"], "none of the model's keys and values is on the device WINNOW")]:
    done = subprocess.run([server, "-m", model, "-c", "512", "--port", "0", "--host", "127.0.0.1", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, env={**os.environ, "WINNOW_SERVE_POLICY": "keydiff"})
    check(f"without the backend: {name}", done.returncode == 1 and says in done.stderr, done.returncode, done.stderr[-800:])
for types in (("f32", "f32"), ("f32", "f16"), ("f16", "f32")):
    done = subprocess.run([winnow, "serve", "-m", model, "--port", "0", "--", "-ctk", types[0], "-ctv", types[1]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    check(f"keys and values that are converted first: {types}", done.returncode == 2 and "keys and values of f32 stay as libllama has them" in done.stderr, done.returncode, done.stderr[-800:])
for name in ("bert", "mamba"):
    done = subprocess.run([winnow, "serve", "-m", f"{TINY}/foreign/{name}.gguf", "--port", "0"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stderr.splitlines() if line.startswith("winnow: ") and "unless a request" not in line and not line.startswith("winnow: auto: ")]
    check(f"a model without a cache: {name}", done.returncode == 1 and len(lines) == 1 and "has no cache of keys and values" in lines[0], done.returncode, done.stderr[-800:])

# What may not be locked or written is said, and the server goes on for all. Root may do both, unless it gives that up.
less = ["setpriv", "--bounding-set=-ipc_lock,-dac_override"] if os.getuid() == 0 else []
if not less or subprocess.run([*less, "true"], stderr=subprocess.DEVNULL).returncode == 0:
    with tempfile.TemporaryDirectory() as folder:
        command = [winnow, "serve", "-m", model, "--port", "0", "--slots", "2", "--policy", "keydiff", "--save", folder, "--", "-t", "1", "-lm", "mlock"]
        with Server([*less, "bash", "-c", 'ulimit -l 64; exec "$@"', "serve", *command]) as s:
            said = [line for line in s.log().splitlines() if "failed to mlock" in line]
            check("memory that may not be locked", len(said) == 1 and "Cannot allocate memory" in said[0], said)
            other = s.ask("/completion", {"prompt": ids(300, 1), "n_predict": 4, "id_slot": 1})
            os.chmod(folder, 0o500)
            saved = s.ask("/winnow/slots/1?action=save", {"filename": "slot"})
            check("a folder that may not be written any more", saved.status in (400, 500) and "error" in saved.json, saved.text)
            check("leaves no file", os.listdir(folder) == [])
            held = kv(s)["slots"][1]
            check("and the slot is what it was", held["compressed"] and held["tokens"] == 303, held)
            again = s.ask("/completion", {"prompt": ids(300, 1), "n_predict": 4, "id_slot": 1})
            check("it goes on", other.status == again.status == 200 and again.json["tokens_predicted"] == 4, again.text[:300])
            os.chmod(folder, 0o700)
            check("and saves again when it may", s.ask("/winnow/slots/1?action=save", {"filename": "slot"}).status == 200 and os.listdir(folder) == ["slot"])

# A model in one file may have the name of a first of several, and any characters that a path can have.
with tempfile.TemporaryDirectory() as folder:
    for name in ("one-00001-of-00003.gguf", "a b.gguf", "new\nline.gguf", "tab\t.gguf", "caf\u00e9 100%s.gguf", "-m.gguf", "no ending"):
        os.symlink(model, os.path.join(folder, name))
        with Server([winnow, "serve", "-m", os.path.join(folder, name), "--port", "0", "--slots", "1", "--policy", "keydiff", "--save", folder, "--", "-t", "1"]) as s:
            check(f"a model called {name!r}", s.ask("/completion", {"prompt": ids(300, 1), "n_predict": 1}).status == 200)
            check(f"its slot is saved: {name!r}", s.ask("/winnow/slots/0?action=save", {"filename": "slot"}).status == 200, s.log()[-500:])

# A model that is cut off while it is served: the log has the reason, and the process ends by itself.
with tempfile.TemporaryDirectory() as folder:
    copy = os.path.join(folder, "open.gguf")
    shutil.copy(model, copy)
    with Server([winnow, "serve", "-m", copy, "--port", "0", "--slots", "1", "--", "-t", "1"]) as s:
        check("it answers", s.ask("/completion", {"prompt": ids(20, 1), "n_predict": 1}).status == 200)
        os.truncate(copy, 4096)
        try:
            s.ask("/completion", {"prompt": ids(20, 2), "n_predict": 1})
        except (OSError, http.client.HTTPException):
            pass
        check("it ends with 1", until(lambda: s.process.poll() is not None) and s.process.returncode == 1, s.process.returncode, s.log()[-500:])
        check("and says why", "cut off while it was in use" in s.log(), s.log()[-500:])

# What the environment says is taken or refused, in one line, before a model is opened.
budget, ratio, cap = "WINNOW_SERVE_BUDGET", "WINNOW_SERVE_RATIO", "WINNOW_SERVE_KV_BYTES"
wrong = [{"WINNOW_SERVE_POLICY": "none"}, {"WINNOW_SERVE_POLICY": " "}, {"WINNOW_SERVE_POLICY": "snapkv\n+adakv"}, {"WINNOW_SERVE_POLICY": "k" * 600},
         {"WINNOW_PROFILE": "/no/such\n.json"}, {"WINNOW_POLICY": "none"}, {"WINNOW_BUDGET": "100"},
         *({budget: x} for x in ("many", " ", " 5", "5 ", "-5", "0", "0.5", "1e3", "1e300", "nan", "inf", "0x10", "5x", "2147483648", "99999999999999999999")),
         *({ratio: x} for x in ("1", "1.5", "-0.1", "nan", "inf", "1e300", "0x1p-1", " 0.5", "0.5x", "50%")),
         *({cap: x} for x in ("0", "-1", "0.5", "1e300", "3k", "3KB", " 3", "nan", "99999999999G")), {budget: "5", ratio: "0.5"}]
for env in wrong:
    done = subprocess.run([server, "-m", model, "--port", "0"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env={**os.environ, **env})
    check(f"an environment with {env}", done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("winnow: ") and not done.stdout, done.returncode, done.stderr[-500:])
for options, key, value in [(["--ratio", "0"], "ratio", 0), (["--ratio", "0.25"], "ratio", 0.25), (["--budget", "77"], "budget", 77), (["--kv-bytes", "3M"], "cap", 3 << 20)]:
    with serve("--policy", "keydiff", *options) as s:
        check(f"{options} counts", kv(s).get(key) == value, kv(s))
        if value == 0:
            s.ask("/completion", {"prompt": ids(300, 1), "n_predict": 1, "ignore_eos": True, "id_slot": 0})
            check("and drops nothing", kv(s)["slots"][0]["entries"] >= 300, kv(s))
# Values of options by which llama.cpp's server ends itself before it answers: one sentence and an exit code.
for rest, said in ((["--grammar", "x"], "failed to parse grammar"), (["--rpc", "nowhere"], "Failed to parse endpoint")):
    done = subprocess.run([winnow, "serve", "-m", model, "--port", "0", "--", *rest], capture_output=True, text=True, errors="replace", timeout=120)
    check(f"{rest}: the exit code", done.returncode == 2, done.returncode, done.stderr[-500:])
    check(f"{rest}: the last line", "winnow: llama.cpp's server cannot start: " in done.stderr.splitlines()[-1] and said in done.stderr.splitlines()[-1], done.stderr[-500:])
finish()
