# SPDX-License-Identifier: MIT
"""`python -m winnow serve` with the server of the wheel, asked by the package openai: serve.py TINY.gguf"""
import pathlib
import sys
import tempfile

import winnow

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from llama_server import Server, check, finish  # noqa: E402

try:
    import openai
except ImportError:
    print("skipped: the package openai is not installed (scripts/setup.sh clients installs it)")
    sys.exit(77)
TINY = sys.argv[1]
TEXT = " ".join(f"The keeper of tower {k} is called Name{k * 7} and has {k * 3} lamps." for k in range(24))

with tempfile.TemporaryDirectory() as work:
    with winnow.Model(TINY, threads=1) as m, m.compress(TEXT, policy="knorm", ratio=0.5) as doc:
        doc.save(f"{work}/towers.wkv")
        kept, n = doc.kept, doc.n_tokens
    with Server([sys.executable, "-m", "winnow", "serve", "-m", TINY, "--port", "0", "--document", f"towers={work}/towers.wkv"]) as server:
        host, port = server.address()
        client = openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="none", max_retries=0)
        answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Who keeps tower 3?"}], temperature=0, max_tokens=6,
                                                extra_body={"winnow": {"document": "towers"}})
        check("it answers", answer.usage.completion_tokens > 0, answer)
        shown = server.ask("/winnow/kv").json["documents"][0]
        check("with the document that Python stored", shown["tokens"] == n and abs(shown["entries"] - kept) < 1, shown, n, kept)
        check("the request began with it", answer.usage.prompt_tokens > n, answer.usage)
    check("SIGTERM reaches the server", server.process.returncode is not None and server.process.returncode in (0, -15), server.process.returncode)
finish()
