#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Going back in parked conversations of models whose state cannot be cut: borders.py WINNOW

Recurrent layers and layers with sliding windows have a state of the newest token alone. Some prompts share only a part of a parked one. They
are read from its last border of turns on, also after a restart, and on a device around another one. The answer is that of a prompt that is read as a whole.
"""
import sys
import tempfile

from llama_server import TINY, Server, check, comparable, finish, ids, nearly_same

winnow = sys.argv[1]
CLOSE = 0.1  # the same tokens, in other batches, by models that amplify it
TURNS, BEGIN, LENGTH = 4, 120, 60
MODELS = ("tiny-gemma3.gguf", "foreign/gemma3n.gguf", "foreign/gemma4.gguf", "foreign/llama4.gguf", "foreign/lfm2.gguf", "foreign/gpt-oss.gguf",
          "foreign/granitehybrid.gguf", "foreign/qwen35.gguf")
WRAPPED = ("tiny-gemma3.gguf", "foreign/lfm2.gguf", "foreign/gpt-oss.gguf")  # on a device around the CPU, too


def serve(model, *options, slots=1):
    model, _, device = model.partition(" on ")
    options = (*options, "--devices", device) if device else options
    return Server([winnow, "serve", "-m", f"{TINY}/{model}", "--port", "0", "--slots", str(slots), "--context", "2048", "--policy", "full", *options, "--", "-t", "1"])


def some(n, seed):
    return ids(n, seed, 5, 50)


def talk(s, seed):
    """A conversation: the prompt of each turn, and what it has at the end."""
    text, prompts = some(BEGIN, seed), []
    for t in range(TURNS):
        prompts.append(text)
        text = text + s.complete(text, 4)["tokens"] + some(LENGTH, 10 * seed + t)
    return prompts, text


def go_back(s, model, prompts, seed, what):
    """Goes back into the middle of the third turn of a conversation."""
    prompt = prompts[2][:len(prompts[1]) + 30] + some(25, seed)
    a = s.complete(prompt, 4)
    asked.append((what, prompt, a))
    got, shared = a["timings"]["cache_n"], len(prompts[1]) + 30
    check(f"{model}: {what}: from the last border on", len(prompts[1]) - 16 <= got <= shared and got + a["timings"]["prompt_n"] == len(prompt), got, a["timings"]["prompt_n"], len(prompts[1]), s.log()[-900:])


# Recurrent layers and a sliding window in one model: a conversation that goes on reads its new tokens alone, and the answer is that of a whole reading.
window = ("--", "-t", "1", "--override-kv", "lfm2.attention.sliding_window=int:16")
with Server([winnow, "serve", "-m", f"{TINY}/foreign/lfm2.gguf", "--port", "0", "--slots", "2", "--context", "2048", "--policy", "full", "--park", "64M", *window]) as s:
    text, compared = some(BEGIN, 31), 0
    for turn in range(TURNS):
        a = s.complete(text, 4)
        check(f"with both, turn {turn} reads what is new", a["timings"]["prompt_n"] == (BEGIN if turn == 0 else LENGTH + 1), a["timings"])
        whole = s.complete(text, 4, id_slot=1, cache_prompt=False)
        if comparable(a, whole):
            check("as a whole reading", nearly_same(whole, a, CLOSE))
            compared += 1
        text = text + a["tokens"] + some(LENGTH, 310 + turn)
    check("some were compared", compared > 0)
    back = text[:BEGIN + 20] + some(40, 399)
    ends = [s.complete(back, 4), s.complete(back, 4, id_slot=1, cache_prompt=False)]
    check("another end of it", not comparable(*ends) or nearly_same(*ends, CLOSE), ends[0]["timings"])

for model in (*MODELS, *(f"{x} on cpu" for x in WRAPPED)):
    asked = []
    with tempfile.TemporaryDirectory() as folder:
        options = ("--park", "64M", "--state", folder)
        with serve(model, *options) as s:
            one, text = talk(s, 1)
            two, _ = talk(s, 2)
            go_back(s, model, one, 71, "parked")
            go_back(s, model, two, 72, "parked, the other")
            a = s.complete(text, 4)
            check(f"{model}: its whole is parked as well", a["timings"]["cache_n"] >= len(one[-1]), a["timings"], len(text))
            s.complete(some(200, 5), 4)
            three, _ = talk(s, 3)  # in the slot when the server ends
            check(f"{model}: SIGTERM ends it", s.stop() == 0)
        with serve(model, *options, slots=2) as s:
            go_back(s, model, one, 73, "after a restart")
            go_back(s, model, three, 74, "after a restart, of a slot")
            check(f"{model}: nothing is passed over", "is passed over" not in s.log() and "not taken" not in s.log(), s.log()[-900:])
            a = s.complete(one[1] + some(20, 75), 4)
            asked.append(("from a slot", one[1] + some(20, 75), a))
            check(f"{model}: back once more, from a slot", a["timings"]["cache_n"] >= len(one[0]) - 16, a["timings"])
    with serve(model, "--park", "0") as s:
        compared = [(what, a, b) for what, a, b in ((what, a, s.complete(prompt, 4, cache_prompt=False)) for what, prompt, a in asked) if comparable(a, b)]
        check(f"{model}: some are compared", compared)
        for what, a, b in compared:
            check(f"{model}: {what}: the answer of a prompt that is read as a whole", nearly_same(a, b, CLOSE), a["tokens"])

finish()
