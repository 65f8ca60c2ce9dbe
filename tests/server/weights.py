# SPDX-License-Identifier: MIT
"""llama.cpp's server with weights on one device and the cache on the device WINNOW, as docs/use/devices.md says: `-dev WINNOW,RPC0 -ts 1,0`
and `-ot` with the weights of products. The other device is a worker's, or DEVICE, which libllama knows by that name (cli/vulkan.sh). Answers
are those of the device WINNOW alone, also where entries are dropped.

    weights.py WINNOW PLAIN_LLAMA_SERVER [DEVICE]
"""
import os
import re
import subprocess
import sys

from llama_server import TINY, Server, Worker, check, finish, ids, nearly_same

winnow, plain = sys.argv[1:3]
model = f"{TINY}/tiny-qwen3-f32.gguf"
backend = subprocess.run([winnow, "backend", "--path"], capture_output=True, text=True)
if backend.returncode != 0 or not os.path.exists(model):
    print("there is no backend, or no model")
    sys.exit(77)
CLOSE = 1e-3 if len(sys.argv) == 3 else 5e-3  # another device rounds in other ways
WEIGHTS = r"\.(attn_q|attn_k|attn_v|attn_output|ffn_gate|ffn_up|ffn_down)\.weight"
worker = None if len(sys.argv) > 3 else Worker(winnow)
if worker:
    address = worker.name.removeprefix("rpc:")
    device, buffers, known_by = "RPC0", f"RPC0[{address}]", ("--rpc", address)
else:
    device = buffers = sys.argv[3]
    known_by = ()


def answer(policy, *options):
    """The answer to a prompt, and what the server has logged."""
    env = {"GGML_BACKEND_PATH": backend.stdout.strip()}
    if policy:
        env.update(WINNOW_POLICY=policy, WINNOW_RATIO="0.5")
    with Server([plain, "-m", model, "-c", "1024", "-np", "1", "-b", "512", "-t", "1", "-ngl", "99", "-lv", "4", "--fit", "off", "--cache-ram", "0", "--host", "127.0.0.1", "--port", "0", *options], env) as s:
        return s.complete(ids(300, 1, 3, 200), 12), s.log()


whole = None
for policy in (None, "keydiff", "snapkv", "h2o"):
    name = policy or "everything kept"
    here, _ = answer(policy, "-dev", "WINNOW")
    other, log = answer(policy, *known_by, "-dev", f"WINNOW,{device}", "-ts", "1,0", "-ot", f"{WEIGHTS}={buffers}")
    check(f"{name}: the same answer", nearly_same(here, other, CLOSE), here, other)
    check(f"{name}: weights are on {device}", re.search(rf"{device}\S* model buffer size", log), log[-3000:])
    check(f"{name}: the cache is here, all of it", re.search(r"WINNOW KV buffer size", log) and not re.search(rf"{device}\S* KV buffer size", log), log[-3000:])
    check(f"{name}: something is dropped", not policy or not nearly_same(whole, here, CLOSE), whole, here)
    whole = whole or here
if worker:
    worker.end()
finish()
