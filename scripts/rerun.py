#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a record again and compares the answers: the samples follow from the seed.

    scripts/rerun.py NAME [--samples K] [--policies LIST] [--out DIR] [--file NAME=PATH] [--winnow PROGRAM]

NAME is a run of records/RUNS.csv. Fewer samples (--samples) and fewer policies (--policies, as the record's command writes them) make it short.
Files that a command names and that do not ship are given with --file, such as --file longbench-mini=DIR; `real.txt` is made by
scripts/make_real_text.py, and a folder of --documents by scripts/real_documents.py. The contrasts are those of the record. A profile that does not ship is
left out, so that those that ship are read.

Prints how many texts, answers and scores are those of the record, and the report of the new run. On the record's kernel all of them are the same. On
another kernel rounding differs, and a few scores with it. Of the perturbation study, which has no answers, it compares the tokens and the changes of each
text. It says so where a file or a profile is another one than the record's. Exit code 1 if a text differs, or an answer on the record's kernel with the
record's profiles.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import records

FILES = {"--contrasts", "--profile", "--text", "--longbench", "--scbench", "--squad", "--hotpot", "--jsonl", "--haystack", "--documents"}
DROPPED = {"--out", "--contrasts", "--time-budget", "--shard"}


def places_of(word, shipped):
    return pathlib.Path(word), records.ROOT / word, *shipped.glob(f"*/{word}")


def file_of(word, given, shipped):
    """The path of a file that a record names by its last part."""
    if word in given:
        return given[word]
    for path in places_of(word, shipped):
        if path.exists():
            return str(path)
    raise SystemExit(f"the record used '{word}', which is not here; say where it is with --file {word}=PATH")


def model_of(word, given):
    """A model's name, or its file: records name files by their last part, which is the name of a model of this project."""
    path = given.get(word, word)
    return path if pathlib.Path(path).exists() else path.removesuffix(".gguf")


def command_of(run, args, folder, given, shipped):
    """The record's command, with the files of this machine."""
    words, out = run["command"][1:], [args.winnow]
    if not words or words[0] != "eval":
        raise SystemExit(f"the record is no run of `winnow eval`: {' '.join(run['command'])}")
    i = 0
    while i < len(words):
        option, value = words[i], words[i + 1] if i + 1 < len(words) else None
        if option in DROPPED or (option == "--samples" and args.samples) or (option == "--policies" and args.policies):
            i += 2
        elif option in ("-m", "--model"):
            out += [option, model_of(value, given)]
            i += 2
        elif option == "--profile" and value not in given and not any(p.exists() for p in places_of(value, shipped)):
            print(f"the record used the profile '{value}', which does not ship: profiles that ship are read in its place; --file {value}=PATH names another")
            i += 2
        elif option in FILES and value not in ("prose", "noise"):
            out += [option, file_of(value, given, shipped)]
            i += 2
        else:
            out.append(option)
            i += 1
    out += ["--samples", str(args.samples)] if args.samples else []
    out += ["--policies", args.policies] if args.policies else []
    if run.get("contrasts") and not args.policies:
        contrasts = pathlib.Path(folder) / "contrasts.txt"
        contrasts.write_text("\n".join(run["contrasts"]) + "\n")
        out += ["--contrasts", str(contrasts)]
    return [*out, "--out", str(pathlib.Path(folder) / "run")]


def key_of(row, more):
    """What tells an answer from all others, in words that versions share."""
    return (row["task"], row["N"], row["index"], row.get("turn", 0), row.get("asked", row["policy"]), row["mode"], row["size"], row["kv_type"], row.get("mask", ""),
            more.get(row["config"], ""))


def answers_of(folder):
    """Answers by their keys."""
    run = json.loads((folder / "run.json").read_text())
    more = {c["config_id"]: json.dumps([c.get("evict"), c.get("evict_every"), c.get("mask_phase"), c.get("mask_form")]) for c in run.get("configs", [])}
    rows = [json.loads(line) for line in records.lines_of(folder).splitlines()]
    return run, {key_of(row, more): row for row in rows if "policy" in row}


def read_files(run):
    """The hashes of what a run read other than the model: by option, of sets by their names."""
    files = {option: run[option] for option in ("text", "squad", "hotpot", "documents") if run.get(option)}
    return files | {task["task"]: task["file"] for task in run.get("tasks", []) if isinstance(task, dict) and task.get("file")}


def texts_of(folder):
    """The texts of the perturbation study by their numbers: each has a token and what changed of it under every policy."""
    run = json.loads((folder / "run.json").read_text())
    rows = [json.loads(line) for line in records.lines_of(folder).splitlines()]
    return run, {(row["index"], c["config"]): {"text": row["token"], "pred": {k: v for k, v in c.items() if k != "ms"}} for row in rows for c in row["changes"]}


def compare(old_folder, new_folder):
    """Prints what both have in common; whether that is as it must be."""
    perturbs = json.loads((old_folder / "run.json").read_text()).get("study") == "perturbation"
    (old_run, old), (new_run, new) = map(texts_of if perturbs else answers_of, (old_folder, new_folder))
    both = [(old[key], new[key]) for key in new if key in old]
    if not both:
        raise SystemExit("no answer of the new run is one of the record's")
    same = {what: sum(a.get(what) == b.get(what) for a, b in both) for what in ("text", "pred", "score")}
    kernels = old_run.get("kernel", "?"), new_run.get("kernel", "?")
    print(f"record: kernel {kernels[0]}, {old_run.get('device', '?')}; this machine: kernel {kernels[1]}, {new_run.get('device', '?')}")
    files = read_files(old_run), read_files(new_run)
    for name in sorted(files[0].keys() & files[1].keys()):
        if files[0][name] != files[1][name]:
            print(f"{name}: the file is another one than the record's")
    profiles = [{c["config_id"]: c.get("profile") for c in run.get("configs", [])} for run in (old_run, new_run)]
    n_others = sum(profiles[0].get(a.get("config")) != profiles[1].get(b.get("config")) for a, b in both)
    if n_others:
        print(f"{n_others} of the answers are by other profiles than the record's, so they may differ")
    if perturbs:
        print(f"of {len(both)} changes that both have: {same['text']} of the same token, {same['pred']} the same")
    else:
        print(f"of {len(both)} answers that both have: {same['text']} texts, {same['pred']} answers and {same['score']} scores are the same")
    return same["text"] == len(both) and (kernels[0] != kernels[1] or n_others > 0 or same["pred"] == len(both))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("name", help="a run of records/RUNS.csv")
    p.add_argument("--samples", type=int, help="samples of each task")
    p.add_argument("--policies", help="only these policies, as the record's command writes them")
    p.add_argument("--out", help="keep the new run in this folder")
    p.add_argument("--file", action="append", default=[], metavar="NAME=PATH", help="where a file is that the command names")
    p.add_argument("--winnow", default=str(records.ROOT / "build" / "winnow"), help="the program")
    args = p.parse_args()
    found = records.Records(args.winnow)
    old = found.folder(args.name)
    if old is None or not (old / "run.json").exists():
        p.error(f"there is no run {args.name}; records/RUNS.csv lists them")
    given = dict(pair.split("=", 1) for pair in args.file)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(args.out or work)
        folder.mkdir(parents=True, exist_ok=True)
        command = command_of(json.loads((old / "run.json").read_text()), args, folder, given, found.folder("profiles") or records.ROOT / "none")
        print(" ".join(command), flush=True)
        done = subprocess.run(command)
        if done.returncode:
            return done.returncode
        return 0 if compare(old, folder / "run") else 1


if __name__ == "__main__":
    sys.exit(main())
