#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Head budgets by next-token loss, to compare with `shares` and `random_shares`: loss_shares.py MODEL SHARES OUT [--pieces N] [--threads N]

A head matters as much as the mean loss of the next tokens rises when it alone keeps a quarter of its entries: the first 4, the last 32, and those
with distinct keys (KeyDiff). Heads are ordered by that rise. The first gets the largest share of SHARES, a profile of kind `shares`, the second the
next one, and so on, at each size. So budgets are as unequal as those of SHARES, and only their order is another.

OUT is a profile of kind `curves` with these budgets, which the head budget `lukv` reads. So one run can compare them: `keydiff+lukv:sinks=4` with
`keydiff+shares:header=0`. A piece is 512 tokens and the 256 after them; each text that calibrations read (share/text) has
--pieces of them. Needs the package `winnow`. Cost: a reading of 256 tokens for each head and piece.
"""
import argparse
import ctypes
import json
import pathlib
import sys

import numpy as np

import winnow
from winnow import _declarations as c
from winnow._library import check, library
from winnow._model import _at, _no_logits, _plan_of, _Session, _size
from winnow._scorer import Policy

TEXTS = pathlib.Path(__file__).resolve().parent.parent / "share" / "text"
N_READ, N_NEXT, N_FIRST, N_LAST = 512, 256, 4, 32


def loss(session, last, following):
    """Mean loss of the tokens after those that the session has read. last: logits of the last one."""
    total = []

    def add(i, logits, user):
        row = np.ctypeslib.as_array(logits, (len(last),)).astype(np.float64)
        if i + 1 < len(following):
            total.append(np.logaddexp.reduce(row) - row[following[i + 1]])
        return True

    first = last.astype(np.float64)
    total.append(np.logaddexp.reduce(first) - first[following[0]])
    check(library().wnw_session_prefill(session, _at(following), len(following), c.wnw_logits_fn(add), None))
    assert len(total) == len(following)
    return float(np.mean(total))


def loss_with(session, last, following, keep):
    """The loss after a copy of the session keeps these positions of each head."""
    lib, other, plan = library(), ctypes.POINTER(c.wnw_session)(), ctypes.POINTER(c.wnw_plan)()
    n_layer, n_head = len(keep), len(keep[0])
    rows = [row for layer in keep for row in layer]
    counts = np.array([len(row) for row in rows], np.int32)
    at = (ctypes.POINTER(ctypes.c_int32) * len(rows))(*[_at(row) for row in rows])
    check(lib.wnw_session_copy(ctypes.byref(other), session))
    try:
        check(lib.wnw_plan_new(ctypes.byref(plan), n_layer, n_head, N_READ, _at(counts), at))
        check(lib.wnw_session_apply(other, plan, None))
        return loss(other, last, following)
    finally:
        lib.wnw_plan_free(plan)
        lib.wnw_session_free(other)


def rises_of(model, tokens):
    """How much the loss after N_READ of the tokens rises by each head, [n_layer][n_head_kv]."""
    lib, session = library(), _Session(model)
    policy = Policy("keydiff", (), ())
    plan, run, report = ctypes.POINTER(c.wnw_plan)(), c.wnw_run_default(), c.wnw_report_default()
    run.policy = policy.pointer
    check(lib.wnw_session_begin(session.pointer, ctypes.byref(run)))
    check(lib.wnw_session_prefill(session.pointer, _at(tokens), N_READ, _no_logits, None))
    check(lib.wnw_session_plan(session.pointer, policy.pointer, ctypes.byref(_size(0.75, None, None)), ctypes.byref(plan), ctypes.byref(report)))
    quarter = _plan_of(plan, policy.recipe, tokens[:N_READ], report, "keydiff")
    lib.wnw_plan_free(plan)
    last = np.ctypeslib.as_array(lib.wnw_session_logits(session.pointer), (model.n_vocab,)).copy()
    following, whole = tokens[N_READ:], np.arange(N_READ, dtype=np.int32)
    keep = [[whole] * model.n_head_kv for _ in range(model.n_layer)]
    before = loss_with(session.pointer, last, following, keep)
    rises = np.zeros((model.n_layer, model.n_head_kv))
    for il in range(model.n_layer):
        for ih in range(model.n_head_kv):
            chosen = np.union1d(quarter[il][ih], np.r_[whole[:N_FIRST], whole[-N_LAST:]]).astype(np.int32)
            keep[il][ih] = chosen
            rises[il][ih] = loss_with(session.pointer, last, following, keep) - before
            keep[il][ih] = whole
    session.close()
    return rises


def reordered(shares, rises):
    """The shares of each size, the largest for the head whose loss rises most."""
    order, flat = np.argsort(-rises.ravel(), kind="stable"), np.array(shares).reshape(len(shares), -1)
    out = np.empty_like(flat)
    out[:, order] = -np.sort(-flat, axis=1)
    return out.reshape(np.shape(shares))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("shares")
    parser.add_argument("out")
    parser.add_argument("--pieces", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    model = winnow.Model(args.model, threads=args.threads, context=N_READ + N_NEXT, profile=None)
    profile = json.loads(pathlib.Path(args.shares).read_text())
    all_rises = []
    for text in [TEXTS / "calibration.txt", *sorted((TEXTS / "kinds").glob("*.txt"))]:
        tokens = np.asarray(model.tokenize(text.read_text()[:20000 * args.pieces]), np.int32)
        for i in range(args.pieces):
            piece = np.ascontiguousarray(tokens[i * (N_READ + N_NEXT):][:N_READ + N_NEXT])
            all_rises.append(rises_of(model, piece))
            print(f"{text.name}, piece {i + 1}: rises from {all_rises[-1].min():.4f} to {all_rises[-1].max():.4f} nats", file=sys.stderr)
    rises = np.mean(all_rises, axis=0)
    ratio, keep = zip(*sorted((1 - size, shares.tolist()) for size, shares in
                              zip(profile["results"]["size"], reordered(profile["results"]["share"], rises), strict=True)))
    made = {"format": profile["format"], "kind": "curves", "model": profile["model"], "data": profile["data"],
            "settings": {"made_by": "scripts/loss_shares.py", "pieces": args.pieces, "tokens": [N_READ, N_NEXT], "rises": rises.tolist()},
            "results": {"ratio": ratio, "keep": keep}}
    pathlib.Path(args.out).write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
