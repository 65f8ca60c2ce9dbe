#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads prompts of several lengths in three ways, and draws time and memory: long_prompts.py --measure MODEL [--winnow FILE] [--lengths N,...] | --draw

--measure writes records/speed/long-prompts.csv; with --lengths it replaces the rows of those lengths alone. The ways alternate for each length, so that other load on the machine affects all alike.
Seconds are CPU time of the process, with two threads. --draw writes docs/images/long-prompts.svg from that file.
"""
import argparse
import csv
import html
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

from charts import COLOURS, Panel, scale, svg

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD, PICTURE = ROOT / "records/speed/long-prompts.csv", ROOT / "docs/images/long-prompts.svg"
LENGTHS = [2048, 4096, 8192, 16384, 32000]  # the last leaves room in a context of 32,768
WAYS = {  # what --policy and what follows it is
    "whole, everything kept": [],
    "whole, then a quarter kept": ["--policy", "keydiff-shares", "--ratio", "0.75"],
    "in chunks of 2,048, a quarter kept": ["--policy", "keydiff-shares", "--ratio", "0.75", "--evict", "chunk:2048", "--chunk-slack", "1"],
}
MEASURES = [("seconds", "CPU seconds to the first token"), ("MiB", "most MiB of keys and values")]
MORE = ["compressing %"]  # columns that are not drawn: the share of the time to read and compress that compressing takes, by the clock


def seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read(winnow, model, text, n, options):
    """CPU seconds, most MiB of the cache and per cent of the time for compressing, of one reading."""
    with tempfile.NamedTemporaryFile("w") as tokens:
        tokens.write(" ".join(text[:n]))
        tokens.flush()
        before = seconds()
        done = subprocess.run([winnow, "run", "-m", model, "--tokens", tokens.name, "-n", "1", "-t", "2", "--json", *options], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"long_prompts.py: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    most = said["chunks"]["kv_peak_bytes"] if said.get("chunks") else said["kv_bytes_full"]
    return seconds() - before, most / 2**20, 100 * said["compress_ms"] / (said["prefill_ms"] + said["compress_ms"])


def tokens_of(winnow, model):
    done = subprocess.run([winnow, "tokens", "-m", model, "-f", ROOT / "share/text/held-out.txt", "--raw"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"long_prompts.py: {done.stderr.strip()}")
    return done.stdout.split()


def rows_of_record():
    with open(RECORD, newline="") as f:
        next(f)
        return [row + [""] * (2 + len(MEASURES) + len(MORE) - len(row)) for row in list(csv.reader(f))[1:]]


def measure(model, winnow, lengths):
    text, rows = tokens_of(winnow, model), []
    if len(text) < max(lengths):
        raise SystemExit(f"long_prompts.py: the text has {len(text)} tokens, and {max(lengths)} are wanted")
    for n in lengths:
        for way, options in WAYS.items():
            used, most, compressing = read(winnow, model, text, n, options)
            rows.append([str(n), way, f"{used:.1f}", f"{most:.1f}", f"{compressing:.1f}" if options else ""])
            print(*rows[-1], sep=",", flush=True)
    if lengths != LENGTHS:
        rows = sorted([row for row in rows_of_record() if int(row[0]) not in lengths] + rows, key=lambda row: int(row[0]))
    with open(RECORD, "w", newline="") as f:
        f.write(f"# scripts/long_prompts.py --measure {pathlib.Path(model).name}: winnow run --tokens FILE -n 1 -t 2, with "
                + "; ".join(" ".join(options) or "nothing else" for options in WAYS.values()) + "\n")
        csv.writer(f, lineterminator="\n").writerows([["tokens", "way", *(name for name, _ in MEASURES), *MORE], *rows])


def panel(left, points, of, title):
    lengths = sorted({int(row["tokens"]) for row in points})
    drawn = Panel(left, lengths[-1], scale(max(float(row[of]) for row in points)))
    body = drawn.axes(title, [n for n in lengths if n > lengths[-1] / 16])
    for way, colour in zip(WAYS, COLOURS):
        line = [(drawn.x(int(row["tokens"])), drawn.y(float(row[of]))) for row in points if row["way"] == way]
        dash = ' stroke-dasharray="6 4"' if way == list(WAYS)[0] else ""
        body.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2.5"{dash} points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in line) + '"/>'
                    + "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in line))
    return body


def draw():
    with open(RECORD, newline="") as f:
        next(f)
        points = list(csv.DictReader(f))
    body = [line for i, (of, title) in enumerate(MEASURES) for line in panel(70 + 420 * i, points, of, title)]
    for i, (way, colour) in enumerate(zip(WAYS, COLOURS)):
        body.append(f'<circle cx="{76 + 250 * i}" cy="344" r="5" fill="{colour}"/><text x="{88 + 250 * i}" y="348">{html.escape(way)}</text>')
    PICTURE.write_text(svg(366, "Three ways of reading a long prompt", "Qwen2.5-Coder-0.5B on two threads, by tokens of the prompt", body))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--measure", metavar="MODEL")
    args.add_argument("--winnow", default=str(ROOT / "build/winnow"))
    args.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=LENGTHS)
    args.add_argument("--draw", action="store_true")
    said = args.parse_args()
    if said.measure:
        measure(said.measure, said.winnow, said.lengths)
    elif not said.draw:
        args.error("--measure MODEL or --draw")
    draw()


if __name__ == "__main__":
    main()
