#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws docs/images/choice.svg: what `--policy auto` takes, as a tree of questions.

    winnow methods --markdown | scripts/choice_tree.py [FILE]      writes the picture
    winnow methods --markdown | scripts/choice_tree.py --check     compares it, and exits with 1 where it is another

The table under "Chosen by itself" is all that is read. Rows whose condition begins with the same words before a colon
are answers to one question. `make docs` calls this.
"""
import html
import os
import re
import sys

PICTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/images/choice.svg")
MOST_QUESTIONS = 6
WIDTH, LEFT, ASK, ANSWER, LINE = 1040, 16, 270, 350, 19
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-size:15px;font-weight:600}.s{fill:#57606a;font-size:12px}"
    ".m{font-family:ui-monospace,monospace;font-weight:600}.q{fill:#ddf4ff;stroke:#54aeff}.a{fill:#f6f8fa;stroke:#d0d7de}"
    ".l{stroke:#57606a;stroke-width:1.5;fill:none}.b{fill:#ffffff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9da7b1}.q{fill:#0c2d6b;stroke:#388bfd}.a{fill:#161b22;stroke:#30363d}"
    ".l{stroke:#9da7b1}.b{fill:#0d1117}}</style>")


def branches(page):
    """[(question, [(what else is asked or None, recipe)])] in the order of the table."""
    found = re.search(r"^## Chosen by itself\n.*?^\|---\|.*?\n((?:\|.*\n)+)", page, flags=re.M | re.S)
    if not found:
        sys.exit("choice_tree.py: there is no table under \"Chosen by itself\"")
    out = []
    for line in found.group(1).splitlines():
        where, policy = (cell.strip() for cell in line.strip("|").split("|")[:2])
        question, _, rest = where.partition(": ")
        recipe = re.match(r"`([^`]+)`", policy).group(1)
        if not out or out[-1][0] != question:
            out.append((question, []))
        out[-1][1].append((rest or None, recipe))
    if len(out) - 1 > MOST_QUESTIONS:
        sys.exit(f"choice_tree.py: {len(out) - 1} questions; a tree that can be followed has at most {MOST_QUESTIONS}")
    return out


def wrapped(text, width):
    """Lines of at most `width` characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def text(x, y, words, kind=""):
    return f'<text{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} x="{x}" y="{y}">{html.escape(words)}</text>'


def drawn(page):
    tree = branches(page)
    body, y = [], 62
    for i, (question, answers) in enumerate(tree):
        last = i == len(tree) - 1
        words = wrapped(question[0].upper() + question[1:] + "?", 34)
        height = 20 + LINE * max(len(answers), len(words))
        middle = y + height / 2
        if last:
            body += [f'<rect class="a" x="{LEFT}" y="{y}" width="{ASK}" height="40" rx="6"/>', text(LEFT + 12, y + 25, answers[0][1], "m")]
            y += 40
            break
        body.append(f'<rect class="q" x="{LEFT}" y="{y}" width="{ASK}" height="{height}" rx="6"/>')
        body += [text(LEFT + 12, middle + 5 + LINE * (k - (len(words) - 1) / 2), line) for k, line in enumerate(words)]
        body += [f'<path class="l" d="M{LEFT + ASK} {middle}H{ANSWER}"/>', text(LEFT + ASK + 24, middle - 6, "yes", "s"),
                 f'<path class="l" d="M{LEFT + ASK / 2} {y + height}v30"/>', text(LEFT + ASK / 2 + 8, y + height + 20, "no", "s"),
                 f'<rect class="a" x="{ANSWER}" y="{y}" width="{WIDTH - ANSWER - LEFT}" height="{height}" rx="6"/>']
        top = middle + 5 - LINE * (len(answers) - 1) / 2
        for k, (rest, recipe) in enumerate(answers):
            at = top + LINE * k
            body.append(text(ANSWER + 12, at, recipe, "m"))
            if rest:
                body.append(text(ANSWER + 268, at, rest, "s"))
        y += height + 30
    title = "What winnow takes if no policy is named"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 16}" role="img" aria-label="{title}">{STYLE}'
            f'<rect class="b" width="{WIDTH}" height="{y + 16}"/>{text(16, 26, title, "t")}'
            f'{text(16, 46, "Of several answers the first one that fits is taken. With a known question some recipes also keep its last 32 tokens.", "s")}\n'
            + "\n".join(body) + "\n</svg>\n")


def main():
    checks = sys.argv[1:] == ["--check"]
    path = PICTURE if checks or not sys.argv[1:] else sys.argv[1]
    picture = drawn(sys.stdin.read())
    if not checks:
        with open(path, "w", encoding="utf-8") as f:
            f.write(picture)
        return 0
    with open(path, encoding="utf-8") as f:
        if f.read() == picture:
            return 0
    print("docs/images/choice.svg is another: run make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
