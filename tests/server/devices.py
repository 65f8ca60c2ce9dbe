#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`winnow serve` on devices of ggml: devices.py WINNOW

Around the CPU, around a worker, and around both: the default policy, documents, slots in files, parked conversations and streams are what they are
on the device WINNOW. What cannot be had is one sentence and an exit code, and a worker that dies does not end the server.
"""
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading

from llama_server import TINY, Server, Worker, at_once, check, finish, ids, nearly_same, post, rest_of, until

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"
CLOSE = 0.02  # the same tokens, in other batches or by other kernels
work = tempfile.TemporaryDirectory()


def command(*options, rest=()):
    return [winnow, "serve", "-m", model, "--port", "0", *options, "--", "-t", "1", *rest]


def refused(name, code, sentence, *options):
    run = subprocess.run(command(*options), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    lines = run.stderr.splitlines()
    check(name, run.returncode == code and len(lines) == 1 and re.search(sentence, lines[0]), run.returncode, run.stderr)


def kv(s):
    return s.ask("/winnow/kv").json


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


def chat(s, text, **more):
    return s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, "ignore_eos": True, **more})


def read(answer):
    return answer["timings"]["prompt_n"]


def streamed(text):
    """The text of a stream's parts, and whether it ended as one does."""
    data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    parts = [json.loads(x)["choices"] for x in data[:-1]]
    return "".join(c[0]["delta"].get("content") or "" for c in parts if c), data[-1:] == ["[DONE]"]


first, second, third = ids(900, 1), ids(700, 2), ids(600, 3)
with open(f"{work.name}/text.txt", "w", encoding="utf-8") as f:
    f.write(words(700, 4))


def use(name, s, whole):
    """What a server does for its clients. Returns what it says without a compressed cache."""
    full = {"winnow": {"policy": "full"}}
    check(f"{name}: the document is read", until(lambda: kv(s)["documents"][0]["ready"], 120))  # it is compressed, too, and counted
    said = s.complete(second, 12, id_slot=1, **full)
    check(f"{name}: an answer with the whole cache", not whole or nearly_same(whole, said, CLOSE), whole, said)
    entries = kv(s)["slots"][1]["entries"]
    check(f"{name}: and the whole cache is there", entries >= len(second) + 11, kv(s)["slots"][1])

    # The default policy removes half of a prompt, and its memory goes back.
    before = kv(s)
    answer = s.complete(first, 12, id_slot=0)
    after = kv(s)
    slot = after["slots"][0]
    check(f"{name}: auto compresses", slot["policy"] == "auto" and slot["compressed"] and len(first) / 2 <= slot["entries"] <= len(first) / 2 + 40, slot)
    check(f"{name}: no failure", after["compressions"] == before["compressions"] + 1 and after["compressions_failed"] == after["compressions_by_fallback"] == 0, after)
    check(f"{name}: and memory", after["bytes"] < after["bytes_uncompressed"], after)
    more = first + answer["tokens"] + ids(20, 9)
    saved = s.ask("/slots/0?action=save", {"filename": "slot"})
    turn = s.complete(more, 12, id_slot=0)
    check(f"{name}: a turn reads what is new", read(turn) == 21, turn["timings"])

    # A slot in a file; what was kept is what is restored.
    erased = s.ask("/slots/0?action=erase", "{}")
    check(f"{name}: an erased slot is empty", erased.status == 200 and kv(s)["slots"][0]["tokens"] == 0, kv(s)["slots"][0])
    back = s.ask("/slots/0?action=restore", {"filename": "slot"})
    again = kv(s)["slots"][0]
    check(f"{name}: saved and restored", saved.status == back.status == 200 and again["compressed"] and again["entries"] == slot["entries"], saved.text, back.text, again, slot)
    check(f"{name}: and goes on", nearly_same(turn, s.complete(more, 12, id_slot=0), CLOSE))
    check(f"{name}: the other slot is as it was", kv(s)["slots"][1]["entries"] == entries, kv(s)["slots"][1])

    # A third conversation takes the slot of one that is parked, which comes back.
    third_said = s.complete(third, 12)
    check(f"{name}: a conversation is parked", kv(s)["parked"]["parked"] >= 1, kv(s)["parked"])
    for i in range(2):
        s.complete(ids(500, 5 + 10 * i), 4)
    third_again = s.complete(third + third_said["tokens"] + ids(10, 6), 12)
    check(f"{name}: and comes back", read(third_again) <= 11 and kv(s)["parked"]["used"] >= 1, third_again["timings"], kv(s)["parked"])

    # A document that is in the cache already.
    named = chat(s, "Who signs?", winnow={"document": "text"})
    check(f"{name}: a document", named.status == 200 and named.json["timings"]["prompt_n"] < 60, named.text)
    stream = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "Who signs?"}], "max_tokens": 8, "temperature": 0, "ignore_eos": True, "stream": True,
                                           "winnow": {"document": "text"}})
    text, ended = streamed(stream.text)
    check(f"{name}: streamed", ended and text == named.json["choices"][0]["message"]["content"], stream.text, named.text)

    # Two slots in one batch.
    both = at_once(lambda: s.complete(second, 12, id_slot=1, cache_prompt=False, **full), lambda: s.complete(ids(800, 7), 12, id_slot=0, cache_prompt=False))
    check(f"{name}: beside another request", nearly_same(said, both[0], CLOSE), said, both[0])
    summed = s.ask("/completion", {"prompt": first, "n_predict": 1, "winnow": {"policy": "h2o", "budget": 100}})
    check(f"{name}: a policy that sums up attention", summed.status == 200, summed.text)
    return said


