# SPDX-License-Identifier: MIT
"""Runs the Python lines of the pages: pages.py [--set NAME=VALUE]... PAGE.md...

Blocks of code are what is indented by four blanks. Blocks of a page run one after the other in one scope, in the current folder. Blocks that
begin with a word of SHELL are left out. Each --set replaces a text in the blocks. In tables the calls between backquotes are run too, with
the variables of the blocks. It prints what they print, and in the last
line the number of blocks and of calls.
"""
import argparse
import ast
import contextlib
import inspect
import io
import pathlib
import re
import sys

import winnow

SHELL = {"$", "make", "pip", "winnow", "curl", "python"}
# Calls that take minutes, or end in a pager. What they are called with is checked.
BOUND = {"winnow.evaluate": winnow.evaluate, "help": None}


def blocks(text):
    """The text of each block; blank lines may be in it."""
    return [re.sub("(?m)^    ", "", found[0]).strip() + "\n" for found in re.finditer(r"(?m)(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", "\n\n" + text)]


def section(text, first):
    """What follows a line that begins so, up to the next heading."""
    found = re.search(rf"(?ms)^{re.escape(first)}(.*?)(?=^## |\Z)", text)
    if not found:
        raise SystemExit(f"pages.py: no line begins with '{first}'")
    return found[1]


def calls(text):
    """The calls and indexes between backquotes in tables."""
    for line in text.splitlines():
        if line.startswith("|"):
            for piece in re.findall(r"`([^`]+)`", line):
                try:
                    tree = ast.parse(piece, mode="eval")
                except SyntaxError:
                    continue
                if any(isinstance(node, (ast.Call, ast.Subscript)) for node in ast.walk(tree)) and not re.match(r"\[", piece):
                    yield piece, tree.body


def bind(tree, scope):
    """Checks the arguments of a call by the signature of its function."""
    function = BOUND[ast.unparse(tree.func)]
    if function is None:
        return [eval(ast.unparse(one), scope) for one in tree.args]
    arguments = [eval(ast.unparse(one), scope) for one in tree.args]
    named = {one.arg: eval(ast.unparse(one.value), scope) for one in tree.keywords}
    return inspect.signature(function).bind(*arguments, **named)


def run_page(page, text, settings, scope):
    n_blocks, n_calls, printed = 0, 0, io.StringIO()
    for block in blocks(text):
        if block.split()[0] in SHELL:
            continue
        for old, new in settings:
            block = block.replace(old, new)
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"<{page.name}, block {n_blocks + 1}>", "exec"), scope)
        n_blocks += 1
    for piece, tree in calls(text):
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) in BOUND:
            bind(tree, scope)
        else:
            eval(compile(piece, f"<{page.name}, {piece}>", "eval"), scope)
        n_calls += 1
    print(printed.getvalue())
    return n_blocks, n_calls


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("pages", nargs="+", type=pathlib.Path)
    options.add_argument("--set", action="append", default=[], metavar="OLD=NEW")
    options.add_argument("--section", help="only what follows this line, up to the next heading")
    options.add_argument("--prelude", default="", help="lines that run before")
    options = options.parse_args()
    settings = [tuple(one.split("=", 1)) for one in options.set]
    total = [0, 0]
    for page in options.pages:
        text, scope = page.read_text(encoding="utf-8"), {"__name__": "page"}
        if options.section:
            text = section(text, options.section)
        exec(options.prelude, scope)
        total = [a + b for a, b in zip(total, run_page(page, text, settings, scope))]
    print(f"{total[0]} blocks, {total[1]} calls")


if __name__ == "__main__":
    sys.exit(main())
