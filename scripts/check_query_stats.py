#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `winnow calibrate stats` with NumPy: check_query_stats.py [WINNOW] [MODEL]

MODEL is a float32 GGUF of the llama family (scripts/fetch_models.sh makes smollm2-135m-f32). Two pieces of 192 tokens
are read by both; the queries here come from the forward pass of scripts/keepsets, means, covariances and singular
vectors from NumPy. Use the Python environment that scripts/setup.sh makes.
"""
import base64
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np  # noqa: E402
from keepsets.model import Model, Prompt  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("WINNOW_CACHE", os.path.expanduser("~/.cache/winnow"))
PIECES, LENGTH, SKIP = 2, 192, 4


def main():
    winnow = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../build/winnow")
    path = sys.argv[2] if len(sys.argv) > 2 else os.path.join(CACHE, "models/smollm2-135m-f32.gguf")
    with open(os.path.join(HERE, "../share/text/calibration.txt")) as f:
        text = f.read()[:8 * PIECES * LENGTH]
    with tempfile.TemporaryDirectory() as folder:
        file, out = os.path.join(folder, "text"), os.path.join(folder, "stats.json")
        with open(file, "w") as f:
            f.write(text)
        common = ["-m", path, "-f", file]
        ids = subprocess.run([winnow, "tokens", *common, "--raw"], check=True, stdout=subprocess.PIPE).stdout.split()
        subprocess.run([winnow, "calibrate", "stats", *common, "-o", out, "--kv-type", "f32", "-t", "1", "--set",
                        f"pieces={PIECES},length={LENGTH}"], check=True, stdout=subprocess.DEVNULL)
        with open(out) as f:
            results = json.load(f)["results"]
    model = Model(path)
    heads = {"query_mean": model.H, "query_std": model.H, "query_corr": model.H, "filter": model.K}
    for key, n in heads.items():  # a layer is a text of base64
        form = "<i2" if key == "query_corr" else "<f4"
        results[key] = np.array([np.frombuffer(base64.b64decode(x), form).reshape(n, -1) for x in results[key]], np.float64)
    prompts = [Prompt(model, [int(t) for t in ids[i * LENGTH:(i + 1) * LENGTH]]) for i in range(PIECES)]
    worst = {"mean": 0.0, "std": 0.0, "correlation": 0.0, "filter": 0.0}
    for l in range(model.L):
        before, after = (np.concatenate([getattr(p, name)[l][SKIP:] for p in prompts]).astype(np.float64)
                         for name in ("q0", "q"))
        filters = np.zeros((model.K, model.d))
        for h in range(model.H):
            std = before[:, h].std(0)
            lower = np.tril_indices(model.d, -1)
            corr = np.corrcoef(before[:, h].T)[lower]
            v = np.linalg.svd(after[:, h], full_matrices=False)[2][0]
            filters[h // model.G] += v * np.sign(after[:, h].mean(0) @ v) / model.G
            for name, got, want, scale in (("mean", results["query_mean"][l, h], before[:, h].mean(0), std.max()),
                                           ("std", results["query_std"][l, h], std, std.max()),
                                           ("correlation", results["query_corr"][l, h] / 1e4, corr, 1)):
                worst[name] = max(worst[name], np.abs(got - want).max() / scale)
        worst["filter"] = max(worst["filter"], np.abs(results["filter"][l] - filters).max())
    for name, x in worst.items():
        print(f"{name:12} differs by at most {x:.2g}")
    return int(max(worst.values()) > 1e-3)


sys.exit(main())
