#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Parked conversations after the server has ended: restart.py WINNOW [KILLS]

After SIGTERM every conversation goes on. After SIGKILL at any moment everything goes on that /winnow/kv had reported as on disk, and
nothing is served that is not whole: answers are those of a server that never parks.
"""
import os
import random
import signal
import sys
import tempfile
import threading
import time

from llama_server import TINY, Server, check, finish, ids, nearly_same, until

winnow = sys.argv[1]
kills = int(sys.argv[2]) if len(sys.argv) > 2 else 6
CLOSE = 0.02
N, LENGTH = 5, 200


def serve(*options, slots=2, model="tiny-llama.gguf", policy=("--policy", "keydiff", "--budget", "100")):
    return Server([winnow, "serve", "-m", f"{TINY}/{model}", "--port", "0", "--slots", str(slots), *policy, *options, "--", "-t", "1"])


def parked(s):
    return s.ask("/winnow/kv").json["parked"]


def found(s):
    return [line for line in s.log().splitlines() if "parked prompts;" in line]


def first(i):
    return ids(LENGTH, i)


def second(i, answer):
    return first(i) + answer["tokens"] + ids(30, 50 + i)


FULL = ("--policy", "full")


def reference(policy):
    with serve("--park", "0", slots=N, policy=policy) as s:
        answers = [s.complete(first(i), 12) for i in range(N)]
        return answers, [s.complete(second(i, a), 12) for i, a in enumerate(answers)]


_, more = reference(("--policy", "keydiff", "--budget", "100"))

with tempfile.TemporaryDirectory() as folder:
    # SIGTERM: also what slots held.
    with serve("--park", "64M", "--state", folder) as s:
        got = [s.complete(first(i), 12) for i in range(N)]
        check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])
    check("all are there", len([f for f in os.listdir(folder) if f.endswith(".park")]) == N, os.listdir(folder))
    with serve("--park", "64M", "--state", folder) as s:
        check("found again, in one line", len(found(s)) == 1 and f"has {N} parked prompts; 0 of" in found(s)[0] and parked(s)["on_disk"] == N, found(s), parked(s))
        again = [s.complete(second(i, a), 12) for i, a in enumerate(got)]
        check("each goes on", all(a["timings"]["prompt_n"] <= 34 for a in again), [a["timings"] for a in again])
        check("with the answers of a server that has not ended", all(nearly_same(a, b, CLOSE) for a, b in zip(more, again)))
        check("and ends", s.stop() == 0)
    # SIGTERM over and over, as `timeout` and supervisors send it, also without a pause: nothing that is being parked is lost.
    for pause in 0.002, 0, 0:
        with tempfile.TemporaryDirectory() as other, serve("--park", "64M", "--state", other) as s:
            for i in range(N):
                s.complete(first(i), 12)
            while s.process.poll() is None:
                s.process.terminate()
                time.sleep(pause)
            check("many SIGTERMs end it as one does", s.stop() == 0 and len([f for f in os.listdir(other) if f.endswith(".park")]) == N, os.listdir(other), s.log()[-500:])
    # What was restored and not asked is still there after another restart.
    with serve("--park", "64M", "--state", folder) as s:
        check("replaced by what they became", parked(s)["on_disk"] == N, parked(s), os.listdir(folder))
        check("and ends at once", s.stop() == 0)
    # Another model, other versions, and files that are no parked prompts.
    with serve("--park", "64M", "--state", folder, model="tiny-qwen2.gguf") as s:
        check("of another model: passed over in one line", len(found(s)) == 1 and f"has 0 parked prompts; {N} of another model or version" in found(s)[0], found(s))
        a = s.complete(second(0, got[0]), 12)
        check("and read", a["timings"]["cache_n"] == 0)
        check("and ends", s.stop() == 0)
    names = sorted(f for f in os.listdir(folder) if f.endswith(".park"))
    with open(f"{folder}/{names[0]}", "r+b") as f:
        f.seek(12)
        f.write(b"9")
    with open(f"{folder}/{names[1]}", "r+b") as f:
        f.truncate(100)
    with open(f"{folder}/winnow-00000000000000ff.park", "wb") as f:
        f.write(b"hello")
    with open(f"{folder}/winnow-notes.txt", "w") as f:
        f.write("a user's file")
    with serve("--park", "64M", "--state", folder) as s:
        check("another version is passed over, what is damaged is removed", len(found(s)) == 1 and "2 damaged ones were removed" in found(s)[0], found(s))
        check("files of others stay", os.path.exists(f"{folder}/winnow-notes.txt"))
        check("all is answered", all(s.complete(second(i, a), 12)["tokens_predicted"] == 12 for i, a in enumerate(got)))

# SIGKILL at any moment.
random.seed(7)
want, whole = reference(FULL)
with tempfile.TemporaryDirectory() as folder:
    for turn in range(kills):
        s = serve("--park", "64M", "--state", folder, policy=FULL)
        check(f"kill {turn}: nothing damaged is found", not found(s) or " 0 damaged" in found(s)[0], found(s))
        wrong = []

        def talk():
            try:
                while True:
                    for i in random.sample(range(N), N):
                        s.complete(first(i), 12)
                        b = s.complete(second(i, want[i]), 12)
                        if not nearly_same(whole[i], b, CLOSE):
                            wrong.append((i, b))
            except (Exception, SystemExit):  # the server has been killed
                pass

        thread = threading.Thread(target=talk)
        thread.start()
        time.sleep(random.uniform(0.05, 1.0))
        s.process.send_signal(signal.SIGKILL)
        thread.join()
        s.stop()
        check(f"kill {turn}: answers are whole", not wrong, wrong[:1])
    with serve("--park", "64M", "--state", folder, policy=FULL) as s:
        check("after all kills: nothing is left behind", all(f.endswith(".park") or f == "winnow.lock" for f in os.listdir(folder)), os.listdir(folder))
        answers = [s.complete(second(i, want[i]), 12) for i in range(N)]
        check("after all kills: answers are whole", all(nearly_same(a, b, CLOSE) for a, b in zip(whole, answers)))
    # What was acknowledged as on disk is used after a kill.
with tempfile.TemporaryDirectory() as folder:
    s = serve("--park", "64M", "--state", folder, slots=1)
    got = [s.complete(first(i), 12) for i in range(N)]
    check("acknowledged", until(lambda: parked(s)["on_disk"] == N - 1), parked(s))
    s.process.send_signal(signal.SIGKILL)
    s.stop()
    with serve("--park", "64M", "--state", folder, slots=1) as s:
        check("what was acknowledged is found", parked(s)["on_disk"] == N - 1, parked(s))
        again = [s.complete(second(i, a), 12) for i, a in enumerate(got[:N - 1])]
        check("and used", all(a["timings"]["prompt_n"] <= 34 for a in again), [a["timings"] for a in again])
        check("with the same answers", all(nearly_same(a, b, CLOSE) for a, b in zip(more, again)))
finish()
