#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write small random GGUF models for the tests: make_tiny_models.py OUTDIR

At least one model per supported family. Weights are random, and always the same because seeds are fixed. Shapes
reach the corners of the engine: grouped and multi-query attention, odd group sizes, heads wider than n_embd / n_head.
There are rope scaling tensors, biases, norms of queries and keys, and sliding windows. Weights are f32, f16, q8_0 or
q4_0, some with rows that ggml's CPU backend can repack. The vocabulary is one token per byte and a few more.
Models in OUTDIR/chat have the control tokens, vocabulary type and chat template (tests/chat) of the models that docs
and examples use. Models in OUTDIR/foreign are of families that run through libllama (tiny_foreign.py).

Needs the PyPI packages gguf and numpy. Each file is written under a temporary name first.
"""
import os
import sys
from dataclasses import dataclass

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, TokenType, quantize
from tiny_foreign import FAMILIES, FAMILY_OF

N_VOCAB = 320
MERGES = ["t h", "i n", "e r", "a n", "th e"]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass
class Shape:
    arch: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    freq_base: float = 10000.0
    weights: Type = Type.F32
    tied: bool = False  # the output matrix is the token embedding
    rope_factors: bool = False  # rope_freqs.weight, as Llama 3.1 has
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norm: bool = False
    window: int = 0  # sliding window in tokens


SHAPES = {
    "tiny-llama": Shape("llama", 4, 128, 256, 4, 2, 32),
    "tiny-llama3": Shape("llama", 3, 256, 384, 4, 2, 64, freq_base=500000.0, weights=Type.F16, tied=True,
                         rope_factors=True),
    "tiny-llama-mqa": Shape("llama", 2, 96, 192, 3, 1, 32),
    "tiny-llama-q4_0": Shape("llama", 3, 256, 512, 4, 2, 64, weights=Type.Q4_0),
    "tiny-qwen2": Shape("qwen2", 3, 128, 256, 4, 2, 32, freq_base=1000000.0, weights=Type.Q8_0, tied=True,
                        qkv_bias=True),
    "tiny-qwen2-f32": Shape("qwen2", 2, 192, 256, 6, 1, 32, freq_base=1000000.0, qkv_bias=True),
    "tiny-qwen3": Shape("qwen3", 4, 128, 256, 4, 2, 64, freq_base=1000000.0, weights=Type.F16, tied=True,
                        qk_norm=True),
    "tiny-qwen3-f32": Shape("qwen3", 2, 96, 192, 4, 4, 32, freq_base=1000000.0, qk_norm=True),
    # Every sixth layer is global. Seven layers: the last one is not.
    "tiny-gemma3": Shape("gemma3", 7, 128, 256, 4, 2, 64, freq_base=1000000.0, weights=Type.F16, tied=True,
                         qk_norm=True, post_norm=True, window=16),
    "tiny-gemma3-f32": Shape("gemma3", 6, 128, 192, 4, 1, 32, freq_base=1000000.0, tied=True, qk_norm=True,
                             post_norm=True, window=16),
}


# Name in OUTDIR/chat, architecture, vocabulary.
CHAT_ARCHS = {"smollm2": "llama", "qwen2.5": "qwen2", "gemma3": "gemma3", "llama2": "llama"}


def chat_shape(arch):
    gemma = arch == "gemma3"
    return Shape(arch, 6 if gemma else 1, 64, 64, 2, 1, 32, tied=True, qkv_bias=arch == "qwen2", qk_norm=gemma,
                 post_norm=gemma, window=16 if gemma else 0)


def byte_tokens():
    """The printable character that byte-level BPE writes for each byte: itself, else U+0100 and up."""
    plain = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    tokens, spare = [], 256
    for byte in range(256):
        if byte in plain:
            tokens.append(chr(byte))
        else:
            tokens.append(chr(spare))
            spare += 1
    return tokens


def add_tokens(writer, tokens, types):
    """Fills the lists up to N_VOCAB and adds them."""
    while len(tokens) < N_VOCAB:
        tokens.append(f"<unused{len(tokens)}>")
        types.append(TokenType.UNUSED)
    writer.add_token_list(tokens)
    writer.add_token_types(types)


def read_template(name):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "chat")
    with open(os.path.join(folder, name + ".jinja"), encoding="utf-8", newline="") as f:
        return f.read()


def add_byte_level(writer, pre, bos, template, pad=False):
    """GPT-2's kind of vocabulary: ChatML's control tokens, bytes and a few merges."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + byte_tokens() + [merge.replace(" ", "") for merge in MERGES]
    types = [TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    add_tokens(writer, tokens, types)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(2)
    if pad:
        writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)


