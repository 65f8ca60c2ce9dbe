# SPDX-License-Identifier: MIT
"""The charts of docs/research/results.md, as SVG, from records/numbers.csv (scripts/records.py --render)."""
import html

WIDTH, LEFT, RIGHT, ROW = 860, 330, 40, 26
LONGEST_LABEL = 45  # characters of a difference's name that fit left of LEFT
COLOURS = ["#1b6ca8", "#c2572b", "#2e8b57", "#7a4fa3", "#8a7a00", "#777777"]
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-size:15px;font-weight:600}.s{fill:#57606a;font-size:12px}"
    ".g{stroke:#d0d7de}.z{stroke:#57606a}.b{fill:#ffffff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9da7b1}.g{stroke:#30363d}.z{stroke:#9da7b1}.b{fill:#0d1117}}</style>")

SIZES = [("0.5", "1/2"), ("0.75", "1/4"), ("0.875", "1/8")]


def row(run, policy, size, mode="agnostic"):
    return f"{run}:{mode}/all/{policy}/ratio={size}/score"


# A chart of lines: title, subtitle, the run's full cache, (label, key of each size).
LINES = {
    "budgets.svg": (
        "The same scores, with a budget for each head",
        "Answers of 100, SmolLM2-135M, 1024 tokens, the question comes after compression",
        "proof-smollm2-135m:agnostic/all/full/full/score",
        [(label, [row("proof-smollm2-135m", policy, size) for size, _ in SIZES]) for label, policy in (
            ("KVzip (reads twice)", "kvzip"), ("KeyDiff, head budgets", "keydiff-shares"), ("replay", "replay"), ("LagKV", "lagkv"), ("KeyDiff", "keydiff"))]),
    "auto.svg": (
        "What winnow takes by itself, beside KVzip, which reads twice",
        "Answers of 100, 1024 tokens, the question comes after compression; KVzip dashed",
        None,
        [(f"{model}, {label}", [row(run, policy, size) for policy, (size, _) in zip(policies, SIZES)])
         for model, run in (("SmolLM2-135M", "long-pieces-smollm2-135m"), ("Qwen2.5-Coder-0.5B", "long-pieces-qwen2.5-coder-0.5b"))
         for label, policies in (("auto", ("kvzap:recent=32,room=0.3+shares",) * 2 + ("kvzap:recent=0+shares",)), ("KVzip", ("kvzip",) * 3))]),
}

# A chart of lines over kinds: title, subtitle, the run's full cache, kinds, (label, key of each kind or None).
KINDS = {
    "rules.svg": (
        "Which entries matters less than how many each head keeps",
        "Answers of 100, SmolLM2-135M, 1024 tokens, a quarter kept, the question comes after compression",
        row("budgets-smollm2-135m", "full", "0").replace("ratio=0", "full"),
        ["equal heads", "Ada-KV", "KVCompose's layers", "LU-KV", "shares of KVzip", "HeadKV"],
        [(label, [policy and row("budgets-smollm2-135m", policy, "0.75") for policy in policies]) for label, policies in (
            ("expected attention", ("expected_attention", "adakv-expected_attention:epsilon=0", "expected_attention:cross_head=1+composite", "lukv:epsilon=0",
                                    "lukv:epsilon=0+shares", "lukv:epsilon=0+headkv")),
            ("distinct keys (KeyDiff)", ("keydiff", None, None, "dms+lukv", "keydiff-shares", "dms+headkv")),
            ("random entries", (None, None, None, None, "random+shares", None)))]),
    "kinds.svg": (
        "The same on tasks that ask for no copies, with budgets by chance",
        "Answers of 100, Qwen2.5-Coder-0.5B, 1024 tokens, a quarter kept, the question comes after compression",
        row("budgets-kinds-2-qwen2.5-coder-0.5b", "full", "0").replace("ratio=0", "full"),
        ["by chance", "equal heads", "HeadKV", "shares of KVzip"],
        [(label, [policy and row("budgets-kinds-2-qwen2.5-coder-0.5b", policy, "0.75") for policy in policies]) for label, policies in (
            ("expected attention", (None, "expected_attention", "lukv:epsilon=0+headkv", "lukv:epsilon=0+shares")),
            ("distinct keys (KeyDiff)", ("dms+random_shares", "keydiff", "dms+headkv", "keydiff-shares")),
            ("random entries", ("random+random_shares", "random", "random+headkv", "random+shares")))]),
}

