#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the folder of documents and questions that `winnow eval --tasks doc_qa --documents DIR` reads, from manuals that Debian ships.

    apt-get download debian-handbook postgresql-doc-15 python3.11-doc
    scripts/real_documents.py FOLDER DIR [--tokens 1000] [--questions FILE] [--text FILE] [--show]

FOLDER holds the packages of Debian 12 as `apt-get download` leaves them. They are under their own licences and are not kept here. What is kept is
the questions, in scripts/document_questions.jsonl: package, page, heading of the section, question, accepted answers. Each page that is asked
about becomes plain text and is cut between its sections into documents of at most --tokens tokens, of four letters each. A section that is
longer is cut between its paragraphs. A question belongs to the document where its section holds one of the answers.

Exit code 1, with one line for each, if a page, a section or an answer is not there: another version of a package may say other things.
--text writes the pages to a file too, one after the other and the manuals in turns, for `winnow eval --tasks ppl --text FILE`. --show prints each question with the words around the first answer.
"""
import argparse
import html.parser
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PAGES = {"debian-handbook": "usr/share/doc/debian-handbook/html/en-US", "postgresql-doc-15": "usr/share/doc/postgresql-doc-15/html",
         "python3.11-doc": "usr/share/doc/python3.11/html"}
BLOCKS = {"p", "pre", "div", "dt", "dd", "li", "tr", "table", "ul", "ol", "dl", "section", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "br"}
HEADINGS = {"h1", "h2", "h3", "h4", "h5"}
VOID = {"br", "hr", "img", "input", "link", "meta", "col", "wbr"}
SKIPPED = {"head", "script", "style", "nav", "footer"}
SKIPPED_CLASSES = {"headerlink", "navheader", "navfooter", "toc", "docnav", "related", "sphinxsidebar", "footer", "mobile-nav", "permalink", "id_link"}
SKIPPED_IDS = {"banner"}
BOXES = {"Note", "Tip", "Warning", "Caution", "Important"}  # titles of remarks within a section
LETTERS = 4  # of a token of English text


class Page(html.parser.HTMLParser):
    """The paragraphs of a page, in order: (whether it is a heading, text)."""

    def __init__(self, main_only):
        super().__init__()
        self.open, self.out, self.words = [], [], []
        self.main_only = main_only

    def is_read(self):
        return not any(skipped for _, skipped, _ in self.open) and (not self.main_only or any(main for _, _, main in self.open))

    def flush(self):
        text = "".join(self.words)
        self.words = []
        kinds = [tag for tag, _, _ in self.open]
        text = text.strip("\n").rstrip() if "pre" in kinds else " ".join(text.split())
        if text.strip() and self.is_read():
            self.out.append((any(tag in HEADINGS for tag in kinds) and text not in BOXES, ("- " if "li" in kinds[-2:] and "pre" not in kinds else "") + text))

    def handle_starttag(self, tag, attrs):
        if tag in BLOCKS:
            self.flush()
        if tag in VOID:
            return
        given = dict(attrs)
        skipped = tag in SKIPPED or given.get("id") in SKIPPED_IDS or bool(SKIPPED_CLASSES & set((given.get("class") or "").split())) or given.get("role") == "navigation"
        self.open.append((tag, skipped, given.get("role") == "main"))

    def handle_endtag(self, tag):
        if tag in VOID or all(tag != name for name, _, _ in self.open):
            return
        if tag in BLOCKS:
            self.flush()
        if tag in ("td", "th"):
            self.words.append(" ")
        while self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.is_read():
            self.words.append(data)


def sections_of(path):
    """The title of a page and its sections: [(heading, paragraphs)]. Paragraphs before the first heading belong to the title."""
    text = path.read_text(encoding="utf8")
    page = Page('role="main"' in text)
    page.feed(text)
    page.close()
    sections = []
    for is_heading, words in page.out:
        if is_heading or not sections:
            sections.append((words, []))
        if not is_heading:
            sections[-1][1].append(words)
    return sections


# ---- Documents ----

def pieces_of(sections, size):
    """Sections no longer than `size` letters: [(heading, text)]; a longer one in pieces, each under its heading."""
    for heading, paragraphs in sections:
        text = heading
        for words in paragraphs:
            if len(text) > len(heading) and len(text) + len(words) + 2 > size:
                yield heading, text
                text = heading
            text += "\n\n" + words
        if text != heading or not paragraphs:
            yield heading, text


def documents_of(sections, size):
    """Texts of at most `size` letters where paragraphs allow it: [[(heading, text)]]."""
    out, length = [], 0
    for heading, text in pieces_of(sections, size):
        if not out or length + len(text) + 2 > size:
            out.append([])
            length = 0
        out[-1].append((heading, text))
        length += len(text) + 2
    return out


def holds(text, answers):
    return any(answer.lower() in text.lower() for answer in answers)


class Folder:
    """The documents of all pages that are asked about, and the questions."""

    def __init__(self, root, versions, size):
        self.root, self.versions, self.size = root, versions, size
        self.pages, self.texts, self.questions, self.faults = {}, {}, [], []
        self.whole = []  # the pages, not cut

    def page(self, package, name):
        """The documents of a page; the first time they go to the folder."""
        key = package, name
        if key not in self.pages:
            path = self.root / PAGES[package] / name
            sections = sections_of(path) if path.is_file() else []
            found = documents_of(sections, self.size)
            self.whole += ["\n\n".join([heading, *paragraphs]) for heading, paragraphs in sections]
            stem = f"{package.split('-')[0]}-{name.removesuffix('.html').replace('/', '-').removeprefix('sect.')}"
            self.pages[key] = [(f"{stem}-{i + 1}.txt", pieces) for i, pieces in enumerate(found)]
            for file, pieces in self.pages[key]:
                self.texts[file] = "\n\n".join(text for _, text in pieces) + "\n"
        return self.pages[key]

    def ask(self, q):
        name = f"{q['package']} {q['page']}: {q['question']}"
        found = self.page(q["package"], q["page"])
        of_section = [(file, text) for file, pieces in found for heading, text in pieces if heading == q["section"]]
        held = [(file, text) for file, text in of_section if holds(text, q["answers"])]
        if not held:
            fault = "the section has none of the answers" if of_section else f"there is no section '{q['section']}'"
            self.faults.append(f"{name}: {fault if found else 'there is no such page'}")
            return
        self.questions.append({"id": f"{q['package']} {self.versions[q['package']]} {q['page']}: {q['section']}", "document": held[0][0],
                               "question": q["question"], "answers": q["answers"]})

    def write(self, out):
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            sys.exit(f"real_documents.py: '{out}' is not empty")
        for file, text in self.texts.items():
            (out / file).write_text(text, encoding="utf8")
        lines = (json.dumps(q, ensure_ascii=False) + "\n" for q in self.questions)
        (out / "questions.jsonl").write_text("".join(lines), encoding="utf8")

    def show(self):
        for q in self.questions:
            text = " ".join(self.texts[q["document"]].split())
            at = min(text.lower().find(a.lower()) for a in q["answers"] if a.lower() in text.lower())
            n = sum(text.lower().count(a.lower()) for a in q["answers"])
            print(f"{q['document']}\n  {q['question']}\n  {' | '.join(q['answers'])}  ({n} times)\n  ... {text[max(0, at - 120):at + 80]} ...")


def unpacked(folder, into):
    """Unpacks the packages that are asked about; their versions."""
    versions = {}
    for name in PAGES:
        found = sorted(folder.glob(f"{name}_*.deb"))
        if not found:
            sys.exit(f"real_documents.py: '{folder}' has no package {name}: apt-get download {' '.join(PAGES)}")
        subprocess.run(["dpkg-deb", "-x", found[-1], into], check=True)
        versions[name] = subprocess.run(["dpkg-deb", "-f", found[-1], "Version"], check=True, capture_output=True, text=True).stdout.strip()
    return versions


def in_turns(questions):
    """A question of each package, then the next of each, so that few samples are of all packages."""
    kinds = [[q for q in questions if q["package"] == package] for package in PAGES]
    return [q for group in itertools.zip_longest(*kinds) for q in group if q]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("folder", type=pathlib.Path, help="where the packages are")
    p.add_argument("out", type=pathlib.Path, help="a new folder")
    p.add_argument("--tokens", type=int, default=1000, help="most tokens of a document; 1000 unless said otherwise")
    p.add_argument("--questions", type=pathlib.Path, default=HERE / "document_questions.jsonl")
    p.add_argument("--text", type=pathlib.Path, help="write the pages to this file, too")
    p.add_argument("--show", action="store_true", help="print questions and the words around the answers")
    args = p.parse_args()
    with args.questions.open(encoding="utf8") as f:
        questions = [json.loads(line) for line in f if line.strip()]
    with tempfile.TemporaryDirectory() as into:
        folder = Folder(pathlib.Path(into), unpacked(args.folder, into), args.tokens * LETTERS)
        for q in in_turns(questions):
            folder.ask(q)
    if folder.faults:
        print("\n".join(folder.faults), file=sys.stderr)
        return 1
    folder.write(args.out)
    if args.text:
        args.text.write_text("\n\n".join(folder.whole) + "\n", encoding="utf8")
    if args.show:
        folder.show()
    print(f"{len(folder.questions)} questions, {len(folder.texts)} documents; " + ", ".join(f"{k} {v}" for k, v in folder.versions.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
