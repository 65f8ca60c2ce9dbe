# SPDX-License-Identifier: MIT
"""A second implementation of the methods' keep-sets: written from the papers' formulas, slow and short, independent of src/.

A method is a function of a prompt (model.Prompt) and a ratio that returns keep[layer][head] = positions. @case names
the policies that it computes, and the options that differ between them. asked=True: the policy knows a question that
is not read yet. Letters as in docs/reference/methods.md.
"""
from fractions import Fraction
from math import ceil, floor

import numpy as np

CASES = []  # (policy for the command line, function, keyword arguments, asked)


def case(policy, asked=False, **kwargs):
    def add(function):
        CASES.append((policy, function, kwargs, asked))
        return function
    return add


# ---- counting and choosing ----

def whole(x):
    """Counts are floor(x + 1e-6), so that 0.9 of 1000 is 900 for any rounding of the product."""
    return floor(x + 1e-6)


def average(p, r):
    """B: entries that a head keeps on average."""
    return whole(p.n * (1 - r))


def ranked(s, late=False):
    """Positions, best score first; of equal ones the earlier (or the later) first."""
    if late:
        return len(s) - 1 - np.argsort(-s[::-1], kind="stable")
    return np.argsort(-s, kind="stable")


def choose(s, count, first=0, last=0, late=False):
    """`count` positions of a head: the first and last ones, then the best."""
    n = len(s)
    sure = set(range(min(first, count)))
    sure |= set(range(n - min(last, count - len(sure)), n))
    rest = [i for i in ranked(s, late) if i not in sure]
    return sorted(sure | set(rest[:max(0, count - len(sure))]))


def uniform(p, scores, r, first=0, last=0, late=False):
    return [[choose(s, average(p, r), first, last, late) for s in rows] for rows in scores]


def layers(scores, counts, first=0, last=0):
    """As many entries of every head of layer l as counts[l] says, protected ones included."""
    return [[choose(s, c, first, last) for s in rows] for rows, c in zip(scores, counts)]


def share_out(parts, total, cap=None):
    """Whole numbers near the real ones with sum total: floors; the largest fractions go up, low index first."""
    parts = [Fraction(x).limit_denominator(10**12) for x in parts]
    out = [floor(x) for x in parts]
    for i in sorted(range(len(parts)), key=lambda i: (out[i] - parts[i], i)):
        if sum(out) < total and (cap is None or out[i] < cap):
            out[i] += 1
    return out


def overflow(parts, weight, cap):
    """What is above cap goes to the others in proportion to their weight."""
    while (parts > cap + 1e-9).any():
        full, spare = parts >= cap, (parts - cap).clip(0).sum()
        parts = np.where(full, cap, parts + np.where(full, 0, weight) / weight[~full].sum() * spare)
    return parts


def pool(s, kernel, kind):
    """Along the last axis. avg: missing neighbours count as 0 and the divisor stays; max: they do not count."""
    pad = [(0, 0)] * (s.ndim - 1) + [(kernel // 2, kernel // 2)]
    s = np.pad(s.astype(np.float64), pad, constant_values=0 if kind == "avg" else -np.inf)
    n = s.shape[-1] - kernel + 1
    shifted = [s[..., u:u + n] for u in range(kernel)]
    return sum(shifted) / kernel if kind == "avg" else np.maximum.reduce(shifted)


def behind(rows, w):
    """Scores of the entries before the window, and zeros for the window, which stays anyway."""
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, w)])


def before_window(p, l, w):
    """a[H][w][n - w]: the last w queries' attention, the window's own columns cut off after the softmax."""
    return p.a[l][:, -w:, :-w].astype(np.float64)


# ---- window attention ----

def snapkv_heads(p, w=32, kernel=7, kind="max", agg=np.mean):
    """[L][H][n - w]"""
    return [pool(agg(before_window(p, l, w), axis=1), kernel, kind) for l in range(p.L)]


def snapkv_scores(p, pool_after=False, **options):
    """pool_after: the group's mean is pooled, not every head's row."""
    if pool_after:
        rows = [p.group_mean(s) for s in snapkv_heads(p, **{**options, "kernel": 1})]
        return [pool(s, options.get("kernel", 7), options.get("kind", "max")) for s in rows]
    return [p.group_mean(s) for s in snapkv_heads(p, **options)]


def over_layer(p, rows):
    return np.tile(rows, (p.K, 1))


@case("snapkv")
def snapkv(p, r):
    return uniform(p, [behind(s, 32) for s in snapkv_scores(p)], r, last=32)


@case("snapkv+group_max")
def snapkv_group_max(p, r):
    return uniform(p, [behind(s.reshape(p.K, p.G, -1).max(1), 32) for s in snapkv_heads(p)], r, last=32)


@case("snapkv+layer_mean")
@case("snapkv+retrieval_heads:heads=all")
def snapkv_layer_mean(p, r):
    return uniform(p, [over_layer(p, behind(s.mean(0), 32)) for s in snapkv_heads(p)], r, last=32)


@case("snapkv+layer_max")
def snapkv_layer_max(p, r):
    return uniform(p, [over_layer(p, behind(s.max(0), 32)) for s in snapkv_heads(p)], r, last=32)


