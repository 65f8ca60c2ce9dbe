#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints a Markdown table of right answers from the CSV files that examples/needles writes.

    scripts/needles_table.py TITLE=FILE.csv [TITLE=FILE.csv ...]

One row per policy, in the order of the first file; one column per file, mode and share of entries kept.
Runs of the same model (other depths, other tries) can be put together first: their rows just follow each other.
"""
import collections
import csv
import sys


def read(path):
    """{(policy, mode, ratio): [right, asked]}, policies in order, ratios."""
    cells = collections.defaultdict(lambda: [0, 0])
    policies, ratios = [], set()
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            key = (row["policy"], row["mode"], float(row["ratio"]))
            cells[key][0] += int(row["right"])
            cells[key][1] += 1
            ratios.add(float(row["ratio"]))
            if row["policy"] not in policies:
                policies.append(row["policy"])
    return cells, policies, sorted(ratios)


def main(arguments):
    if not arguments or any("=" not in a for a in arguments):
        sys.exit(__doc__)
    files = [(title, *read(path)) for title, path in (a.split("=", 1) for a in arguments)]
    columns = [
        (cells, mode, ratio, f"{title} {mode} {100 * (1 - ratio):g} %")
        for title, cells, _, ratios in files
        for mode in ("aware", "context")
        for ratio in ratios
    ]
    policies = list(dict.fromkeys(p for _, _, names, _ in files for p in names))
    print("| policy | " + " | ".join(title for *_, title in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for policy in policies:
        counts = [cells.get((policy, mode, ratio)) for cells, mode, ratio, _ in columns]
        print(f"| `{policy}` | " + " | ".join(f"{c[0]}/{c[1]}" if c else "" for c in counts) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
