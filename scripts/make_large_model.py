#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write a random GGUF model of the shape of Llama-3-8B in Q4_0, for measurements of time and memory: make_large_model.py FILE

The file has 4.6 GB, and is for one measurement: it answers nothing. All layers have the same random matrices, so that writing takes little
memory. --layers and --vocab make a smaller one. Its context is 131,072 tokens.

    scripts/make_large_model.py /tmp/large.gguf
    winnow run -m /tmp/large.gguf --tokens FILE -n 1 --policy keydiff --ratio 0.875 --evict chunk:2048 --chunk-slack 1 --json

Needs the PyPI packages gguf and numpy. The file is written under a temporary name first.
"""
import argparse
import os

import make_tiny_models as tiny
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter

BLOCK = np.dtype([("scale", np.float16), ("pairs", np.uint8, 16)])  # 32 weights of Q4_0
SPREAD = 4.6  # standard deviation of a number from -8 to 7


class Blocks(tiny.Weights):
    """Random blocks of Q4_0 in place of numbers that are quantised. The same tensor of another layer is the same array."""

    def __init__(self, writer, seed):
        super().__init__(writer, seed, Type.Q4_0)
        self.made = {}

    def matrix(self, name, rows, cols, gain=1.0):
        key = name.split(".", 2)[-1] if name.startswith("blk.") else name
        if key not in self.made:
            blocks = np.empty((rows, cols // 32), BLOCK)
            blocks["scale"] = gain / np.sqrt(cols) / SPREAD
            blocks["pairs"] = self.rng.integers(0, 256, blocks["pairs"].shape, np.uint8)
            self.made[key] = blocks.view(np.uint8).reshape(rows, -1)
        self.writer.add_tensor(name, self.made[key], raw_dtype=Type.Q4_0)


class Writer(GGUFWriter):
    def add_context_length(self, length):
        super().add_context_length(131072)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file")
    options.add_argument("--layers", type=int, default=32)
    options.add_argument("--vocab", type=int, default=128256)
    options = options.parse_args()
    shape = tiny.Shape("llama", options.layers, 4096, 14336, 32, 8, 128, freq_base=500000.0, weights=Type.Q4_0)
    tiny.N_VOCAB = max(options.vocab, 320)
    made = options.file + ".new"
    writer = Writer(made, shape.arch)
    tiny.add_metadata(writer, "random-8b", shape)
    tiny.add_vocabulary(writer)
    weights = Blocks(writer, 8)
    weights.matrix("token_embd.weight", tiny.N_VOCAB, shape.n_embd)
    for il in range(shape.n_layer):
        tiny.add_layer(weights, shape, il)
    weights.vector("output_norm.weight", shape.n_embd, 1.0, 0.1)
    weights.matrix("output.weight", tiny.N_VOCAB, shape.n_embd)
    tiny.finish(writer)
    os.replace(made, options.file)


if __name__ == "__main__":
    main()