def add_vocabulary(writer):
    add_byte_level(writer, "gpt-2", 1, CHATML, pad=True)


def add_smollm2_vocabulary(writer):
    add_byte_level(writer, "smollm", 1, read_template("smollm2"))


def add_qwen2_vocabulary(writer):
    add_byte_level(writer, "qwen2", 0, read_template("qwen2.5"))


def add_gemma3_vocabulary(writer):
    """SentencePiece's kind: bytes, a few pieces with scores, BOS asked for, no blank put in front."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    pieces = ["\u2581", "e", "r", "s", "t", "\n", "er", "\u2581t"]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    types = [TokenType.CONTROL] * 6 + [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(pieces)
    types[3] = TokenType.UNKNOWN
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    add_tokens(writer, tokens, types)
    writer.add_token_scores([0.0] * 262 + [-float(i) for i in range(N_VOCAB - 262)])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(read_template("turns"))


LLAMA2 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ ' ' + message['content'] + ' ' "
    "+ eos_token }}{% else %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}{% endfor %}"
)


def add_llama2_vocabulary(writer):
    """SentencePiece's kind as in Llama 2: a blank is put in front of a text, for the file does not say otherwise."""
    special = ["<unk>", "<s>", "</s>"]
    pieces = ["\u2581", "e", "t", "o", "n", "i", "h", "r", "s", "[", "]", "er", "he", "th", "the", "in", "\u2581t",
              "\u2581the", "\u2581the\u2581", "\u2581\u2581", "\u2581[", "INST"]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    types = [TokenType.UNKNOWN] + [TokenType.CONTROL] * 2 + [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(pieces)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    add_tokens(writer, tokens, types)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(N_VOCAB - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template(LLAMA2)


def add_metadata(writer, name, s):
    writer.add_name(name)
    writer.add_context_length(8192)
    writer.add_block_count(s.n_layer)
    writer.add_embedding_length(s.n_embd)
    writer.add_feed_forward_length(s.n_ff)
    writer.add_head_count(s.n_head)
    writer.add_head_count_kv(s.n_head_kv)
    writer.add_layer_norm_rms_eps(1e-6 if s.arch != "llama" else 1e-5)
    writer.add_rope_freq_base(s.freq_base)
    writer.add_vocab_size(N_VOCAB)
    if s.n_embd != s.n_head * s.head_dim or s.arch in ("qwen3", "gemma3"):
        writer.add_key_length(s.head_dim)
        writer.add_value_length(s.head_dim)
    if s.arch == "llama":
        writer.add_rope_dimension_count(s.head_dim)
    if s.window:
        writer.add_sliding_window(s.window)


class Weights:
    """Adds random tensors of one model. Shapes are (rows, columns), columns contiguous."""

    def __init__(self, writer, seed, matrix_type):
        self.writer = writer
        self.rng = np.random.default_rng(seed)
        self.matrix_type = matrix_type

    def matrix(self, name, rows, cols, gain=1.0):
        data = self.rng.standard_normal((rows, cols), dtype=np.float32) * np.float32(gain / np.sqrt(cols))
        if self.matrix_type == Type.F32:
            self.writer.add_tensor(name, data)
        elif self.matrix_type == Type.F16:
            self.writer.add_tensor(name, data.astype(np.float16))
        else:
            self.writer.add_tensor(name, quantize(data, self.matrix_type), raw_dtype=self.matrix_type)

    def cube(self, name, planes, rows, cols):
        data = self.rng.standard_normal((planes, rows, cols), dtype=np.float32) / np.float32(np.sqrt(cols))
        self.writer.add_tensor(name, data)

    def vectors(self, name, n, length, spread):
        self.writer.add_tensor(name, np.float32(spread) * self.rng.standard_normal((n, length), dtype=np.float32))

    def vector(self, name, n, mean, spread):
        data = mean + spread * self.rng.standard_normal(n, dtype=np.float32)
        self.writer.add_tensor(name, data.astype(np.float32))


def rope_factors(head_dim):
    """One divisor per pair of a head: fast pairs unchanged, slow ones 8 times slower, a ramp between."""
    return np.interp(np.arange(head_dim // 2), [head_dim // 6, head_dim // 3], [1.0, 8.0]).astype(np.float32)


def add_layer(w, s, il):
    p = f"blk.{il}."
    n_q, n_kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    w.vector(p + "attn_norm.weight", s.n_embd, 1.0, 0.1)
    # Queries and keys larger than usual: attention that prefers some tokens over others, as trained models have.
    w.matrix(p + "attn_q.weight", n_q, s.n_embd, 1.5)
    w.matrix(p + "attn_k.weight", n_kv, s.n_embd, 1.5)
    w.matrix(p + "attn_v.weight", n_kv, s.n_embd)
    w.matrix(p + "attn_output.weight", s.n_embd, n_q)
    if s.qkv_bias:
        w.vector(p + "attn_q.bias", n_q, 0.0, 0.5)
        w.vector(p + "attn_k.bias", n_kv, 0.0, 0.5)
        w.vector(p + "attn_v.bias", n_kv, 0.0, 0.5)
    if s.qk_norm:
        w.vector(p + "attn_q_norm.weight", s.head_dim, 1.2, 0.1)
        w.vector(p + "attn_k_norm.weight", s.head_dim, 1.2, 0.1)
    if s.post_norm:
        w.vector(p + "post_attention_norm.weight", s.n_embd, 1.0, 0.1)
        w.vector(p + "post_ffw_norm.weight", s.n_embd, 1.0, 0.1)
    w.vector(p + "ffn_norm.weight", s.n_embd, 1.0, 0.1)
    w.matrix(p + "ffn_gate.weight", s.n_ff, s.n_embd)
    w.matrix(p + "ffn_up.weight", s.n_ff, s.n_embd)
    w.matrix(p + "ffn_down.weight", s.n_embd, s.n_ff)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_foreign(path, name, seed, add):
    writer = GGUFWriter(path, FAMILY_OF.get(name, name))
    writer.add_name(f"foreign-{seed}")  # libllama takes some families' names for hints at vocabularies
    add_vocabulary(writer)
    add(writer, Weights(writer, seed, Type.F32))
    finish(writer)


def write_model(path, name, seed, s, vocabulary=add_vocabulary):
    writer = GGUFWriter(path, s.arch)
    add_metadata(writer, name, s)
    vocabulary(writer)
    w = Weights(writer, seed, s.weights)
    # Gemma multiplies embeddings by sqrt(n_embd): larger ones would drown what the layers add.
    w.matrix("token_embd.weight", N_VOCAB, s.n_embd, 1.0 if s.arch == "gemma3" else 4.0)
    w.vector("output_norm.weight", s.n_embd, 1.0, 0.1)
    if not s.tied:
        w.matrix("output.weight", N_VOCAB, s.n_embd, 4.0)
    if s.rope_factors:
        writer.add_tensor("rope_freqs.weight", rope_factors(s.head_dim))
    for il in range(s.n_layer):
        add_layer(w, s, il)
    finish(writer)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_tiny_models.py OUTDIR")
    outdir = sys.argv[1]
    os.makedirs(os.path.join(outdir, "chat"), exist_ok=True)
    vocabularies = {"smollm2": add_smollm2_vocabulary, "qwen2.5": add_qwen2_vocabulary, "gemma3": add_gemma3_vocabulary,
                    "llama2": add_llama2_vocabulary}
    todo = [(name, shape, add_vocabulary) for name, shape in SHAPES.items()]
    todo += [(f"chat/{name}", chat_shape(arch), vocabularies[name]) for name, arch in CHAT_ARCHS.items()]
    for seed, (name, shape, vocabulary) in enumerate(todo, start=1):
        path = os.path.join(outdir, name + ".gguf")
        write_model(path + ".tmp", os.path.basename(name), seed, shape, vocabulary)
        os.replace(path + ".tmp", path)
    os.makedirs(os.path.join(outdir, "foreign"), exist_ok=True)
    for seed, (name, add) in enumerate(FAMILIES.items(), start=100):
        path = os.path.join(outdir, "foreign", name + ".gguf")
        write_foreign(path + ".tmp", name, seed, add)
        os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()