@case("snapkv:agg=max+defensive")
def snapkv_defensive(p, r):
    """Worst case over window and group, and never less than the head's mean. Pooling keeps each row's mass."""
    scores = []
    for l in range(p.L):
        a = before_window(p, l, 32)
        soft = pool(a, 7, "max")
        soft *= a.sum(2, keepdims=True) / soft.sum(2, keepdims=True)
        m = soft.max(1).reshape(p.K, p.G, -1).max(1)
        scores.append(behind(np.maximum(m, m.mean(1, keepdims=True)), 32))
    return uniform(p, scores, r, last=32)


@case("laq")
def laq(p, r, w=8, ahead=8, ends=(0, 2)):
    """A copy of the cache that SnapKV compressed generates the most likely tokens. Their queries, and the last ones of
    the prompt, look at the full cache. `ends` are the tokens that end a text of this vocabulary."""
    past, rows = [], [p.a[l][:, -w:].astype(np.float64).sum(1) for l in range(p.L)]
    for l, heads in enumerate(snapkv(p, r)):
        past.append([np.stack([x[l][kept, j] for j, kept in enumerate(heads)], axis=1) for x in (p.k, p.v)])
    token, count = p.model.most_likely(p.last), w
    while count < w + ahead and token not in ends:
        seen = []
        x = p.model.forward(np.array([token]), lambda l, s: seen.append(s), past, p.n + count - w)
        for l, s in enumerate(seen):
            past[l] = [s["k"], s["v"]]
            for h in range(p.H):
                z = p.k[l][:, h // p.G].astype(np.float64) @ s["q"][0, h] / np.sqrt(p.d)
                rows[l][h] += np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        token, count = p.model.most_likely(x[-1]), count + 1
    return uniform(p, [behind(p.group_mean(pool(s[:, :-w] / count, 7, "max")), w) for s in rows], r, last=w)


@case("rkv")
def rkv(p, r, w=8, mix=0.1, threshold=0.5):
    """Attention of the newest queries, less a softmax of the mean cosine with other keys; each row lets its newest
    neighbour go."""
    scores = []
    for l, attention in enumerate(snapkv_scores(p, w=w)):
        unit = heads_first(p.k[l]) / np.linalg.norm(heads_first(p.k[l]), axis=2, keepdims=True)
        s = unit @ unit.transpose(0, 2, 1)
        s[:, np.arange(p.n), np.arange(p.n)] = 0
        for row in s.reshape(-1, p.n):
            row[np.flatnonzero(row > threshold)[-1:]] = 0
        e = np.exp(s.mean(1))
        again = e / e.sum(1, keepdims=True)
        scores.append(behind(mix * attention - (1 - mix) * again[:, :-w], w))
    return uniform(p, scores, r, last=w)


@case("tova")
def tova(p, r):
    """u[j] = mean over all heads of the last query's attention, the newest entry included."""
    return uniform(p, [over_layer(p, p.a[l][:, -1].astype(np.float64).mean(0)) for l in range(p.L)], r, late=True)


@case("compresskv+retrieval_heads:heads=all+uniform")
def compresskv_all_heads(p, r):
    heads = snapkv_heads(p, w=8, kernel=5, kind="avg")
    return uniform(p, [over_layer(p, behind(s.mean(0), 8)) for s in heads], r, last=8)


@case("finch")
def finch(p, r, question=32):
    """Each row of the question times the number of entries before its token, mean over rows and group."""
    before = np.arange(p.n - question, p.n)[:, None]
    rows = [p.group_mean((before_window(p, l, question) * before).mean(1)) for l in range(p.L)]
    return uniform(p, [behind(s, question) for s in rows], r, last=question)


@case("obcache")
@case("obcache:prune=value", prune="value")
@case("obcache:prune=key", prune="key")
@case("obcache:prune=drop", prune="drop")
def obcache(p, r, prune="joint", w=32):
    scores = []
    for l in range(p.L):
        rows = np.empty((p.H, p.n - w))
        for h in range(p.H):
            a = before_window(p, l, w)[h]
            z = p.z[l][h, -w:, :-w].astype(np.float64)
            v, o = p.v[l][:-w, h // p.G].astype(np.float64), p.o[l][-w:, h].astype(np.float64)
            vv, vo, oo = (v * v).sum(1), o @ v.T, (o * o).sum(1)[:, None]
            value, key = a**2 * vv, (a * z)**2 * (vv - 2 * vo + oo)
            both = value + key + 2 * a**2 * z * (vv - vo)
            drop = (a / np.maximum(1 - a, 0.05))**2 * (vv - 2 * vo + oo)
            rows[h] = dict(value=value, key=key, joint=both, drop=drop)[prune].sum(0)
        scores.append(behind(p.group_mean(pool(rows, 7, "max")), w))
    return uniform(p, scores, r, last=w)


# ---- attention of all queries ----

def accumulated(p, l):
    return p.a[l].astype(np.float64).sum(1)  # [H][n]


@case("h2o")
def h2o(p, r):
    return uniform(p, [p.group_mean(accumulated(p, l)) for l in range(p.L)], r, last=average(p, r) // 2, late=True)


@case("h2o+layer_max")
def h2o_layer_max(p, r):
    rows = [over_layer(p, accumulated(p, l).max(0)) for l in range(p.L)]
    return uniform(p, rows, r, last=average(p, r) // 2, late=True)


@case("observed_attention")
def observed_attention(p, r):
    """acc[j] / (n - j): the mean over the queries that can see entry j."""
    return uniform(p, [p.group_mean(accumulated(p, l) / (p.n - np.arange(p.n))) for l in range(p.L)], r)


@case("vatp", recent=None)
@case("vatp-window", recent=10)
def vatp(p, r, recent):
    """Attention times ||v||_1; 20 sinks. From all queries, half the budget recent; or from the last 400, 10 recent."""
    scores = []
    for l in range(p.L):
        a = accumulated(p, l) if recent is None else p.a[l][:, -400:].astype(np.float64).mean(1)
        scores.append(p.group_mean(a) * np.abs(p.v[l]).sum(2).T)
    b = average(p, r)
    return uniform(p, scores, r, first=20, last=b // 2 if recent is None else recent)


@case("compilerkv", gate="elastic")
@case("compilerkv-pooled", gate="pooled")
@case("compilerkv-strict", gate="strict")
@case("compilerkv:table=none+gate:mode=elastic,table=none,tau=1", gate="elastic", table=False)
@case("compilerkv:table=none+gate:mode=pooled,table=none,tau=1", gate="pooled", table=False)
@case("compilerkv:table=none+gate:mode=elastic,table=none", gate="strict", table=False)
@case("compilerkv:table=none+gate:table=none,tau=0.9,score_norm=max", gate="elastic", table=False, norm=np.max, tau=0.9)
@case("compilerkv:table=none+gate:table=none,tau=1.5,score_norm=median,floor=0", gate="elastic", table=False,
      norm=np.median, tau=1.5, least=0)
@case("compilerkv:table=none+gate:mode=pooled,table=none,tau=1,floor=0.5", gate="pooled", table=False, least=0.5)
@case("paper-compilerkv-no_risk", gate="elastic", mean=True, least=0)
@case("paper-compilerkv-no_heads", gate="elastic", weighted=False, least=0)
@case("compilerkv:table=none+gate:count=history,table=none,tau=1", gate="elastic", table=False, history=True)
def compilerkv(p, r, gate, table=True, norm=np.mean, w=64, tau=1, least=0.25, mean=False, weighted=True, history=False):
    """u = alpha (the window's attention, averaged over the model) times values' relative norms times head weights; the
    highest KV head counts. The demand: how many entries clear a threshold that entropy and perplexity choose, or that
    is the mean of all."""
    alpha = np.mean([p.a[l][:, -w:].astype(np.float64).mean(0) for l in range(p.L)], 0).sum(0)
    entropy, perplexity = -(alpha / w * np.log(alpha / w)).sum(), np.exp(p.nll[-w:].mean())
    c, old, rows, demand = whole((p.n - w) * (1 - r)) if history else average(p, r) - w, p.n - w, [], []
    for l in range(p.L):
        weight = np.ones(p.H)
        if table:
            t = p.profile["compiler"]
            bins = sum(e <= entropy for e in t["entropy_edges"]), sum(e <= perplexity for e in t["ppl_edges"])
            tau = np.mean(t["tau"]) if mean else t["tau"][l][bins[0]][bins[1]]
            weight = np.array(t["weight"][l]) if weighted else weight
        v = np.linalg.norm(p.v[l].astype(np.float64), axis=2).T
        rho = v / (v.mean(1, keepdims=True) + 1e-8)
        u = (alpha * weight.reshape(p.K, p.G).max(1, keepdims=True) * rho).max(0)
        rows.append(u)
        demand.append(int((u[:-w] / norm(u[:-w]) >= tau).sum()))
    if gate == "strict":
        counts = [c] * p.L
    elif gate == "elastic":
        counts = [max(min(m, c), min(old, ceil(least * c))) for m in demand]
    else:
        counts = pooled_counts(demand, c, old, least)
    return [[choose(rows[l], m + w, last=w, late=True)] * p.K for l, m in enumerate(counts)]


def pooled_counts(demand, c, history, least=0.25):
    """Layers share L C entries by demand, each between a part of C and 4 C."""
    lo, cap = min(history, c, max(1, floor(least * c))), min(history, 4 * c)
    want, n = [min(max(m, lo), cap) for m in demand], len(demand)
    total = min(c, cap) * n
    if sum(want) >= total:
        q = [lo + Fraction((x - lo) * (total - lo * n), max(1, sum(want) - lo * n)) for x in want]
    else:
        q = [x + Fraction((cap - x) * (total - sum(want)), max(1, cap * n - sum(want))) for x in want]
    return share_out(q, total, cap)


# ---- layer budgets ----

@case("pyramidkv")
def pyramidkv(p, r, w=8, beta=20):
    c, history = average(p, r) - w, p.n - w
    least = c // beta
    most = 2 * c - least
    if most >= history:
        most, least = history, 2 * c - history
    counts = share_out([Fraction(most * (p.L - 1) - l * (most - least), p.L - 1) for l in range(p.L)], c * p.L)
    return layers([behind(s, w) for s in snapkv_scores(p, w=w)], [x + w for x in counts], last=w)


def cake_adjust(b, total, cap):
    excess = sum(max(x - cap, 0) for x in b)
    b = [min(x, cap) for x in b]

    def spread(amount, who, sign):
        for rank, l in enumerate(who):
            b[l] += sign * (amount // len(who) + (rank < amount % len(who)))

    spread(excess, [l for l, x in enumerate(b) if x < cap], 1)
    rest = total - sum(b)
    spread(abs(rest), [l for l, x in enumerate(b) if (x < cap if rest > 0 else x > 1)], 1 if rest > 0 else -1)
    return b


@case("cake", cascade=True)
@case("cake-oneshot", cascade=False)
@case("paper-compresskv-cake", cascade=True, w=8)
@case("cake+cake_layers:tau1=1.6,tau2=0.6", cascade=True, tau1=1.6, tau2=0.6)
def cake(p, r, cascade, w=32, gamma=200, tau1=1, tau2=1):
    """I = mean + gamma variance over the window; layers share by P = dispersion^(1/tau1) shift^(1/tau2)."""
    total, cap, scores, preference = (average(p, r) - w) * p.L, p.n - w, [], []
    for l in range(p.L):
        a = before_window(p, l, w)
        var = a.var(1, ddof=1)
        scores.append(behind(p.group_mean(pool(a.mean(1) + gamma * var, 5, "avg")), w))
        preference.append((-(a * np.log(a + 1e-10)).sum())**(1 / tau1) * var.sum()**(1 / tau2))
    left = [cap] * p.L
    for m in range(p.L) if cascade else [p.L - 1]:
        mass = sum(preference[:m + 1])
        b = cake_adjust([int(x / mass * total) for x in preference[:m + 1]], total, cap)
        left[:m + 1] = [min(x, cap, y) for x, y in zip(b, left)]
    return layers(scores, [x + w for x in left], last=w)


@case("zigzagkv")
def zigzagkv(p, r, w=8):
    """Layers share by how many entries they need for 0.9 of their heads' scores; 0.2 of the average is sure."""
    scores, c = snapkv_scores(p, w=w), average(p, r) - w
    need = []
    for s in scores:
        mass = np.cumsum(-np.sort(-s, axis=1), axis=1)
        need.append(np.mean([np.searchsorted(m, 0.9 * m[-1]) + 1 for m in mass]))
    share = np.array([0.2 + 0.8 * p.L * x / sum(need) for x in need])
    counts = share_out(overflow(c * share, share, p.n - w), c * p.L, p.n - w)
    return layers([behind(s, w) for s in scores], [x + w for x in counts], last=w)


@case("dynamickv")
def dynamickv(p, r, w=8):
    """A layer's part follows from its number of entries among the K C L best of all layers."""
    scores, c = snapkv_scores(p, w=w, kind="avg"), average(p, r) - w
    flat = np.concatenate([s.reshape(-1) for s in scores])
    won = np.bincount(ranked(flat)[:p.K * c * p.L] // (p.K * (p.n - w)), minlength=p.L)
    counts = share_out([Fraction(int(x), p.K) for x in won], c * p.L, min(10 * c, p.n - w))
    return layers([behind(s, w) for s in scores], [x + w for x in counts], last=w)


@case("streaming_llm+simlayerkv:last=64")
def simlayerkv(p, r, first=4, last=64):
    """Layers whose last query looks at first and recent entries most keep only those, as many as the size needs."""
    mass = []
    for l in range(p.L):
        a = p.a[l][:, -1, :-1].astype(np.float64).mean(0)
        mass.append(a[:first].sum() + a[first:][-last:].sum())
    counts = as_many_as_needed(-np.array(mass), p.n, first + last - 1, average(p, r) * p.L)
    return layers([over_layer(p, np.arange(p.n, dtype=float))] * p.L, counts, first=first)


def as_many_as_needed(order, n, short, total):
    """Who comes first in `order` shrinks from n to short, until the total is met; what is then left goes round."""
    counts, shrunk = [n] * len(order), []
    for i in np.argsort(order, kind="stable"):
        if sum(counts) > total:
            counts[i] = min(short, total // len(order))
            shrunk.append(i)
    while sum(counts) < total:
        for i in sorted(shrunk)[:total - sum(counts)]:
            counts[i] += 1
    return counts


def lookback(p):
    """How far back the mean query (but for the first 4) looks along the mean key, over 500 positions: [L][K]."""
    back = np.zeros((p.L, p.K))
    for l in range(p.L):
        q, k = p.q0[l][4:].mean(0), p.k0[l].mean(0)
        q = p.model.rope(q[None], [499])[0].astype(np.float64)
        k = p.model.rope(np.tile(k, (500, 1, 1)), np.arange(500)).astype(np.float64)
        for h in range(p.H):
            z = k[:, h // p.G] @ q[h] / np.sqrt(p.d)
            a = np.exp(z - z.max())
            back[l, h // p.G] += (a / a.sum() * (500 - np.arange(500)) / 500).sum() / p.G
    return back


def streaming(p, counts, sinks):
    """The first entries and the most recent ones; counts[L K]."""
    score = np.arange(p.n, dtype=float)
    return [[choose(score, counts[l * p.K + j], first=sinks) for j in range(p.K)] for l in range(p.L)]


@case("streaming_llm:sinks=8+duo:sinks=8,last=56,source=prompt")
def duoattention(p, r, sinks=8, last=56):
    """Heads that look least far back keep only first and recent entries, as many heads as the size needs."""
    counts = as_many_as_needed(lookback(p).reshape(-1), p.n, sinks + last, average(p, r) * p.L * p.K)
    return streaming(p, counts, sinks)


# ---- head budgets ----

def safeguard(scores, total, sure, w):
    """AdaKV's counts: every head is sure of its `sure` best, then flattened scores compete. Scores without window."""
    key = scores.copy()
    for row in key:
        row[ranked(row)[:max(0, sure - w)]] = np.inf
    won = ranked(key.reshape(-1))[:total - len(scores) * w]
    return np.bincount(won // scores.shape[1], minlength=len(scores)) + w


@case("adakv", w=32)
@case("adakv-expected_attention", w=0)
def adakv(p, r, w):
    b = average(p, r)
    if w:
        scores = snapkv_scores(p)
    else:
        scores = expected_scores(p, epsilon=0.01)
        for s in scores:
            s[:, :4] = s.max() + 1
    keep = []
    for s in scores:
        counts = safeguard(s, p.K * b, whole(0.2 * b), w)
        keep.append([choose(behind(row, w), c, last=w) for row, c in zip(s, counts)])
    return keep


@case("paper-adakv", as_code=True)
@case("adakv:mode=floor", as_code=False)
def adakv_floor(p, r, as_code, w=32, alpha=0.2):
    """A mix of equal and competed counts; the authors' code pools the group's mean and rounds every head by itself."""
    keep, c = [], average(p, r) - w
    for s in snapkv_scores(p, pool_after=as_code):
        won = np.bincount(ranked(s.reshape(-1))[:p.K * c] // s.shape[1], minlength=p.K)
        if as_code:
            counts = [round((1 - alpha) * int(x) + whole(alpha * c)) for x in won]
        else:
            counts = share_out([(1 - alpha) * int(x) + alpha * c for x in won], p.K * c)
        keep.append([choose(behind(row, w), x + w, last=w) for row, x in zip(s, counts)])
    return keep


def headkv_counts(p, r, w, beta=1.01):
    """An equal part for each head, and a pool shared by calibrated scores; the surplus of a full head goes to the others."""
    s = np.array(p.profile["heads"]["score"]).reshape(p.L * p.K, p.G).sum(1)
    s, b, cap = s / s.sum(), average(p, r) - w, p.n - w
    shared = floor(b / beta)
    return share_out(overflow(s * len(s) * shared + b - shared, s, cap), b * len(s), cap)


@case("headkv")
def headkv(p, r, w=32):
    counts, scores = headkv_counts(p, r, w), snapkv_scores(p)
    return [[choose(behind(scores[l][j], w), counts[l * p.K + j] + w, last=w) for j in range(p.K)] for l in range(p.L)]


# ---- projected value norms ----

def critical(row, nu, b, sure, alpha=0.5, eps=1e-4, first_class=()):
    """b positions of a head: `sure` ones, by attention up to alpha b, then by (attention + eps) nu."""
    keep, special = set(sure[:b]), set(first_class)
    for i in sorted(range(len(row)), key=lambda i: (i not in special, -row[i], i)):
        if len(keep) < whole(b * alpha):
            keep.add(i)
    z = (row + eps) * nu
    for i in sorted(range(len(row)), key=lambda i: (i not in special, -z[i], i)):
        if len(keep) < b:
            keep.add(i)
    return sorted(keep)


@case("snapkv+critical:gqa=joint,norm=l1,sinks=0", norm="l1")
@case("snapkv+critical:gqa=joint,norm=l2,sinks=0", norm="l2")
def critical_joint(p, r, norm, w=32):
    """Stage 2 by the mean over the group of (attention + eps) times norm, every query head with its own."""
    b, keep = average(p, r), []
    for l, heads in enumerate(snapkv_heads(p)):
        nu = [np.abs(x).sum(1) if norm == "l1" else np.sqrt((x.astype(np.float64) ** 2).sum(1))
              for _, x in p.projected(l)]
        z = p.group_mean((behind(heads, w) + 1e-4) * np.array(nu))
        keep.append([critical(behind(s, w), x / (behind(s, w) + 1e-4), b, range(p.n - w, p.n))
                     for s, x in zip(p.group_mean(heads), z)])
    return keep


@case("criticalkv", ada=False, norm="l2", sinks=4)
@case("criticalkv-adakv", ada=True, norm="l2", sinks=4)
@case("snapkv+critical:norm=l1,sinks=0", ada=False, norm="l1", sinks=0)
@case("adakv+critical:norm=l1,sinks=0", ada=True, norm="l1", sinks=0)
@case("paper-criticalkv", ada=False, norm="l1", sinks=0, pool_after=True)
@case("paper-criticalkv-adakv", ada=True, norm="l1", sinks=0, pool_after=True)
def criticalkv(p, r, ada, norm, sinks, w=32, pool_after=False):
    b, keep = int(p.n * (1 - r)) if pool_after else average(p, r), []  # the paper's rows truncate
    for l, s in enumerate(snapkv_scores(p, pool_after)):
        n_safe = whole(0.2 * b)
        counts = safeguard(s, p.K * b, n_safe, w) if ada else [b] * p.K
        nu, window, keep_l = p.nu(l, norm), range(p.n - w, p.n), []
        for j in range(p.K):
            safe = ranked(s[j])[:max(0, n_safe - w)] if ada else ()
            keep_l.append(critical(behind(s[j], w), nu[j], counts[j], [*window, *range(sinks)], first_class=safe))
        keep.append(keep_l)
    return keep


def defensive_scores(p, r, norm, w=32, as_code=False):
    scores = []
    for l in range(p.L):
        a = before_window(p, l, w)
        soft = pool(a, 5, "avg")
        soft *= a.sum(2, keepdims=True) / soft.sum(2, keepdims=True)  # pooling keeps each row's mass
        m = soft.max(1).reshape(p.K, p.G, -1).max(1)
        nu = p.nu(l, norm)[:, :-w]
        s = np.maximum(m, m.mean(1, keepdims=True)) * nu / nu.sum(0)
        mean = p.group_mean(a.mean(1))
        mean /= mean.sum(1, keepdims=True)
        wb = (a[:, :, -w:] if as_code else p.a[l][:, -w:, -w:].astype(np.float64)).sum(2).mean()
        limit, largest = int((p.n - w) * (1 - r) - w) if as_code else average(p, r) - w, s.max()
        for j in range(p.K):
            order = ranked(mean[j])
            cnt = int(np.searchsorted(np.cumsum(mean[j][order]), 0.9 - wb))
            s[j, order[:min(max(cnt, 0), limit)]] = largest
        scores.append(s)
    return scores


@case("defensivekv", norm="l2")
@case("defensivekv:norm=l1", norm="l1")
def defensivekv(p, r, norm, w=32):
    keep = []
    for s in defensive_scores(p, r, norm):
        counts = safeguard(s, p.K * average(p, r), 0, w)
        keep.append([choose(behind(row, w), c, last=w) for row, c in zip(s, counts)])
    return keep


@case("layer-defensivekv")
def layer_defensivekv(p, r, w=32):
    s = np.concatenate(defensive_scores(p, r, "l2"))  # [L K][n - w]
    counts = safeguard(s, whole((1 - r) * p.L * p.K * p.n), 0, w)
    return [[choose(behind(s[i], w), counts[i], last=w) for i in range(l * p.K, (l + 1) * p.K)] for l in range(p.L)]


# ---- expected attention ----

def expected_scores(p, n_sink=4, n_future=512, epsilon=0.0, vnorm=True, covariance=True):
    """z = k.R mu / sqrt(d) + k.R C R^T k / 2d with R, RoPE averaged over the next positions; softmax after the sinks."""
    t = np.arange(p.n, p.n + n_future)[:, None] * p.model.theta
    c, s = np.cos(t).mean(0), np.sin(t).mean(0)
    turn, i = np.zeros((p.d, p.d)), np.arange(0, p.d, 2)
    turn[i, i], turn[i, i + 1], turn[i + 1, i], turn[i + 1, i + 1] = c, -s, s, c
    scores = []
    for l in range(p.L):
        rows = np.zeros((p.H, p.n))
        for h in range(p.H):
            q, k = p.q0[l][n_sink:, h].astype(np.float64), p.k[l][n_sink:, h // p.G].astype(np.float64)
            mu = turn @ q.mean(0)
            cov = turn @ np.cov(q.T, bias=True) @ turn.T
            z = k @ mu / np.sqrt(p.d) + covariance * ((k @ cov) * k).sum(1) / (2 * p.d)
            e = np.exp(z - z.max())
            rows[h, n_sink:] = e / e.sum()
        s = p.group_mean(rows) + epsilon
        scores.append(s * np.linalg.norm(p.v[l].astype(np.float64), axis=2).T if vnorm else s)
    return scores


@case("expected_attention")
def expected_attention(p, r):
    return uniform(p, expected_scores(p), r, first=4)


@case("criticalkv-expected_attention")
def critical_expected_attention(p, r):
    scores, b = expected_scores(p, vnorm=False), average(p, r)
    return [[critical(scores[l][j], p.nu(l, "l2")[j], b, [0, 1, 2, 3]) for j in range(p.K)] for l in range(p.L)]


# ---- capacity ----

@case("capkv", tau=5, cosine=True)
@case("capkv:align=dot,tau=0.05", tau=0.05, cosine=False)
def capkv(p, r, tau, cosine, n_sink=4, n_future=512):
    """w_i v_i A^-1 v_i with A = I + sum w v v, w = exp(tau cos(k, R mean q)), after the sinks."""
    t = np.arange(p.n, p.n + n_future)[:, None] * p.model.theta
    scores = []
    for l in range(p.L):
        rows = np.zeros((p.H, p.n))
        for h in range(p.H):
            k, v = (x[l][n_sink:, h // p.G].astype(np.float64) for x in (p.k, p.v))
            q = p.q0[l][n_sink:, h].astype(np.float64).mean(0)
            pair = ((q[0::2] + 1j * q[1::2]) * np.exp(1j * t)).mean(0)  # RoPE turns pairs of channels
            mu = np.stack([pair.real, pair.imag], 1).reshape(-1)
            z = k @ mu
            if cosine:
                z = z / (np.linalg.norm(k, axis=1) * np.linalg.norm(mu))
            w = np.exp(tau * (z - z.max()))
            a = np.eye(p.d) + (v * (w + 1e-6)[:, None]).T @ v
            rows[h, n_sink:] = w * (v * np.linalg.solve(a, v.T).T).sum(1)
        scores.append(p.group_mean(rows))
    return uniform(p, scores, r, first=n_sink)


# ---- a threshold in place of a size ----

@case("keydiff+threshold:tau=-0.75,window=32", tau=-0.75, w=32)
def threshold(p, r, tau, w):
    """Of a layer's K b entries the window (at most b / 4), then what scores at least tau, best first."""
    b, keep = average(p, r), []
    w = min(w, b // 4)
    for l in range(p.L):
        k = p.k[l].astype(np.float64).transpose(1, 0, 2)
        unit = k / np.linalg.norm(k, axis=2, keepdims=True)
        mean = unit.mean(1, keepdims=True)
        s = -(unit * mean).sum(2)[:, :p.n - w] / np.linalg.norm(mean, axis=2)
        best = ranked(s.reshape(-1))[:p.K * (b - w)]
        passed = best[s.reshape(-1)[best] >= tau]
        keep.append([sorted((passed[passed // s.shape[1] == j] % s.shape[1]).tolist()) + list(range(p.n - w, p.n))
                     for j in range(p.K)])
    return keep


# ---- keys and values ----

def heads_first(x):
    return x.astype(np.float64).transpose(1, 0, 2)  # [n][K][d] to [K][n][d]


@case("knorm")
def knorm(p, r):
    return uniform(p, [-np.linalg.norm(heads_first(k), axis=2) for k in p.k], r)


@case("knorm+layer_mean")
def knorm_layer_mean(p, r):
    return uniform(p, [over_layer(p, -np.linalg.norm(heads_first(k), axis=2).mean(0)) for k in p.k], r)


def keydiff_scores(p):
    scores = []
    for k in p.k:
        unit = heads_first(k) / np.linalg.norm(heads_first(k), axis=2, keepdims=True)
        anchor = unit.mean(1, keepdims=True)
        scores.append(-(unit * anchor).sum(2) / np.linalg.norm(anchor, axis=2))
    return scores


@case("keydiff")
def keydiff(p, r):
    return uniform(p, keydiff_scores(p), r)


@case("qfilters:recent=0")
@case("qfilters", recent=64)
def qfilters(p, r, recent=0):
    filters = np.array(p.profile["stats"]["filter"])
    return uniform(p, [np.einsum("jnd,jd->jn", heads_first(p.k[l]), filters[l]) for l in range(p.L)], r, last=recent)


@case("cur")
def cur(p, r, block=16):
    scores = []
    for l in range(p.L):
        k2, v2 = ((heads_first(x[l])**2).sum(2) for x in (p.k, p.v))
        parts = [k2[:, b:b + block] * v2[:, b:b + block] / k2[:, b:b + block].sum(1, keepdims=True)
                 / v2[:, b:b + block].sum(1, keepdims=True) for b in range(0, p.n, block)]
        scores.append(np.concatenate(parts, 1))
    return uniform(p, scores, r, first=4)


def partitions(p, r, score, sink=16, lag=128, skip=0):
    """LagKV's blocks: the k best of each but the last complete one; sinks, that block and the remainder stay.

    Blocks are halved until one entry of each survives. score(layer, head, begin, lag) is of one block.
    """
    while True:
        blocks, m = divmod(p.n - sink, lag)
        k = (average(p, r) - sink - lag - m) // (blocks - 1)
        if k > 0 or lag < 8:
            break
        lag //= 2
    keep = [[list(range(p.n))] * p.K for _ in range(skip)]
    for l in range(skip, p.L):
        keep.append([])
        for j in range(p.K):
            kept = [*range(sink), *range(sink + (blocks - 1) * lag, p.n)]
            for b in range(sink, sink + (blocks - 1) * lag, lag):
                kept += (b + ranked(score(l, j, b, lag))[:k]).tolist()
            keep[l].append(sorted(kept))
    return keep


def spread(z, ref):
    """Channels scaled by the extrema in ref, standard deviation over channels, softmax over the block's tokens."""
    lo, hi = ref.min(0), ref.max(0)
    u = ((z - lo) / (hi - lo)).std(1, ddof=1)
    e = np.exp(u - u.max())
    return e / e.sum()


@case("lagkv:lag=32", own=False, lag=32)
@case("lagkv:lag=16", own=False, lag=16)
@case("localkv:lag=32", own=True, lag=32)
@case("localkv:lag=16", own=True, lag=16)
def lagkv(p, r, own, lag):
    def score(l, j, b, lag):
        ref = slice(b, b + lag) if own else slice(b + lag, b + 2 * lag)
        return sum(spread(x[l][b:b + lag, j].astype(np.float64), x[l][ref, j].astype(np.float64)) for x in (p.k, p.v))
    return partitions(p, r, score, lag=lag)


@case("l2norm:lag=32", lag=32)
@case("l2norm:lag=16", lag=16)
def l2norm(p, r, lag):
    def score(l, j, b, lag):
        return -np.linalg.norm(p.k[l][b:b + lag, j].astype(np.float64), axis=1)
    return partitions(p, r, score, lag=lag, skip=2)


# ---- random projection, chunks ----

def splitmix(x):
    mask = (1 << 64) - 1
    x = (x + 0x9e3779b97f4a7c15) & mask
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & mask
    x = (x ^ x >> 27) * 0x94d049bb133111eb & mask
    return x ^ x >> 31


def projection(l, j, d, sketch, seed=0):
    """The only thing taken from the C code (src/base/random.h), since any other random matrix is as good."""
    stream = splitmix(splitmix(seed << 32 | l) ^ j)
    bits = [splitmix(stream ^ c) for c in range(d * sketch)]
    u = np.array([((x >> 32) + 1) / 2**32 for x in bits])
    v = np.array([(x & 0xffffffff) / 2**32 for x in bits])
    return (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)).reshape(d, sketch) / np.sqrt(sketch)


def standardise(s):
    return (s - s.mean()) / s.std(ddof=1)


def leverage_scores(p, l, span, sketch=48):
    rows = []
    for j in range(p.K):
        k = p.k0[l][span, j].astype(np.float64)
        x = (k - k.mean(0)) @ projection(l, j, p.d, sketch)
        rows.append(((x @ np.linalg.inv(x.T @ x + 0.01 * np.eye(sketch))) * x).sum(1))
    return standardise(np.array(rows))


def noncausal_scores(p, l, span, chunk=256):
    q, k, v = p.q[l][span].astype(np.float64), p.k[l][span].astype(np.float64), p.v[l][span].astype(np.float64)
    n = len(q)
    got = np.zeros((p.H, n))
    for b in range(0, n, chunk):
        c = slice(b, b + chunk)
        for h in range(p.H):
            z = q[c, h] @ k[c, h // p.G].T / np.sqrt(p.d)
            e = np.exp(z - z.max(1, keepdims=True))
            got[h, c] = (e / e.sum(1, keepdims=True)).sum(0)
    return standardise(pool(p.group_mean(got) * np.linalg.norm(v, axis=2).T, 3, "avg"))


@case("leverage")
def leverage(p, r):
    return uniform(p, [leverage_scores(p, l, slice(None)) for l in range(p.L)], r)


@case("noncausal")
def noncausal(p, r):
    return uniform(p, [noncausal_scores(p, l, slice(None)) for l in range(p.L)], r)


@case("compactor")
def compactor(p, r, first=8, last=4):
    span = slice(first, p.n - last)
    scores = [r * leverage_scores(p, l, span) + noncausal_scores(p, l, span) for l in range(p.L)]
    return uniform(p, [np.pad(s, ((0, 0), (first, last))) for s in scores], r, first=first, last=last)


@case("chunkkv")
def chunkkv(p, r, chunk=10, w=32):
    """Chunks of best mean stay in all heads; what no whole one fits into is filled with the next one's best entries."""
    keep = []
    for s in snapkv_scores(p):
        total, left, kept = s.sum(0), average(p, r) - w, list(range(p.n - w, p.n))
        means = np.array([total[b:b + chunk].mean() for b in range(0, p.n - w, chunk)])
        for c in ranked(means):
            inside = np.arange(c * chunk, min((c + 1) * chunk, p.n - w))
            take = inside if len(inside) <= left else inside[ranked(total[inside])[:left]]
            kept += take.tolist()
            left -= len(take)
        keep.append([sorted(kept)] * p.K)
    return keep


@case("streaming_llm")
def streaming_llm(p, r):
    return uniform(p, [over_layer(p, np.arange(p.n, dtype=float))] * p.L, r, first=4)


# ---- second pass ----

def kvcompose_scores(p, task="context"):
    """Feeds the context, the question, or first one and then the other, after the context."""
    fed = {"context": p.tokens, "question": p.question, "both": np.concatenate([p.tokens, p.question])}[task]
    scores = []
    for a in p.second_pass(task, fed):
        s = p.group_mean(a.astype(np.float64))
        scores.append(s + s.mean(0))
    return scores


@case("kvcompose", task="context")
@case("kvcompose-aware", asked=True, task="both")
@case("kvcompose:task=question", asked=True, task="question")
def kvcompose(p, r, task):
    """Composite tokens: the k-th best of every head together; all layers' compete, each layer is sure of one."""
    scores = kvcompose_scores(p, task)
    value = np.array([(-np.sort(-s, axis=1)).mean(0) for s in scores])
    value[:, 0] = np.inf
    won = ranked(value.reshape(-1))[:whole((1 - r) * p.L * p.n)]
    return layers(scores, np.bincount(won // p.n, minlength=p.L))


@case("kvcompose-unstructured")
def kvcompose_unstructured(p, r):
    s = np.concatenate(kvcompose_scores(p))
    key = s.copy()
    key[np.arange(len(s)), s.argmax(1)] = np.inf
    won = ranked(key.reshape(-1))[:whole((1 - r) * p.L * p.K * p.n)]
    keep = [sorted((won[won // p.n == i] % p.n).tolist()) for i in range(p.L * p.K)]
    return [keep[l * p.K:(l + 1) * p.K] for l in range(p.L)]


REPEAT = [198, 198, 48010, 260, 2672, 2468, 3869, 30, 198]  # "\n\nRepeat the previous context exactly." and "\n"


def kvzip_scores(p):
    rows = p.second_pass("repeat", REPEAT + p.tokens.tolist())
    return [a.reshape(p.K, p.G, -1).max(1).astype(np.float64) for a in rows]


def replay_scores(p, gap=13, band=2, m=64, m_keys=64, exact=False):
    """KVzip's repetition with the queries and keys of the first reading: KV heads' rows of all layers."""
    n, scores = p.n, []
    shift = n + gap
    s, u = -(-n // m), -(-n // m_keys)
    t = np.arange(n)
    near = abs(t[:, None] - t) <= band
    seen = t <= t[:, None]
    weight = np.where(near, 1, np.where(t % u == 0, u, 0))  # of keys in the estimate
    for l in range(p.L):
        back = p.model.rope(p.k[l], np.full(n, -shift))
        rows = []
        for h in range(p.H):
            q = p.q[l][:, h].astype(np.float64)
            far, loc = (np.exp(q @ k[:, h // p.G].astype(np.float64).T / np.sqrt(p.d)) for k in (back, p.k[l]))
            both = far + loc * seen
            full = far / both.sum(1, keepdims=True)
            row = full.max(0) if exact else full[::s].max(0)
            if not exact:
                row = np.maximum(row, (far / (both * weight).sum(1, keepdims=True) * near).max(0))
            rows.append(row)
        scores.append(np.array(rows).reshape(p.K, p.G, n).max(1))
    return scores


@case("replay+equal")
@case("replay:form=exact+equal", exact=True)
@case("replay:m=20,m_keys=30,band=5,gap=0+equal", m=20, m_keys=30, band=5, gap=0)
def replay(p, r, **how):
    return uniform(p, replay_scores(p, **how), r, first=4)


@case("kvzip-uniform")
def kvzip_uniform(p, r):
    """One chunk: the softmax runs over the whole context and the repeat input."""
    return uniform(p, kvzip_scores(p), r, first=4)