common = ("--slots", "2", "--ratio", "0.5", "--save", work.name, "--document", f"text={work.name}/text.txt")
whole = None
workers = [Worker(winnow), Worker(winnow)]
for name, options in (("plain", ()), ("cpu", ("--devices", "cpu")),
                      ("a worker", ("--devices", workers[0].name)),
                      ("a worker and the CPU", ("--devices", f"{workers[0].name},CPU", "--layers", "3,1")),
                      ("two workers", ("--devices", f"{workers[0].name},{workers[1].name}", "--layers", "1,3"))):
    with Server(command(*common, *options)) as s:
        whole = use(name, s, whole) if whole else use(name, s, None)

# Layers go where they are wanted.
with Server(command("--devices", f"{workers[0].name},cpu", "--layers", "1,3", rest=("-lv", "5"))) as s:
    check("layers", re.findall(r"layer +(\d) assigned to device (\w+)", s.log()) == [("0", "WINNOW0"), *((str(i), "WINNOW1") for i in range(1, 5))], s.log()[-3000:])

# A worker that dies: an error for who asked, and the server lives.
with Server(command("--slots", "1", "--devices", f"cpu,{workers[1].name}", "--layers", "2,2")) as s:
    s.complete(first, 4)
    workers[1].end()
    lost = [s.ask("/completion", {"prompt": second, "n_predict": 4, "cache_prompt": False}) for _ in range(3)]
    check("a worker that died", all(x.status == 503 and workers[1].name[4:] in x.text for x in lost) and s.process.poll() is None, [x.text for x in lost])
    check("is named", workers[1].name[4:] in s.log(), s.log()[-2000:])

# While an answer is streamed: its last part is an error with the sentence.
one = Worker(winnow)
with Server(command("--slots", "1", "--context", "4096", "--devices", one.name)) as s, s.connect() as c:
    c.sendall(post({"prompt": ids(50, 1), "n_predict": 3000, "ignore_eos": True, "stream": True}))
    came = b""
    while b"data: " not in came and (part := c.recv(65536)):
        came += part
    one.end()
    came += rest_of(c)
    last = [line for line in came.decode().splitlines() if line.startswith("data: ")][-1]
    error = json.loads(last[6:]).get("error", {})
    check("a stream that loses its worker", error.get("code") == 503 and f"the worker at {one.name[4:]} is lost" in error["message"], came[-800:])


class OtherVersion:
    """A relay to a worker that answers with the next version of ggml's RPC."""

    def __init__(self, worker):
        self.port, self.listener = worker.port, socket.create_server(("127.0.0.1", 0))
        self.name = f"rpc:127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            asked, answers = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.pass_on, args=(asked, answers, False), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(answers, asked, True), daemon=True).start()

    @staticmethod
    def pass_on(source, to, changes):
        with contextlib.suppress(OSError):  # the other direction has closed both
            while data := source.recv(1 << 16):
                if changes:  # the size of the answer comes before the version, and may come alone
                    while len(data) <= 8 and (more := source.recv(1 << 16)):
                        data += more
                    data, changes = data[:8] + bytes(x + 1 for x in data[8:9]) + data[9:], False
                to.sendall(data)
        # The other direction may still wait on it: only this ends the connection, and the worker serves one at a time.
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)
        to.close()


