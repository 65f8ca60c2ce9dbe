#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a plausible profile for tests; its numbers were measured on nothing.

make_profile.py KIND FINGERPRINT N_LAYER N_HEAD N_HEAD_KV N_EMBD_HEAD [key=value of settings ...] > file.json
"""
import json
import random
import sys

kind, fingerprint = sys.argv[1:3]
n_layer, n_head, n_head_kv, n_embd_head = map(int, sys.argv[3:7])
extra = dict(a.split("=") for a in sys.argv[7:])
rng = random.Random(7)


def ranks(mean):
    return [sorted(range(n_head), key=lambda h: (-row[h], h)) for row in mean]


settings, results = {}, {}
if kind == "srh":
    settings = {"k": max(1, (n_head + 4) // 8)}
    for name in "srh", "trad":
        mean = [[round(rng.random() ** 4, 4) for _ in range(n_head)] for _ in range(n_layer)]
        results[name], results[name + "_mean"] = ranks(mean), mean
elif kind == "layers":
    score = [0.2 + rng.random() for _ in range(n_layer)]
    results = {"avg_score": [x / sum(score) for x in score]}
elif kind == "compiler":
    settings = {"budget": 128, "window": 64, "n_sink": 0, "alpha_scope": "global", "score_norm": "mean",
                "gate": "elastic", "entropy_norm": False}
    settings.update({k: int(v) if v.isdigit() else v for k, v in extra.items()})
    results = {
        "entropy_edges": [3, 4, 5],
        "ppl_edges": [10],
        "default_ppl_bin": 0,
        "weight": [[rng.choice([0.85, 0.95, 1, 1.05, 1.15]) for _ in range(n_head)] for _ in range(n_layer)],
        "tau": [[[rng.choice([0.5, 1, 2, 3]) for _ in range(2)] for _ in range(4)] for _ in range(n_layer)],
    }
else:
    sys.exit("kind is srh, layers or compiler")
json.dump({"format": "winnow-profile-1", "kind": kind,
           "model": {"fingerprint": fingerprint, "n_layer": n_layer, "n_head": n_head, "n_head_kv": n_head_kv,
                     "n_embd_head": n_embd_head},
           "settings": settings, "data": {"text": "none, made for tests"}, "results": results}, sys.stdout)
