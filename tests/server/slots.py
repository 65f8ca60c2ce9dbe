#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Slots of `winnow serve` in files: slots.py WINNOW

What a file says is checked before a slot changes: a restore that is refused leaves the slot as it was, and the server and everybody on it go on. Several servers
may save to one folder. Cells in any order of libllama's go on after a restore as they would have without one.
"""
import ctypes
import json
import os
import random
import shutil
import struct
import sys
import tempfile

from llama_server import TINY, Server, at_once, check, finish, ids, nearly_same, until

winnow = sys.argv[1]
xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
MAGIC, HEADER, SUM, SIZES = 16, 656, 648, 40
# The same computation with other rows in a batch.
CLOSE = 0.02


def serve(folder, *options, slots=3, model="tiny-llama.gguf", rest=()):
    return Server([winnow, "serve", "-m", f"{TINY}/{model}", "--port", "0", "--slots", str(slots), "--save", folder, *options, "--", "-t", "1", *rest])


def kv(s):
    return s.ask("/winnow/kv").json


def move(s, slot, action, name):
    return s.ask(f"/winnow/slots/{slot}?action={action}", {"filename": name})


class File:
    """The parts of a slot's file: header, notes and state. They may be changed and written with a correct checksum."""

    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        self.magic, self.header = data[:MAGIC], bytearray(data[MAGIC:MAGIC + HEADER])
        n, _, packed = struct.unpack_from("<QQQ", self.header, SIZES)
        at = MAGIC + HEADER + 4 * n
        self.notes = bytearray(data[MAGIC + HEADER:at])
        self.state, end = bytearray(), at + packed
        while at < end:
            plain, ones = struct.unpack_from("<QQ", data, at)
            self.state += data[at + 16:at + 16 + plain] + b"\xff" * ones
            at += 16 + plain

    def write(self, path):
        rest = bytes(self.notes) + struct.pack("<QQ", len(self.state), 0) + bytes(self.state)
        header = bytearray(self.header)
        struct.pack_into("<QQQ", header, SIZES, len(self.notes) // 4, len(self.state), 16 + len(self.state))
        struct.pack_into("<Q", header, SUM, 0)
        struct.pack_into("<Q", header, SUM, xxhash.XXH3_64bits(rest + bytes(header), len(rest) + HEADER))
        with open(path, "wb") as f:
            f.write(self.magic + bytes(header) + rest)

    def cells(self):
        return struct.unpack_from("<I", self.state, 12)[0]

    def keep(self, n):
        """The first n cells of the state alone."""
        old, s = self.cells(), self.state
        at = 16 + 12 * old
        out = s[:12] + struct.pack("<I", n) + s[16:16 + 12 * n] + s[at:at + 8]
        layers = struct.unpack_from("<I", s, at + 4)[0]
        at += 8
        for _ in range(2 * layers):
            row = struct.unpack_from("<iQ", s, at)[1]
            out += s[at:at + 12 + row * n]
            at += 12 + row * old
        self.state = out


def set_in(where, form, at, value):
    def change(f):
        struct.pack_into(form, getattr(f, where), at, value)
    return change


CHANGES = {
    "no cell": lambda f: f.keep(0), "half of the cells": lambda f: f.keep(f.cells() // 2), "one cell less": lambda f: f.keep(f.cells() - 1),
    "the last position": lambda f: set_in("state", "<i", 16 + 12 * (f.cells() - 1), 2**31 - 1)(f), "a position below 0": set_in("state", "<i", 16, -1),
    "a position twice": set_in("state", "<i", 16 + 12, 0), "a cell of no sequence": set_in("state", "<I", 20, 0), "a cell of two": set_in("state", "<I", 20, 2),
    "a sequence below 0": set_in("state", "<i", 24, -5), "another mark": set_in("state", "<I", 0, 1), "two streams": set_in("state", "<I", 8, 2),
    "more cells than it has": set_in("state", "<I", 12, 2**32 - 1), "no layer": lambda f: set_in("state", "<I", 16 + 12 * f.cells() + 4, 0)(f),
    "another type": lambda f: set_in("state", "<i", 16 + 12 * f.cells() + 8, 8)(f), "other rows": lambda f: set_in("state", "<Q", 16 + 12 * f.cells() + 12, 7)(f),
    "rows without end": lambda f: set_in("state", "<Q", 16 + 12 * f.cells() + 12, 2**63)(f), "no state": lambda f: f.state.clear(),
    "something behind the state": lambda f: f.state.extend(b"more"), "a token that the model has not": set_in("notes", "<i", 16, 10**6),
    "a token below 0": set_in("notes", "<i", 16, -7), "notes of another version": set_in("notes", "<i", 4, 9), "more notes than it has": set_in("notes", "<i", 8, 10**6),
    "no notes": lambda f: f.notes.clear(), "another number of tokens": set_in("header", "<i", 80, 3), "tokens below 0": set_in("header", "<i", 80, -3),
    "entries below 0": set_in("header", "<q", 72, -1), "too many entries": set_in("header", "<q", 72, 2**40), "a size that is none": set_in("header", "<q", 616, -2),
    "a kind of size that is none": set_in("header", "<i", 608, 99), "a header beyond its tokens": set_in("header", "<i", 640, 10**6),
    "positions that are not there": set_in("header", "<i", 88, 152), "positions below 0": set_in("header", "<i", 88, -1),
    "another model": set_in("header", "<Q", 0, 1), "a recipe with a quote": set_in("header", "<B", 97, ord('"')), "a recipe with a line break": set_in("header", "<B", 97, 10),
}

with tempfile.TemporaryDirectory() as folder:
    prompt, held = ids(150, 1), ids(200, 2)
    with serve(folder, "--policy", "keydiff", "--budget", "60") as s:
        s.complete(prompt, 3, id_slot=0)
        check("saved", move(s, 0, "save", "good").status == 200 and os.listdir(folder) == ["good"], os.listdir(folder), s.log()[-500:])
        s.complete(held, 3, id_slot=1)
        before, n = kv(s)["slots"][1], 0
        with open(f"{folder}/text", "wb") as f:
            f.write(b"hello" * 1000)
        os.mkfifo(f"{folder}/pipe")
        os.mkdir(f"{folder}/folder")
        for name, change in CHANGES.items():
            made = File(f"{folder}/good")
            change(made)
            made.write(f"{folder}/made")
            reply = move(s, 1, "restore", "made")
            check(f"refused: {name}", reply.status == 400 and "cannot restore 'made': " in reply.json["error"]["message"], reply.status, reply.text)
        for name in ("nothere", "text", "pipe", "folder", ".", "..", "../good", "", "a" * 300, "winnow-document.0", "winnow-document.x", "winnow-look.0.0", "winnow-look. 1.2", "a\u0000b"):
            for action in ("restore", "save") if name not in ("text", "nothere") else ("restore",):
                reply = move(s, 1, action, name)
                check(f"{action} refused: {name!r}", reply.status in (400, 500) and "error" in reply.json and (action == "save" or reply.status == 400), reply.status, reply.text)
        for name, body in {"no name": {}, "a number": {"filename": 5}, "null": {"filename": None}, "a list": {"filename": ["good"]}, "no JSON": "{filename", "no object": "[1]"}.items():
            for action in ("restore", "save"):
                reply = s.ask(f"/slots/1?action={action}", body)
                check(f"{action} refused: {name}", reply.status == 400 and ("filename" in reply.text or "no object" in reply.text), reply.status, reply.text)
        check("the slot is as it was", kv(s)["slots"][1] == before, before, kv(s)["slots"][1])
        again = s.complete(held, 3, id_slot=1)
        check("and goes on", again["timings"]["prompt_n"] == 1, again["timings"])
        # The name that counts is one, however often it is said.
        twice = s.ask("/slots/2?action=restore", '{"filename": "winnow-document.0", "filename": "good"}')
        check("of two names the one that is checked is the one that is read", twice.status in (200, 400) and (twice.status == 400 or twice.json["n_restored"] == 152), twice.text)
        check("a good one is taken", move(s, 1, "restore", "good").status == 200 and kv(s)["slots"][1]["tokens"] == 152, kv(s))
        answer = s.complete(prompt + ids(20, 9), 4, id_slot=1, winnow={"reuse": "any"})
        check("and goes on", answer["timings"]["prompt_n"] <= 24, answer["timings"])
        # Nothing is as good: the slot is empty.
        s.ask("/slots/0?action=erase", "{}")
        check("an empty slot is saved", move(s, 0, "save", "empty").status == 200)
        check("and restored", move(s, 1, "restore", "empty").status == 200 and kv(s)["slots"][1]["tokens"] == 0, kv(s))
        check("names that users may take", all(move(s, 2, "save", name).status == 200 and os.path.isfile(f"{folder}/{name}") for name in ("good.part", "good", "x.0.tmp")))
    # A cache that is full: what has no room is refused, and both slots stay.
    with serve(folder, "--policy", "full", "--context", "500", slots=2) as s:
        s.complete(ids(700, 3), 1, id_slot=0)
        check("a large one is saved", move(s, 0, "save", "large").status == 200)
        s.complete(ids(100, 4), 1, id_slot=1)
        before = kv(s)["slots"]
        reply = move(s, 1, "restore", "large")
        check("no room for it", reply.status == 400 and "room" in reply.text and kv(s)["slots"] == before, reply.text, kv(s)["slots"])
        check("in place of itself there is", move(s, 0, "restore", "large").status == 200)
    with serve(folder, "--policy", "full", "--context", "300", slots=1) as s:
        reply = move(s, 0, "restore", "large")
        check("of a server with longer slots", reply.status == 400 and "700" in reply.text, reply.text)

# Two servers that save one name at once: it is one of theirs, whole.
with tempfile.TemporaryDirectory() as folder:
    with serve(folder, "--policy", "full", slots=1) as a, serve(folder, "--policy", "full", slots=1) as b, serve(folder, "--policy", "full", slots=1) as c:
        a.complete(ids(3000, 1), 1)
        b.complete(ids(1500, 2), 1)
        for turn in range(12):
            saved = at_once(lambda: move(a, 0, "save", "y").status, lambda: move(b, 0, "save", "y").status, lambda: move(a, 0, "save", "y.part").status)
            back = move(c, 0, "restore", "y")
            check(f"both are saved, and one is there, {turn}", saved == [200, 200, 200] and back.status == 200 and back.json["n_restored"] in (3000, 1500), saved, back.text)
        check("nothing else is left", sorted(os.listdir(folder)) == ["y", "y.part"], os.listdir(folder))

# Tokens in cells in front of those of earlier ones: libllama fills what another slot left.
with tempfile.TemporaryDirectory() as folder:
    with serve(folder, "--policy", "full", "--context", "400", slots=3) as s:
        first, more, last = ids(350, 1), ids(300, 2), ids(40, 3)
        s.complete(ids(330, 5), 1, id_slot=0)
        s.complete(first, 1, id_slot=1)
        s.ask("/slots/0?action=erase", "{}")
        s.complete(first + more, 1, id_slot=1)
        check("cells in another order are saved", move(s, 1, "save", "mixed").status == 200, s.log()[-500:])
        f = File(f"{folder}/mixed")
        places = [struct.unpack_from("<i", f.state, 16 + 12 * i)[0] for i in range(f.cells())]
        check("in the order of their positions", places == list(range(f.cells())) and f.cells() >= 650, places[:5], f.cells())
        want = s.complete(first + more + last, 8, id_slot=1)
        s.ask("/slots/1?action=erase", "{}")
        s.ask("/slots/0?action=erase", "{}")
        check("and restored", move(s, 2, "restore", "mixed").status == 200)
        got = s.complete(first + more + last, 8, id_slot=2, winnow={"reuse": "any"})
        check("go on as they were", got["timings"]["prompt_n"] <= 42 and nearly_same(want, got, CLOSE), want, got)

# Models with windows, and with recurrent layers: libllama has more than one cache for them.
for model, rest in (("foreign/gemma4.gguf", ()), ("foreign/gemma4.gguf", ("--swa-full",)), ("foreign/lfm2.gguf", ()), ("tiny-gemma3.gguf", ())):
    name = f"{model} {' '.join(rest)}"
    with tempfile.TemporaryDirectory() as folder:
        with serve(folder, "--policy", "keydiff", "--budget", "60", slots=2, model=model, rest=rest) as s:
            s.complete(ids(120, 1, 5, 50), 2, id_slot=0)
            check(f"{name}: saved", move(s, 0, "save", "good").status == 200, s.log()[-400:])
            s.complete(ids(90, 2, 5, 50), 2, id_slot=1)
            before = kv(s)
            for what in ("no cell", "half of the cells", "one cell less", "the last position", "a position twice", "another type", "other rows"):
                f = File(f"{folder}/good")
                CHANGES[what](f)
                f.write(f"{folder}/made")
                reply = move(s, 1, "restore", "made")
                check(f"{name}: refused: {what}", reply.status == 400 and "cannot restore" in reply.text, reply.text)
            f = File(f"{folder}/good")
            del f.state[-200:]
            f.write(f"{folder}/made")
            if "lfm2" not in model:  # libllama itself compares the state of recurrent layers
                check(f"{name}: refused: cut off", move(s, 1, "restore", "made").status == 400)
            check(f"{name}: the slot is as it was", kv(s) == before, before, kv(s))
            again = s.complete(ids(90, 2, 5, 50) + ids(10, 3, 5, 50), 2, id_slot=1)
            check(f"{name}: and goes on", again["tokens_predicted"] == 2)
            check(f"{name}: restored", move(s, 1, "restore", "good").status == 200, s.log()[-400:])
            check(f"{name}: is answered", s.complete(ids(120, 1, 5, 50) + ids(10, 3, 5, 50), 2, id_slot=1)["tokens_predicted"] == 2)
            page = s.ask("/winnow/page?slot=0")
            check(f"{name}: looks leave no file", page.status in (200, 409) and sorted(os.listdir(folder)) == ["good", "made"], page.status, os.listdir(folder))

# The cache is as full as it can be where slots are restored, and its cells were freed in any order: what was restored goes on as in a server that has nothing else.
# Its cells are not next to each other, and it is compressed as there.
def crowded(folder):
    return serve(folder, "--policy", "keydiff", "--budget", "120", "--context", "256", "--park", "0", slots=2)


with tempfile.TemporaryDirectory() as folder:
    MORE = 136  # which is compressed
    with crowded(folder) as s:
        for name, n in (("short", 90), ("long", 110)):
            s.complete(ids(n, 7), 1, id_slot=0, winnow={"policy": "full"})
            check(f"{name} is saved", move(s, 0, "save", name).status == 200, s.log()[-400:])
            s.ask("/slots/0?action=erase", {})
    alone, kept = {}, {}
    for name, n in (("short", 90), ("long", 110)):
        with crowded(folder) as s:
            check(f"{name} alone", move(s, 0, "restore", name).status == 200, s.log()[-400:])
            alone[name] = s.complete(ids(n, 7) + ids(MORE, 9), 3, id_slot=0)
            kept[name] = kv(s)["slots"][0]["entries"]
            check(f"{name} is compressed", kept[name] < 140, kept)
    rng = random.Random(3)
    with crowded(folder) as s:
        for i in range(12):
            for slot in rng.sample((0, 1, 0, 1), 4):
                s.complete(ids(rng.randrange(20, 250), 20 + i), 1, id_slot=slot, winnow={"policy": "full"})
            name = rng.choice(("short", "long"))
            for slot in rng.sample((0, 1), rng.randrange(2)):
                s.ask(f"/slots/{slot}?action=erase", {})
            there = move(s, 0, "restore", name)
            s.complete(ids(250, 40 + i), 1, id_slot=1, winnow={"policy": "full"})
            if rng.random() < 0.5:
                s.ask("/slots/1?action=erase", {})
            went = s.complete(ids(90 if name == "short" else 110, 7) + ids(MORE, 9), 3, id_slot=0)
            check(f"crowded {i}, {name}: restored", there.status == 200 and went["timings"]["cache_n"] > 80, there.text, went["timings"])
            check(f"crowded {i}, {name}: compressed, too", kv(s)["slots"][0]["entries"] == kept[name], kv(s)["slots"], kept)
            check(f"crowded {i}, {name}: as alone", nearly_same(went, alone[name], CLOSE), went, alone[name])

# A model's file that is overwritten in place under the server: nothing is stored or restored for it. A new file of that name changes nothing.
def overwrite(path):
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))


