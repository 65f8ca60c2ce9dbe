#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes share/text/: prose that calibrates, and other prose that only evaluates.

make_calibration_text.py FOLDER [OUT]

FOLDER holds two packages of Debian 12 with the works, as `apt-get download` leaves them or unpacked. They are
r-cran-janeaustenr (six novels of Jane Austen) and golang-1.19-src (Newton's Opticks, a test file). The works are in
the public domain. Lines are joined to paragraphs; headings, notes, figures, tables and marks of emphasis are left
out. A paragraph is also left out if twelve words in a row occur twice in it, or occurred before it. So nothing repeats,
neither inside a file nor between the two.
"""
import gzip
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

AUSTEN = "usr/lib/R/site-library/janeaustenr/data/Rdata"
OPTICKS = "usr/share/go-1.19/src/testdata/Isaac.Newton-Opticks.txt"
NGRAM = 12
SECTION = 24000  # bytes of one work before the other takes its turn

# File: [(work, first words of the part, bytes to take)], taken in turns of SECTION bytes.
FILES = {
    "calibration.txt": [("northangerabbey", "No one who had ever seen Catherine", 150000),
                        ("opticks", "My Design in this Book", 150000)],
    "held-out.txt": [("persuasion", "Vanity was the beginning", 90000),
                     ("opticks", "Grimaldo has inform'd us", 90000)],
}


def read_austen(folder, name):
    """Lines of a novel: a vector of strings in R's XDR serialisation, in a lazy-load database."""
    index = gzip.decompress((folder / (AUSTEN + ".rdx")).read_bytes())
    # Values of the index are pairs of integers, in the order of the names after them.
    pairs = [struct.unpack(">ii", index[m.end():m.end() + 8])
             for m in re.finditer(rb"\x00\x00\x00\x0d\x00\x00\x00\x02(?=.{8})", index, flags=re.S)]
    names = [n.decode() for n in re.findall(rb"\x00\x04\x00\x09\x00\x00\x00.([a-z]{4,})", index, flags=re.S)]
    at, size = pairs[names.index(name) - names.index("emma")]
    data = zlib.decompress((folder / (AUSTEN + ".rdb")).read_bytes()[at + 4:at + size])
    skip = 14 + 4 + struct.unpack(">i", data[14:18])[0]  # header with the name of the encoding
    kind, count = struct.unpack(">ii", data[skip:skip + 8])
    if kind & 255 != 16:
        sys.exit(f"{name} is no vector of strings")
    lines, skip = [], skip + 8
    for _ in range(count):
        length = struct.unpack(">i", data[skip + 4:skip + 8])[0]
        lines.append(data[skip + 8:skip + 8 + length].decode())
        skip += 8 + length
    return lines


def paragraphs(lines):
    """Whole paragraphs of prose; what is no sentence (headings, tables, captions) is left out."""
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        text = " ".join(block.split())
        text = re.sub(r"\[(?:in )?(?:_?Fig|Illustration|See|Footnote)[^\]]*\]|\[[A-Z]\]", "", text)
        text = re.sub(r"_([^_]*)_", r"\1", text)
        text = " ".join(text.split()).replace(" ,", ",").replace(" .", ".").replace("--", " -- ")
        digits = sum(c.isdigit() for c in text)
        if len(text) < 120 or text[-1] not in ".?!\"'" or digits * 25 > len(text) or "|" in text or "[" in text:
            continue
        yield " ".join(text.split())


class Seen:
    """Every run of NGRAM words so far."""

    def __init__(self):
        self.runs = set()

    def is_new(self, text):
        words = re.findall(r"[a-z']+", text.lower())
        runs = [" ".join(words[i:i + NGRAM]) for i in range(len(words) - NGRAM + 1)]
        if len(set(runs)) < len(runs) or self.runs.intersection(runs):
            return False
        self.runs.update(runs)
        return True


def part(lines, first, size, seen):
    """Paragraphs from the one that begins with `first`, until they have `size` bytes."""
    begun, total, out = False, 0, []
    for text in paragraphs(lines):
        begun = begun or text.startswith(first)
        if begun and seen.is_new(text):
            out.append(text)
            total += len(text.encode()) + 2
        if total >= size:
            return out
    sys.exit(f"only {total} bytes after '{first}'")


def in_turns(parts):
    """Sections of the parts by turns, each of whole paragraphs."""
    out = []
    while any(parts):
        for p in parts:
            size = 0
            while p and size < SECTION:
                out.append(p.pop(0))
                size += len(out[-1].encode()) + 2
    return out


def unpacked(folder, into):
    """FOLDER itself, or where its packages were unpacked."""
    found = sorted(folder.glob("*.deb"))
    if not found:
        return folder
    for package in found:
        subprocess.run(["dpkg-deb", "-x", package, into], check=True)
    return pathlib.Path(into)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "share/text")
    with tempfile.TemporaryDirectory() as into:
        folder = unpacked(pathlib.Path(sys.argv[1]), into)
        seen = Seen()
        for name, works in FILES.items():
            parts = []
            for work, first, size in works:
                lines = ((folder / OPTICKS).read_text().splitlines() if work == "opticks"
                         else read_austen(folder, work))
                parts.append(part(lines, first, size, seen))
            (out / name).write_text("\n\n".join(in_turns(parts)) + "\n")


if __name__ == "__main__":
    main()
