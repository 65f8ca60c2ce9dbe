#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a scorer in Python costs, compared with the same one in C: python_scorer.py [MODEL] [--tokens N] [--runs N]

Needs the package `winnow`. One reading serves all of them; each run makes the plans again, and the least time of the runs counts. The table
has milliseconds of scoring all layers, which include making the arrays, and of a whole plan.
"""
import argparse

import numpy as np

import winnow


@winnow.scorer(needs=["keys"], first=0, last=0)
def py_norms(obs):
    """Views of the library's memory, a head at a time."""
    return np.stack([-np.sqrt(np.einsum("nd,nd->n", keys, keys)) for keys in map(obs.head_keys, range(obs.n_head_kv))])


@winnow.scorer(needs=["keys"], first=0, last=0)
def py_norms_copied(keys):
    """All heads in one array, which is a copy."""
    return -np.sqrt(np.einsum("hnd,hnd->hn", keys, keys))


@winnow.scorer(needs=["window_attention"], first=0, last=32, query_heads=True)
def py_window(window_attention):
    return np.einsum("hwn->hn", window_attention)  # the order of a mean, in less time


PAIRS = [("knorm", "py_norms"), ("knorm", "py_norms_copied"), ("snapkv:window=32,kernel=1", "py_window")]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("model", nargs="?", default="smollm2-135m")
    options.add_argument("--tokens", type=int, default=4096)
    options.add_argument("--runs", type=int, default=5)
    options = options.parse_args()
    with winnow.Model(options.model) as m:
        text = " ".join(f"Tower {k} has {k * 7} lamps and {k * 13} steps." for k in range(options.tokens))
        text = m.detokenize(m.tokenize(text)[:options.tokens - 40].tolist())
        recipes = sorted({one for pair in PAIRS for one in pair})
        best = {}
        for _ in range(options.runs):
            for recipe, plan in zip(recipes, m.plans(text, recipes, ratio=0.5)):
                for name, value in (("score", plan.times["score"]), ("plan", sum(plan.times.values()))):
                    best[recipe, name] = min(value, best.get((recipe, name), value))
        print(f"{m.name}, {plan.n_tokens} tokens, {m.n_layer} layers; milliseconds")
        print(f"{'in C':<28}{'in Python':<18}{'score C':>9}{'Python':>9}{'times':>7}{'plan C':>9}{'Python':>9}{'times':>7}")
        for c, python in PAIRS:
            cells = []
            for name in ("score", "plan"):
                a, b = best[c, name], best[python, name]
                cells += [f"{a:9.1f}{b:9.1f}{b / max(a, 1e-9):7.2f}"]
            print(f"{c:<28}{python:<18}{''.join(cells)}")


if __name__ == "__main__":
    main()
