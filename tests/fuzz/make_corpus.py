#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the seeds of the fuzz targets: make_corpus.py TESTS_FUZZ

Seeds are named after what they hold; inputs that once crashed lie beside them under names that begin with "crash-",
and are left alone. Needs the PyPI packages gguf and numpy.
"""
import base64
import json
import os
import struct
import sys

import numpy as np
from gguf import GGUFWriter, TokenType

HEADS, D, EMBD, FF, LAYERS = 2, 32, 16, 16, 2
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def put(folder, target, name, data):
    path = os.path.join(folder, target, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


# ---- Models ----


def byte_level_tokens():
    """How byte-level BPE writes each byte: a printable character, else U+0100 and up."""
    plain = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]


def bpe_vocabulary(w):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = special + byte_level_tokens() + ["er", "th"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3))
    w.add_token_merges(["e r", "t h"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_chat_template(CHATML)
    return len(tokens)


def spm_vocabulary(w):
    words = ["\u2581", "\u2581the", "er", "th", "e", "r"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + words
    types = [TokenType.UNKNOWN] + [TokenType.CONTROL] * 2 + [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(words)
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(words))])
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_chat_template(
        "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + m['role'] + '\n' + m['content'] | trim + "
        "'<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    )
    return len(tokens)


def layer_tensors(arch, p):
    yield p + "attn_norm.weight", (EMBD,)
    yield p + "attn_q.weight", (HEADS * D, EMBD)
    yield p + "attn_k.weight", (D, EMBD)
    yield p + "attn_v.weight", (D, EMBD)
    yield p + "attn_output.weight", (EMBD, HEADS * D)
    yield p + "ffn_norm.weight", (EMBD,)
    yield p + "ffn_gate.weight", (FF, EMBD)
    yield p + "ffn_up.weight", (FF, EMBD)
    yield p + "ffn_down.weight", (EMBD, FF)
    if arch == "gemma3":
        yield p + "attn_q_norm.weight", (D,)
        yield p + "attn_k_norm.weight", (D,)
        yield p + "post_attention_norm.weight", (EMBD,)
        yield p + "post_ffw_norm.weight", (EMBD,)


def write_model(path, arch, vocabulary):
    w = GGUFWriter(path, arch)
    w.add_name(arch)
    w.add_context_length(128)
    w.add_block_count(LAYERS)
    w.add_embedding_length(EMBD)
    w.add_feed_forward_length(FF)
    w.add_head_count(HEADS)
    w.add_head_count_kv(1)
    w.add_key_length(D)
    w.add_value_length(D)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    if arch == "gemma3":
        w.add_sliding_window(16)
    else:
        w.add_rope_dimension_count(D)
    n_vocab = vocabulary(w)
    rng = np.random.default_rng(5)
    shapes = [("token_embd.weight", (n_vocab, EMBD)), ("output_norm.weight", (EMBD,))]
    for il in range(LAYERS):
        shapes += layer_tensors(arch, f"blk.{il}.")
    for name, shape in shapes:
        data = rng.standard_normal(shape, dtype=np.float32) / np.float32(4) if len(shape) == 2 else np.ones(shape, np.float32)
        w.add_tensor(name, data.astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- Edits of a model, as fuzz_vocab.c reads them ----

OPERATIONS = "PROMPT TOKEN SAME TYPE SCORE MERGE COUNT TEXT U32 I32 F32 BOOL U64 LIST REMOVE TENSOR".split()
KEY_MODEL, KEY_PRE, KEY_BOS, KEY_TOKENS, KEY_TEMPLATE, KEY_ARCH, KEY_HEADS = 0, 1, 2, 13, 17, 18, 25


def u8(v):
    return struct.pack("<B", v)


def u16(v):
    return struct.pack("<H", v)


def u32(v):
    return struct.pack("<I", v)


class Text(bytes):
    """Written with its length."""


def edit(name, *values):
    out = bytes([OPERATIONS.index(name)])
    for v in values:
        out += u8(len(v)) + v if isinstance(v, Text) else v
    return out


LLAMA, GEMMA = u8(0), u8(1)
VOCAB = {
    "unedited-llama": LLAMA + edit("PROMPT", Text(b"the harbor")),
    "unedited-gemma3": GEMMA + edit("PROMPT", Text(b"the harbor")),
    "the-same-token-twice": LLAMA + edit("SAME", u16(70), u16(71)),
    "no-byte-tokens": GEMMA + b"".join(edit("TYPE", u16(i), u8(1)) for i in range(3, 60)),
    "byte-token-renamed": GEMMA + edit("TOKEN", u16(20), Text(b"x")) + edit("PROMPT", Text(b"\x11\x11")),
    "fewer-tokens": LLAMA + edit("COUNT", u8(0), u16(40)),
    "no-tokens": LLAMA + edit("COUNT", u8(0), u16(0)),
    "more-tokens-than-rows": LLAMA + edit("COUNT", u8(0), u16(300)),
    "fewer-types": GEMMA + edit("COUNT", u8(1), u16(10)),
    "fewer-scores": GEMMA + edit("COUNT", u8(2), u16(10)),
    "tokens-are-a-text": LLAMA + edit("TEXT", u8(KEY_TOKENS), Text(b"tokens")),
    "tokens-are-numbers": LLAMA + edit("LIST", u8(KEY_TOKENS), u8(1), u8(20)),
    "bos-outside": LLAMA + edit("U32", u8(KEY_BOS), u32(100000)),
    "bos-is-negative": LLAMA + edit("I32", u8(KEY_BOS), u32(0xFFFFFFFF)),
    "other-model": LLAMA + edit("TEXT", u8(KEY_MODEL), Text(b"llama")),
    "other-model-bert": LLAMA + edit("TEXT", u8(KEY_MODEL), Text(b"bert")),
    "other-model-t5": GEMMA + edit("TEXT", u8(KEY_MODEL), Text(b"t5")),
    "no-model": LLAMA + edit("TEXT", u8(KEY_MODEL), Text(b"no_vocab")),
    "other-pre": LLAMA + edit("TEXT", u8(KEY_PRE), Text(b"llama-bpe")),
    "merge-without-blank": LLAMA + edit("MERGE", u8(0), Text(b"er")),
    "merge-of-unknown": LLAMA + edit("MERGE", u8(1), Text(b"qq zz")),
    "template-loop": LLAMA + edit("TEXT", u8(KEY_TEMPLATE), Text(b"{% for m in messages %}{{ m['content'] }}{% endfor %}")),
    "template-broken": LLAMA + edit("TEXT", u8(KEY_TEMPLATE), Text(b"{% for m in messages %}{{ m[")),
    "template-raises": LLAMA + edit("TEXT", u8(KEY_TEMPLATE), Text(b"{{ raise_exception('no') }}")),
    "template-deep": LLAMA + edit("TEXT", u8(KEY_TEMPLATE), Text(b"{{" + b"(" * 200 + b"}}")),
    "token-not-utf8": LLAMA + edit("TOKEN", u16(100), Text(b"\xff\xfe\x80")),
    "empty-token": LLAMA + edit("TOKEN", u16(100), Text(b"")),
    "other-architecture": LLAMA + edit("TEXT", u8(KEY_ARCH), Text(b"qwen2")),
    "three-heads": LLAMA + edit("U32", u8(KEY_HEADS), u32(3)),
    "tensor-gone": LLAMA + edit("TENSOR", u8(3), u8(0), u8(0)),
    "tensor-cut": LLAMA + edit("TENSOR", u8(0), u8(1), u8(100)),
    "tensor-f16": LLAMA + edit("TENSOR", u8(4), u8(3), u8(1)),
}

# ---- Profiles of 2 layers, 4 query and 2 KV heads of 8 ----

MODEL = {"fingerprint": "0123456789abcdef0123456789abcdef", "n_layer": 2, "n_head": 4, "n_head_kv": 2, "n_embd_head": 8}


def profile(kind, settings, results):
    return json.dumps({"format": "winnow-profile-1", "kind": kind, "model": MODEL, "settings": settings,
                       "data": {"text": "made up"}, "results": results}, separators=(",", ":")).encode()


def packed(form, *numbers):
    return base64.b64encode(struct.pack(form, *numbers)).decode()


def profiles():
    ranks, means = [[0, 1, 2, 3], [3, 2, 1, 0]], [[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]]
    own = {
        "srh": profile("srh", {"k": 1}, {"srh": ranks, "srh_mean": means, "trad": ranks, "trad_mean": means}),
        "layers": profile("layers", {}, {"avg_score": [0.25, 0.75]}),
        "compiler": profile(
            "compiler",
            {"budget": 128, "window": 64, "n_sink": 0, "alpha_scope": "global", "score_norm": "mean", "gate": "elastic",
             "entropy_norm": False},
            {"entropy_edges": [3], "ppl_edges": [10], "default_ppl_bin": 0, "weight": [[1] * 4] * 2,
             "tau": [[[0.5, 1], [2, 3]]] * 2}),
        "heads": profile("heads", {"sink": 4, "recent": 16}, {"score": means, "alpha": [[0, 1], [0.5, 0.25]]}),
        "stats": profile("stats", {}, {"query_mean": [[[0.5] * 8] * 4] * 2,
                                       "query_cov": [[[[1.0 if i == k else 0 for k in range(8)] for i in range(8)]] * 4] * 2}),
        "stats-of-correlations": profile("stats", {}, {"query_mean": [[[0.5] * 8] * 4] * 2, "query_std": [[[2] * 8] * 4] * 2,
                                                       "query_corr": [[[0, 5000, -5000, 10000] * 7] * 4] * 2,
                                                       "filter": [[[0.25, -0.5] * 4] * 2] * 2}),
        "stats-as-texts": profile("stats", {}, {"query_mean": [packed("<32f", *[0.5] * 32)] * 2, "query_std": [packed("<32f", *[2] * 32)] * 2,
                                                "query_corr": [packed("<112h", *[0, 5000, -5000, 10000] * 28)] * 2,
                                                "filter": packed("<32f", *[0.25, -0.5] * 16)}),
        "curves": profile("curves", {"policy": "snapkv:window=8+uniform"}, {"ratio": [0.2, 0.8], "keep": [[[1, 0.5]] * 2, [[0.25, 0]] * 2]}),
        "shares": profile("shares", {"target": "kvzip"}, {"size": [0.5, 0.25], "layers": [1], "share": [[[1, 1], [0.75, 0.25]],
                                                                                                         [[1, 1], [0.5, 0]]]}),
        "gate": profile("gate", {"features": ["lk", "keydiff", "ea", "lev"]}, {"weight": [[[0.5, 1, -1, 0.25]] * 2] * 2, "bias": [[-2, -3]] * 2}),
        "gradient": profile("gradient", {}, {"gradient": [0.5, 1.5]}),
        "quality": profile("quality", {}, {"dropped": [0.1, 0.4], "replay": [0.02, 0.3], "replay_kept": [0.6, 0.2]}),
        "inputgate": profile("inputgate", {"form": "linear", "n_embd": 1}, {"layers": [packed("<4f", 1, 2, -1, -2), ""]}),
        "foreign-ranks": json.dumps({"0": [3, 1, 2, 0], "1": [0, 1, 2, 3]}).encode(),
        "foreign-heads": json.dumps({f"{layer}-{head}": [0.1, 0.2] for layer in range(2) for head in range(4)}).encode(),
        "foreign-weights": json.dumps({"shape": [2, 4], "W_head": [[1, 1, 0.9, 1.1]] * 2}).encode(),
        "foreign-thresholds": json.dumps({"shape": [2, 20, 4], "M_lex": [[[0.5, 1, 1.5, 2]] * 20] * 2}).encode(),
        "foreign-shares": json.dumps({"avg_score": [0.25, 0.75]}).encode(),
    }
    own["srh-and-layers"] = own["srh"] + b"\0" + own["layers"]
    own["compiler-twice"] = own["compiler"] + b"\0" + own["compiler"]
    return own


# ---- Files of other programs, as fuzz_import.c reads them: what they are, then the file ----

def imports():
    def tensors(rows):
        """A file of tensors of float32 numbers."""
        header, data = {}, b""
        for name, shape in rows.items():
            count = int(np.prod(shape))
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
            data += struct.pack(f"<{count}f", *[i / 4 for i in range(count)])
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    srh, trad, heads, duo, layers, kvzap, fastkvzip = (bytes([i]) for i in range(7))
    ranks = json.dumps({"0": [3, 1, 2, 0], "1": [0, 1, 2, 3]}).encode()
    scores = json.dumps({f"{layer}-{head}": [0.1, 0.2] for layer in range(2) for head in range(4)}).encode()
    return {"srh-ranks": srh + ranks, "trad-scores": trad + scores, "heads": heads + scores,
            "gates": duo + b"0.25\t1.5\n-0.5\t1e-1\n", "gates-too-many": duo + b"0 1 1\n0 1 1\n",
            "kvzap": kvzap + tensors({"layers.0.weight": [2, 3], "layers.0.bias": [2]}),
            "kvzap-hidden": kvzap + tensors({"layers.1.0.weight": [3, 2], "layers.1.0.bias": [3], "layers.1.2.weight": [2, 3],
                                             "layers.1.2.bias": [2]}),
            "fastkvzip": fastkvzip + tensors({"0.q_proj.weight": [4, 1], "0.q_proj.bias": [4], "0.k_proj.weight": [2, 1],
                                              "0.q_norm.weight": [1], "0.k_norm.weight": [1], "0.k_base": [2, 1, 3, 1],
                                              "0.b": [2, 1, 2]}),
            "layers": layers + json.dumps({"avg_score": [0.25, 0.75]}).encode()}


# ---- Plans, as fuzz_plan.c reads them: cache type, shape, then each head ----

ALL, NONE, MASK, LIST = range(4)
PLANS = {
    "everything": u8(0) + u8(0) + u8(ALL) * 2 + u8(0),
    "nothing": u8(0) + u8(0) + u8(NONE) * 2 + u8(1),
    "half": u8(1) + u8(0) + (u8(MASK) + b"\x55" * 5) * 2 + u8(5),
    "ragged": u8(2) + u8(0) + u8(MASK) + b"\xff\x00\x0f\x01\x80" + u8(LIST) + u8(3) + bytes([1, 5, 39]) + u8(7),
    "quantised": u8(3) + u8(0) + u8(MASK) + b"\x01\x02\x04\x08\x10" + u8(ALL) + u8(12),
    "not-ascending": u8(0) + u8(0) + u8(LIST) + u8(2) + bytes([5, 5]) + u8(ALL),
    "outside": u8(0) + u8(0) + u8(LIST) + u8(1) + bytes([40]) + u8(ALL),
    "another-layer": u8(0) + u8(1) + u8(ALL) * 3,
    "another-head": u8(0) + u8(3) + u8(ALL) * 4,
    "other-tokens": u8(0) + u8(200) + u8(20) + u8(NONE) * 2,
}

# ---- Recipes ----

RECIPES = [
    "full", "streaming_llm", "streaming_llm+rerotate", "snapkv", "snapkv:window=64,kernel=5", "snapkv+adakv",
    "snapkv+group_max:cross_head=1+pyramid", "tova", "lagkv", "lagkv:lag=64,sink=4", "criticalkv", "compresskv",
    "compresskv:heads=all+uniform", "kvcompose", "compilerkv:force=1", "expected_attention", "kvzip", "knorm",
    "chunkkv", "adakv:floor=0.3", "snapkv+layer_mean+uniform:rounding=trunc+equal+topk:ties=late+original",
    "snapkv+snapkv", "snapkv:window=0", "snapkv:window=1e9", "snapkv:", "+", "", "snapkv+", ":window=3", "snapkv:window",
]


def results():
    """Lines as `winnow eval` writes them."""

    def line(**changes):
        o = dict(v=1, task="passkey64", N=512, index=0, turn=0, config="c", policy="full", mode="agnostic", size="full",
                 kv_type="f16", score=1.0, depth=0.5, fgt=1, kl=0.1, ms={"prefill": 1.0}, scores={"partial": 1})
        o.update(changes)
        return json.dumps(o) + "\n"

    pair = line() + line(config="d", policy="snapkv", size="ratio=0.5", score=0.5, ratio_ach=0.5)
    return {
        "pair": pair,
        "turns": pair + line(turn=1) + line(task="vt", index=900000),
        "bad-score": line(score=None, bad=True) + line(index=1, score=2),
        "repeated": pair + pair,
        "contradiction": line() + line(score=0),
        "torn": pair + '{"v":1,"task":"vt',
        "not-utf8": pair.replace("snapkv", "sn\x7fpkv"),
    }


def journals():
    """Journals of calibrations, with the header of fuzz_journal.c."""
    head = {"format": "winnow-journal-1", "kind": "srh", "settings": {"seed": 42, "share": 0.5}}
    first = json.dumps(head) + "\n"
    unit = [json.dumps({"unit": str(i), "result": {"x": [0.5, i]}}) + "\n" for i in range(3)]
    return {
        "empty": "",
        "header": first,
        "torn-header": json.dumps(head, separators=(",", ":"))[:30],
        "two-units": first + unit[0] + unit[1],
        "torn-unit": first + unit[0] + unit[1][:-5],
        "another-unit": first + unit[1],
        "no-result": first + '{"unit": "0"}\n',
        "not-json": first + unit[0] + "{]\n",
        "another-seed": first.replace("42", "43"),
        "another-format": first.replace("journal-1", "journal-9"),
        "more-settings": first.replace('"seed"', '"k": {"a": []}, "seed"'),
        "somebodys": "my diary\n",
        "without-line-break": "my diary",
    }


# Bodies of requests to the server: the number of a form (fuzz_body.c), and what is sent.
BODIES = {
    "text": (0, {"prompt": "w1", "n_predict": 3, "winnow": {"policy": "keydiff", "budget": 9, "reuse": "any"}}),
    "tokens": (0, {"prompt": [1, 2, 3], "n": 2, "max_tokens": 4.0, "id_slot": 1}),
    "mixed": (0, {"prompt": [[1, "a"]], "n_cmpl": None, "stop": ["a"], "logprobs": 1}),
    "several": (0, {"prompt": ["a", [1], {"prompt_string": "b"}], "temperature": 0.5, "seed": -1}),
    "image": (0, {"prompt": {"prompt_string": "a", "multimodal_data": ["AA"]}}),
    "grammar": (0, {"prompt": "a", "grammar": 'root ::= ("a" | [b-c]){2,3} x? "\\n"\nx ::= <[5]> # c'}),
    "schema": (0, {"prompt": "a", "json_schema": {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "null"], "properties": {"b": {"enum": [1]}}, "items": {"maxLength": 3}}}}}),
    "chat": (1, {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}], "response_format": {"type": "json_object"}}),
    "tools": (1, {"messages": [], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"allOf": [{"pattern": "^a$"}]}}}], "tool_choice": "auto"}),
    "anthropic": (2, {"messages": [{"role": "user", "content": "a"}], "system": "b", "max_tokens": 3, "tools": [{"name": "f", "input_schema": {}}], "thinking": {}}),
    "responses": (3, {"input": "a", "instructions": "b", "max_output_tokens": 3, "max_tokens": 3}),
    "infill": (4, {"input_prefix": "a", "input_suffix": "b", "input_extra": []}),
    "two-lengths": (0, {"prompt": "a", "n_predict": 3, "max_tokens": 4}),
    "other-route": (0, {"prompt": "a", "messages": []}),
    "error": (0, {"error": {"message": "Field 'a': [json.exception.type_error.302] type", "code": 500}}),
}
BROKEN = {"twice": b'\x00{"prompt":"a","prompt":"b"}', "cut": b'\x01{"messages":[{"role"', "deep": b"\x00" + b"[" * 150, "nul": b'\x00{"prompt":"a\\u0000b","grammar":"a\\u0000"}', "number": b"\x007"}


# ---- Slots of the server ----


def cache(n_tokens, n_cells, rows, extra=b"", turned=False):
    """Keys and values of the newest cells as libllama saves them; rows: bytes of a token's keys and values in each layer."""
    out = struct.pack("<II", 1, n_cells)
    for i in range(n_tokens - n_cells, n_tokens):
        out += struct.pack("<iI", i, 1) + extra + struct.pack("<i", 2)
    out += struct.pack("<II", turned, len(rows))
    for k, _ in rows:
        out += struct.pack("<iQ", 1, k) + (b"\7" * (k // 2) + b"\xff" * (k - k // 2)) * n_cells
    for _, v in rows:
        out += struct.pack("<iII", 1, 2, v // 2) if turned else struct.pack("<iQ", 1, v)
        out += b"\xff" * (v * n_cells)
    return out


def slot(kind, notes, n_tokens, state, recipe=b"keydiff", at=()):
    parts = struct.pack("<QQ", len(state), 0) + state if state else b""
    head = struct.pack("<QQ24sQQQQqiii4x512siiqdQi4x", 7, 8, b"", len(notes), len(state), len(parts), 0, n_tokens, n_tokens, 1, len(at), recipe, 1, 0, 5, 0.0, 0, min(1, n_tokens))
    # The target sets the checksum.
    return bytes([kind | 1]) + b"winnow slot 5\n\0\0" + head + bytes(8) + struct.pack(f"<{len(notes) + len(at)}i", *notes, *at) + parts


def park(key, image, recipe=b"keydiff", sealed=1, fingerprint=b"7f"):
    asked = struct.pack("<512s512siiqdQii", recipe, b"", 1, 0, 5, 0.0, 0, 2, 0)
    head = b"winnow park 1\n\0\0" + struct.pack("<24sQQQ32sii", fingerprint, len(key), len(image), 0, bytes(range(32)), 3, 1)
    # The target sets the checksums.
    return bytes([sealed]) + head + asked + asked + bytes(8) + key + image


def parks():
    """Parked prompts as fuzz_park.c takes them."""
    yield "whole", park(b"A text.", b"a slot" * 9)
    yield "empty", park(b"", b"")
    yield "unsealed", park(b"A text.", b"a slot", sealed=0)
    yield "model", park(b"A text.", b"a slot", fingerprint=b"other")
    yield "recipe", park(b"A text.", b"a slot", recipe=b'a "quote"')


def slots():
    start = struct.pack("<Ii", 0xAF143CD8, 2)
    ids = list(range(5, 13))
    packed = [-1, 1, len(ids), *ids, 0]
    image = [-1, 1, len(ids), *ids[:3], -1, *ids[4:], 1, 3, 4, 77]
    rows = [(16, 16), (24, 8)]
    yield "tokens", slot(0, ids, 8, start + cache(8, 8, rows))
    yield "notes", slot(0, packed, 8, start + cache(8, 8, rows))
    yield "image", slot(0, image, 8, start + cache(8, 8, rows))
    yield "turned", slot(0, packed, 8, start + cache(8, 8, rows, turned=True))
    yield "window", slot(2, packed, 8, start + cache(8, 8, rows[:1]) + cache(8, 4, rows))
    yield "recurrent", slot(4, packed, 8, start + cache(8, 8, rows) + struct.pack("<IiI", 1, 7, 0) + b"state")
    yield "parts", slot(8, packed, 8, start + cache(8, 8, rows, extra=bytes(12)))
    yield "unknown", slot(16, packed, 8, start + cache(8, 8, [(12, 20)]))
    yield "removed", slot(0, list(range(20, 60)), 8, start + cache(8, 8, rows), at=[0, 1, 2, 3, 30, 31, 38, 39])
    yield "positions", slot(0, list(range(20, 60)), 8, start + cache(8, 8, rows), at=[0, 1, 2, 3, 3, 31, 38, 40])
    yield "empty", slot(0, [-1, 1, 0, 0], 0, b"")


def main():
    (target,) = sys.argv[1:]
    folder = os.path.join(target, "corpus")
    for name, vocabulary in (("llama", bpe_vocabulary), ("gemma3", spm_vocabulary)):
        os.makedirs(os.path.join(folder, "gguf"), exist_ok=True)
        path = os.path.join(folder, "gguf", name)
        write_model(path, name, vocabulary)
    for name, data in VOCAB.items():
        put(folder, "vocab", name, data)
    for name, data in profiles().items():
        put(folder, "profile", name, data)
    for name, data in imports().items():
        put(folder, "import", name, data)
    for name, data in PLANS.items():
        put(folder, "plan", name, data)
    for name, data in results().items():
        put(folder, "results", name, data.encode())
    for name, data in journals().items():
        put(folder, "journal", name, data.encode())
    for name, (form, body) in BODIES.items():
        put(folder, "body", name, bytes([form]) + json.dumps(body).encode())
    for name, data in BROKEN.items():
        put(folder, "body", name, data)
    for name, data in slots():
        put(folder, "slot", name, data)
    for name, data in parks():
        put(folder, "park", name, data)
    for i, recipe in enumerate(RECIPES):
        put(folder, "policy", f"{i:02}", recipe.encode())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_corpus.py TESTS_FUZZ")
    main()
