# SPDX-License-Identifier: MIT
"""Keep-sets, continued: options and forms other than the presets' own, and methods that follow a calibration profile."""
import base64
from fractions import Fraction
from math import floor

import numpy as np

from .methods import (REPEAT, accumulated, as_many_as_needed, average, behind, case, choose,
                      critical, defensive_scores, expected_scores, headkv_counts, heads_first, keydiff_scores,
                      kvzip_scores, layers, lookback, over_layer, partitions, pool, ranked, replay_scores,
                      share_out, snapkv_heads, snapkv_scores, splitmix, spread, streaming, uniform, whole)


# ---- a made-up profile ----

def made_up_results(model, rng):
    """Results of every kind of profile, with the settings that belong to them."""
    def table(rows, columns, draw):
        return [[draw() for _ in range(columns)] for _ in range(rows)]

    def curves(model, rng):
        """Shares that fall from nearly 1 to nearly 0, faster in some heads than in others."""
        power = np.array(table(model.L, model.K, lambda: 0.3 + 2 * rng.random()))
        ratio = [i / 20 for i in range(1, 20)]
        return {"ratio": ratio, "keep": [np.round((1 - x ** power) ** 1.2, 6).tolist() for x in ratio]}

    def shares(model, rng):
        """Shares of sizes, which are their means, and that fall faster in some heads than in others."""
        power = np.array(table(model.L, model.K, lambda: 0.2 + 3 * rng.random()))
        rows = [np.round(x ** power, 6) for x in (0.8, 0.4, 0.1)]
        return {"size": [float(x.mean()) for x in rows], "layers": list(range(model.L)), "share": [x.tolist() for x in rows]}

    def gate(model, rng):
        """Weights that let no feature decide by itself."""
        each = lambda: [rng.gauss(0, 0.03) for _ in range(2 * model.d)] + [rng.gauss(0, x) for x in (1, 1, 0.3, 0.3)]
        return {"weight": [[[round(x, 6) for x in each()] for _ in range(model.K)] for _ in range(model.L)],
                "bias": table(model.L, model.K, lambda: round(rng.gauss(-5, 0.5), 6))}

    share = [0.2 + rng.random() for _ in range(model.L)]
    mean = table(model.L, model.H, lambda: rng.random() ** 4)
    rank = [sorted(range(model.H), key=lambda h: (-row[h], h)) for row in mean]
    results = {
        "heads": ({"sink": 8, "recent": 56}, {"score": table(model.L, model.H, lambda: rng.random() ** 4),
                                              "alpha": table(model.L, model.K, rng.random)}),
        "srh": ({"k": 2}, {"srh": rank, "srh_mean": mean}),
        "stats": ({}, {"filter": [table(model.K, model.d, lambda: rng.gauss(0, 1)) for _ in range(model.L)]}),
        "curves": ({"policy": "expected_attention+uniform"}, curves(model, rng)),
        "shares": ({"target": "kvzip"}, shares(model, rng)),
        "layers": ({}, {"avg_score": [x / sum(share) for x in share]}),
        "compiler": ({"budget": 128, "window": 64, "n_sink": 0, "alpha_scope": "global", "score_norm": "mean",
                      "gate": "elastic", "entropy_norm": False, "pool": "none", "kernel": 7, "utility": "full"},
                     {"weight": table(model.L, model.H, lambda: rng.choice([0.85, 0.95, 1, 1.05, 1.15])),
                      "entropy_edges": [3, 3.5, 4, 4.5, 5], "ppl_edges": [10, 100, 1000], "default_ppl_bin": 0,
                      "tau": [table(6, 4, lambda: rng.choice([0.5, 0.75, 1, 1.5, 2])) for _ in range(model.L)]}),
    }
    results["gate"] = ({"features": ["key", "value", "lk", "keydiff", "ea", "lev"]}, gate(model, rng))
    n_embd = model.w["token_embd.weight"].shape[1]
    number = [[rng.gauss(0, 0.05) for _ in range(model.K * n_embd)] + [rng.gauss(-5, 0.5) for _ in range(model.K)]
              for _ in range(model.L)]
    results["inputgate"] = ({"form": "linear", "n_embd": n_embd},
                            {"layers": [base64.b64encode(np.array(x, "<f4").tobytes()).decode() for x in number]})
    return results


