#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of README: that of the first page, from one run of one set-up, and three lines of the replayed day (scripts/agent_day.py).

    scripts/readme_numbers.py              writes the tables into README.md, from records/readme.json and records/speed/agent-day.csv
    scripts/readme_numbers.py --check      compares the two; exit code 1 if they differ
    scripts/readme_numbers.py --measure    makes the run, writes records/readme.json and the table

--measure wants the llama.cpp of `scripts/setup.sh peers`, which is built for this CPU as its own users build it, the model (--model), and a
machine on which nothing else computes. It takes a quarter of an hour on two cores.

The run: texts (--documents) of about --tokens tokens with --questions hidden facts each. llama.cpp reads a text, and so does winnow with
everything, a half, a quarter and an eighth kept, without --policy. Each is asked for every fact, one question after the other, and the
answers are greedy. Both programs get the same token ids and as many threads. Programs take turns with every text, in another order each time.

Speeds are medians over the texts; bytes of the cache are those of keys and values after the text was read. An answer counts if it has the
number that was hidden.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import random
import select
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("WINNOW_CACHE") or pathlib.Path.home() / ".cache" / "winnow")
README = ROOT / "README.md"
RECORD = ROOT / "records" / "readme.json"
DAY = ROOT / "records" / "speed" / "agent-day.csv"
BEGIN_DAY, END_DAY = "<!-- BEGIN day (scripts/readme_numbers.py) -->\n", "<!-- END day -->\n"
BEGIN, END = "<!-- BEGIN numbers (scripts/readme_numbers.py) -->\n", "<!-- END numbers -->\n"
ENGINES = [("llama.cpp", None), ("everything", "--policy full"), ("half", "--ratio 0.5"), ("quarter", "--ratio 0.75"), ("eighth", "--ratio 0.875")]
NOTHING = "Not measured yet: `scripts/readme_numbers.py --measure` makes the table.\n"
MOST_ANSWER = 24
PLACES = "Avon Boden Carrow Dunmore Elstead Farley Garth Hexham Ilmer Jarrow Kelso Lydney Marden Norton Otley Penrith Quorn Ripley Selby Thame Ulverston".split()
THINGS = "depot archive boathouse granary workshop laundry library museum nursery observatory pantry quarry stable tannery vault windmill".split()


def fail(sentence):
    sys.exit(f"readme_numbers: {sentence}")


# ---- The table ----

def find_block(text, begin_line=BEGIN, end_line=END):
    begin, end = text.find(begin_line), text.find(end_line)
    if begin < 0 or end < begin:
        fail(f"README.md has no lines {begin_line.strip()} and {end_line.strip()}")
    return begin + len(begin_line), end


def replay():
    """Three lines of the replayed day; None: it is not there."""
    if not DAY.exists():
        return None
    rows = {r["server"]: r for r in csv.DictReader(x for x in DAY.read_text(encoding="utf-8").splitlines() if not x.startswith("#"))}
    shown = [("llama.cpp's server", rows["plain"]), ("winnow, everything kept", rows["parks"]), ("winnow, a quarter kept", rows["kept"])]
    lines = ["| an agent's day | tokens read | s | MiB |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| {name} | {r['tokens_read']} | {r['all_s']} | {r['MiB']} |" for name, r in shown]) + "\n"


def table(record):
    """The block: a table, and what it was measured with."""
    rows = record["engines"]
    cells = {
        "reading the document, s": [f"{statistics.median(r['read_s']):.1f}" for r in rows],
        "answering, tokens/s": [f"{statistics.median(r['answer_tps']):.1f}" for r in rows],
        "KV cache of the document, MiB": [f"{statistics.median(r['kv_bytes']) / 2**20:.0f}" for r in rows],
        f"answers found, of {record['asked']}": [str(r["found"]) for r in rows],
    }
    names = ["llama.cpp", "winnow, all kept", "a half", "a quarter", "an eighth"]
    lines = ["| " + record["title"] + " | " + " | ".join(names) + " |", "|---" + "|---:" * len(names) + "|"]
    lines += [f"| {name} | " + " | ".join(row) + " |" for name, row in cells.items()]
    return "\n".join(lines) + "\n\n" + record["made"] + "\n"


def title_of(record):
    tokens = round(statistics.mean(record["document_tokens"]), -2)
    return f"{record['model']}, {tokens:,.0f} tokens, {record['threads']} threads"


def made_of(record):
    texts = len(record["document_tokens"])
    return (f"One run on {record['date']}: {record['cpu']}, {record['threads']} threads, {record['winnow']}, llama.cpp {record['peer']} built for this CPU, "
            f"f16 caches.\nThe {record['asked']} questions ask for numbers that are hidden in {'a text' if texts == 1 else f'{texts} texts'}; "
            "the text was compressed before they were known.")


