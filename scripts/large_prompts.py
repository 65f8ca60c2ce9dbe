#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads a long prompt with a model of 8 billion weights, whole and in chunks, and draws time and memory: large_prompts.py --measure MODEL [--program FILE] | --draw

scripts/make_large_model.py writes the model; its weights are random, so that it has times and answers nothing. --measure writes
records/speed/large-prompts.csv: seconds of CPU time for each 2,048 tokens, and the most memory that the cache took. --draw draws docs/images/large-prompts.svg from
it. Beyond the longest prompt that was read, lines are dashed: they go on as a straight line through the chunks that were measured.
"""
import argparse
import csv
import pathlib
import re
import subprocess

from charts import COLOURS, Panel, scale, svg

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD, PICTURE = ROOT / "records/speed/large-prompts.csv", ROOT / "docs/images/large-prompts.svg"
TOKENS, CHUNK, REMOVED = 16384, 2048, 0.875
WAYS = {"whole, everything kept": ["0", "0"], "in chunks of 2,048, an eighth kept": [str(REMOVED), str(CHUNK)]}
COLUMNS = ["tokens", "way", "seconds", "MiB"]
LONGEST, LAPTOP_GB, WEIGHTS_GB = 131072, 16, 4.6


def rows_of(way, output):
    """Rows of the record from what the program has printed: seconds of CPU time are those of the last CHUNK tokens."""
    most, before, rows = re.search(r"cache: ([0-9.]+) MiB at most", output).group(1), 0.0, []
    for line in re.findall(r"^[0-9].*$", output, re.M):
        tokens, _, seconds = line.split(",")
        if int(tokens) % CHUNK == 0:
            rows.append([tokens, way, f"{float(seconds) - before:.1f}", most if int(tokens) == TOKENS else ""])
            before = float(seconds)
    return rows


def measure(model, program):
    rows = []
    for way, options in WAYS.items():
        command = [program, model, str(ROOT / "share/text/held-out.txt"), str(TOKENS), *options]
        print("$", *command, flush=True)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"large_prompts.py: {done.stderr.strip()}")
        print(done.stdout, flush=True)
        rows += rows_of(way, done.stdout)
    write(rows)


def write(rows):
    with open(RECORD, "w", newline="") as f:
        f.write("# scripts/large_prompts.py --measure LARGE.gguf: the shape of Llama-3-8B, random weights, Q4_0, f16 cache, two threads; seconds of CPU time for the last 2,048 tokens, most MiB of keys and values\n")
        csv.writer(f, lineterminator="\n").writerows([COLUMNS, *rows])


def line_through(points):
    """(height at 0, slope) of the straight line with the least squares."""
    n, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    slope = (n * sum(x * y for x, y in points) - sx * sy) / (n * sum(x * x for x, _ in points) - sx * sx)
    return (sy - slope * sx) / n, slope


def panel(left, title, top_value, lines, mark=None):
    """One picture. lines: (colour, measured points, points beyond them)."""
    drawn = Panel(left, LONGEST, top_value)
    through = lambda points: " ".join(f"{drawn.x(n):.1f},{drawn.y(v):.1f}" for n, v in points)
    body = drawn.axes(title, [n * 1024 for n in (16, 32, 64, 96, 128)])
    if mark:
        value, text = mark
        body.append(f'<line class="z" x1="{left}" y1="{drawn.y(value):.1f}" x2="{drawn.right}" y2="{drawn.y(value):.1f}"/><text class="s" x="{left + 6}" y="{drawn.y(value) - 5:.1f}">{text}</text>')
    for colour, measured, beyond in lines:
        body.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2.5" points="{through(measured)}"/>')
        body.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="3 5" points="{through(beyond)}"/>')
    return body


def draw():
    with open(RECORD, newline="") as f:
        next(f)
        rows = list(csv.DictReader(f))
    times, sizes = [], []
    whole_mib = next(float(row["MiB"]) for row in rows if row["MiB"] and row["way"] == list(WAYS)[0])
    for (way, (removed, _)), colour in zip(WAYS.items(), COLOURS):
        points = [(int(row["tokens"]), float(row["seconds"])) for row in rows if row["way"] == way]
        at_0, slope = line_through(points[1:] if float(removed) else points)  # the first chunk has no cache before it
        times.append((colour, points, [(n, at_0 + slope * n) for n in (TOKENS, LONGEST)]))
        gigabytes = lambda n: WEIGHTS_GB + whole_mib * 2**20 / 1e9 / TOKENS * (min(n, n * (1 - float(removed)) + CHUNK) if float(removed) else n)
        sizes.append((colour, [(n, gigabytes(n)) for n in range(CHUNK, TOKENS + 1, CHUNK)], [(n, gigabytes(n)) for n in (TOKENS, LONGEST)]))
    body = panel(70, "CPU seconds for 2,048 tokens more", scale(max(v for _, _, beyond in times for _, v in beyond)), times)
    body += panel(490, "GB of weights and of keys and values", 24, sizes, (LAPTOP_GB, "a laptop's 16 GB"))
    for i, (way, colour) in enumerate(zip(WAYS, COLOURS)):
        body.append(f'<circle cx="{76 + 250 * i}" cy="344" r="5" fill="{colour}"/><text x="{88 + 250 * i}" y="348">{way}</text>')
    body.append('<text class="s" x="576" y="348">dashed: not measured</text>')
    PICTURE.write_text(svg(366, "A model of 8 billion weights, whole and in chunks", "The shape of Llama-3-8B in Q4_0 on two threads, by tokens of the prompt", body))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--measure", metavar="MODEL")
    args.add_argument("--program", default=str(ROOT / "build/examples/long_prompt"))
    args.add_argument("--draw", action="store_true")
    said = args.parse_args()
    if said.measure:
        measure(said.measure, said.program)
    elif not said.draw:
        args.error("--measure MODEL or --draw")
    draw()


if __name__ == "__main__":
    main()
