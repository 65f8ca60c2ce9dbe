#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a folder as `winnow eval --out` leaves it, with made-up answers: make_results.py DIR [--shard I/N] [--small | --one | --many | --wide | --options] [--hostile] [--contrasts]

The answers do not come from a model: a method's chance to answer falls with the share it removes. They are the same on
every machine. A shard holds the samples whose number is I modulo N.
--options has one method at one size with three values of each of two options; --wide has passkeys alone, at many lengths and depths; --many has 30 methods with long names at 8 lengths and two sizes; --one has one method at
one size, with 4 samples. --hostile puts markup wherever a text comes from outside. --contrasts lists contrasts
of one protocol, as if before the run.
"""
import argparse
import hashlib
import json
import os

METHODS = {"snapkv": 0.9, "lagkv": 1.2, "kvcompose": 0.35, "streaming_llm": 1.6}
RATIOS = [0.25, 0.5, 0.75, 0.875]
KV_BYTES = {"f16": 1.0, "q8_0": 0.53, "q4_0": 0.28}
TASKS = {
    "niah_single_1": ([512, 1024, 2048], 12, 1.0),
    "niah_single_2": ([512, 1024, 2048], 12, 0.9),
    "niah_multikey_1": ([1024], 12, 0.75),
    "vt": ([1024], 12, 0.04),
    "scb_kv_syn": ([1024], 3, 0.8),
    "passkey64": ([512, 1024, 2048], 10, 0.95),
}
DEPTHS = 5  # of passkeys
# What no text may become. U+2028 ends a line of a script in older readers.
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028<!--&lt; ]]> \"'`${alert(3)}"


def uniform(*key):
    """A number in [0, 1) that depends on the key alone."""
    digest = hashlib.sha256("|".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def configs(small):
    for mode in ("agnostic",) if small or len(METHODS) > 4 else ("agnostic", "aware"):
        for kv in KV_BYTES:
            yield {"policy": "full", "mode": mode, "size": "full", "kv_type": kv}
        for policy in list(METHODS)[: 2 if small else None]:
            for ratio in RATIOS[: 3 if small else None]:
                yield {"policy": policy, "mode": mode, "size": f"ratio={ratio}", "kv_type": "f16"}


def config_id(c):
    return hashlib.sha256(json.dumps(c, sort_keys=True).encode()).hexdigest()[:16]


def answer(c, task, n, index, turn, hostile):
    base = TASKS[task][2]
    shown = task + HOSTILE if hostile and task == "niah_single_2" else task
    removed = float(c["size"][6:]) if "=" in c["size"] else 0.0
    harm = METHODS.get(c["policy"], 0.0) * removed**2 * (0.5 if c["mode"] == "aware" else 1.0)
    harm += {"q8_0": 0.01, "q4_0": 0.12}.get(c["kv_type"], 0.0)
    chance = max(0.0, base - harm * (0.6 + 0.4 * turn))
    solved = uniform(task, n, index, turn) < chance
    key = str(1000000 + int(uniform("key", task, n, index, turn) * 9e6))
    wrong = f"The text does not say. & \x01 {HOSTILE}" if hostile else "The text does not say."
    full_bytes = 30 * 3 * 64 * 2 * 2 * n
    bytes_kept = full_bytes * KV_BYTES[c["kv_type"]] * (1 - removed)
    return {
        "v": 1, "key": f"{shown}|{n}|{index}|42|{config_id(c)}|{turn}", "task": shown, "N": n, "index": index, "turn": turn,
        "config": config_id(c), **c, "ratio_ach": round(removed - 0.0004 if removed else 0.0, 4),
        "kv_bytes": int(bytes_kept), "meta_bytes": int(30 * 3 * 4 * n * (1 - removed)), "peak_bytes": int(full_bytes * KV_BYTES[c["kv_type"]]), "ctx_tokens": n - 40,
        "q_tokens": 31, "gen_tokens": 9, "stop": "matched" if solved else "length",
        "depth": (index % DEPTHS) / (DEPTHS - 1) if task == "passkey64" else round(uniform("depth", task, n, index), 3),
        "protected": task == "passkey64" and index % DEPTHS == DEPTHS - 1, "truncated": False,
        "question": "What is the special magic number mentioned in the provided text?",
        "pred": f" The number is {key}." if solved else wrong, "refs": [key], "score": 1.0 if solved else 0.0,
        "scores": {"partial": 1.0 if solved else round(0.3 * uniform("p", task, n, index), 3),
                   "contains": 1.0 if solved or uniform("c", task, n, index) < 0.1 else 0.0} if task == "passkey64" else {},
        "fgt": 1 if uniform("fgt", task, n, index, turn) > 0.5 * harm else 0, "agree": round(1 - 0.5 * harm, 3),
        "kl": round(harm * 0.4 * (0.5 + uniform("kl", task, n, index, turn)), 5), "dnll": round(0.2 * harm, 4),
        "ms": {"prefill": round(n * 0.9, 1), "compress": round(n * 0.01 * (removed > 0), 2), "question": 40.5,
               "decode": round(9 * (9 + n / 1000 * KV_BYTES[c["kv_type"]] * (1 - removed)), 2)},
    }


def samples(small):
    """(task, length, index, turn) in the order of work: tasks in turn, by index, then the probes."""
    for index in range(max(t[1] for t in TASKS.values())):
        for task, (lengths, n, _) in TASKS.items():
            for length in lengths[: 2 if small else None]:
                for turn in range(5 if task == "scb_kv_syn" else 1):
                    if index < n:
                        yield task, length, index, turn
    for task, (lengths, _, _) in TASKS.items():
        for length in lengths[: 2 if small else None]:
            for index in range(900000, 900004):
                yield task, length, index, 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--small", action="store_true", help="fewer methods, one protocol, two lengths")
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--wide", action="store_true", help="passkeys alone, at 16 lengths and 14 depths")
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--options", action="store_true")
    parser.add_argument("--contrasts", action="store_true")
    parser.add_argument("--model", default="smollm2-135m")
    args = parser.parse_args()
    if args.wide:
        global DEPTHS
        DEPTHS = 14
        for task in list(TASKS):
            del TASKS[task]
        TASKS["passkey64"] = ([1000 * i for i in range(1, 17)], DEPTHS, 0.95)
    if args.one:
        for name in list(METHODS)[1:]:
            del METHODS[name]
        RATIOS[:] = [0.5]
        TASKS.clear()
        TASKS["niah_single_1"] = ([512], 4, 0.9)
    if args.options:
        METHODS.clear()
        METHODS.update({f"lagkv:lag={lag},retain={r}": 0.3 / r for lag in (64, 128, 256) for r in (0.5, 0.25, 0.125)})
        RATIOS[:] = [0.5]
    if args.many:
        names = list(METHODS)
        for i in range(26):
            name = f"{names[i % 4]}:window={16 + i},kernel=7,pool=avg" + "+group_mean:cross_head=1+adakv:alpha_safeguard=0.25" * (i % 3)
            METHODS[name] = 0.3 + 0.06 * i
        for task in list(TASKS):
            if task not in ("niah_single_1", "vt", "passkey64"):
                del TASKS[task]
        TASKS["niah_single_1"] = ([512 * k for k in range(1, 9)], 8, 1.0)
        RATIOS[:] = [0.5, 0.75]
    if args.hostile:
        methods = [(HOSTILE if name == "lagkv" else name, harm) for name, harm in METHODS.items()]
        METHODS.clear()
        METHODS.update(methods)
    part, n_parts = map(int, args.shard.split("/"))
    os.makedirs(args.dir, exist_ok=True)
    run = {"v": 1, "command": f"winnow eval --shard {args.shard}", "shard": args.shard, "winnow": "0", "suite": "small",
           "model": {"name": args.model, "size": 144811456, "arch": {"layers": 30, "kv_heads": 3}}, "seed": 42,
           "haystack": "prose", "too_long": len(range(part, 3, n_parts)),
           "stand_ins": ["generated prose in place of essays (niah_single_2, niah_multikey_1, passkey64)",
                         "our own lists of words in place of the package wonderwords (niah_single_1, niah_single_2)"],
           "configs": [dict(c, config_id=config_id(c), recipe=c["policy"]) for c in configs(args.small)]}
    run["recipes"] = {c["policy"]: "paper-" + c["policy"] if c["policy"] == "snapkv" else c["policy"] for c in run["configs"]}
    if args.contrasts:
        run["contrasts"] = [f"{a} vs {b} mode=agnostic size=ratio={r}" for r in RATIOS[:2] for a, b in (("kvcompose", "snapkv"), ("lagkv", "streaming_llm"))]
    if args.hostile:
        run["model"]["name"] = f"<b>model</b> \"&' {HOSTILE}"
        run["command"] = ["winnow", "eval", HOSTILE]
        run["stand_ins"].append(f"{HOSTILE} in place of text (vt)")
        for c in run["configs"]:
            c["evict"] = HOSTILE if c["policy"] == HOSTILE else "end"
    with open(os.path.join(args.dir, "run.json"), "w", encoding="utf-8") as f:
        json.dump(run, f, indent=1)
    with open(os.path.join(args.dir, "results.jsonl"), "w", encoding="utf-8") as f:
        for task, n, index, turn in samples(args.small):
            if index % n_parts != part:
                continue
            for c in configs(args.small):
                if index < 900000 or c["policy"] == "full":
                    f.write(json.dumps(answer(c, task, n, index, turn, args.hostile), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
