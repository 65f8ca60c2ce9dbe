#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finds words and sentences that readers stumbled over, in comments, pages, messages and commit subjects.

    scripts/check_english.py            fails where a file has more of them than tests/setup/english.txt allows
    scripts/check_english.py --list     prints each one with its place
    scripts/check_english.py --write    lowers the allowances to what is there

The list of allowances only shrinks: a file with fewer than it is allowed fails too, until --write has lowered its line. A new file is
allowed none. Commits are looked at from the one in BASE on.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = ROOT / "tests" / "setup" / "english.txt"
BASE = "cb5228a6"  # the last commit before the rules; its subjects are as they are
MERGED = ("81bc9e6a",)  # commits that were merged before this check saw their subjects
MOST_WORDS = 30  # of a sentence in a comment or page
MOST_SUBJECT = 72

# Each is a word that hides another one, or a clause that a reader has to turn round:
# behind (after), beside (next to, compared with), anew (again), at hand (available), of ours (winnow's), stands (is),
# is told (is printed), apart (separate), none of (no), whoever (anyone who), for want of (because ... ran out),
# otherwise than (differently than).
WORDS = 30  # of a sentence in a comment or page
MOST_SUBJECT = 72

# Each is a word that hides another one, or a clause that a reader has to turn round: behind (after), beside (next to, compared with), anew (again),
# at hand (available), of ours (winnow's), stands (is), is told (is printed), apart (separate), none of (no), whoever (anyone who), for want of (because ... ran out), otherwise than (differently than).
WORDS = re.compile(
    r"\b(behind|besides?|anew|at hand|of ours|so many|what there is|whatever|stands?|of which|in which the|that there (?:is|are)|(?:is|are) told|apart|none of (?:that|these|it|them)|whoever|for want of|otherwise than)\b",
    re.I)
# Not written by us, or quoted.
LEFT_OUT = re.compile(r"^(LICENSE|NOTICE|records/|eval/data/|share/text/|tests/(chat|eval|fuzz|golden|metrics)/|docs/reference/methods\.md$|examples/document\.txt$|tests/newcomer/)")


def files():
    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [name for name in out if re.search(r"\.(c|h|cpp|py|sh|md|cmake|txt|def)$", name) and not LEFT_OUT.match(name) and name != "scripts/check_english.py" and (ROOT / name).is_file()]


def paragraphs(name, text):
    """Prose of a file: (number of its first line, text). Comments of code, docstrings, and pages without their code and tables."""
    if name.endswith((".c", ".h", ".cpp")):
        for m in re.finditer(r"/\*(.*?)\*/|//([^\n]*)", text, flags=re.S):
            yield text.count("\n", 0, m.start()) + 1, re.sub(r"\n\s*\*? ?", "\n", m[1] or m[2] or "")
        for m in re.finditer(r'(?:app_fail|app_note|wnw__fail|serve_say)\([^;]*;', text):
            yield text.count("\n", 0, m.start()) + 1, " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', m[0]))
    elif name.endswith(".md"):
        text = re.sub(r"```.*?```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
        for number, line in enumerate(text.split("\n"), 1):
            if not line.startswith(("    ", "|", "#", "!", "<!--")):
                yield number, line
    else:
        for number, line in enumerate(text.split("\n"), 1):
            m = re.match(r"\s*#(?!!)\s?(.*)", line)
            if m:
                yield number, m[1]
        if name.endswith(".py"):
            for m in re.finditer(r'"""(.*?)"""', text, flags=re.S):
                yield text.count("\n", 0, m.start()) + 1, m[1]


def without_code(text):
    return re.sub(r"`[^`]*`|\"[^\"]*\"|\([^()]*\)|https?://\S+|\[([^\]]*)\]\([^)]*\)", " ", text)


def faults_of(name):
    text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
    for number, prose in paragraphs(name, text):
        plain = without_code(prose)
        for m in WORDS.finditer(plain):
            yield number, f"'{m[0]}'"
        for sentence in re.split(r"(?<=[.;:!?])\s+|\n\s*\n|\n\s*[-*] ", plain):
            n = len(re.findall(r"[A-Za-z][A-Za-z'-]*", sentence))
            if n > MOST_WORDS:
                yield number, f"a sentence of {n} words"


def long_subjects():
    known = subprocess.run(["git", "cat-file", "-e", BASE], cwd=ROOT, capture_output=True)
    if known.returncode:  # a copy without history
        return []
    out = subprocess.run(["git", "log", "--no-merges", "--format=%h %s", f"{BASE}..HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in out.splitlines() if len(line.split(" ", 1)[1]) > MOST_SUBJECT and not line.startswith(MERGED)]


def allowances():
    rows = [line.split() for line in ALLOWED.read_text().splitlines() if line and not line.startswith("#")] if ALLOWED.exists() else []
    return {name: int(n) for n, name in rows}


def main():
    found = {name: list(faults_of(name)) for name in files()}
    if "--list" in sys.argv:
        for name, faults in found.items():
            for number, what in faults:
                print(f"{name}:{number}: {what}")
        return 0
    if "--write" in sys.argv:
        before = allowances()
        rows = [f"{len(faults)} {name}" for name, faults in sorted(found.items()) if faults]
        if before and any(len(faults) > before.get(name, 0) for name, faults in found.items()):
            print("check_english: some files have more than before; mend them first (--list)", file=sys.stderr)
            return 1
        ALLOWED.write_text("# Words and sentences to be mended, by file (scripts/check_english.py). The numbers only go down.\n" + "\n".join(rows) + "\n")
        return 0
    allowed, bad = allowances(), 0
    for name in sorted({*found, *allowed}):
        n, most = len(found.get(name, [])), allowed.get(name, 0)
        if n > most:
            bad += 1
            print(f"{name}: {n} words or sentences that readers stumble over, {most} are allowed:", file=sys.stderr)
            for number, what in found[name][:12]:
                print(f"  line {number}: {what}", file=sys.stderr)
        elif n < most:
            bad += 1
            print(f"{name}: {n} are left of {most}; scripts/check_english.py --write lowers the number", file=sys.stderr)
    for line in long_subjects():
        bad += 1
        print(f"a commit subject of more than {MOST_SUBJECT} characters: {line}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
