#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""LangChain and LlamaIndex with `winnow serve` through their classes for OpenAI, as docs/use/server.md shows: chains.py WINNOW"""
import os
import re
import sys
import tempfile

from llama_server import TINY, Server, check, finish, reads_documents

try:
    import langchain_openai  # noqa: F401
    import llama_index.llms.openai_like  # noqa: F401
except ImportError:
    print("skipped: LangChain and LlamaIndex are not installed (scripts/setup.sh chains installs them)")
    sys.exit(77)
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
text = " ".join(f"The keeper of tower {k} is called Name{k * 7} and has {k * 3} lamps." for k in range(24))


def example(name):
    """The lines of the page below a heading of this name."""
    with open(f"{TOP}/docs/use/server.md", encoding="utf-8") as f:
        part = re.search(rf"^\*\*{name}\*\*.*?\n\n((?:    .*\n|\n)+)", f.read(), flags=re.M)
    check(f"the page has lines for {name}", part)
    return re.sub(r"^    ", "", part[1], flags=re.M) if part else ""


with tempfile.TemporaryDirectory() as work:
    with open(f"{work}/handbook.txt", "w", encoding="utf-8") as f:
        f.write(text)
    with Server([sys.argv[1], "serve", "-m", f"{TINY}/tiny-llama.gguf", "--port", "0", "--policy", "knorm", "--ratio", "0.5",
                 "--document", f"handbook={work}/handbook.txt"]) as server:
        reads_documents(server)
        host, port = server.address()
        tokens = server.ask("/winnow/kv").json["documents"][0]["tokens"]
        for name, answer, read in (("LangChain", "reply.content", "reply.usage_metadata['input_tokens']"),
                                   ("LlamaIndex", "reply.text", "reply.raw.usage.prompt_tokens")):
            scope = {}
            exec(example(name).replace("127.0.0.1:9931", f"{host}:{port}"), scope)
            check(f"{name} has an answer", isinstance(eval(answer, scope), str), scope.get("reply"))
            check(f"{name} named the document", eval(read, scope) > tokens, scope.get("reply"), tokens)
finish()
