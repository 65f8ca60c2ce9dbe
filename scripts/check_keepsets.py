#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares winnow's keep-plans with a second implementation of the methods in NumPy (scripts/keepsets).

check_keepsets.py [--winnow build/winnow] [--only REGEX] [--ratios 0.5,0.8] [--model GGUF] [--tokens FILE] [--plans DIR]

Reads two lists of token ids, made from --tokens: its first 480, and 360 of its last ones shuffled; policies that know
the question get two documents of 360 random words and a question of 12 in their place. For every case and
ratio it measures |winnow's and ours| / |ours| over all layers and heads, and the head where they agree least; below
0.995, or where the totals differ, it exits with 1. A table goes to standard output, progress to standard error.
Weights and cache are float32, so only ties and rounding may differ. The model must be of the llama family. Plans in
--plans that are newer than the binary are not made again. A full run takes about half an hour; use the Python
environment that scripts/setup.sh makes.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

from gguf import GGUFReader  # noqa: E402
from keepsets.forms import made_up_results  # noqa: E402
from keepsets.methods import CASES  # noqa: E402
from keepsets.model import Model, Prompt  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("WINNOW_CACHE", os.path.expanduser("~/.cache/winnow"))
BOUND = 0.995


def token_lists(path):
    with open(path) as f:
        tokens = [int(t) for t in f.read().split()]
    shuffled = tokens[-360:]
    random.Random(1).shuffle(shuffled)
    return {"text": tokens[:480], "shuffled": shuffled}


def plan(args, folder, prompt_file, prompt, policy, ratio, profile):
    """The plan as keep[layer][head] = set of positions, or the command's error text; prompt: options that read it."""
    name = re.sub(r"[^\w.=-]", "_", f"{os.path.basename(prompt_file)}-{policy}-{ratio}.json")
    out = os.path.join(folder, name)
    if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(args.winnow):
        command = [args.winnow, "plan", "-m", args.model, *prompt, "--kv-type", "f32", "--policy",
                   policy, "--ratio", str(ratio), "-t", "1", "-o", out, "--profile", profile]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            return done.stderr.strip()
    with open(out) as f:
        return [[set(h) for h in layer["heads"]] for layer in json.load(f)["layers"]]


def spelled(args, folder, name, seed, n=360, n_question=12):
    """A document and a question of words that are one token each, which the number of tokens read confirms: the ids of
    both, the document's file and the question's text."""
    field = GGUFReader(args.model).fields["tokenizer.ggml.tokens"]
    vocabulary = [bytes(field.parts[i]).decode() for i in field.data]
    words = [i for i, t in enumerate(vocabulary) if re.fullmatch("\u0120[a-z]{3,9}", t)]  # G with a dot: a space
    rng = random.Random(seed)
    ids, question = rng.choices(words, k=n), rng.choices(words, k=n_question)
    text, asked = ("".join(" " + vocabulary[i][1:] for i in x) for x in (ids, question))
    file = os.path.join(folder, name)
    with open(file, "w") as f:
        f.write(text)
    os.utime(file, (0, 0))
    read = []
    for more in [], ["-p", asked]:
        out = os.path.join(folder, "count.json")
        subprocess.run([args.winnow, "plan", "-m", args.model, "--raw", "-f", file, *more, "-t", "1", "-o", out],
                       check=True, stderr=subprocess.DEVNULL)
        with open(out) as f:
            read.append(json.load(f)["n_tokens"])
    if read != [n, n + 1 + n_question]:  # the blank line between them is one token
        sys.exit(f"{read} tokens were read of {n} words and a question of {n_question}")
    return ids, [vocabulary.index("\u010a\u010a"), *question], file, asked