# A chart of differences: title, subtitle, (label, key of a contrast).
DIFFERENCES = {
    "claims.svg": (
        "The papers' claims: A less B, in points",
        "95 % intervals; samples that chose nothing, the largest model with that contrast",
        [("CompressKV - SnapKV, windows matched", "compresskv-qwen2.5-coder-0.5b:contrast/1"),
         ("CompressKV - SnapKV as published", "compresskv-qwen2.5-coder-0.5b:contrast/0"),
         ("CompressKV - StreamingLLM", "compresskv-qwen2.5-coder-0.5b:contrast/2"),
         ("CompressKV: semantic - random heads", "compresskv-qwen2.5-coder-0.5b:contrast/3"),
         ("CompressKV: layer budgets by error - uniform", "compresskv-qwen2.5-coder-0.5b:contrast/4"),
         ("CompressKV - PyramidKV, 512 entries", "compresskv-cake-qwen2.5-coder-0.5b:contrast/0"),
         ("CompressKV - CAKE, 512 entries", "compresskv-cake-qwen2.5-coder-0.5b:contrast/1"),
         ("KVCompose - DuoAttention, 13 tasks", "kvcompose-tables-qwen2.5-coder-0.5b:contrast/0"),
         ("KVCompose - SnapKV, 13 tasks", "kvcompose-tables-qwen2.5-coder-0.5b:contrast/1"),
         ("KVzip - unstructured KVCompose, 13 tasks", "kvcompose-tables-qwen2.5-coder-0.5b:contrast/11"),
         ("KVCompose: budget over layers - uniform", "kvcompose-qwen2.5-coder-0.5b:contrast/1"),
         ("KVCompose - TOVA", "kvcompose-qwen2.5-coder-0.5b:contrast/3"),
         ("KVCompose: composite - one list a layer", "kvcompose-qwen2.5-coder-0.5b:contrast/4"),
         ("LagKV - SnapKV, tables 1 and 2", "lagkv-tables-qwen2.5-coder-0.5b:contrast/2"),
         ("LagKV - StreamingLLM, tables 1 and 2", "lagkv-tables-qwen2.5-coder-0.5b:contrast/3"),
         ("LagKV - SnapKV, seven eighths removed", "lagkv-eighth-qwen2.5-coder-0.5b:contrast/0"),
         ("LagKV, blocks of 1024 - H2O", "lagkv-passkey-qwen2.5-coder-0.5b:contrast/2"),
         ("LagKV - SnapKV, keys of 64 digits", "lagkv-qwen2.5-coder-0.5b:contrast/0"),
         ("LagKV - StreamingLLM, the same", "lagkv-qwen2.5-coder-0.5b:contrast/1"),
         ("LagKV - H2O, the same", "lagkv-qwen2.5-coder-0.5b:contrast/2"),
         ("LagKV, blocks of 1024 - L2 norm of keys", "lagkv-lr-qwen2.5-coder-0.5b:contrast/4"),
         ("CriticalKV - HeadKV, the paper's protocol", "criticalkv-paper-qwen2.5-coder-0.5b:contrast/5"),
         ("CriticalKV - SnapKV, an eighth kept", "criticalkv-qwen2.5-coder-0.5b:contrast/3"),
         ("CriticalKV - AdaKV, an eighth kept", "criticalkv-qwen2.5-coder-0.5b:contrast/4"),
         ("CriticalKV - HeadKV, an eighth kept", "criticalkv-qwen2.5-coder-0.5b:contrast/5"),
         ("CompilerKV - SnapKV, equal mean sizes", "compilerkv-equal-qwen2.5-coder-0.5b:contrast/0"),
         ("CompilerKV without its gate - SnapKV", "compilerkv-qwen2.5-coder-0.5b:contrast/0"),
         ("CompilerKV without its gate - H2O", "compilerkv-qwen2.5-coder-0.5b:contrast/1"),
         ("CompilerKV: learned - constant tables", "compilerkv-qwen2.5-coder-0.5b:contrast/2")]),
    "five.svg": (
        "Head budgets from KVzip under each paper's scores, less the paper's own",
        "Points, 95 % intervals, SmolLM2-135M, 1024 tokens",
        [("CompressKV, half kept", "five-smollm2-135m:contrast/0"), ("CompilerKV, half kept", "five-smollm2-135m:contrast/2"),
         ("LagKV, half kept", "five-smollm2-135m:contrast/3"), ("CriticalKV, half kept", "five-smollm2-135m:contrast/4"),
         ("KVCompose, a quarter kept", "five-smollm2-135m:contrast/6")]),
}


