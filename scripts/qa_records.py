#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The files of SQuAD and HotpotQA as `winnow eval` takes them (docs/reference/evaluation.md): qa_records.py squad|hotpot FILE.json >FILE.jsonl

squad: a file such as dev-v2.0.json, for --squad and the task qa_1. A paragraph with its article's title is a document; the answer is in one, and the
article's other paragraphs belong to the question, too. Questions without an answer are left out.
hotpot: a file such as hotpot_dev_distractor_v1.json, for --hotpot and qa_2. A paragraph with its title is a document; the evidence is in those that
the supporting facts name, and the question's other paragraphs belong to it, too.
"""
import json
import sys


class Records:
    """Documents, each once, and questions about them."""

    def __init__(self):
        self.ids, self.questions = {}, []

    def doc(self, title, text):
        return self.ids.setdefault(f"{title}\n{text}", len(self.ids))

    def ask(self, question, answers, gold, docs):
        gold = list(dict.fromkeys(gold))
        more = [d for d in dict.fromkeys(docs) if d not in gold]
        self.questions.append({"type": "qa", "question": question, "answers": list(dict.fromkeys(answers)), "gold": gold, "more": more})

    def lines(self):
        yield from ({"type": "doc", "id": i, "text": text} for text, i in self.ids.items())
        yield from self.questions


def squad(data):
    r = Records()
    for article in data["data"]:
        docs = [r.doc(article["title"], p["context"]) for p in article["paragraphs"]]
        for d, p in zip(docs, article["paragraphs"], strict=True):
            for qa in p["qas"]:
                if not qa.get("is_impossible"):
                    r.ask(qa["question"], [a["text"] for a in qa["answers"]], [d], docs)
    return r


def hotpot(data):
    r = Records()
    for qa in data:
        docs = {title: r.doc(title, "".join(sentences)) for title, sentences in qa["context"]}
        gold = [docs[title] for title, _ in qa["supporting_facts"] if title in docs]
        r.ask(qa["question"], [qa["answer"]], gold, docs.values())
    return r


def main():
    kinds = {"squad": squad, "hotpot": hotpot}
    if len(sys.argv) != 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    try:
        with open(sys.argv[2], encoding="utf-8") as f:
            records = kinds[sys.argv[1]](json.load(f))
    except (OSError, ValueError, KeyError, TypeError) as e:
        sys.exit(f"qa_records.py: '{sys.argv[2]}' is no file of {sys.argv[1]}: {e!r}")
    for line in records.lines():
        print(json.dumps(line, ensure_ascii=False))


main()