def made_up_profile(args, folder, model, tokens_file):
    """Writes a folder of profiles. The refusal of a profile of another model tells this one's fingerprint."""
    folder = os.path.join(folder, "profile")
    os.makedirs(folder, exist_ok=True)
    results, fingerprint = made_up_results(model, random.Random(7)), "0" * 32
    for _ in range(2):
        for kind, (settings, numbers) in results.items():
            with open(os.path.join(folder, "compiler-b128.json" if kind == "compiler" else kind + ".json"), "w") as f:
                shape = {"n_layer": model.L, "n_head": model.H, "n_head_kv": model.K, "n_embd_head": model.d}
                json.dump({"format": "winnow-profile-1", "kind": kind, "model": {"fingerprint": fingerprint, **shape},
                           "settings": settings, "data": {"text": "made up"}, "results": numbers}, f)
        if fingerprint == "0" * 32:
            answer = plan(args, folder, tokens_file, ["--tokens", tokens_file], "headkv", 0.5, folder)
            prints = re.findall(r"\b[0-9a-f]{32}\b", answer) if isinstance(answer, str) else []
            fingerprint = next((x for x in prints if x != fingerprint), None)
            if not fingerprint:
                sys.exit(f"no fingerprint in: {answer}")
    return folder, {kind: numbers for kind, (_, numbers) in results.items()}


def compare(theirs, ours):
    """Overlap over all heads, and the head where it is least."""
    both = total = 0
    worst = (2, "")
    for l, layer in enumerate(ours):
        for j, head in enumerate(layer):
            common = len(theirs[l][j] & set(head))
            both, total = both + common, total + len(head)
            worst = min(worst, (common / max(1, len(head)), f"{l}.{j}"))
    size = sum(len(h) for layer in theirs for h in layer)
    return both / total, worst, size - total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default=os.path.join(HERE, "../build/winnow"))
    parser.add_argument("--model", default=os.path.join(CACHE, "models/smollm2-135m-f32.gguf"))
    parser.add_argument("--tokens", default=os.path.join(HERE, "../tests/golden/tokens.txt"))
    parser.add_argument("--ratios", default="0.5,0.8", type=lambda x: [float(r) for r in x.split(",")])
    parser.add_argument("--only", default="", help="regular expression for policies")
    parser.add_argument("--plans", default=tempfile.mkdtemp(prefix="keepsets-"), help="folder for winnow's plans")
    args = parser.parse_args()

    cases = [c for c in CASES if re.search(args.only, c[0])]
    os.makedirs(args.plans, exist_ok=True)
    model, failed = Model(args.model), 0
    lists = token_lists(args.tokens)
    cells = {c[0]: [] for c in cases}
    worst_of = {c[0]: (2, "") for c in cases}
    for name, tokens in lists.items():
        tokens_file = os.path.join(args.plans, name + ".txt")
        with open(tokens_file, "w") as f:
            f.write(" ".join(map(str, tokens)))
        os.utime(tokens_file, (0, 0))
        profile, results = made_up_profile(args, args.plans, model, tokens_file)
        prompts = {}
        for policy, method, options, asked in cases:
            if asked not in prompts:
                if asked:
                    ids, question, file, text = spelled(args, args.plans, name + "-words", len(tokens))
                    prompts[asked] = (Prompt(model, ids, question), file,
                                      ["--raw", "--context-only", "-f", file, "-p", text])
                else:
                    prompts[asked] = Prompt(model, tokens), tokens_file, ["--tokens", tokens_file]
                prompts[asked][0].profile = results
            prompt, file, how = prompts[asked]
            for ratio in args.ratios:
                theirs = plan(args, args.plans, file, how, policy, ratio, profile)
                if isinstance(theirs, str):
                    sys.exit(f"{policy}: {theirs}")
                overlap, worst, more = compare(theirs, method(prompt, ratio, **options))
                bad = overlap < BOUND or more != 0
                failed += bad
                cells[policy].append(f"{overlap:.5f}" + (f" ({more:+d} entries)" if more else ""))
                worst_of[policy] = min(worst_of[policy], worst)
                print(f"{policy} {name} {ratio}: {overlap:.5f}, head {worst[1]} {worst[0]:.3f}, {more:+d} entries"
                      + (" FAILED" if bad else ""), file=sys.stderr, flush=True)
    columns = [f"{name} {ratio}" for name in lists for ratio in args.ratios]
    print("| policy | " + " | ".join(columns) + " | worst head |\n|" + "---|" * (len(columns) + 2))
    for policy, row in cells.items():
        print(f"| `{policy}` | " + " | ".join(row) + f" | {worst_of[policy][0]:.3f} |")
    print(f"\n{failed} of {len(cases) * len(columns)} failed" if failed else "\nall agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
