#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the scores of `winnow calibrate srh` with a second computation in NumPy.

check_retrieval_heads.py [--winnow build/winnow] [--model GGUF] [--probes N] [--set LIST] [--from DIR]

The command asks its probes, or --from has the files of an earlier run (probes.jsonl and dump.csv). The tokens of the
first N probes go to the forward pass of scripts/keepsets, and both scores of every head are computed from its
attention. The exit code is 1 if a score differs by more than 0.001 of the probe's largest (semantic) or of the unit
(traditional), or if a generated token is not the likeliest. Weights and cache are float32. The model must be of the
llama family. Use the Python environment that scripts/setup.sh makes.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np  # noqa: E402
from keepsets.model import Model  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("WINNOW_CACHE", os.path.expanduser("~/.cache/winnow"))
BOUND = 1e-3


def calibrate(args, folder):
    command = [args.winnow, "calibrate", "srh", "-m", args.model, "--kv-type", "f32", "--set", args.set, "-o",
               os.path.join(folder, "srh.json"), "--export-probes", os.path.join(folder, "probes.jsonl"), "--dump",
               os.path.join(folder, "dump.csv")]
    subprocess.run(command, check=True, stdout=sys.stderr)


def read_dump(path, model):
    """Scores [L][H][2] of every probe, by its id."""
    scores = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            one = scores.setdefault(row["probe"], np.full((model.L, model.H, 2), np.nan))
            one[int(row["layer"]), int(row["head"])] = float(row["semantic"]), float(row["traditional"])
    return scores


def score(model, probe):
    """Both scores [L][H][2] of a probe, and how many generated tokens are the likeliest."""
    prompt, made = probe["prompt_tokens"], probe["generated_tokens"]
    span = range(probe["target_first"], probe["target_first"] + probe["target_len"])
    answer = {prompt[j] for j in span}
    out = np.zeros((model.L, model.H, 2))
    first = len(prompt) - 1  # the row of the prompt's last token makes the first generated one

    def look(layer, seen):
        for t, token in enumerate(made):
            if token not in answer:
                continue
            rows = seen["a"][:, first + t, :first + t + 1].astype(np.float64)
            out[layer, :, 0] += rows[:, span].sum(1)
            for head, j in enumerate(rows.argmax(1)):
                if j in span and prompt[j] == token:
                    out[layer, head, 1] += 1 / len(span)

    x = model.forward(np.asarray(prompt + made[:-1]), look)
    weights = model.w.get("output.weight", model.w["token_embd.weight"])
    logits = model.norm(x[first:], "output_norm.weight") @ weights.T
    return out, int((logits.argmax(1) == np.asarray(made)).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default=os.path.join(HERE, "../build/winnow"))
    parser.add_argument("--model", default=os.path.join(CACHE, "models/smollm2-135m-f32.gguf"))
    parser.add_argument("--probes", default=2, type=int)
    parser.add_argument("--set", default="facts=4,lengths=1,depths=1,shortest=400,longest=400,least=1",
                        help="settings of the calibration")
    parser.add_argument("--from", dest="folder", help="folder with probes.jsonl and dump.csv of an earlier run")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="retrieval-heads-") as made:
        folder = args.folder or made
        if not args.folder:
            calibrate(args, folder)
        model, failed = Model(args.model), 0
        dump = read_dump(os.path.join(folder, "dump.csv"), model)
        with open(os.path.join(folder, "probes.jsonl")) as f:
            probes = [json.loads(line) for line in f]
    for probe in probes[:args.probes]:
        ours, likeliest = score(model, probe)
        theirs, n = dump[probe["id"]], len(probe["generated_tokens"])
        semantic = np.abs(theirs[..., 0] - ours[..., 0]).max() / ours[..., 0].max()
        traditional = np.abs(theirs[..., 1] - ours[..., 1]).max()
        bad = not semantic <= BOUND or not traditional <= BOUND or likeliest != n
        failed += bad
        print(f"probe {probe['id']}, {len(probe['prompt_tokens'])} tokens and {n} generated: largest difference "
              f"{semantic:.1e} semantic (of {ours[..., 0].max():.3f}), {traditional:.1e} traditional (of "
              f"{ours[..., 1].max():.3f}); {likeliest} of {n} tokens are the likeliest" + (" FAILED" if bad else ""))
    if len(probes) < args.probes:
        print(f"only {len(probes)} probes were answered")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