def keys():
    """Every key that a chart needs."""
    found = [key for _, _, full, lines in LINES.values() for key in [full, *(k for _, keys_ in lines for k in keys_)] if key]
    found += [key for _, _, full, _, lines in KINDS.values() for key in [full, *(k for _, keys_ in lines for k in keys_)] if key]
    return found + [key for _, _, rows in DIFFERENCES.values() for _, key in rows]


def number(numbers, key, member="value"):
    return float(numbers[key][member])


def svg(height, title, subtitle, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">{STYLE}'
            f'<rect class="b" width="{WIDTH}" height="{height}"/><text class="t" x="16" y="26">{html.escape(title)}</text>'
            f'<text class="s" x="16" y="45">{html.escape(subtitle)}</text>\n' + "\n".join(body) + "\n</svg>\n")


def scale(most):
    """A round number that is not below the greatest value."""
    step = 10 ** (len(str(int(most))) - 1)
    return next(k * step for k in (1, 2, 3, 4, 5, 6, 8, 10) if k * step >= most)


class Panel:
    """One picture of a pair: values from 0 to `top_value` over tokens from 0 to `longest`."""
    TOP, BOTTOM, SIZE = 96, 300, 330

    def __init__(self, left, longest, top_value):
        self.left, self.right, self.longest, self.top_value = left, left + self.SIZE, longest, top_value

    def x(self, n):
        return self.left + n / self.longest * (self.right - self.left)

    def y(self, v):
        return self.BOTTOM - v / self.top_value * (self.BOTTOM - self.TOP)

    def axes(self, title, lengths):
        body = [f'<text x="{self.left}" y="{self.TOP - 14}">{html.escape(title)}</text>']
        for k in range(5):
            v = self.top_value * k / 4
            body.append(f'<line class="g" x1="{self.left}" y1="{self.y(v):.1f}" x2="{self.right}" y2="{self.y(v):.1f}"/>'
                        f'<text class="s" x="{self.left - 6}" y="{self.y(v) + 4:.1f}" text-anchor="end">{v:g}</text>')
        return body + [f'<text class="s" x="{self.x(n):.1f}" y="{self.BOTTOM + 18}" text-anchor="middle">{round(n / 1000) if n % 1024 else n // 1024}K</text>' for n in lengths]


def signed(x):
    return f"{x:+d}" if x else "0"


def differences(numbers, title, subtitle, rows):
    low, high = -60, 80
    at = lambda x: LEFT + (min(max(x, low), high) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
    bottom = 70 + ROW * len(rows)
    body = [f'<line class="{"z" if x == 0 else "g"}" x1="{at(x):.1f}" y1="60" x2="{at(x):.1f}" y2="{bottom}"/><text class="s" x="{at(x):.1f}" y="{bottom + 18}" '
            f'text-anchor="middle">{signed(x)}</text>' for x in range(low, high + 1, 20)]
    for i, (label, key) in enumerate(rows):
        if len(label) > LONGEST_LABEL:
            raise SystemExit(f"chart '{title}': '{label}' is longer than {LONGEST_LABEL} characters, and its beginning would be cut off")
        y, lo, mid, hi = 76 + ROW * i, *(number(numbers, key, m) for m in ("low", "value", "high"))
        colour = COLOURS[2] if lo > 0 else COLOURS[1] if hi < 0 else COLOURS[5]
        body.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text><line x1="{at(lo):.1f}" y1="{y}" x2="{at(hi):.1f}" y2="{y}" '
                    f'stroke="{colour}" stroke-width="3"/><circle cx="{at(mid):.1f}" cy="{y}" r="5" fill="{colour}"/>')
    return svg(bottom + 34, title, subtitle, body)


