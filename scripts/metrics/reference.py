#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Scores of random texts by the packages that the benchmarks use, to hold `winnow score` to.

    reference.py record FILE [SEED [N]]     writes cases as JSONL with their scores (tests/metrics/recorded.jsonl)
    reference.py check WINNOW [SEED [N]]    compares the command with the packages on new cases

Needs the packages of scripts/metrics/requirements.txt, in an environment of its own:

    python3 -m venv ~/.cache/winnow/metrics
    ~/.cache/winnow/metrics/bin/pip install -r scripts/metrics/requirements.txt
"""
import collections
import json
import random
import re
import string
import subprocess
import sys
import tempfile

import Levenshtein  # noqa: F401  fuzzywuzzy takes it where it is there; without it the numbers differ
from fuzzywuzzy import fuzz
from rouge import Rouge
from rouge_score import rouge_scorer

WORDS = ("the a an The An police killed kill gunman Paris paris answer 42 1984 number is of is. of, x+1 return foo(bar) "
         "sandwiches Eating eaten relational hopping happily skies dying news U.S.A. state-of-the-art élan Ärger ΑΒΓ "
         "naïve 東京 “quoted” it's its generalizations conflated agreed feed conditionally rationalize effective 3.14 "
         "logically fully carefully vietnamization operator controlling Paragraph sensibility").split()
ODD = list(" \n\t.,.;'\"-") + ["  ", "\u00a0", ". ", "...", "é", "ß", "İstanbul"[1:], "😀", "²", "_a_", "\u3000", "`", "#", "//"]


def text(rng, most):
    parts = []
    for _ in range(rng.randrange(most + 1)):
        kind = rng.random()
        if kind < 0.75:
            parts.append(rng.choice(WORDS))
        elif kind < 0.9:
            parts.append(rng.choice(ODD))
        else:
            parts.append("".join(rng.choice(string.ascii_lowercase + "y") for _ in range(rng.randrange(1, 9))))
        if rng.random() < 0.9:
            parts.append(" " if rng.random() < 0.85 else rng.choice([". ", ".", "\n"]))
    return "".join(parts)


def pair(rng, most):
    """Texts with much in common."""
    ref = text(rng, most)
    words = re.split(r"(\s)", ref)
    for _ in range(rng.randrange(4)):
        if words:
            i = rng.randrange(len(words))
            words[i] = rng.choice([text(rng, 2), "", words[rng.randrange(len(words))]])
    return ("".join(words) if rng.random() < 0.8 else text(rng, most)), ref


# ---- The packages ----

ROUGE = Rouge()
PLAIN = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=False)
STEMMED = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=True)


def pltrdy(hyp, ref, which, value):
    try:
        return ROUGE.get_scores([hyp], [ref], avg=True)[which][value]
    except ValueError:  # a text without a sentence
        return 0.0


def code_sim(pred, ref):
    line = next((s for s in pred.lstrip("\n").split("\n") if not re.search("`|#|//", s)), "")
    return fuzz.ratio(line, ref) / 100


# ---- Second versions, in Python's own terms, of what no package has ----

def normal(s):
    s = "".join(c for c in s.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())


def qa_f1(pred, ref):
    p, r = normal(pred).split(), normal(ref).split()
    same = sum((collections.Counter(p) & collections.Counter(r)).values())
    return 0.0 if same == 0 else 2 * (same / len(p)) * (same / len(r)) / (same / len(p) + same / len(r))


def longest(pred, ref):
    best = 0
    for i in range(len(ref)):
        while i + best < len(ref) and ref[i:i + best + 1] in pred:
            best += 1
    return best


def share(pred, k):
    runs = re.findall("[0-9]+", pred)
    return sum(r == k for r in runs) / len(runs) if runs else 0.0


def within(p, r, change):
    """Whether a reference occurs after a change of both; as it is written, as a word of its own, where nothing is left of it."""
    if change(r):
        return float(change(r) in change(p))
    p, r = " ".join(p.split()), " ".join(r.split())
    if not r:
        return float(not p)
    at = [m.start() for m in re.finditer("(?=" + re.escape(r) + ")", p)]
    return float(any(not (r[0].isalnum() and p[i - 1:i].isalnum()) and not (r[-1].isalnum() and p[i + len(r):i + len(r) + 1].isalnum()) for i in at))


METRICS = {
    "string_match_all": lambda p, r: float(r.lower() in p.lower()),
    "exact": lambda p, r: within(p, r, normal),
    "partial": lambda p, r: longest(p, r) / len(r) if r else 0.0,
    "kv": lambda p, r: float(r in p),
    "qa_f1": qa_f1,
    "rouge_l": lambda p, r: pltrdy(p, r, "rouge-l", "f"),
    "code_sim": code_sim,
    "count": share,
    "retrieval": lambda p, r: next((share(p, k) for k in re.findall(r"Paragraph ([0-9]+)", r)), 0.0),
    "rouge1_recall": lambda p, r: STEMMED.score(r, p)["rouge1"].recall,
    "rouge1_recall_nostem": lambda p, r: PLAIN.score(r, p)["rouge1"].recall,
    "wordset_recall": lambda p, r: len(set(p.lower().split()) & set(r.lower().split())) / max(1, len(set(r.lower().split()))),
}
for w in "12l":
    for v in "prf":
        METRICS[f"rouge_pkg_{w}_{v}"] = lambda p, r, w=w, v=v: pltrdy(r, p, "rouge-" + w, v)


def cases(seed, n):
    rng = random.Random(seed)
    for metric, score in METRICS.items():
        for _ in range(n):
            if metric in ("count", "retrieval"):
                k = rng.randrange(12)
                pred = ", ".join(f"Paragraph {rng.choice([k, rng.randrange(12)])}" for _ in range(rng.randrange(4)))
                ref = f"Paragraph {k}" if metric == "retrieval" else str(k)
            elif metric in ("kv", "string_match_all", "exact", "partial"):
                pred, ref = pair(rng, 12)
                i = rng.randrange(len(pred) + 1)
                ref = pred[i:i + rng.randrange(1, 9)].swapcase() if rng.random() < 0.5 else ref
            else:
                pred, ref = pair(rng, rng.choice([3, 8, 40]))
            if metric == "code_sim":
                ref = ref.replace("\n", " ")
            if "ς" in (pred + ref).lower() or len((pred + ref).lower()) != len(pred + ref):
                continue  # lower case that depends on neighbours, or grows
            yield {"metric": metric, "pred": pred, "refs": [ref], "score": round(float(score(pred, ref)), 9), "tol": 1e-6}


def check(winnow, seed, n):
    by_metric = collections.defaultdict(list)
    for case in cases(seed, n):
        by_metric[case["metric"]].append(case)
    faults = 0
    for metric, some in by_metric.items():
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as f:
            f.writelines(json.dumps(c, ensure_ascii=False) + "\n" for c in some)
            f.flush()
            run = subprocess.run([winnow, "score", "--metric", metric, "-i", f.name, "--json"], capture_output=True, check=True)
        for case, got in zip(some, json.loads(run.stdout)["scores"], strict=True):
            if abs(got - case["score"]) > case["tol"]:
                faults += 1
                print(f"{metric}: {got} and not {case['score']} for {case['pred']!r} / {case['refs'][0]!r}")
    print(f"{sum(map(len, by_metric.values()))} cases, {faults} differ")
    return faults > 0


def main():
    what, path = sys.argv[1:3]
    seed, n = int((sys.argv[3:] or ["1"])[0]), int((sys.argv[4:] or ["30"])[0])
    if what == "check":
        return check(path, seed, n)
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(c, ensure_ascii=False) + "\n" for c in cases(seed, n))
    return 0


sys.exit(main())
