#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the answers of `winnow eval` with those of kvpress on PyTorch, letter by letter.

check_answers.py [--winnow build/winnow] [--model GGUF] [--methods LIST] [--questions N] [--length N] [--tokens N]
                 [--ratio R] [--tie GAP] [--from DIR]

Both read the same token ids of the same needle questions: first the context, which is compressed when it has been read,
then the question and the beginning of the answer, and both generate greedily from there. Weights and cache are float32.
A different answer is a tie if, at the first difference, kvpress' two likeliest tokens differ by at most --tie in logits.
Two orders of summation may choose differently there. Any other difference is printed with both texts, and the exit
code is 1 then. --from keeps winnow's results in a folder, or reads the results of an earlier run from it.

kvpress runs in the environment that bench/peers/compare.py has in the cache folder (5.6 GB); it is made if need be. The
model is the float32 copy that `scripts/setup.sh test-models` writes, which transformers reads as well.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench/peers"))
from environments import CACHE, Missing, environment  # noqa: E402

# Preset of winnow for each method; presses() has kvpress' side of it.
PRESETS = {
    "full": "full",
    "snapkv": "kvpress-snapkv",
    "criticalkv": "kvpress-criticalkv_snapkv",
    "critical_adakv": "kvpress-critical_adakv_snapkv",
}


def say(text):
    print(f"check_answers: {text}", file=sys.stderr, flush=True)


def enter_environment():
    """Starts this script again with the Python that has kvpress, unless that is the one at work."""
    try:
        python = environment("kvpress", say)
    except Missing as why:
        sys.exit(f"check_answers: {why}")
    if os.path.abspath(sys.executable) != os.path.abspath(python):
        os.execv(python, [python, *sys.argv])


# ---- winnow's side ----

def lines_of(command):
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_questions(args, path):
    """Needle questions as lines for --jsonl; qa_f1 is a metric that takes an answer as it was generated."""
    samples = lines_of([args.winnow, "eval", "-m", args.model, "--dump-samples", "--tasks", "niah_single_2", "--chat", "none",
                        "--lengths", str(args.length), "--samples", str(args.questions)])
    with open(path, "w", encoding="utf-8") as f:
        for s in samples:
            print(json.dumps({"context": s["context"], "question": s["question"], "answers": s["refs"], "metric": "qa_f1",
                              "answer_prefix": s["answer_prefix"], "max_new": args.tokens, "id": s["index"]}), file=f)


def token_ids(args, folder, text):
    path = os.path.join(folder, "piece.txt")
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write(text)
    done = subprocess.run([args.winnow, "tokens", "-m", args.model, "--raw", "-f", path], check=True, stdout=subprocess.PIPE)
    return list(map(int, done.stdout.split()))


def winnow_answers(args, folder):
    """(questions, records): [{"context": ids, "question": ids}] and {(question, method): record of results.jsonl}."""
    jsonl, out = os.path.join(folder, "questions.jsonl"), os.path.join(folder, "run")
    if not os.path.exists(jsonl):
        write_questions(args, jsonl)
    policies = [PRESETS[m] for m in args.methods]
    subprocess.run([args.winnow, "eval", "-m", args.model, "--jsonl", jsonl, "--out", out, "--chat", "none", "--kv-types", "f32",
                    "--policies", ",".join(policies), "--ratios", str(args.ratio), "--modes", "agnostic", "--no-early-stop",
                    "--no-gate", "-t", str(args.threads)], check=True, stdout=subprocess.DEVNULL)
    method_of = {preset: m for m, preset in PRESETS.items()}
    with open(os.path.join(out, "results.jsonl"), encoding="utf-8") as f:
        records = {(r["index"], method_of.get(r["policy"])): r for r in map(json.loads, f)}
    samples = lines_of([args.winnow, "eval", "-m", args.model, "--dump-samples", "--jsonl", jsonl, "--chat", "none"])
    questions = []
    for s in samples:
        q = {"context": token_ids(args, folder, s["context"]),
             "question": token_ids(args, folder, s["question"] + s["answer_prefix"])}
        r = records[s["index"], args.methods[0]]
        if (len(q["context"]), len(q["question"])) != (r["ctx_tokens"], r["q_tokens"]):
            sys.exit(f"question {s['index']}: winnow read {r['ctx_tokens']} + {r['q_tokens']} tokens, its texts have "
                     f"{len(q['context'])} + {len(q['question'])}")
        questions.append(q)
    return questions, records


# ---- kvpress' side ----

