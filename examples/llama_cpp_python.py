# SPDX-License-Identifier: MIT
"""A model in llama-cpp-python on winnow's device: llama_cpp_python.py MODEL.gguf [PROMPT]

The library is the one that `winnow backend --path` prints, or WINNOW_BACKEND names. It must be built for the ggml that
llama-cpp-python brings: `winnow backend --check` says so.
"""
import ctypes
import os
import subprocess
import sys

import llama_cpp  # first, so that the backend finds this package's ggml


def use_winnow():
    """Registers the device WINNOW; models whose layers are offloaded (n_gpu_layers=-1) are on it from then on."""
    path = os.environ.get("WINNOW_BACKEND") or subprocess.check_output(["winnow", "backend", "--path"], text=True).strip()
    winnow = ctypes.CDLL(path)
    winnow.wnw_last_error.restype = ctypes.c_char_p
    if winnow.wnw_bridge_register() != 0:
        raise RuntimeError(winnow.wnw_last_error().decode())
    return winnow


if __name__ == "__main__":
    use_winnow()
    model = llama_cpp.Llama(sys.argv[1], n_gpu_layers=-1, n_ctx=4096, verbose=False)
    prompt = sys.argv[2] if len(sys.argv) > 2 else "The capital of France is"
    print(model(prompt, max_tokens=16, temperature=0)["choices"][0]["text"])