# Names and numbers that are wrong.
gone, here = workers[1].name, workers[0].name
refused("no such device", 2, r"there is no device 'gpu7': this ggml has .*CPU", "--devices", "gpu7")
refused("one device twice", 2, r"'CPU' is named twice", "--devices", "cpu,CPU")
refused("one server twice", 2, r"is the same server", "--devices", f"{here},rpc:localhost:{here.rsplit(':', 1)[1]}")
refused("no address", 2, r"'127.0.0.1' is no address", "--devices", "rpc:127.0.0.1")
refused("nobody there", 1, rf"{gone[4:]} cannot be reached", "--devices", gone)
other = OtherVersion(workers[0])
refused("a worker of another version", 1, rf"{other.name[4:]} speaks version \d+\.\d+ of ggml's RPC", "--devices", f"cpu,{other.name}")
refused("too few layers", 2, r"'2,1' are 3 layers, and this model has 4", "--devices", f"cpu,{here}", "--layers", "2,1")
refused("one number for two devices", 2, r"has 1 numbers, and --devices names 2", "--devices", f"cpu,{here}", "--layers", "4")
refused("a number of nothing", 2, r"at least 1 for each device", "--devices", f"cpu,{here}", "--layers", "0,4")
off = subprocess.run(command("--devices", "cpu", rest=("-fa", "off")), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
check("no flash attention", off.returncode == 2 and off.stderr.count("without flash attention the keys and values stay") == 1, off.returncode, off.stderr[-800:])
refused("layers of no device", 2, r"shares layers out among --devices", "--layers", "4")

# A worker that is lost: its address is said, and the server stays.
with Server(command(*common, "--devices", workers[0].name)) as s:
    check("before", s.complete(ids(200, 1), 2)["timings"]["predicted_n"] == 2)
    check("its document is read", until(lambda: kv(s)["documents"][0]["ready"], 120))  # a server does not start without one
    workers[0].end()
    finds = s.ask("/completion", {"prompt": ids(200, 2), "n_predict": 2})
    check("the answer that finds it gone", finds.status == 503 and f"the worker at {here[4:]} is lost" in finds.text, finds.status, finds.text)
    again = s.ask("/completion", {"prompt": ids(200, 3), "n_predict": 2})
    check("later answers", again.status == 503 and f"the worker at {here[4:]} is lost" in again.text, again.status, again.text)
    health = s.ask("/health")
    check("its health", health.status == 503 and here[4:] in health.text, health.status, health.text)
    check("what was is still said", s.ask("/winnow/kv").status == 200)

# A server that ends parks what its slots held, and nothing that a lost worker did not give.
for lost in (False, True):
    one = Worker(winnow)
    with tempfile.TemporaryDirectory() as folder, Server(command("--slots", "1", "--park", "64M", "--state", folder, "--devices", f"cpu,{one.name}", "--layers", "2,2")) as s:
        s.complete(first, 4)
        if lost:
            one.end()
        check("it ends", s.stop() == 0, s.log()[-800:])
        kept = [x for x in os.listdir(folder) if x.endswith(".park")]
        check("parked at the end", len(kept) == (0 if lost else 1), lost, kept, s.log()[-800:])
        check("and says why not", not lost or f"is not parked: the worker at {one.name[4:]} is lost" in s.log(), s.log()[-800:])
    one.end()

# A command that loses its worker between two answers.
last = Worker(winnow)
chat_on = subprocess.Popen([winnow, "chat", "-m", f"{TINY}/tiny-qwen3.gguf", "-n", "4", "--temp", "0", "-t", "1", "--devices", last.name],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
chat_on.stdin.write(b"Who?\n")
chat_on.stdin.flush()
first_said = chat_on.stdout.read(1)
last.end()
_, log = chat_on.communicate(b"And where?\n", timeout=120)
check("a chat without its worker", first_said and f"the worker at {last.name[4:]} is lost" in log.decode(), first_said, log)
finish()