# ---- window attention ----

@case("snapkv:window=16,kernel=5,pool=avg+group_mean:cross_head=1", cross_head=True)
@case("snapkv:window=16,kernel=5,pool=avg+group_mean:gqa_bug=1", bug=True)
def snapkv_group_forms(p, r, cross_head=False, bug=False):
    scores = []
    for s in snapkv_heads(p, w=16, kernel=5, kind="avg"):
        if bug:  # heads j, j + K, ... of other groups
            rows = np.array([s[j::p.K].mean(0) for j in range(p.K)])
        else:
            rows = p.group_mean(s)
        scores.append(behind(rows + rows.mean(0) if cross_head else rows, 16))
    return uniform(p, scores, r, last=16)


@case("snapkv:window=64,kernel=1")
def unpooled(p, r):
    return uniform(p, [behind(s, 64) for s in snapkv_scores(p, w=64, kernel=1)], r, last=64)


@case("paper-pyramidkv-h2o")
def h2o_window(p, r):
    return uniform(p, [p.group_mean(accumulated(p, l)) for l in range(p.L)], r, last=8)


# ---- layer budgets ----

@case("paper-compresskv-pyramidkv", kernel=5, kind="avg", factory=False)
@case("paper-compilerkv-pyramidkv", kernel=7, kind="max", factory=True)
def pyramid_floored(p, r, kernel, kind, factory, w=8):
    """The paper's floored step; the later code is uniform where the prompt is shorter than 2 C."""
    c, history = average(p, r) - w, p.n - w
    most = 2 * c - c // 20
    if most >= history:
        most = history
    step = (most - (2 * c - most)) // (p.L - 1)
    counts = [most - l * step for l in range(p.L)]
    if factory and p.n < 2 * c:
        counts = [c] * p.L
    scores = snapkv_scores(p, w=w, kernel=kernel, kind=kind)
    return layers([behind(s, w) for s in scores], [min(x, history) + w for x in counts], last=w)