def replace(path):
    shutil.copy(path, path + ".new")
    os.rename(path + ".new", path)


for act, kept in ((overwrite, False), (replace, True)):
    with tempfile.TemporaryDirectory() as top:
        path, folder, state = f"{top}/model.gguf", f"{top}/slots", f"{top}/state"
        shutil.copy(f"{TINY}/tiny-llama.gguf", path)
        os.utime(path, (10**9, 10**9))  # clocks of file systems go in steps
        os.mkdir(folder)
        with Server([winnow, "serve", "-m", path, "--port", "0", "--slots", "1", "--save", folder, "--state", state, "--", "-t", "1"]) as s:
            s.complete(ids(80, 1), 2)
            check(f"{act.__name__}: saved before", move(s, 0, "save", "before").status == 200, s.log()[-400:])
            act(path)
            reply = move(s, 0, "save", "after")
            check(f"{act.__name__}: a save", (reply.status == 200) == kept and os.path.exists(f"{folder}/after") == kept, reply.status, reply.text)
            reply = move(s, 0, "restore", "before")
            check(f"{act.__name__}: a restore", (reply.status == 200) == kept, reply.status, reply.text)
            s.complete(ids(80, 1), 2)
            s.process.terminate()
            s.process.wait(60)
            check(f"{act.__name__}: what is parked at the end", bool([f for f in os.listdir(state) if f.endswith(".park")]) == kept, os.listdir(state), s.log()[-400:])
            check(f"{act.__name__}: why is said", ("was overwritten while it was in use" in s.log()) != kept, s.log()[-400:])
finish()
