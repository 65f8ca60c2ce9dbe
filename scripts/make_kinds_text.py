#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes share/text/kinds/: texts that are no prose, for calibrations that compare kinds of text.

make_kinds_text.py FOLDER [OUT]

FOLDER holds r-cran-janeaustenr of Debian 12, as for make_calibration_text.py.

dialogue.txt   what people say to each other in a novel (Jane Austen, Emma, 1815; public domain);
code.txt       the beginnings of some of this project's own files, in C, Python and shell, as they are when this runs;
records.txt    made up: tables, lists, JSON, INI and log lines of things that do not exist, always the same ones.

No text that evaluates has anything from them.
"""
import json
import pathlib
import random
import re
import sys
import tempfile

import make_calibration_text as prose

BYTES = 60000
CODE = ["src/base/opt.c", "scripts/keepsets/methods.py", "src/method/count.c", "scripts/supervise.sh", "src/text/sample.c",
        "src/profile/profile_json.c", "scripts/make_tiny_models.py", "src/cache/cache_move.c", "app/heatmap.c",
        "tests/unit/lukv.c", "scripts/setup.sh", "eval/base/stats.c", "examples/own_method.c", "scripts/peers.sh"]
CODE_EACH = 6000  # bytes of each file, at most

SYLLABLES = ["ba", "cor", "del", "fen", "gar", "hol", "jun", "kel", "lum", "mer", "nor", "pel", "quin", "ros", "sul", "tav",
             "und", "vel", "wix", "yar", "zim", "ash", "bri", "cle"]
PLACES = ["north quay", "mill lane", "upper works", "glass house", "third yard", "old tannery", "river gate", "station square"]
GOODS = ["copper wire", "barley", "lamp oil", "roof slates", "blue paint", "cart wheels", "wool", "paper", "window glass",
         "seed potatoes", "iron nails", "candles", "hinges", "salt", "rope", "cheese"]
STATES = ["open", "closed", "late", "paid", "returned", "lost", "in transit"]


def name(rng, n=2):
    return "".join(rng.choice(SYLLABLES) for _ in range(n)).capitalize()


def person(rng):
    return f"{name(rng)} {name(rng, 3)}"


def date(rng):
    return f"{rng.randrange(1990, 2030)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"


def csv_table(rng):
    rows = ["order,customer,goods,pieces,price,state"]
    rows += [f"{rng.randrange(10000, 99999)},{person(rng)},{rng.choice(GOODS)},{rng.randrange(1, 400)},"
             f"{rng.randrange(50, 90000) / 100:.2f},{rng.choice(STATES)}" for _ in range(rng.randrange(8, 16))]
    return "\n".join(rows)


def markdown_table(rng):
    rows = ["| part | weight in g | shelf | counted on |", "|---|---|---|---|"]
    rows += [f"| {name(rng, 3)} {rng.randrange(10, 99)} | {rng.randrange(5, 9000)} | {rng.choice('ABCDEF')}{rng.randrange(1, 40)} "
             f"| {date(rng)} |" for _ in range(rng.randrange(6, 14))]
    return "\n".join(rows)


def json_records(rng):
    people = [{"name": person(rng), "born": date(rng), "place": rng.choice(PLACES), "telephone": f"0{rng.randrange(10**8, 10**9)}",
               "orders": [rng.randrange(10000, 99999) for _ in range(rng.randrange(0, 4))]} for _ in range(rng.randrange(3, 6))]
    return json.dumps(people, indent=1)


def address_list(rng):
    return "\n".join(f"- {person(rng)}, {rng.choice(PLACES)} {rng.randrange(1, 90)}: {rng.choice(GOODS)}, {rng.choice(GOODS)}, "
                     f"before {rng.randrange(7, 20)}:{rng.choice(['00', '15', '30', '45'])}" for _ in range(rng.randrange(8, 15)))


def settings(rng):
    lines = []
    for _ in range(rng.randrange(2, 5)):
        lines.append(f"[{name(rng).lower()}]")
        lines += [f"{name(rng).lower()}_{rng.choice(['limit', 'path', 'port', 'seconds', 'user'])} = "
                  f"{rng.choice([str(rng.randrange(1, 60000)), name(rng).lower(), '/srv/' + name(rng).lower()])}"
                  for _ in range(rng.randrange(3, 7))]
    return "\n".join(lines)


def log(rng):
    day, second = date(rng), rng.randrange(0, 80000)
    lines = []
    for _ in range(rng.randrange(8, 18)):
        second += rng.randrange(1, 300)
        lines.append(f"{day} {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d} "
                     f"{rng.choice(['INFO', 'INFO', 'WARN', 'ERROR'])} {name(rng).lower()}: {rng.choice(GOODS)} for {person(rng)}, "
                     f"{rng.randrange(1, 900)} pieces, {rng.choice(STATES)}")
    return "\n".join(lines)


def steps(rng):
    return "\n".join(f"{i + 1}. {rng.choice(['Weigh', 'Count', 'Carry', 'Mark', 'Send'])} {rng.randrange(2, 60)} of "
                     f"{rng.choice(GOODS)} {rng.choice(['to', 'at', 'for'])} {rng.choice(PLACES)}, and tell {person(rng)}."
                     for i in range(rng.randrange(5, 11)))


def records():
    rng, blocks, size = random.Random(2505), [], 0
    makers = [csv_table, markdown_table, json_records, address_list, settings, log, steps]
    titles = ["Orders", "Stock", "Customers", "Deliveries", "Settings of the machines", "Log", "Work to do"]
    while size < BYTES:
        i = len(blocks) % len(makers)
        blocks.append(f"{titles[i]} of {name(rng, 3)}\n\n{makers[i](rng)}\n")
        size += len(blocks[-1]) + 1
    return "\n".join(blocks)


def dialogue(folder):
    text = "\n".join(prose.read_austen(folder, "emma"))
    out, size = [], 0
    for block in re.split(r"\n\s*\n", text):
        line = re.sub(r"_([^_]*)_", r"\1", " ".join(block.split())).replace("--", " -- ")
        if not line.startswith('"') or len(line) < 20 or "[" in line:
            continue
        out.append(" ".join(line.split()))
        size += len(out[-1]) + 2
        if size > BYTES:
            break
    return "\n\n".join(out) + "\n"


def code(root):
    out = []
    for path in CODE:
        text = (root / path).read_text(encoding="utf8")
        end = text.rfind("\n\n", 0, CODE_EACH)  # whole functions, mostly
        out.append(f"==> {path} <==\n{text[:end + 1] if end > 0 else text[:CODE_EACH]}")
    return "\n".join(out)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    out = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else root / "share" / "text" / "kinds")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as into:
        folder = prose.unpacked(pathlib.Path(sys.argv[1]), into)
        texts = {"dialogue.txt": dialogue(folder), "code.txt": code(root), "records.txt": records()}
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()
