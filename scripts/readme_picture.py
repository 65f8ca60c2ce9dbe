#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws docs/images/kept.svg, the picture on README's first page, from a run of its own:

    scripts/readme_picture.py WINNOW OUT.svg [--document examples/document.txt] [--budget 1024] [--question TEXT]

The document is stored compressed and asked. The picture shows the kept entries, one row a layer, over the position in the document. Next to them it
shows the memory with everything and with what is kept, and the answer. Speeds are in README's table, which one run measures (readme_numbers.py).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from html import escape

COLUMNS, SHADES = 240, 6
LEFT, TOP, CELL_W, CELL_H = 20, 96, 3, 6


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("winnow")
    p.add_argument("out")
    p.add_argument("--document", default="examples/document.txt")
    p.add_argument("--budget", type=int, default=1024)
    p.add_argument("--question", default="What is the access code of the north dome?")
    return p.parse_args()


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measure(a, folder):
    """What the commands said: the plan, the sizes, the answer from the stored file."""
    wkv, plan = os.path.join(folder, "doc.wkv"), os.path.join(folder, "plan.json")
    ask = ["-p", a.question, "-n", "12", "--json"]
    run(a.winnow, "plan", "-f", a.document, "-p", a.question, "--context-only", "--budget", str(a.budget), "-o", plan)
    sizes = json.loads(run(a.winnow, "compress", "-f", a.document, "--budget", str(a.budget), "-o", wkv, "--json"))
    stored = json.loads(run(a.winnow, "ask", "-c", wkv, *ask))
    with open(plan, encoding="utf-8") as f:
        return json.load(f), sizes, stored


def shares(plan):
    """[layer][column]: the share of the entries that were kept there."""
    n = plan["n_tokens"]
    cells = [[0.0] * COLUMNS for _ in plan["layers"]]
    for row, layer in zip(cells, plan["layers"]):
        for head in layer["heads"]:
            for p in head:
                row[p * COLUMNS // n] += COLUMNS / (n * len(layer["heads"]))
    return cells


def strokes(cells):
    """One path a shade; neighbours of one shade are one stroke."""
    paths = [[] for _ in range(SHADES + 1)]
    for i, row in enumerate(cells):
        shade = [min(SHADES, round(x * SHADES)) for x in row]
        begin = 0
        for c in range(1, COLUMNS + 1):
            if c == COLUMNS or shade[c] != shade[begin]:
                paths[shade[begin]].append(f"M{LEFT + begin * CELL_W} {TOP + i * CELL_H + CELL_H // 2}h{(c - begin) * CELL_W}")
                begin = c
    return "".join(f'<path class="k" stroke-opacity="{k / SHADES:.2f}" d="{"".join(paths[k])}"/>\n' for k in range(1, SHADES + 1) if paths[k])


def bar(x, y, label, long, short):
    """Two bars, each a text and a length of 0 to 1."""
    width, out = 110, f'<text class="h" x="{x}" y="{y}">{label}</text>\n'
    for i, (text, length) in enumerate((long, short)):
        top = y + 10 + 24 * i
        out += f'<rect class="{"b" if i else "f"}" x="{x}" y="{top}" width="{max(2, width * length):.0f}" height="14" rx="2"/>'
        out += f'<text x="{x}" y="{top + 11}" dx="{max(2, width * length) + 6:.0f}">{text}</text>\n'
    return out


def picture(a, plan, sizes, stored):
    cells = shares(plan)
    map_w, map_h = COLUMNS * CELL_W, len(cells) * CELL_H
    x = LEFT + map_w + 32
    mib = 1024 * 1024
    answer = " ".join(stored["text"].split())
    head = f'{sizes["prompt_tokens"]:,} tokens read, {sizes["kept_tokens_mean"]:,.0f} of them kept in each layer and head, on average'
    memory = sizes["kv_bytes_full"] / mib, sizes["kv_bytes"] / mib
    return f'''<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x + 290} {TOP + map_h + 60}" font-family="system-ui, sans-serif" font-size="12" role="img">
<title>{head}</title>
<style>
svg {{ background: #fff }} text {{ fill: #333 }} .t {{ font-size: 17px; font-weight: 600; fill: #111 }} .h {{ font-weight: 600; fill: #111 }}
.k {{ stroke: #1f5fbf; stroke-width: {CELL_H - 1}; fill: none }} .p {{ fill: #f1f4f8 }} .f {{ fill: #b8c0cc }} .b {{ fill: #1f5fbf }}
@media (prefers-color-scheme: dark) {{ svg {{ background: #0d1117 }} text {{ fill: #b6bfca }} .t, .h {{ fill: #eef2f6 }} .k {{ stroke: #6aa5ff }} .p {{ fill: #171d26 }} .f {{ fill: #4d5866 }} .b {{ fill: #6aa5ff }} }}
</style>
<text class="t" x="{LEFT}" y="32">{head}</text>
<text x="{LEFT}" y="54">One row a layer, from left to right the document; darker: more of the layer's heads keep that place.</text>
<text x="{LEFT}" y="82">layer 1</text><text x="{LEFT + map_w}" y="82" text-anchor="end">end of the document</text>
<rect class="p" x="{LEFT}" y="{TOP}" width="{map_w}" height="{map_h}"/>
{strokes(cells)}<text x="{LEFT}" y="{TOP + map_h + 18}">layer {len(cells)}</text>
<text x="{LEFT}" y="{TOP + map_h + 44}"><tspan class="h">{escape(a.question)}</tspan>  {escape(answer)}</text>
{bar(x, TOP + 4, "memory of the cache", (f"{memory[0]:.1f} MiB, everything", 1), (f"{memory[1]:.1f} MiB, what is kept", memory[1] / memory[0]))}
</svg>
'''


def main():
    a = arguments()
    with tempfile.TemporaryDirectory() as folder:
        plan, sizes, stored = measure(a, folder)
    os.makedirs(os.path.dirname(os.path.abspath(a.out)), exist_ok=True)
    with open(a.out, "w", encoding="utf-8") as f:
        f.write(picture(a, plan, sizes, stored))
    print(f"{a.out}: {sizes['prompt_tokens']} tokens, {stored['text']!r}", file=sys.stderr)


main()
