# SPDX-License-Identifier: MIT
"""kvpress on PyTorch, for compare.py: kvpress_engine.py MODEL THREADS float32|bfloat16

transformers reads the GGUF file itself and dequantises it; nothing is downloaded."""
import os
import sys
import time
from importlib.metadata import version

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from kvpress import SnapKVPress
from transformers import AutoModelForCausalLM, DynamicCache

from protocol import serve


def main():
    path, threads, dtype = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path),
                                                 dtype=getattr(torch, dtype))
    model.eval()

    def read(ids, cache, keep):
        if keep is None:
            return model(input_ids=ids, past_key_values=cache, logits_to_keep=1)
        press = SnapKVPress(compression_ratio=1 - keep / ids.shape[1], window_size=32, kernel_size=7)
        with press(model):
            return model(input_ids=ids, past_key_values=cache, logits_to_keep=1)

    @torch.inference_mode()
    def run(tokens, decode, keep):
        ids, cache = torch.tensor([tokens]), DynamicCache()
        start = time.perf_counter()
        picked = [int(read(ids, cache, keep).logits[0, -1].argmax())]
        first = time.perf_counter()
        for i in range(decode):
            out = model(input_ids=torch.tensor([[picked[-1]]]), past_key_values=cache,
                        position_ids=torch.tensor([[len(tokens) + i]]))
            picked.append(int(out.logits[0, -1].argmax()))
        end = time.perf_counter()
        return 1e3 * (first - start), 1e3 * (end - first), picked

    serve(f"kvpress {version('kvpress')} on PyTorch {version('torch')}, {dtype}, {torch.backends.cpu.get_cpu_capability()}",
          run)


main()