class Kvpress:
    def __init__(self, args):
        os.environ["HF_HUB_OFFLINE"] = "1"
        import kvpress
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
        self.torch, self.new_cache = torch, DynamicCache
        torch.set_num_threads(args.threads)
        folder, name = os.path.split(os.path.abspath(args.model))
        self.model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
        vocabulary = self.tokenizer.get_vocab()
        self.ends = {vocabulary[t] for t in ("<|endoftext|>", "<|im_end|>", "</s>") if t in vocabulary}

        def snapkv():
            return kvpress.SnapKVPress(compression_ratio=args.ratio, window_size=32, kernel_size=5)
        self.presses = {
            "full": lambda: None,
            "snapkv": snapkv,
            "criticalkv": lambda: kvpress.CriticalKVPress(snapkv(), epsilon=1e-4, first_stage_ratio=0.5),
            "critical_adakv": lambda: kvpress.CriticalAdaKVPress(snapkv(), alpha_safeguard=0.2, epsilon=1e-4,
                                                                 first_stage_ratio=0.5),
        }

    def answer(self, question, method, n):
        """Ids of up to n tokens, and for each the difference in logits to the second likeliest."""
        torch, cache, press = self.torch, self.new_cache(), self.presses[method]()
        ids, gaps, n_read = [], [], len(question["context"])
        with torch.inference_mode():
            context = torch.tensor([question["context"]])
            if press is None:
                self.model.model(input_ids=context, past_key_values=cache)
            else:
                with press(self.model):
                    self.model.model(input_ids=context, past_key_values=cache)
            more = question["question"]
            while len(ids) < n:
                # A token's position counts all that was read, not what is left of it.
                at = torch.arange(n_read, n_read + len(more))[None]
                out = self.model(input_ids=torch.tensor([more]), past_key_values=cache, position_ids=at, logits_to_keep=1)
                best = out.logits[0, -1].topk(2)
                n_read += len(more)
                more = [int(best.indices[0])]
                if more[0] in self.ends:
                    break
                ids += more
                gaps.append(float(best.values[0] - best.values[1]))
        return ids, gaps

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


# ---- Comparing ----

def gap_at_difference(kvpress, ids, gaps, theirs):
    """Gap of the first token after which our text is no longer the beginning of `theirs`; None where there is no such token."""
    for i in range(len(ids)):
        if not theirs.startswith(kvpress.text(ids[:i + 1])):
            return i, gaps[i]
    return None


def verdict(args, kvpress, ids, gaps, theirs):
    """(kind, words): "equal", "tie" or "DIFFERENT"."""
    if kvpress.text(ids) == theirs:
        return "equal", f"{len(ids)} tokens, smallest gap {min(gaps, default=0):.4f}"
    at = gap_at_difference(kvpress, ids, gaps, theirs)
    if at is None:
        return "DIFFERENT", "kvpress' text is the beginning of winnow's"
    kind = "tie" if at[1] <= args.tie else "DIFFERENT"
    return kind, f"from token {at[0]} of {len(ids)} on, gap {at[1]:.5f} there"


def compare(args, kvpress, questions, records):
    counts = {m: {"equal": 0, "tie": 0, "DIFFERENT": 0} for m in args.methods}
    for i, question in enumerate(questions):
        for method in args.methods:
            record = records[i, method]
            ids, gaps = kvpress.answer(question, method, args.tokens)
            kind, words = verdict(args, kvpress, ids, gaps, record["pred"])
            counts[method][kind] += 1
            print(f"question {i}, {len(question['context'])} + {len(question['question'])} tokens, {method}, "
                  f"{record['ratio_ach']:.3f} removed: {kind}; {words}", flush=True)
            if kind != "equal":
                print(f"  winnow:  {record['pred']!r}\n  kvpress: {kvpress.text(ids)!r}", flush=True)
    return counts


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--winnow", default=os.path.join(HERE, "../build/winnow"))
    p.add_argument("--model", default=os.path.join(CACHE, "models/smollm2-135m-f32.gguf"))
    p.add_argument("--methods", default="full,snapkv,criticalkv", help="some of " + ", ".join(PRESETS))
    p.add_argument("--questions", type=int, default=20)
    p.add_argument("--length", type=int, default=900, help="tokens of a prompt and its answer as winnow eval counts them")
    p.add_argument("--tokens", type=int, default=48, help="most tokens of an answer that are compared")
    p.add_argument("--ratio", type=float, default=0.5, help="fraction removed")
    p.add_argument("--tie", type=float, default=1e-3, help="largest gap in logits that counts as a tie")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--from", dest="folder", help="folder of winnow's questions and results")
    args = p.parse_args()
    args.methods = args.methods.split(",")
    unknown = [m for m in args.methods if m not in PRESETS]
    if unknown:
        p.error(f"unknown method {unknown[0]}; choose from {', '.join(PRESETS)}")
    if not os.path.exists(args.model):
        p.error(f"no model {args.model}; `scripts/setup.sh test-models` makes the default one")
    if args.questions < 1 or args.tokens < 1 or not 0 < args.ratio < 1:
        p.error("at least 1 question and 1 token, and a ratio between 0 and 1")
    return args


def main():
    args = parse_args()
    enter_environment()
    with tempfile.TemporaryDirectory(prefix="answers-") as made:
        folder = args.folder or made
        os.makedirs(folder, exist_ok=True)
        try:
            questions, records = winnow_answers(args, folder)
        except subprocess.CalledProcessError as why:
            sys.exit(f"check_answers: {why}")
        counts = compare(args, Kvpress(args), questions, records)
    print(f"\n| method | equal | ties (gap up to {args.tie:g}) | different |\n|---|---|---|---|")
    for method, c in counts.items():
        print(f"| `{PRESETS[method]}` | {c['equal']} | {c['tie']} | {c['DIFFERENT']} |")
    return 1 if any(c["DIFFERENT"] for c in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
