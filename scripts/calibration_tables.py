#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables of scripts/calibration_study.sh, from what `winnow report` says of its runs, into a section of a document.

calibration_tables.py [--winnow COMMAND] [--docs FILE] OUT

Scores are points of 100. Differences are paired by question; their 95 % intervals are those of the report."""
import argparse
import json
import os
import re
import subprocess
import sys

BEGIN, END = "<!-- calibration_study.sh: begin -->", "<!-- calibration_study.sh: end -->"


def report(folder, *compare):
    """The run in a folder as `winnow report --json` sees it, its table over all lengths, and the comparisons."""
    done = subprocess.run([args.winnow, "report", folder, "--no-gate", "--json", *compare], stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"winnow report {folder} failed")
    (run,) = json.loads(done.stdout)["runs"]
    return run, run["blocks"][-1]["rows"], run.get("compare", [])


def interval(o):
    if o.get("delta") is None:
        return "-"
    text = f"{o['delta']:+.1f}"
    return text + (f" ({o['lo']:+.1f} .. {o['hi']:+.1f})" if o.get("lo") is not None else " (too few questions)")


def versus(folder, a, b, size):
    """a minus b on the same questions, at a size."""
    pairs = [p for p in report(folder, "--compare", f"{a},{b}")[2] if p["size"] == size]
    return interval(pairs[-1]) if pairs else "-"


def score(row):
    """The mean score, and how far predictions are from the full cache's."""
    kl = row["macro"].get("kl")
    return f"{row['macro']['mean']:.1f}" + ("" if kl is None else f" [{kl:.2f}]")


def line(*cells):
    out.append("| " + " | ".join(str(c) for c in cells) + " |")


def head_line(*cells):
    line(*cells)
    out.append("|" + "---|" * len(cells))


def about(folder, what):
    info = json.load(open(os.path.join(folder, "run.json")))
    (task,) = info["tasks"]
    model = re.sub(r"\.gguf$", "", info["model"]["file"])
    out.append(f"{model}, task `{task['task']}`, {task['n']} questions of {task['N']} tokens, {what}.\n")


def mean(rows):
    return sum(r["macro"]["mean"] for r in rows) / len(rows)


# ---- Masked heads ----

def masks(folder):
    rows = report(folder)[1]
    by = {r["more"].split()[0][len("mask="):] if r["more"] else "": r for r in rows}
    about(folder, f"full cache {by['']['macro']['mean']:.1f}")
    head_line("masked", "best semantic: score", "minus full", "best traditional: score", "minus full",
              "outside the 100 best semantic, drawn at random: scores", "minus full, each draw")
    for n in sorted({int(m[len("srh:top"):]) for m in by if m.startswith("srh:top")}):
        drawn = [by[m] for m in sorted(by) if m.startswith(f"random:{n}:")]
        cells = [n]
        for kind in "srh", "trad":
            r = by[f"{kind}:top{n}"]["macro"]
            cells += [f"{r['mean']:.1f}", interval(r)]
        cells.append(" ".join(f"{r['macro']['mean']:.0f}" for r in drawn) + f", mean {mean(drawn):.1f}")
        cells.append("; ".join(interval(r["macro"]) for r in drawn))
        line(*cells)
    out.append("")


# ---- CompressKV ----

NAMES = {"srh": "semantic", "traditional": "traditional", "all": "all of the layer"}


def compresskv_recipe(heads, allocated, k=0):
    options = [f"k={k}"] if k else []
    options += [] if heads == "srh" else [f"heads={heads}"]
    return "compresskv" + (":" + ",".join(options) if options else "") + ("" if allocated else "+uniform")


def compresskv(folder):
    rows = report(folder)[1]
    info = json.load(open(os.path.join(folder, "run.json")))
    recipes = {c["config_id"]: c["policy"] for c in info["configs"]}  # with every option written out
    for r in rows:
        r["recipe"] = recipes[r["config"]]
    full = next(r for r in rows if r["policy"] == "full")
    about(folder, f"the whole prompt compressed; full cache {full['macro']['mean']:.1f}; in square brackets the mean KL "
                  "divergence from it, in nats")
    for size in sorted({r["size"] for r in rows if "=" in r["size"]}, key=lambda s: float(s.split("=")[1])):
        compresskv_at(folder, [r for r in rows if r["size"] == size], size, info["model"]["n_head"])


