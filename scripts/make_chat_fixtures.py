#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/chat/fixtures.json: prompts as other programs make them. make_chat_fixtures.py [MODELS]

Templates are rendered by jinja2 the way transformers sets it up, and tokenised by the PyPI packages tokenizers (BPE)
and sentencepiece (SPM), built from the vocabularies in the GGUF files. No code of winnow or of libllama is used.
MODELS is the folder with smollm2-135m, qwen2.5-coder-0.5b and gemma-3-270m (default ~/.cache/winnow/models).
Needs gguf, jinja2, tokenizers, sentencepiece and protobuf in an environment of their own; made with jinja2 3.1.6,
tokenizers 0.23.3, sentencepiece 0.2.3.
"""
import json
import os
import re
import sys

import jinja2
import jinja2.sandbox
import sentencepiece
import tokenizers
from gguf import GGUFReader
from sentencepiece import sentencepiece_model_pb2 as spm_format
from tokenizers import Regex, models, normalizers, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
CHAT = os.path.join(HERE, "..", "tests", "chat")
CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type

DOCUMENT = "The harbour opened in 1897.\n\nIts 3 cranes are red; the café isn't open.  \n"
QUESTION = "Which colour are the cranes?"
TURNS = [["user", "Hello, who are you?"], ["assistant", "I am a harbour master. Ask me!"]]
CASES = {
    "question": {"question": QUESTION},
    "document and question": {"document": DOCUMENT, "question": QUESTION},
    "document": {"document": DOCUMENT},
    "blanks around": {"document": "\n  The dock\n\n", "question": " Where? \n"},
    "system": {"system": "Answer in one word.", "question": QUESTION},
    "system and document": {"system": "Answer in one word.", "document": DOCUMENT, "question": QUESTION},
    "empty system": {"system": "", "document": DOCUMENT, "question": QUESTION},
    "turns": {"turns": TURNS, "question": QUESTION},
    "turns, system, document": {"system": "Be brief.", "turns": TURNS, "document": DOCUMENT, "question": QUESTION},
    "four turns": {"turns": TURNS + [["user", "And the dock?"], ["assistant", "It is \"north\"."]], "question": QUESTION},
    "words of the template": {"document": "user\nassistant", "question": "user"},
    "control tokens in the text": {"document": "a<|im_end|>b<end_of_turn>c", "question": "<bos>?"},
    "other scripts": {"document": "Ωμέγα 漢字かな 🙂👍🏽 naïve Ελλάδα", "question": "¿Qué? 12 345,67 €"},
}


def render(template, bos, eos, messages):
    """What tokenizer.apply_chat_template(tokenize=False, add_generation_prompt=True) gives."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=["jinja2.ext.loopcontrols"])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.globals["raise_exception"] = raise_exception
    return env.from_string(template).render(messages=messages, tools=None, documents=None, add_generation_prompt=True,
                                            bos_token=bos, eos_token=eos)


def content_of(case):
    document, question = case.get("document", ""), case.get("question", "")
    return document + ("\n\n" if document and question else "") + question


def messages_of(case):
    system = [["system", case["system"]]] if "system" in case else []
    turns = system + case.get("turns", []) + [["user", content_of(case)]]
    return [{"role": role, "content": content} for role, content in turns]


def border(text, case):
    """Where the document ends: the message is the last text of the prompt, written as it is or trimmed."""
    content, document = content_of(case), case.get("document", "")
    if content in text:
        return text.rindex(content) + len(document)
    trimmed = content.strip()
    lead = len(content) - len(content.lstrip())
    return text.rindex(trimmed) + min(max(len(document) - lead, 0), len(trimmed))


class Vocabulary:
    """Token ids of a text, by a program that is not ours."""

    def __init__(self, path):
        fields = GGUFReader(path).fields
        self.get = lambda key, default=None: fields[key].contents() if key in fields else default
        self.tokens = self.get("tokenizer.ggml.tokens")
        self.types = self.get("tokenizer.ggml.token_type")
        self.template = self.get("tokenizer.chat_template")
        self.bos = self.get("tokenizer.ggml.bos_token_id")
        self.eos = self.get("tokenizer.ggml.eos_token_id")
        self.add_bos = self.get("tokenizer.ggml.add_bos_token", False)
        special = [t for t, kind in zip(self.tokens, self.types) if kind in (CONTROL, USER_DEFINED)]
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.split = re.compile("(" + "|".join(map(re.escape, sorted(special, key=len, reverse=True))) + ")")
        self.special = set(special)
        self.encode_text = self.bpe() if self.get("tokenizer.ggml.model") == "gpt2" else self.spm()

    def bpe(self):
        merges = [tuple(m.split(" ", 1)) for m in self.get("tokenizer.ggml.merges")]
        tok = tokenizers.Tokenizer(models.BPE(vocab=self.id, merges=merges))
        if self.get("tokenizer.ggml.pre") == "smollm":
            tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                         pre_tokenizers.ByteLevel(add_prefix_space=False)])
        else:
            words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                     r"\s*[\r\n]+|\s+(?!\S)|\s+")
            tok.normalizer = normalizers.NFC()
            tok.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        return lambda text: tok.encode(text, add_special_tokens=False).ids

    def spm(self):
        proto = spm_format.ModelProto()
        for token, score, kind in zip(self.tokens, self.get("tokenizer.ggml.scores"), self.types):
            # User-defined pieces are split off before; as such they would be found again inside words.
            proto.pieces.add(piece=token, score=score, type=kind if kind != USER_DEFINED else CONTROL)
        proto.trainer_spec.model_type = spm_format.TrainerSpec.BPE
        proto.trainer_spec.byte_fallback = True
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        spm = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        return lambda text: spm.encode(text)

    def encode(self, text):
        ids = []
        for part in self.split.split(text):
            ids += [self.id[part]] if part in self.special else self.encode_text(part) if part else []
        return ids


def row(vocab, model, template, name, case, text):
    at = border(text, case)
    first, second = vocab.encode(text[:at]), vocab.encode(text[at:])
    if vocab.add_bos and first[:1] != [vocab.bos]:
        first = [vocab.bos] + first
    return {"model": model, "template": template, "case": name, **case, "first": text[:at], "second": text[at:],
            "n_context": len(first), "ids": first + second}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.expanduser("~/.cache/winnow/models")
    rows = []
    for model, file in (("smollm2-135m", "smollm2"), ("qwen2.5-coder-0.5b", "qwen2.5"), ("gemma-3-270m", "turns")):
        vocab = Vocabulary(os.path.join(folder, model + ".gguf"))
        path = os.path.join(CHAT, file + ".jinja")
        if vocab.template:  # the model's own, to the byte
            with open(path, "w", encoding="utf-8", newline="") as f:
                f.write(vocab.template)
        with open(path, encoding="utf-8", newline="") as f:
            template = f.read()
        for name, case in CASES.items():
            text = render(template, vocab.tokens[vocab.bos], vocab.tokens[vocab.eos], messages_of(case))
            rows.append(row(vocab, model, file, name, case, text))
            if "system" not in case and "turns" not in case:
                rows.append(row(vocab, model, None, name, case, content_of(case)))
    with open(os.path.join(CHAT, "fixtures.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
