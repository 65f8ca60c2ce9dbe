#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a scorer in Python costs, compared with the same one in C: python_scorer.py [MODEL] [--tokens N] [--runs N] [--threads N]

Needs the package `winnow`. One reading serves all of them; each run makes the plans again, and the least time of the runs counts. The table
has milliseconds of scoring all layers, of a whole plan, and of the reading with that plan. Scoring includes making the arrays. `inside` is
what of it NumPy takes in the function itself.
"""
import argparse
import functools
import time

import numpy as np

import winnow


inside = {}  # name of a scorer -> seconds in its function


def timed(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        start = time.perf_counter()
        result = function(*args, **kwargs)
        inside[function.__name__] = inside.get(function.__name__, 0) + time.perf_counter() - start
        return result
    return call


@winnow.scorer(needs=["keys"], first=0, last=0)
@timed
def py_norms(obs):
    """A head at a time."""
    return np.stack([-np.sqrt(np.einsum("nd,nd->n", keys, keys)) for keys in map(obs.head_keys, range(obs.n_head_kv))])


@winnow.scorer(needs=["keys"], first=0, last=0)
@timed
def py_norms_array(keys):
    """All heads in one array."""
    return -np.sqrt(np.einsum("hnd,hnd->hn", keys, keys))


@winnow.scorer(needs=["window_attention"], first=0, last=32, query_heads=True)
@timed
def py_window(window_attention):
    return np.einsum("hwn->hn", window_attention)  # the order of a mean, in less time


@winnow.scorer(needs=["window_attention"], first=0, last=32, query_heads=True)
@timed
def py_window_out(window_attention, out):
    """Without an array of its own."""
    np.add.reduce(window_attention, axis=1, out=out)


@winnow.scorer(needs=["key_norms"], first=0, last=0)
@timed
def py_norms_made(key_norms, out):
    """Norms that the library has made."""
    np.negative(key_norms, out=out)


@winnow.scorer(needs=["window_mean"], first=0, last=32, query_heads=True)
@timed
def py_window_made(window_mean):
    """A mean that the library has made."""
    return window_mean


PAIRS = [("knorm", "py_norms"), ("knorm", "py_norms_array"), ("knorm", "py_norms_made"), ("snapkv:window=32,kernel=1", "py_window"),
         ("snapkv:window=32,kernel=1", "py_window_out"), ("snapkv:window=32,kernel=1", "py_window_made")]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("model", nargs="?", default="smollm2-135m")
    options.add_argument("--tokens", type=int, default=4096)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--threads", type=int, default=0)
    options = options.parse_args()
    with winnow.Model(options.model, threads=options.threads) as m:
        text = " ".join(f"Tower {k} has {k * 7} lamps and {k * 13} steps." for k in range(options.tokens))
        text = m.detokenize(m.tokenize(text)[:options.tokens - 40].tolist())
        recipes = sorted({one for pair in PAIRS for one in pair})
        best = {}
        for _ in range(options.runs):
            inside.clear()
            start = time.perf_counter()
            plans = m.plans(text, recipes, ratio=0.5)
            reading = 1000 * (time.perf_counter() - start) - sum(sum(plan.times.values()) for plan in plans)
            for recipe, plan in zip(recipes, plans):
                whole = sum(plan.times.values())
                for name, value in (("score", plan.times["score"]), ("inside", 1000 * inside.get(recipe, 0)), ("plan", whole), ("all", reading + whole)):
                    best[recipe, name] = min(value, best.get((recipe, name), value))
        print(f"{m.name}, {plan.n_tokens} tokens, {m.n_layer} layers; milliseconds")
        print(f"{'in C':<26}{'in Python':<17}{'score C':>8}{'Python':>8}{'inside':>8}{'times':>7}{'plan C':>9}{'Python':>9}{'times':>7}{'all C':>10}{'Python':>10}{'times':>7}")
        for c, python in PAIRS:
            cells = []
            for name, width in (("score", 8), ("plan", 9), ("all", 10)):
                a, b = best[c, name], best[python, name]
                more = f"{best[python, 'inside']:8.1f}" if name == "score" else ""
                cells += [f"{a:{width}.1f}{b:{width}.1f}{more}{b / max(a, 1e-9):7.2f}"]
            print(f"{c:<26}{python:<17}{''.join(cells)}")


if __name__ == "__main__":
    main()