def compresskv_at(folder, rows, size, n_head):
    found = {}
    for r in rows:
        if r["recipe"].startswith("compresskv:"):
            part = re.search(r"\+retrieval_heads:([^+]*)", r["recipe"]).group(1)
            word = dict(option.split("=") for option in part.split(","))
            heads = word["heads"] + (f",seed={word['seed']}" if word["heads"] == "random" else "")
            found[heads, "+error_aware" in r["recipe"], int(word["k"])] = r
    default = max(1, (n_head + 4) // 8)
    out.append(f"{size.split('=')[1]} entries per layer and head; semantic, traditional and random heads: {default} of {n_head} in each layer "
               "(the paper: 4 of 32):\n")
    head_line("heads that choose", "every layer alike", "semantic minus these", "layers by their errors",
              "semantic minus these", "by errors minus alike")
    seeds = sorted({h for h, _, _ in found if h.startswith("random")})
    for heads in ["srh", "traditional", "all", *seeds]:
        cells = [NAMES.get(heads) or "random, seed " + heads.split("=")[1]]
        for allocated in False, True:
            cells.append(score(found[heads, allocated, 0]))
            cells.append("-" if heads == "srh" else versus(folder, compresskv_recipe("srh", allocated),
                                                           compresskv_recipe(heads, allocated), size))
        line(*cells, versus(folder, compresskv_recipe(heads, True), compresskv_recipe(heads, False), size))
    line("random, mean of the draws", f"{mean([found[s, False, 0] for s in seeds]):.1f}", "",
         f"{mean([found[s, True, 0] for s in seeds]):.1f}", "", "")
    snapkv = next(r for r in rows if r["policy"] == "paper-compresskv-snapkv")
    line("SnapKV: every KV head for itself", score(snapkv),
         versus(folder, compresskv_recipe("srh", False), snapkv["policy"], size), "", "", "")
    line("*paper: SnapKV; semantic*", "*43.76; 44.96*", "", "*semantic 45.43*", "", "")
    out.append("")
    paper = {2: 44.33, 4: 44.96, 6: 44.79, 12: 44.96, 24: 44.30}
    head_line(f"semantic heads per layer, of {n_head}", "every layer alike", f"minus those of {default}", "*paper, of 32*")
    line(f"{default} (an eighth)", score(found["srh", False, 0]), "-", paper.get(default, "-"))
    for k in sorted(k for h, a, k in found if h == "srh" and not a and k):
        line(k, score(found["srh", False, k]),
             versus(folder, compresskv_recipe("srh", False, k), compresskv_recipe("srh", False), size), paper.get(k, "-"))
    more = [k for k in (12, 24) if k >= n_head]
    if more:
        line(f"{' or '.join(map(str, more))}: all {n_head}", score(found["all", False, 0]),
             versus(folder, compresskv_recipe("all", False), compresskv_recipe("srh", False), size),
             ", ".join(f"{paper[k]:.2f}" for k in more))
    out.append("")


# ---- Pairs ----

def pairs(folder, what, title, table):
    """table: (calibrated, not calibrated, the paper's numbers)."""
    rows = report(folder)[1]
    full = next(r for r in rows if r["policy"] == "full")
    about(folder, f"{what}; full cache {full['macro']['mean']:.1f}")
    head_line(*title, "size", "scores", "first minus second", "paper")
    for a, b, paper in table:
        for p in report(folder, "--compare", f"{a},{b}")[2]:
            if p["N"] != "all":
                line(f"`{a}`", f"`{b}`", p["size"].replace("=", " "), f"{p['mean_a']:.1f}, {p['mean_b']:.1f}",
                     interval(p), paper)
    out.append("")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--winnow", default="build/winnow")
parser.add_argument("--docs", default="", help="file with the two marks; without it the tables are printed")
parser.add_argument("out", help="folder with the runs")
args = parser.parse_args()
out = []


def section(name, title, make, *rest):
    folder = os.path.join(args.out, name)
    if os.path.exists(os.path.join(folder, "results.jsonl")):
        out.append(f"### {title}\n")
        make(folder, *rest)


out.append("Scores are points of 100; in brackets 95 % intervals of differences, paired by question (10,000 draws). An interval "
           "that contains 0 shows no difference. The papers' numbers are from other models and tasks.\n")
section("masks", "Masking heads while the answer is generated", masks)
section("masks_reading", "Masking heads while everything is read", masks)
if os.path.exists(os.path.join(args.out, "masks")):
    out.append("The paper (CompressKV, figures without numbers) finds that masking 30 semantic heads hurts far more than 30 "
               "traditional ones, on two models of 7B and 8B parameters.\n")
section("heads", "CompressKV: which heads choose", compresskv)
if os.path.exists(os.path.join(args.out, "heads")):
    out.append("The paper's numbers are means of LongBench with Mistral-7B-v0.3 and 256 entries.\n")
section("heads", "Head budgets by importance", pairs, "the same run", ("calibrated", "not calibrated"),
        [("headkv", "adakv", "79.98, 78.38 (RULER at 32K, 40 % kept, Llama-3.1-8B, by CriticalKV's authors)"),
         ("criticalkv-headkv", "criticalkv-adakv", "89.29, 86.28 (the same)")])
section("streams", "DuoAttention", pairs, "the whole prompt compressed", ("calibrated", "not calibrated"),
        [("duoattention", "duoattention-prompt", "only calibrated"), ("duoattention", "random", "-")])
section("compiler", "CompilerKV", pairs, "the whole prompt compressed", ("with", "without"),
        [("paper-compilerkv-strict", "paper-compilerkv-strict-no_heads",
          "head weights: 40.98, 40.13 (LongBench, 512 entries, Llama-3-8B)"),
         ("paper-compilerkv", "paper-compilerkv-no_risk", "thresholds by risk: 40.98, 38.13"),
         ("paper-compilerkv-strict", "paper-compilerkv-strict-raw", "stabilised utility: 40.98, 39.28"),
         ("paper-compilerkv-strict", "paper-compilerkv-strict-attention", "norms of values: -"),
         ("paper-compilerkv", "paper-compilerkv-strict", "-")])
text = "\n".join(out).rstrip() + "\n"
if not args.docs:
    print(text, end="")
    sys.exit(0)
document = open(args.docs, encoding="utf-8").read()
if document.count(BEGIN) != 1 or document.count(END) != 1:
    sys.exit(f"{args.docs} lacks the lines '{BEGIN}' and '{END}'")
before, rest = document.split(BEGIN)
document = before + BEGIN + "\n" + text + END + rest.split(END)[1]
with open(args.docs + ".new", "w", encoding="utf-8") as f:
    f.write(document)
os.replace(args.docs + ".new", args.docs)
