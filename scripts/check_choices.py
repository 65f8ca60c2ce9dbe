#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finds a conditional operator within another one: check_choices.py [--count] [FILE...]

A condition, a value or an argument of one `?:` may not hold another. Two arguments may each be one: f(a ? b : c, d ? e : g).
Without files, all sources outside of tests/ are read. --count prints how many places each folder has.
"""
import collections
import pathlib
import re
import subprocess
import sys

TOKEN = re.compile(r"""
    /\*.*?\*/ | //[^\n]*                                  # comments
  | (?:\b(?:u8|[LuU]))?"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
  | \w+ | \n | \\\n
  | [=!<>]= | <<= | >>= | [-+*/%&|^]= | .
""", re.X | re.S)
STATEMENTS = {"if", "while", "for", "switch"}


class Frame:
    """What is between two brackets: lines of the `?` of its current expression, its own and those in brackets
    within it, and of those before the last comma."""

    def __init__(self, opener, head):
        self.opener, self.head = opener, head
        self.own, self.inner, self.before, self.is_block = [], [], [], False


def nested(text):
    """Yields the line of every conditional operator that has another one within it."""
    frames, last, line, directive = [Frame("", False)], "", 1, None

    def end():
        """Ends an expression: the line of a `?` in it where there are two, one of them at this level."""
        f = frames[-1]
        found = f.own[0] if f.own and len(f.own) + len(f.inner) > 1 else 0
        f.own, f.inner = [], []
        return found

    for match in TOKEN.finditer(text):
        t = match[0]
        if t == "\n" and directive is not None:  # a directive ends with its line
            while len(frames) > directive:
                if found := end():
                    yield found
                frames.pop()
            directive = None
        if t.isspace() or t == "\\\n" or t.startswith(("/*", "//")):
            line += t.count("\n")
            continue
        f = frames[-1]
        if t == "#" and directive is None and last != "#" and not text[:match.start()].rpartition("\n")[2].strip():
            directive = len(frames)
            frames.append(Frame("#", False))
        elif t in "([{":
            frames.append(Frame(t, t == "(" and last in STATEMENTS))
        elif t in ")]}":
            marks = f.before + f.own + f.inner
            if found := end():
                yield found
            if len(frames) > 1:
                frames.pop()
            outer = frames[-1]
            if f.is_block or f.head:
                if found := end():
                    yield found
            else:
                outer.inner += marks
        elif t == "?":
            f.own.append(line)
        elif t in (";", ",") or (t.endswith("=") and t not in ("==", "!=", "<=", ">=")):
            if t == ";":
                f.is_block = f.opener == "{"
            if t == ",":
                f.before += f.own + f.inner
            if found := end():
                yield found
        line += t.count("\n")
        last = t
    if found := end():
        yield found


def main(arguments):
    names = [a for a in arguments if not a.startswith("-")]
    if not names:
        top = pathlib.Path(__file__).resolve().parent.parent
        listed = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cpp", "*.hpp", "*.def"], cwd=top, check=True, capture_output=True, text=True)
        names = [str(top / n) for n in listed.stdout.split() if not n.startswith("tests/")]
    counts = collections.Counter()
    for name in names:
        path = pathlib.Path(name)
        for line in nested(path.read_text(encoding="utf-8")):
            counts[str(path.parent)] += 1
            if "--count" not in arguments:
                print(f"{name}:{line}: a conditional operator within another one; use if, a table or a function")
    for folder, n in sorted(counts.items()):
        if "--count" in arguments:
            print(f"{n:5} {folder}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
