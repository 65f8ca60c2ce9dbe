#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""llama.cpp's server on devices that have the rules of a GPU (tests/devices/strict.c), with and without winnow's around them: strict.py WINNOW
PLAIN_LLAMA_SERVER MODULE

As long as nothing is dropped, answers are those without winnow. It is tried in ways that put layers, caches and weights elsewhere: libllama finds out
what fits, has some layers on the device, keeps the cache in this machine's memory, or has a device without winnow, too.
"""
import os
import subprocess
import sys

from llama_server import TINY, Server, check, finish, ids

winnow, plain, module = sys.argv[1:4]
backend = subprocess.run([winnow, "backend", "--path"], capture_output=True, text=True)
if backend.returncode != 0 or not os.path.exists(f"{TINY}/tiny-llama.gguf"):
    print("there is no backend, or no model")
    sys.exit(77)


def answers(model, *options, policy=None):
    """The tokens that follow two prompts, one after the other, in two slots."""
    env = {"GGML_BACKEND_PATH": backend.stdout.strip(), "WINNOW_GGML_MODULES": module, "WINNOW_DEVICES": "STRICT0,STRICT1"}
    if policy:
        env.update(WINNOW_POLICY=policy, WINNOW_RATIO="0.5")
    with Server([plain, "-m", f"{TINY}/{model}", "-c", "2048", "-np", "2", "-t", "1", "-b", "512", "-ub", "64", "--cache-ram", "0", "--host", "127.0.0.1", "--port", "0", *options], env) as s:
        return [s.complete(ids(400, k, 20, 200), 6)["tokens"] for k in (1, 2, 1)]


for model in ("tiny-llama.gguf", "tiny-gemma3-f32.gguf"):
    whole = ["-ngl", "99"]
    want = answers(model, "-dev", "STRICT0", *whole, "--fit", "off")
    for name, options in {"what fits": ["-dev", "WINNOW0", *whole],
                          "two devices": ["-dev", "WINNOW0,WINNOW1", *whole],
                          "a device without winnow, too": ["-dev", "WINNOW0,STRICT1", *whole, "-ts", "1,1"],
                          "a cache elsewhere": ["-dev", "WINNOW0", *whole, "-nkvo"],
                          "some layers": ["-dev", "WINNOW0", "-ngl", "2"]}.items():
        got = answers(model, *options)
        check(got == want, f"{model}, {name}: {got}, {want}")
    dropped = answers(model, "-dev", "WINNOW0,WINNOW1", *whole, "-ctk", "q8_0", "-ctv", "q8_0", policy="snapkv")
    check(dropped[0] == dropped[2], f"{model}: the same prompt has two answers: {dropped}")
finish()