@case("paper-compilerkv-dynamickv")
def dynamickv_cascade(p, r, w=8, every=4):
    """The authors' code: shares out again after every fourth layer, and the last."""
    scores, base, history = snapkv_scores(p, w=w, kind="avg"), average(p, r) - w, p.n - w
    first = min(10 * base, history)
    left = [first] * p.L
    for m in [m for m in range(1, p.L + 1) if m % every == 0 or m == p.L]:
        flat = np.concatenate([s.reshape(-1) for s in scores[:m]])
        taken = min(base * p.K * m, len(flat))
        c = [int(x) // m for x in np.bincount(ranked(flat)[:taken] // (p.K * history), minlength=m)]
        if m == p.L:
            c[-1] += taken // p.L - sum(c)
        b = [int(first * x / sum(c)) for x in c]
        ratio = Fraction(sum(b), base * p.L)
        b = [floor(x / ratio) for x in b]
        b[-1] += base * p.L - sum(b)
        left[:m] = [min(x, y, history) for x, y in zip(b, left)]
    return layers([behind(s, w) for s in scores], [x + w for x in left], last=w)


@case("streaming_llm+simlayerkv:last=64,form=threshold,threshold=0.5")
def simlayerkv_threshold(p, r, first=4, last=64):
    counts = []
    for l in range(p.L):
        a = p.a[l][:, -1, :-1].astype(np.float64).mean(0)
        lazy = a[:first].sum() + a[first:][-last:].sum() > 0.5
        counts.append(first + last - 1 if lazy else p.n)
    return layers([over_layer(p, np.arange(p.n, dtype=float))] * p.L, counts, first=first)


@case("streaming_llm:sinks=8+duo", form="size")
@case("streaming_llm:sinks=8+duo:form=ratio", form="ratio")
@case("streaming_llm:sinks=8+duo:sinks=8,last=56,form=ratio,source=prompt", form="prompt")
def duo_forms(p, r, form):
    alpha = lookback(p).reshape(-1) if form == "prompt" else np.array(p.profile["heads"]["alpha"]).reshape(-1)
    if form == "size":
        counts = as_many_as_needed(alpha, p.n, 64, average(p, r) * len(alpha))
    else:
        counts = [p.n] * len(alpha)
        for i in np.argsort(alpha, kind="stable")[:round(len(alpha) * r)]:  # halves to even
            counts[i] = 64
    return streaming(p, counts, 8)


@case("compresskv")
def compresskv(p, r, w=8, least=32):
    """Mean over the two best calibrated heads; layers share by calibrated error, 32 to three times the average or n."""
    b, share = average(p, r), p.profile["layers"]["avg_score"]
    total, most = b * p.L, min(3 * b, p.n)
    counts = [min(max(least + round(e * (total - p.L * least)), least), most) for e in share]
    while sum(counts) != total:
        up = sum(counts) < total
        order = sorted(range(p.L), key=lambda l: (-share[l] if up else share[l], l))
        for l in [l for l in order if (counts[l] < most if up else counts[l] > least)]:
            if sum(counts) != total:
                counts[l] += 1 if up else -1
    best = [row[:2] for row in p.profile["srh"]["srh"]]
    heads = snapkv_heads(p, w=w, kernel=5, kind="avg")
    return layers([over_layer(p, behind(s[h].mean(0), w)) for h, s in zip(best, heads)], counts, last=w)


# ---- CompilerKV's options ----

@case("compilerkv-strict:alpha_scope=layer,table=none+gate:mode=strict,table=none", scope="layer")
@case("compilerkv-strict:alpha_scope=head,table=none+gate:mode=strict,table=none", scope="head")
@case("compilerkv-strict:n_sink=4,table=none+gate:mode=strict,table=none", n_sink=4)
@case("compilerkv-strict:pool=avg,table=none+gate:mode=strict,table=none", smooth=True)
@case("compilerkv-strict:utility=raw,table=none+gate:mode=strict,table=none", raw=True)
@case("compilerkv-strict:utility=attention,table=none+gate:mode=strict,table=none", flat=True)
def compilerkv_options(p, r, scope="global", n_sink=0, smooth=False, raw=False, flat=False, w=64):
    window = [p.a[l][:, -1:] if raw else p.a[l][:, -w:] for l in range(p.L)]
    heads = [a.astype(np.float64).sum(1) for a in window]  # [H][n]
    keep = []
    for l in range(p.L):
        if scope == "head":
            alpha = heads[l]
        else:
            alpha = np.tile(heads[l].mean(0) if scope == "layer" else np.mean(heads, (0, 1)), (p.H, 1))
        if smooth:
            alpha = behind(pool(alpha[:, :-w], 7, "avg"), w)
        norm = np.linalg.norm(p.v[l].astype(np.float64), axis=2).T
        rho = np.ones_like(norm) if raw or flat else norm / norm.mean(1, keepdims=True)
        u = (alpha * rho.repeat(p.G, 0)).max(0)
        keep.append([choose(u, average(p, r), n_sink, w, late=True)] * p.K)
    return keep


# ---- projected value norms ----

@case("criticalkv-headkv")
def critical_headkv(p, r, w=32):
    counts, scores = headkv_counts(p, r, w), snapkv_scores(p)
    keep = []
    for l in range(p.L):
        nu = p.nu(l, "l2")
        sure = [*range(p.n - w, p.n), *range(4)]
        keep.append([critical(behind(scores[l][j], w), nu[j], counts[l * p.K + j] + w, sure) for j in range(p.K)])
    return keep


@case("snapkv+critical:alpha=0.3,eps_rel=0.1", alpha=0.3, eps=0.1)
def critical_options(p, r, alpha, eps, w=32):
    keep = []
    for l, s in enumerate(snapkv_scores(p)):
        nu = p.nu(l, "l2")
        sure = [*range(p.n - w, p.n), *range(4)]
        keep.append([critical(behind(s[j], w), nu[j], average(p, r), sure, alpha, eps / p.n) for j in range(p.K)])
    return keep


@case("paper-defensivekv")
def defensive_as_code(p, r, w=32):
    """The released code: the window's mass from the w columns before it, one bound without it, truncated counts."""
    keep = []
    for s in defensive_scores(p, r, "l1", as_code=True):
        total = int(p.K * p.n * (1 - r)) - p.K * w
        counts = np.bincount(ranked(s.reshape(-1))[:total] // s.shape[1], minlength=p.K) + w
        keep.append([choose(behind(row, w), c, last=w) for row, c in zip(s, counts)])
    return keep


# ---- keys and values ----

def curve_shares(p, removed):
    """What every head keeps of its entries when `removed` of the model's are gone: linear between what was measured."""
    curves = p.profile["curves"]
    at = [0, *curves["ratio"], 1]
    keep = np.array([np.ones((p.L, p.K)), *curves["keep"], np.zeros((p.L, p.K))])
    i = max(k for k in range(len(at) - 1) if at[k] <= removed)
    return keep[i] + (keep[i + 1] - keep[i]) * (removed - at[i]) / (at[i + 1] - at[i])


@case("lukv")
@case("kvpress-lukv", nearest=True)
def lukv(p, r, nearest=False, first=4, last=1):
    def parts(removed):
        return (p.n * curve_shares(p, removed)).clip(first + last, p.n)

    if nearest:  # the measured ratio that is nearest; every layer by itself
        removed = min(p.profile["curves"]["ratio"], key=lambda x: abs(x - r))
        counts = [share_out(row, round(p.n * shares.sum()), p.n)
                  for row, shares in zip(parts(removed), curve_shares(p, removed))]
    else:
        total, low, high = whole(p.L * p.K * p.n * (1 - r)), 0.0, 1.0
        for _ in range(100):
            low, high = ((low + high) / 2, high) if parts((low + high) / 2).sum() > total else (low, (low + high) / 2)
        flat = share_out(parts(high).reshape(-1), total, p.n)
        counts = np.array(flat).reshape(p.L, p.K)
    scores = expected_scores(p, epsilon=0.02)
    return [[choose(scores[l][j], counts[l][j], first, last) for j in range(p.K)] for l in range(p.L)]


def keydiff_values_scores(p, weight=2):
    """Keydiff's scores plus weighted log norms of values, each scaled to mean 0 and variance 1 over the head."""
    def standard(x):
        return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    norms = [np.linalg.norm(heads_first(v).astype(np.float64), axis=2) for v in p.v]
    return [standard(s) + weight * standard(np.log(norm)) for s, norm in zip(keydiff_scores(p), norms)]


@case("keydiff:values=0.5")
def keydiff_values(p, r):
    return uniform(p, keydiff_values_scores(p, 0.5), r)


def in_room(p, r, first, last, room):
    """Last entries give way where they and the first would be more than a share of what heads keep."""
    return last if room >= 1 else max(0, min(last, floor(room * floor(p.n * (1 - r) + 1e-6)) - first))


def shuffled(n, seed):
    """An order of heads by Fisher and Yates, with the random numbers of src/base/random.h."""
    order, state = list(range(n)), splitmix(splitmix(seed << 32))
    for i in range(n - 1, 0, -1):
        k = splitmix(state) % (i + 1)
        state = (state + 0x9e3779b97f4a7c15) % 2**64
        order[i], order[k] = order[k], order[i]
    return order


@case("keydiff-values-shares", scores=keydiff_values_scores)
@case("keydiff-shares", scores=keydiff_scores)
@case("keydiff-shares:last=32,room=0.3", scores=keydiff_scores, last=32, room=0.3)
@case("keydiff+random_shares:seed=3", scores=keydiff_scores, seed=3)
def heads_by_shares(p, r, scores, first=4, last=1, room=1, seed=None):
    """Counts p + s(f) (n - p) with s linear in log f, for the f at which they come to the size."""
    last = max(1, in_room(p, r, first, last, room))  # the newest stays
    shares = p.profile["shares"]
    size = np.log([1, *shares["size"]])
    table = np.concatenate([np.ones((1, p.L * p.K)), np.array(shares["share"]).reshape(-1, p.L * p.K)])
    if seed is not None:
        table = table[:, shuffled(p.L * p.K, seed)]

    def parts(f):
        if f < shares["size"][-1]:
            s = table[-1] * f / shares["size"][-1]
        else:
            s = np.array([np.interp(-np.log(f), -size, column) for column in table.T])
        return first + last + s * (p.n - first - last)

    total, low, high = whole(p.L * p.K * p.n * (1 - r)), 1e-9, 1.0
    for _ in range(100):
        low, high = (low, (low + high) / 2) if parts((low + high) / 2).sum() > total else ((low + high) / 2, high)
    counts = np.array(share_out(parts(low), total, p.n)).reshape(p.L, p.K)
    scores = scores(p)
    return [[choose(scores[l][j], counts[l][j], first, last) for j in range(p.K)] for l in range(p.L)]


@case("expected_attention:covariance=0,n_sink=8,n_future=64")
def expected_mean_only(p, r):
    return uniform(p, expected_scores(p, n_sink=8, n_future=64, covariance=False), r, first=8)


@case("cur:leverage=key,block=32", leverage="key")
@case("cur:leverage=value,block=32", leverage="value")
@case("cur:leverage=mean,block=32", leverage="mean")
def cur_forms(p, r, leverage, block=32):
    scores = []
    for l in range(p.L):
        k2, v2 = ((heads_first(x[l])**2).sum(2) for x in (p.k, p.v))
        k2, v2 = (np.concatenate([x[:, b:b + block] / x[:, b:b + block].sum(1, keepdims=True)
                                  for b in range(0, p.n, block)], 1) for x in (k2, v2))
        scores.append(dict(key=k2, value=v2, mean=(k2 + v2) / 2)[leverage])
    return uniform(p, scores, r, first=4)


@case("lagkv:lag=32,use=key", wk=1, wv=0)
@case("lagkv:lag=32,use=value", wk=0, wv=1)
@case("lagkv:lag=32,wv=3", wk=1, wv=3)
def lagkv_weights(p, r, wk, wv):
    def score(l, j, b, lag):
        blocks = ((x[l][b:b + lag, j].astype(np.float64), x[l][b + lag:b + 2 * lag, j].astype(np.float64))
                  for x in (p.k, p.v))
        return sum(weight * spread(z, ref) for weight, (z, ref) in zip((wk, wv), blocks))
    return partitions(p, r, score, lag=32)


@case("l2norm:lag=32,wv=1,low=0")
def l2norm_high(p, r):
    def score(l, j, b, lag):
        return sum(np.linalg.norm(x[l][b:b + lag, j].astype(np.float64), axis=1) for x in (p.k, p.v))
    return partitions(p, r, score, lag=32, skip=2)


@case("knorm+chunk:chunk=100")
def stretches(p, r, chunk=100):
    """Stretch [a, b) keeps floor(k b / n) - floor(k a / n) of a head's k entries."""
    count, keep = average(p, r), []
    for k in p.k:
        keep.append([])
        for s in -np.linalg.norm(heads_first(k), axis=2):
            kept = []
            for a in range(0, p.n, chunk):
                b = min(a + chunk, p.n)
                kept += (a + ranked(s[a:b])[:count * b // p.n - count * a // p.n]).tolist()
            keep[-1].append(sorted(kept))
    return keep


# ---- second pass ----

def over_model(p, scores, r):
    """The best of all heads together, the sinks and one entry of every head in any case."""
    s = np.concatenate(scores)
    s[:, :4] = np.inf  # sinks
    key = s.copy()
    key[np.arange(len(s)), s.argmax(1)] = np.inf
    won = ranked(key.reshape(-1))[:whole((1 - r) * p.L * p.K * p.n)]
    keep = [sorted((won[won // p.n == i] % p.n).tolist()) for i in range(p.L * p.K)]
    return [keep[l * p.K:(l + 1) * p.K] for l in range(p.L)]


@case("kvzip")
def kvzip(p, r):
    return over_model(p, kvzip_scores(p), r)


@case("replay-sampled", scores=replay_scores)
@case("keydiff-values-sampled", scores=keydiff_values_scores)
@case("keydiff-sampled", scores=keydiff_scores)
@case("keydiff-sampled:last=32,room=0.3", scores=keydiff_scores, last=32, room=0.3)
@case("keydiff-sampled:sample=50,place=16", scores=keydiff_scores, m=50, place=16)
def sampled(p, r, scores, m=32, place=32, first=4, last=1, room=1):
    """Counts by what some tokens, which are repeated in truth, look for; which entries, by any scores. Where there are several places each
    is in the middle of its slice of the text."""
    k = m // place
    ends = [p.n * i // k for i in range(k + 1)]
    sizes = [m // k + (i < m % k) for i in range(k)]
    starts = [a + (b - a - s) // 2 for a, b, s in zip(ends, ends[1:], sizes)]
    at = np.concatenate([np.arange(a, a + s) for a, s in zip(starts, sizes)])
    last = max(1, in_room(p, r, first, last, room))  # the newest stays
    fed = np.concatenate([p.tokens[a - 8:a + s] for a, s in zip(starts, sizes)]).tolist()  # what comes before leads to it
    found = np.concatenate([a.reshape(p.K, p.G, -1).max(1)[:, at] for a in p.second_pass(f"sample of {m} by {place}", fed)])
    y = np.sort(np.log(found.astype(np.float64) + 1e-6))
    below = (np.arange(m) + 0.5) / m  # the share of a head's entries below y

    def counts(t):
        shares = [np.interp(t, [*row[:1] - 1, *row, *row[-1:] + 1], [0, *below, 1]) for row in y]
        return np.array([first + last + (1 - x) * (p.n - first - last) for x in shares])

    low, high = -20.0, 2.0
    total = whole((1 - r) * p.L * p.K * p.n)
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if counts(t).sum() > total else (low, t)
    c = counts(high)
    n = np.floor(c + 1e-6).astype(int)
    for i in np.argsort(-(c - n), kind="stable")[:total - n.sum()]:
        n[i] += 1
    keep = [choose(s, k, first, last) for s, k in zip(np.concatenate(scores(p)), n)]
    return [keep[l * p.K:(l + 1) * p.K] for l in range(p.L)]


@case("kvzip_plus")
def kvzip_plus(p, r):
    """By how much an entry moves a repeated token's hidden state."""
    scores = []
    for l, a in enumerate(p.second_pass_by_input("repeat, by input", REPEAT + p.tokens.tolist())):
        moved = np.array([np.linalg.norm(v.astype(np.float64), axis=1) for _, v in p.projected(l)])
        scores.append((a * moved).reshape(p.K, p.G, p.n).max(1))
    return over_model(p, scores, r)


def mean_length(m, c):
    """Mean length of normal vectors of two elements, in polar coordinates: m[2], c[2][2]."""
    low = np.linalg.cholesky(c + 1e-12 * np.eye(2))
    r, angle = np.linspace(0, 9, 1501), (np.arange(240) + 0.5) * 2 * np.pi / 240
    x, y = np.outer(r, np.cos(angle)), np.outer(r, np.sin(angle))
    length = np.hypot(m[0] + low[0, 0] * x, m[1] + low[1, 0] * x + low[1, 1] * y).mean(1)
    return np.trapezoid(length * np.exp(-r * r / 2) * r, r)


@case("triattention:stats=prompt")
def triattention(p, r, first=4):
    """Cosines of every distance, one by one; the prompt's own queries, but the first four."""
    scores, delta, pos = [], 2.0 ** np.arange(17), np.arange(p.n)
    for l in range(p.L):
        rows = np.zeros((p.H, p.n))
        key = p.k0[l][..., 0::2].astype(np.float64) + 1j * p.k0[l][..., 1::2]
        for h in range(p.H):
            q = p.q0[l][first:, h].astype(np.float64)
            mean, cov = q.mean(0), np.cov(q.T, bias=True)
            for f, theta in enumerate(p.model.theta):
                two = slice(2 * f, 2 * f + 2)
                m, k = mean[2 * f] + 1j * mean[2 * f + 1], key[:, h // p.G, f]
                turn = np.angle(m * np.conj(k))[:, None] + theta * (p.n - pos[:, None] + delta)
                rows[h] += abs(m) * abs(k) * np.cos(turn).mean(1)
                rows[h] += (mean_length(mean[two], cov[two, two]) - abs(m)) * abs(k)
        rows = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
        scores.append(rows.reshape(p.K, p.G, p.n).max(1))
    return uniform(p, scores, r, first=first)


def input_scores(p):
    """W x + b, from the layers' texts of float32 numbers."""
    scores = []
    for l, text in enumerate(p.profile["inputgate"]["layers"]):
        number = np.frombuffer(base64.b64decode(text), "<f4").astype(np.float64)
        scores.append(number[:-p.K].reshape(p.K, -1) @ p.x[l].astype(np.float64).T + number[-p.K:, None])
    return scores


@case("inputgate:recent=0+equal", share=0)
@case("inputgate:recent=100,share=0.05+equal", share=0.05)
@case("inputgate:recent=100,share=0.5,room=0.6+equal", share=0.5, room=0.6)
def inputgate_equal(p, r, share, room=1):
    return uniform(p, input_scores(p), r, first=4, last=in_room(p, r, 4, min(100, floor(p.n * share)), room))


@case("kvzap:recent=0")
def inputgate(p, r):
    return over_model(p, input_scores(p), r)


def gate_scores(p):
    """w . f + b with the key before RoPE, the value, and log of length, KeyDiff, log of expected attention and leverage."""
    scores = []
    for l, (diff, ea) in enumerate(zip(keydiff_scores(p), expected_scores(p))):
        key, value = heads_first(p.k0[l]), heads_first(p.v[l])
        x = key - key.mean(1, keepdims=True)
        gram = x.transpose(0, 2, 1) @ x
        gram += (0.01 * np.trace(gram, axis1=1, axis2=2) / p.d)[:, None, None] * np.eye(p.d)
        lev = ((x @ np.linalg.inv(gram)) * x).sum(2)
        four = [np.log(np.linalg.norm(key, axis=2)), diff, np.log(ea + 1e-12), np.log(lev + 1e-6)]
        f = np.concatenate([key, value, np.stack(four, 2)], axis=2)
        gate = p.profile["gate"]
        scores.append((f @ np.array(gate["weight"][l])[:, :, None])[:, :, 0] + np.array(gate["bias"][l])[:, None])
    return scores


@case("kvgate")
def kvgate(p, r):
    return over_model(p, gate_scores(p), r)


@case("kvgate+equal")
def kvgate_equal(p, r):
    return uniform(p, gate_scores(p), r, first=4)


@case("kvcompose:agg_task=mean", mean=True)
@case("kvcompose:value_norm=1", mean=False)
@case("kvcompose+composite:agg_head=max", mean=False, agg_head=np.max)
def kvcompose_forms(p, r, mean, agg_head=None):
    scores = []
    for l, a in enumerate(p.second_pass("context", p.tokens, mean)):
        s = p.group_mean(a.astype(np.float64))
        if not mean and not agg_head:
            s = s * np.linalg.norm(p.v[l].astype(np.float64), axis=2).T
        scores.append(s + s.mean(0))
    value = np.array([(agg_head or np.mean)(-np.sort(-s, axis=1), axis=0) for s in scores])
    value[:, 0] = np.inf
    won = ranked(value.reshape(-1))[:whole((1 - r) * p.L * p.n)]
    return layers(scores, np.bincount(won // p.n, minlength=p.L))