# ---- Texts with facts ----

def make_document(seed, prose, n_facts):
    """Prose with a sentence for each fact, evenly spread, and [(question, number)]."""
    rng = random.Random(seed)
    names = rng.sample([f"{place} {thing}" for place in PLACES for thing in THINGS], n_facts)
    numbers = rng.sample(range(10000, 99999), n_facts)
    sentences = prose.split(". ")
    for i in reversed(range(n_facts)):
        at = int((i + rng.random()) * len(sentences) / n_facts)
        sentences.insert(at, f"The key number of the {names[i]} is {numbers[i]}")
    return ". ".join(sentences), [(f"What is the key number of the {name}? Answer with one sentence.", str(n)) for name, n in zip(names, numbers)]


def run(args, *command):
    done = subprocess.run([args.winnow, *command], capture_output=True, text=True)
    if done.returncode:
        fail(f"winnow {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def count_tokens(args, path):
    return len(run(args, "tokens", "-m", args.model, "-f", str(path)).split())


def prose_of(args, index, work):
    """Piece number `index` of the text, as long as the document should be."""
    text = args.text.read_text(encoding="utf-8")
    probe = work / "probe.txt"
    probe.write_text(text[:20000], encoding="utf-8")
    chars = int(args.tokens * len(text[:20000]) / max(1, count_tokens(args, probe)))
    begin = text.find(". ", index * chars) + 2
    if begin + chars > len(text):
        fail(f"{args.text} is too short for {args.documents} documents of {args.tokens} tokens")
    return " ".join(text[begin:begin + chars].split())


# ---- Engines ----

class Llama:
    """The program of `make peers`, which speaks the lines of bench/llama/serve.h."""

    def __init__(self, args, n_ctx):
        if not os.access(args.peer, os.X_OK):
            fail(f"there is no {args.peer}: run scripts/setup.sh peers")
        self.child, self.rest = subprocess.Popen([args.peer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0), b""
        self.version = self.ask("about").split()[0]
        self.ask(f"open {n_ctx} 2 512 {args.threads} {args.model_path}")

    def line(self):
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.child.stdout], [], [], 600)
            more = os.read(self.child.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                fail("llama.cpp ended, or said nothing for ten minutes")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def ask(self, request):
        self.child.stdin.write(request.encode() + b"\n")
        while (line := self.line()).startswith("at "):
            pass
        if not line.startswith("ok"):
            fail(f"llama.cpp: {line}")
        return line[3:]

    def measure(self, args, document, questions, work):
        ids = [list(map(int, run(args, "tokens", "-m", args.model, "-f", str(document), "-p", q).split())) for q, _ in questions]
        n = min(next((i for i, (a, b) in enumerate(zip(ids[0], other)) if a != b), len(other)) for other in ids[1:]) if len(ids) > 1 else len(ids[0]) - 1
        self.ask("reset")
        read_ms = float(self.ask("feed 0 " + " ".join(map(str, ids[0][:n]))))
        found, ms, steps = 0, 0.0, 0
        vocabulary = Pieces(args)
        for tokens, (_, number) in zip(ids, questions):
            self.ask("copy 0 1")
            took, *answer = self.ask(f"answer 1 {MOST_ANSWER} " + " ".join(map(str, tokens[n:]))).split()
            found += number in vocabulary.text([int(i) for i in answer])
            ms, steps = ms + float(took), steps + max(0, len(answer) - 1)
        return {"read_s": read_ms / 1000, "answer_tps": 1000 * steps / ms if ms else 0.0, "found": found}

    def close(self):
        self.child.stdin.close()
        self.child.wait(60)


class Pieces:
    """Texts of token ids, as `winnow tokens --pieces` prints them."""

    def __init__(self, args):
        self.args = args

    def text(self, ids):
        if not ids:
            return ""
        with tempfile.NamedTemporaryFile("w", suffix=".ids") as f:
            print(*ids, file=f, flush=True)
            lines = run(self.args, "tokens", "-m", self.args.model, "--tokens", f.name, "--pieces").splitlines()
        return "".join(line.split("\t", 1)[1] if "\t" in line else "" for line in lines)


def measure_winnow(args, options, document, questions, work):
    stored, asked = work / "document.wkv", work / "questions.txt"
    threads = ["-t", str(args.threads)]
    told = json.loads(run(args, "compress", "-m", args.model, "-f", str(document), *options.split(), "-o", str(stored), "--json", *threads))
    asked.write_text("".join(q + "\n" for q, _ in questions), encoding="utf-8")
    lines = run(args, "ask", "-m", args.model, "-c", str(stored), "--questions", str(asked), "--batch", "1", "-n", str(MOST_ANSWER), *threads).splitlines()
    answers = [json.loads(line) for line in lines]
    steps = sum(max(0, len(a["tokens"]) - 1) for a in answers)
    seconds = sum(max(0, len(a["tokens"]) - 1) / a["decode_tps"] for a in answers if a["decode_tps"])
    return {"read_s": (told["prefill_ms"] + told["compress_ms"]) / 1000, "answer_tps": steps / seconds if seconds else 0.0, "kv_bytes": told["kv_bytes"],
            "kv_bytes_full": told["kv_bytes_full"], "prompt_tokens": told["prompt_tokens"],
            "found": sum(number in a["text"] for a, (_, number) in zip(answers, questions))}


# ---- The run ----

def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown CPU")


def measure(args):
    load = os.getloadavg()[0]
    if load > 0.5 and not args.busy:
        fail(f"the load of this machine is {load:.1f}: wait until nothing else computes, or say --busy")
    rows = {name: {"name": name, "read_s": [], "answer_tps": [], "kv_bytes": [], "found": 0} for name, _ in ENGINES}
    lengths = []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        llama = Llama(args, args.tokens + args.tokens // 3 + 512)
        for d in range(args.documents):
            text, questions = make_document(args.seed + d, prose_of(args, d, work), args.questions)
            document = work / "document.txt"
            document.write_text(text, encoding="utf-8")
            for k in range(len(ENGINES)):
                name, options = ENGINES[(k + d) % len(ENGINES)]
                got = measure_winnow(args, options, document, questions, work) if options else llama.measure(args, document, questions, work)
                for key in ("read_s", "answer_tps", "kv_bytes"):
                    rows[name][key] += [got[key]] if key in got else []
                rows[name]["found"] += got["found"]
                if name == "everything":
                    lengths.append(got["prompt_tokens"])
                    rows["llama.cpp"]["kv_bytes"].append(got["kv_bytes_full"])
                print(f"document {d + 1} of {args.documents}: {name}: {got['read_s']:.1f} s, {got['answer_tps']:.1f} tokens/s, "
                      f"{got['found']} of {len(questions)} found", file=sys.stderr)
        version = llama.version
        llama.close()
    record = {"model": args.name, "document_tokens": lengths, "asked": args.documents * args.questions, "threads": args.threads, "cpu": cpu_name(),
              "date": datetime.date.today().isoformat(), "winnow": run(args, "--version").strip(), "peer": f"(ggml {version})", "seed": args.seed,
              "engines": [rows[name] for name, _ in ENGINES]}
    record["title"], record["made"] = title_of(record), made_of(record)
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("--measure", action="store_true")
    p.add_argument("--winnow", default=str(ROOT / "build" / "winnow"))
    p.add_argument("--peer", default=str(CACHE / "peers" / "llama" / "winnow-peer"))
    p.add_argument("--model", default="qwen2.5-coder-0.5b", help="GGUF file, or a name that winnow knows")
    p.add_argument("--name", default="Qwen2.5-Coder-0.5B", help="what the table calls it")
    p.add_argument("--text", type=pathlib.Path, default=ROOT / "share" / "text" / "held-out.txt", help="prose for the documents")
    p.add_argument("--tokens", type=int, default=8000)
    p.add_argument("--documents", type=int, default=2)
    p.add_argument("--questions", type=int, default=25)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--busy", action="store_true", help="measure although other programs compute")
    p.add_argument("-o", "--output", type=pathlib.Path, default=RECORD)
    args = p.parse_args()
    named = CACHE / "models" / f"{args.model}.gguf"
    args.model_path = str(named if named.exists() else pathlib.Path(args.model).resolve())
    if args.questions < 1 or args.documents < 1 or args.tokens < 100 or args.questions > len(PLACES) * len(THINGS):
        p.error("at least 1 question, 1 document and 100 tokens")
    return args


def main():
    args = parse_args()
    if args.measure:
        measure(args)
        if args.output != RECORD:
            print(table(json.loads(args.output.read_text(encoding="utf-8"))), end="")
            return
    text = was = README.read_text(encoding="utf-8")
    day = replay()
    if day:
        begin, end = find_block(text, BEGIN_DAY, END_DAY)
        text = text[:begin] + day + text[end:]
    block = table(json.loads(RECORD.read_text(encoding="utf-8"))) if RECORD.exists() else NOTHING
    begin, end = find_block(text)
    text = text[:begin] + block + text[end:]
    if text == was:
        return
    if args.check:
        fail("README's table is not what records/readme.json gives, or that of the day not what records/speed/agent-day.csv gives; scripts/readme_numbers.py writes them")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
