#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes texts that nobody generated and no setting was chosen on, for `winnow eval --tasks ppl --text FILE`.

make_real_text.py FOLDER OUT [BYTES]

FOLDER holds packages of Debian 12, as `apt-get download` leaves them or unpacked: debian-handbook, linux-doc-6.1,
postgresql-doc-15, python3.11-doc, libpython3.11-stdlib. The texts are under their packages' licences and are not kept here.

prose.txt   chapters of a handbook, in English, as paragraphs;
docs.txt    manuals of a kernel, a database and a language, with their markup, in turns;
code.txt    modules of Python's library;
real.txt    all of them, one after the other.

Each of the first three has BYTES bytes, 85000 unless said otherwise.

If a file ends before a piece is full, the next file continues it. So a piece may hold the end of one document and the beginning of another.
"""
import gzip
import html.parser
import itertools
import pathlib
import re
import sys
import tempfile

import make_calibration_text as packages

BYTES = 85000
DOC_BYTES = 16000  # of one document, at most, so that a kind has several
HANDBOOK = "usr/share/doc/debian-handbook/html/en-US"
KERNEL = "usr/share/doc/linux-doc-6.1/Documentation"
POSTGRES = "usr/share/doc/postgresql-doc-15/html"
PYTHON = "usr/share/doc/python3.11/html/_sources"
LIBRARY = "usr/lib/python3.11"


class Paragraphs(html.parser.HTMLParser):
    """The text of a page's paragraphs; program text keeps its lines. A handbook's paragraphs are <div class="para">; of nested ones, as in notes, the last counts."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.out = [], [], []  # open: of each <p>, <pre>, <div>, whether it is a paragraph

    def handle_starttag(self, tag, attrs):
        if tag in ("p", "pre", "div"):
            self.open.append(tag != "div" or dict(attrs).get("class") == "para")

    def handle_endtag(self, tag):
        if tag not in ("p", "pre", "div") or not self.open:
            return
        if self.open.pop():
            text = "".join(self.words)
            self.out.append(text.strip("\n") if tag == "pre" else " ".join(text.split()))
            self.words = []

    def handle_data(self, data):
        if self.open and self.open[-1]:
            self.words.append(data)


def page(path):
    parser = Paragraphs()
    parser.feed(path.read_text(encoding="utf8"))
    return "\n\n".join(text for text in parser.out if text)


def marked_up(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf8")


def documents(folder, pattern, read, least=4000):
    """Texts of files in the order of their names; those under `least` characters are contents and indexes."""
    found = sorted(p for p in folder.glob(pattern) if p.is_file())
    if not found:
        sys.exit(f"{folder} has no {pattern}: is a package missing?")
    for path in found:
        text = read(path).strip()
        if len(text) >= least:
            yield text[:DOC_BYTES].rsplit("\n", 1)[0] + "\n\n"


def in_turns(*kinds):
    for group in itertools.zip_longest(*kinds):
        yield from (text for text in group if text)


def beginning(texts, n_bytes):
    return "".join(texts).encode()[:n_bytes].decode("utf8", "ignore")


def main():
    if len(sys.argv) not in (3, 4) or not all(n.isdigit() for n in sys.argv[3:]):
        sys.exit(__doc__)
    n_bytes = int(sys.argv[3]) if len(sys.argv) == 4 else BYTES
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as into:
        root = packages.unpacked(pathlib.Path(sys.argv[1]), into)
        texts = {
            "prose": list(documents(root / HANDBOOK, "*.html", page)),
            "docs": list(in_turns(documents(root / KERNEL, "admin-guide/**/*.rst.gz", marked_up),
                                  documents(root / POSTGRES, "*.html", page),
                                  documents(root / PYTHON, "howto/*.rst.txt", marked_up))),
            "code": list(documents(root / LIBRARY, "*.py", marked_up)),
        }
    real = ""
    for kind, all_of in texts.items():
        text = beginning(all_of, n_bytes)
        (out / f"{kind}.txt").write_text(text, encoding="utf8")
        real += re.sub(r"\n{3,}", "\n\n", text)
        print(f"{kind}: {len(all_of)} documents")
    (out / "real.txt").write_text(real, encoding="utf8")


if __name__ == "__main__":
    main()