def scale_of(y, left, right):
    """Lines and numbers of a scale of answers."""
    return [f'<line class="g" x1="{left}" y1="{y(v):.1f}" x2="{right}" y2="{y(v):.1f}"/><text class="s" x="{left - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v}</text>'
            for v in range(0, 101, 20)]


def full_cache(v, y, left, right):
    return (f'<line class="z" stroke-dasharray="2 4" x1="{left}" y1="{y(v):.1f}" x2="{right}" y2="{y(v):.1f}"/>'
            f'<text class="s" x="{left + 4}" y="{y(v) - 6:.1f}">full cache</text>')


def apart(ends, y):
    """Heights of labels that do not cover each other, from below; ends: (value, number of the line)."""
    places, last = {}, None
    for v, i in sorted(ends):
        places[i] = y(v) if last is None or y(v) < last - 17 else last - 17
        last = places[i]
    return places


def line_of(points, label, place, colour, dash=""):
    drawn_line = f'<polyline fill="none" stroke="{colour}" stroke-width="2.5"{dash} points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>'
    return (drawn_line + "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b in points)
            + f'<text x="{place[0]}" y="{place[1] + 4:.1f}" style="fill:{colour}">{html.escape(label)}</text>')


def lines(numbers, title, subtitle, full, rows):
    top, bottom, left, right = 66, 330, 60, 590
    x = lambda i: left + 40 + i * (right - left - 60) / (len(SIZES) - 1)
    y = lambda v: bottom - v / 100 * (bottom - top)
    body = scale_of(y, left, right)
    body += [f'<text class="s" x="{x(i):.1f}" y="{bottom + 20}" text-anchor="middle">{name}</text>' for i, (_, name) in enumerate(SIZES)]
    body.append(f'<text class="s" x="{(left + right) / 2}" y="{bottom + 40}" text-anchor="middle">share of the entries that is kept</text>')
    if full:
        body.append(full_cache(number(numbers, full), y, left, right))
    places = apart([(number(numbers, keys_[-1]), i) for i, (_, keys_) in enumerate(rows)], y)
    for i, (label, keys_) in enumerate(rows):
        points = [(x(k), y(number(numbers, key))) for k, key in enumerate(keys_)]
        dash = ' stroke-dasharray="6 4"' if not full and i % 2 else ""
        body.append(line_of(points, label, (right + 12, places[i]), COLOURS[i if full else i // 2], dash))
    return svg(bottom + 56, title, subtitle, body)


def kinds(numbers, title, subtitle, full, names, rows):
    """Lines over kinds, where a line may have no point at some of them."""
    top, bottom, left, right = 66, 330, 60, 660
    x = lambda i: left + 50 + i * (right - left - 100) / (len(names) - 1)
    y = lambda v: bottom - v / 100 * (bottom - top)
    body = scale_of(y, left, right)
    body += [f'<text class="s" x="{x(i):.1f}" y="{bottom + 20}" text-anchor="middle">{html.escape(name)}</text>' for i, name in enumerate(names)]
    body.append(f'<text class="s" x="{(left + right) / 2}" y="{bottom + 40}" text-anchor="middle">how many entries each head keeps</text>')
    body.append(full_cache(number(numbers, full), y, left, right))
    known = [[(k, number(numbers, key)) for k, key in enumerate(keys_) if key] for _, keys_ in rows]
    places = apart([(points[-1][1], i) for i, points in enumerate(known)], y)
    for i, (label, _) in enumerate(rows):
        body.append(line_of([(x(k), y(v)) for k, v in known[i]], label, (right + 12, places[i]), COLOURS[i]))
    return svg(bottom + 56, title, subtitle, body)


def drawn(numbers):
    """The charts whose numbers are all there, by the names of their files."""
    known = {name: (lines, chart, [key for key in [chart[2], *(k for _, keys_ in chart[3] for k in keys_)] if key]) for name, chart in LINES.items()}
    known |= {name: (kinds, chart, [key for key in [chart[2], *(k for _, keys_ in chart[4] for k in keys_)] if key]) for name, chart in KINDS.items()}
    known |= {name: (differences, chart, [key for _, key in chart[2]]) for name, chart in DIFFERENCES.items()}
    return {name: draw(numbers, *chart) for name, (draw, chart, wanted) in known.items() if all(key in numbers for key in wanted)}
