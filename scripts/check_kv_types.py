#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What quantised caches cost in answers, here and in llama.cpp, nothing evicted.

check_kv_types.py --out DIR [--winnow build/winnow] [--server build/plain_llama_server] [--model NAME] [--types f16,q8_0,q4_0]
                  [--tasks LIST] [--questions N] [--length N] [--seed S] [--threads N]

`winnow eval` answers in DIR/winnow, with rotated caches, which are its default. llama.cpp's server, without winnow, then gets the same token ids and generates greedily up to as many tokens; it
rotates too. Its answers lie in DIR/llama.cpp as a record of the same form, so that `winnow report` and scripts/records.py read both. A score is the share of what was asked for that an answer
contains. A run that was interrupted goes on where it was.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "server"))
from check_answers import token_ids  # noqa: E402
from llama_server import Server  # noqa: E402

# What is measured of winnow's own computation and cache, and not of an answer.
OURS = ("agree", "prefix", "kl", "dnll", "fgt", "kv_bytes", "meta_bytes", "peak_bytes")


def say(text):
    print(f"check_kv_types: {text}", file=sys.stderr, flush=True)


def eval_options(args):
    return ["-m", args.model, "--tasks", args.tasks, "--lengths", str(args.length), "--samples", str(args.questions), "--seed", str(args.seed), "--chat", "none"]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def winnow_answers(args, folder):
    subprocess.run([args.winnow, "eval", *eval_options(args), "--out", folder, "--policies", "full", "--kv-types", args.types, "--modes", "agnostic", "--no-gate", "-t", str(args.threads)],
                   check=True, stdout=subprocess.DEVNULL)
    return lines_of(folder / "results.jsonl")


def samples_of(args):
    """{(task, index): (sample, ids of its context, ids of what comes after)}"""
    done = subprocess.run([args.winnow, "eval", *eval_options(args), "--dump-samples"], check=True, stdout=subprocess.PIPE, text=True)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for sample in map(json.loads, done.stdout.splitlines()):
            ids = [token_ids(args, folder, text) for text in (sample["context"], sample["question"] + sample["answer_prefix"])]
            found[sample["task"], sample["index"]] = (sample, *ids)
    return found


def model_path(args):
    cache = pathlib.Path(os.environ.get("WINNOW_CACHE") or os.path.expanduser("~/.cache/winnow"))
    return args.model if os.path.exists(args.model) else str(cache / "models" / f"{args.model}.gguf")


def answer(server, row, sample, ids):
    """The row with llama.cpp's answer in place of winnow's."""
    said = server.ask("/completion", {"prompt": ids, "n_predict": sample["max_new"], "temperature": 0, "cache_prompt": False, "return_tokens": True}).json
    pred = said["content"]
    score = sum(ref.lower() in pred.lower() for ref in row["refs"]) / len(row["refs"])
    return {**row, "pred": pred, "score": score, "scores": {}, "gen_tokens": len(said["tokens"]), "stop": "length" if said["stop_type"] == "limit" else "eog",
            "kv_rotated": row["kv_type"] != "f16", "ms": {}, **{name: None for name in OURS if name in row}}


def llama_answers(args, folder, rows, samples):
    results = folder / "results.jsonl"
    done = {row["key"] for row in lines_of(results)}
    for kv_type in args.types.split(","):
        asked = [row for row in rows if row["kv_type"] == kv_type and row["key"] not in done]
        if not asked:
            continue
        with Server([args.server, "-m", model_path(args), "-c", str(2 * args.length + 1024), "-np", "1", "-t", str(args.threads), "--cache-ram", "0", "--host", "127.0.0.1", "--port", "0",
                     "-fa", "on", "-ctk", kv_type, "-ctv", kv_type]) as server, results.open("a") as out:
            for i, row in enumerate(asked):
                sample, context, question = samples[row["task"], row["index"]]
                if (len(context), len(question)) != (row["ctx_tokens"], row["q_tokens"]):
                    sys.exit(f"{row['key']}: winnow read {row['ctx_tokens']} + {row['q_tokens']} tokens, its texts have {len(context)} + {len(question)}")
                out.write(json.dumps(answer(server, row, sample, context + question), ensure_ascii=False, separators=(",", ":")) + "\n")
                out.flush()
                if (i + 1) % 10 == 0:
                    say(f"llama.cpp, {kv_type}: {i + 1} of {len(asked)}")


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--winnow", default="build/winnow")
    p.add_argument("--server", default="build/plain_llama_server")
    p.add_argument("--model", default="smollm2-135m")
    p.add_argument("--types", default="f16,q8_0,q4_0")
    p.add_argument("--tasks", default="niah_single_2,niah_multikey_1,niah_multivalue,niah_single_3")
    p.add_argument("--questions", type=int, default=12, help="of each task")
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    ours, theirs = args.out / "winnow", args.out / "llama.cpp"
    theirs.mkdir(parents=True, exist_ok=True)
    rows = winnow_answers(args, ours)
    run = json.loads((ours / "run.json").read_text())
    (theirs / "run.json").write_text(json.dumps({**run, "command": ["scripts/check_kv_types.py", *sys.argv[1:]]}))
    llama_answers(args, theirs, rows, samples_of(args))
    for folder in (ours, theirs):
        print(subprocess.run([args.winnow, "report", folder], check=True, stdout=subprocess.PIPE, text=True).stdout)


if __name__ == "__main__":
    main()
