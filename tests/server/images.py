#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Images in prompts of `winnow serve`: images.py WINNOW, with the packages gguf and numpy

An image is one word of a prompt and takes hundreds of rows that have no token. The projector is random: the answers are not
checked.
"""
import base64
import json
import pathlib
import struct
import sys
import tempfile
import zlib

import gguf
import numpy as np

from llama_server import TINY, Server, check, finish

winnow = sys.argv[1]
MODEL = f"{TINY}/../smollm2-135m.gguf"
SIDE, PATCH, N_OUT = 21, 7, 576  # an image is SIDE * SIDE tokens


def write_projector(path, n=32, n_ff=64):
    w, random = gguf.GGUFWriter(path, "clip"), np.random.default_rng(1)

    def tensor(name, *shape):
        w.add_tensor(name, (random.standard_normal(shape) * 0.1).astype(np.float32))
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "mlp")
    w.add_bool("clip.use_gelu", True)
    for key, value in {"embedding_length": n, "feed_forward_length": n_ff, "block_count": 2, "projection_dim": N_OUT, "attention.head_count": 2,
                       "image_size": SIDE * PATCH, "patch_size": PATCH}.items():
        w.add_uint32(f"clip.vision.{key}", value)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for key in ["image_mean", "image_std"]:
        w.add_array(f"clip.vision.{key}", [0.5] * 3)
    tensor("v.patch_embd.weight", n, 3, PATCH, PATCH)
    tensor("v.position_embd.weight", SIDE * SIDE, n)
    for i in range(2):
        for name, shape in {"attn_q": (n, n), "attn_k": (n, n), "attn_v": (n, n), "attn_out": (n, n), "ln1": (n,), "ln2": (n,), "ffn_up": (n_ff, n), "ffn_down": (n, n_ff)}.items():
            tensor(f"v.blk.{i}.{name}.weight", *shape)
            tensor(f"v.blk.{i}.{name}.bias", shape[0])
    for i, shape in {0: (N_OUT, n), 2: (N_OUT, N_OUT)}.items():
        tensor(f"mm.{i}.weight", *shape)
        tensor(f"mm.{i}.bias", shape[0])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def png(side=16):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((3 * x + y) % 256 for x in range(3 * side)) for y in range(side))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


image = base64.b64encode(png()).decode()
question = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}, {"type": "text", "text": "What?"}]}],
            "max_tokens": 2, "temperature": 0}

with tempfile.TemporaryDirectory() as folder:
    projector, gates = f"{folder}/projector.gguf", f"{folder}/gates.json"
    write_projector(projector)
    # These gates say that they are from pieces of 200 tokens: prompts above 400 get another one, if what it needs was observed.
    profile = json.loads((pathlib.Path(__file__).parents[2] / "share/profiles/smollm2-135m/inputgate.json").read_text())
    profile["settings"]["length"] = 200
    pathlib.Path(gates).write_text(json.dumps(profile))

    def serve(*options):
        return Server([winnow, "serve", "-m", MODEL, "--port", "0", "--slots", "1", "--context", "1024", "--save", folder, *options, "--", "-t", "1", "--mmproj", projector],
                      {"WINNOW_VERBOSE": "1", "WINNOW_PROFILE": gates, "LLAMA_MEDIA_MARKER": "<image>"})

    def taken(s):
        kv = s.ask("/winnow/kv").json
        return kv["slots"][0].get("taken"), kv["compressions"], kv["compressions_by_fallback"]

    with serve() as s:
        said = s.ask("/v1/chat/completions", question)
        check("an image is read", said.status == 200 and said.json["usage"]["prompt_tokens"] > SIDE * SIDE, said.text)
        check("what its length needs was observed", taken(s) == ("kvgate+shares:last=32,room=0.3", 1, 0), taken(s), s.log()[-800:])
        page = s.ask("/winnow/page?slot=0")
        check("a slot with an image is shown", page.status == 200 and page.text.count("\\u25a6") + page.text.count("\u25a6") >= SIDE * SIDE, page.status, page.text[:300])
        check("it is saved", s.ask("/winnow/slots/0?action=save", {"filename": "slot"}).status == 200, s.log()[-800:])
        s.ask("/winnow/slots/0?action=erase", {})
        check("and restored", s.ask("/winnow/slots/0?action=restore", {"filename": "slot"}).status == 200, s.log()[-800:])
        again = s.ask("/v1/chat/completions", question)
        check("and goes on", again.status == 200 and again.json["timings"]["cache_n"] > SIDE * SIDE, again.text)
    # A prompt that the server takes without us.
    with serve() as s:
        s.ask("/completion", {"prompt": "What?", "n_predict": 2})
        said = s.ask("/completion", {"prompt": {"prompt_string": "<image> What?", "multimodal_data": [image]}, "n_predict": 2})
        check("a prompt with its data is read", said.status == 200 and taken(s)[0] == "kvgate+shares:last=32,room=0.3" and taken(s)[2] == 0, said.text, taken(s), s.log()[-800:])
    with serve("--kv-bytes", "64M") as s:
        said = s.ask("/v1/chat/completions", question)
        check("what cannot be counted is refused where memory is bounded", said.status == 400 and said.json["error"]["param"] == "messages", said.text)
        said = s.ask("/completion", {"prompt": {"prompt_string": "<image> What?", "multimodal_data": [image]}, "n_predict": 2})
        check("in either form", said.status == 400 and said.json["error"]["param"] == "prompt", said.text)
        text = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}]}], "max_tokens": 2})
        check("parts that are text are not", text.status == 200, text.text)
finish()
