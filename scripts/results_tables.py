#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables and numbers of the documents from the records of the runs that they are of.

    scripts/results_tables.py [--winnow PROGRAM]            writes every table and number anew
    scripts/results_tables.py --check [--winnow PROGRAM]    compares, and says what differs; exit code 1
    scripts/results_tables.py --add DIR... NAME             packs the records of a run, or of all its shards, into docs/results/NAME
    scripts/results_tables.py --join DIR... NAME            packs runs that asked other policies about the same samples, as one: those that the last one's contrasts name

Records are docs/results/NAME/run.json and results.jsonl.gz, which `winnow report docs/results/NAME` reads as it reads
a run's folder. A document has a table between two lines, and a number between two marks:

    <!-- table NAME mode=agnostic,N=1024 -->
    ...
    <!-- end of table -->
    <!-- table NAME contrasts -->
    ...
    <!-- end of table -->
    <!-- table NAME predictions -->
    ...
    <!-- end of table -->
    <!-- table NAME perturbation -->
    ...
    <!-- end of table -->
    <!-- overview -->
    ...
    <!-- end of table -->
    <!-- BEGIN sizes (scripts/results_tables.py) -->
    ...
    <!-- END -->
    SnapKV has <!-- number NAME agnostic/all/snapkv/ratio=0.5/macro.mean 1 -->30.0<!-- / --> points.
    Halves have <!-- profile MODEL/shares overlap/halves/0 3 -->0.984<!-- / --> in common.
    <!-- count MODEL/shares share/2 above:0.95 -->6<!-- / --> heads keep nearly all.
    <!-- common FILE FILE srh_mean layer:1 -->79 %<!-- / --> of the best heads are the same.

A table takes mode= (all without it), N= (all lengths without it) and policies= (all without it; names separated by blanks); a block between BEGIN and END is a table for
pages of users, which have no other marks; `contrasts` is the table of
those that were listed before the run, `predictions` that of texts without questions, `perturbation` that of a perturbation study, `overview` has a row for each run, protocol and size that docs/results/overview.txt names, and `<!-- contrast NAME 0 -->..<!-- / -->` the first of them in a sentence: difference, interval, n, corrected
probability. A number's path is protocol, length, policy (its shortest recipe; where several rows have it, with what else a row says, ~ in place of blanks), size, and a member of the row in the report's JSON; of a contrast it is
`contrast`, its number from 0 on, and a member; of answers themselves `answers`, protocol, policy, size, `all`, `protected` (their evidence lies in what a policy always
keeps) or `unprotected`, and `n`, `score` or another of their scores; of a perturbation study `pair`, policy, size and a member that is
a share or a change, or `bound`, size and such a member, all in per cent.

Numbers of calibration are those of profiles: `profile` has a file under share/profiles or docs/results, without its .json, the way to a number in its results (or in what a command printed with --json), and decimals, with a `%` for
per cent; `count` the way to a list, or a list of lists, and which of its numbers count; `common` two profiles under docs/results or share/profiles, a table [layer][head] that both have, and what is compared: `layer:K`, which share of the K best heads of each
layer they have in common, over the layers in which the first has any, or `model:K`, how many of the K best of all.

Headings whose tables have no records yet, and CSV files without them, are listed in docs/results/without-records.txt; a line
there that has records, or no table any more, is a fault, so that the list only shrinks.
"""
import argparse
import functools
import gzip
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
PAGES = ROOT / "docs" / "research"  # results.md, and the folder results
LIST = RESULTS / "without-records.txt"
MOST_BYTES = 1024  # of a packed answer, on average
MOST_BYTES_OF_NUMBER = 3  # of one of a perturbation study's, packed
OVERVIEW = re.compile(r"(<!-- overview -->\n)(.*?)(<!-- end of table -->)", re.S)
OVERVIEW_LIST = RESULTS / "overview.txt"
NO_PROFILE = "no profile"  # in the name of a model of that list: policies that read one are no others to compare with
BLOCK = re.compile(r"(<!-- BEGIN (\S+) \(scripts/results_tables\.py\) -->\n)(.*?)(<!-- END -->)", re.S)
TABLE = re.compile(r"(<!-- table (\S+)([^>\n]*?) -->\n)(.*?)(<!-- end of table -->)", re.S)
CONTRAST = re.compile(r"(<!-- contrast (\S+) (\d+) -->)(.*?)(<!-- / -->)", re.S)
NUMBER = re.compile(r"(<!-- number (\S+) (\S+) (\d) -->)(.*?)(<!-- / -->)", re.S)
PROFILE = re.compile(r"(<!-- profile (\S+) ([^>\n]+?) (\d%?) -->)(.*?)(<!-- / -->)", re.S)
COUNT = re.compile(r"(<!-- count (\S+) (\S+) (above|below):(\S+) -->)(.*?)(<!-- / -->)", re.S)
COMMON = re.compile(r"(<!-- common (\S+) (\S+) (\S+) (layer|model):(\d+) -->)(.*?)(<!-- / -->)", re.S)


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Reports:
    """Reports of records, each made once."""

    def __init__(self, winnow):
        self.winnow, self.made, self.answered, self.compared = winnow, {}, {}, {}

    def report(self, name, *options):
        """What `winnow report` says of a record, and its CSV."""
        folder = RESULTS / name
        if not (folder / "results.jsonl.gz").exists():
            raise SystemExit(f"docs/results/{name} has no records; scripts/results_tables.py --add DIR {name} packs those of a run")
        with tempfile.TemporaryDirectory() as work:
            for file in ("run.json", "results.jsonl.gz"):
                shutil.copy(folder / file, work)
            out = subprocess.run([self.winnow, "report", work, "--json", *options], capture_output=True, text=True)
            if out.returncode:
                raise SystemExit(f"{name}: {out.stderr}")
            csv = pathlib.Path(work) / "summary.csv"
            return json.loads(out.stdout), csv.read_text() if csv.exists() else None

    def get(self, name):
        """The report's JSON and its CSV."""
        if name not in self.made:
            made, csv = self.report(name)
            self.made[name] = (made["runs"][0], csv) if "runs" in made else (made, None)
        return self.made[name]

    def compare(self, name, a, b):
        """Two policies of a record on the same samples, for each protocol, length and size."""
        if (name, a, b) not in self.compared:
            self.compared[name, a, b] = self.report(name, "--compare", f"{a},{b}")[0]["runs"][0]["compare"]
        return self.compared[name, a, b]

    @functools.cache
    def has_profile(self, policy):
        """Whether a policy reads a profile, as `winnow methods` tells."""
        out = subprocess.run([self.winnow, "methods", policy], capture_output=True, text=True)
        if out.returncode:
            raise SystemExit(f"{policy}: {out.stderr}")
        return re.search(r"^  profiles ", out.stdout, re.M) is not None

    def answers(self, name):
        """The records themselves, without their texts."""
        if name not in self.answered:
            with gzip.open(RESULTS / name / "results.jsonl.gz", "rt") as f:
                rows = [json.loads(line) for line in f]
            self.answered[name] = [{key: r.get(key) for key in ("mode", "policy", "size", "protected", "score", "scores")} for r in rows]
        return self.answered[name]


def fixed(x, decimals):
    if x is None:
        return "-"
    text = f"{x:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def interval(cell, lo, hi, decimals=1):
    a, b = cell.get(lo), cell.get(hi)
    return "" if a is None or b is None else f" ({fixed(a, decimals)} .. {fixed(b, decimals)})"


def difference(cell):
    if cell["delta"] is None:
        return "-"
    told = cell["verdict"] + ("=" if cell["equivalent"] else "")
    over = " (n<6)" if cell["spread"] == "few" else interval(cell, "lo", "hi")
    return fixed(cell["delta"], 1) + over + ("" if cell["spread"] == "few" else " " + told)


def size_of(row):
    """A row's size, and the type of its cache where that is no f16; of the full cache the type alone."""
    return row["kv_type"] if row["full"] else row["size"] + ("" if row["kv_type"] == "f16" else ", " + row["kv_type"])


def probability(p):
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def contrasts(run):
    """What was to be decided: the first policy less the second, and the probability of that without a difference, corrected for all of them."""
    lines = ["| protocol | size | A | B | n | A | B | A - B, 95 % | tasks drawn too | p (Holm) | within 5 points |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for c in run["contrasts"]:
        if not c["measured"]:
            lines.append(f"| {c['mode']} | {c['size']} | `{c['a']}` | `{c['b']}` | 0 | - | - | - | - | - | not measured |")
            continue
        lines.append("| " + " | ".join([
            c["mode"], c["size"], f"`{c['a']}`", f"`{c['b']}`", str(c["n"]), fixed(c["mean_a"], 1), fixed(c["mean_b"], 1),
            fixed(c["delta"], 1) + interval(c, "lo", "hi"), interval(c, "tasks_lo", "tasks_hi").strip() or "-", probability(c["p_holm"]),
            "yes" if c["equivalent"] else "no"]) + " |")
    return "\n".join(lines) + "\n"


def predictions(run):
    """Texts without questions: divergence, perplexity over the full cache's, and how often the likeliest token is its own."""
    lines = ["| policy | size | n | KL, nats | perplexity over the full cache's | same likeliest token, % |", "|---|---|---|---|---|---|"]
    for block in run["blocks"]:
        of = {row["config"]: row for row in block["rows"]}
        for p in [row for task in block.get("predictions", []) if not task["scored"] for row in task["rows"]]:
            row = of[p["config"]]
            kl, over = (f"{fixed(x, 3)} ({fixed(lo, 3)} .. {fixed(hi, 3)})" if x is not None and not row["full"] else "-" for x, lo, hi in (p["kl"], p["over_full"]))
            lines.append(f"| `{row['policy']}` | {size_of(row)} | {p['n']} | {kl} | {over} | {fixed(100 * row['tasks'][0]['agree'], 1)} |")
    return "\n".join(lines) + "\n"


def percent(x):
    """A change in per cent, with its sign."""
    return ("+" if x > 0 else "") + fixed(100 * x, 1)


def perturbation(study):
    """What a policy changes beside the base: both means over heads, and how many heads, groups and layers are lower."""
    def over(level, member, each):
        lo, hi = level[member + "_lo"], level[member + "_hi"]
        return each(level[member]) + ("" if lo is None else f" ({each(lo)} .. {each(hi)})")

    def share(level):
        return over(level, "lower_share", lambda x: fixed(100 * x, 1))

    lines = ["| policy | size | kept, % | mean over query heads, % | geometric mean, % | query heads with less, % | KV groups with less, % | layers with less, % | last hidden state, % |",
             "|---|---|---|---|---|---|---|---|---|"]
    for p in study["pairs"]:
        lines.append("| " + " | ".join([
            f"`{p['policy']}`", p["size"], fixed(100 * p["kept"], 1), over(p["heads"], "change", percent), over(p["heads"], "geometric", percent),
            share(p["heads"]), share(p["groups"]), share(p["layers"]), percent(p["last_state"]["change"])]) + " |")
    return "\n".join(lines) + "\n"


def table(run, options):
    """The methods of a run: means, both intervals, both kinds of answers, divergence, bytes."""
    if "contrasts" in options:
        return contrasts(run)
    if "predictions" in options:
        return predictions(run)
    if "perturbation" in options:
        return perturbation(run)
    lines = ["| protocol | policy | size | n | score | difference from the full cache, 95 % | tasks drawn too | short answers | long copies | KL, nats | MiB |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for block in run["blocks"]:
        if str(block["N"]) != options.get("N", "all") or options.get("mode", block["mode"]) != block["mode"]:
            continue
        for row in block["rows"]:
            if "policies" in options and row["policy"] not in options["policies"].split():
                continue
            c, answers = row["macro"], row["answers"]
            mib = c.get("kv_bytes")
            lines.append("| " + " | ".join([
                block["mode"], f"`{row['policy']}`" + (f" {row['more']}" if row["more"] else ""), size_of(row), str(c["n"]), fixed(c["mean"], 1), difference(c),
                interval(c, "tasks_lo", "tasks_hi").strip() or "-", *(fixed(a["mean"], 1) for a in answers),
                fixed(c.get("kl"), 3) + interval(c, "kl_lo", "kl_hi", 3), fixed(mib and mib / 1048576, 2)]) + " |")
    return "\n".join(lines) + "\n"


def compared_at(reports, name, mode, size, a, b):
    """The first policy less the second on the same samples; None in a record that has not both."""
    return next((cell for cell in reports.compare(name, a, b) if (cell["mode"], cell["size"]) == (mode, size)), None)


def overview_row(reports, model, length, question, name, mode, size, policy):
    """A row of the table of all models and sizes, the policy that `auto` takes beside all others of a run that could be had there; and that policy less the best of these."""
    block = next(block for block in reports.get(name)[0]["blocks"] if block["mode"] == mode and block["N"] == "all")
    rows = {row["policy"]: row for row in block["rows"] if row["size"] in (size, "full") and row["macro"]["n"]}
    if policy not in rows:
        raise SystemExit(f"docs/results/overview.txt: docs/results/{name} has no {policy} at {size}")
    others = [row for row in rows.values() if not row["full"] and row["policy"] != policy and not (NO_PROFILE in model and reports.has_profile(row["policy"]))]
    best, own = max(others, key=lambda row: row["macro"]["mean"]), rows[policy]["macro"]
    full, = (row["macro"] for row in rows.values() if row["full"])
    less_best, readers = compared_at(reports, name, mode, size, policy, best["policy"]), ("kvzip", "kvcompose")
    return "| " + " | ".join([
        model, length, question, f"{1 - float(size.removeprefix('ratio=')):g}", str(own["n"]), fixed(full["mean"], 1), f"`{policy}`", fixed(own["mean"], 1), fixed(own.get("kl"), 3),
        *(difference(compared_at(reports, name, mode, size, policy, reader)) if reader in rows else "-" for reader in readers),
        f"`{best['policy']}` " + fixed(best["macro"]["mean"], 1), difference(less_best), f"`{name}`"]) + " |", less_best


def overview_counts(of, cells):
    """How often the policy that `auto` takes is no 5 points below the best other one, and how often it is decidedly below."""
    above, below = [c for c in cells if c["lo"] > -5], [c for c in cells if c["hi"] < 0]
    most = f", by {fixed(-min(c['delta'] for c in below), 1)} points at most" if below else ""
    return f"{of}: in {len(above)} of {len(cells)} rows the whole interval to the best of the others is above -5 points; in {len(below)} it is below 0{most}."


def overview(reports):
    lines = ["| model | tokens | question | kept | n | full cache | `auto` takes | score | KL, nats | less KVzip | less KVCompose | best of the others in the run | less it | record |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    cells = {"With the profiles that ship": [], "Without a profile": []}
    for line in OVERVIEW_LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            row, cell = overview_row(reports, *(field.strip() for field in line.split("|")))
            lines.append(row)
            cells["Without a profile" if NO_PROFILE in line else "With the profiles that ship"].append(cell)
    return "\n".join([*lines, "", *(overview_counts(of, some) for of, some in cells.items() if some)]) + "\n"


def member_of(value, path, border="."):
    for key in path.split(border):
        try:
            value = value[int(key)] if key.isdigit() else value[key]
        except (KeyError, IndexError, TypeError):
            raise SystemExit(f"number {path}: there is no {key}") from None
    return value


def study_number(study, path, decimals):
    kind, *names, member = path.split("/")
    for row in study[kind + "s"]:
        if [row[key] for key in ("policy", "size")[-len(names):]] == names:
            return fixed(100 * member_of(row, member), decimals)
    raise SystemExit(f"number {path}: the study has no such row")


def number(run, path, decimals):
    if "pairs" in run:
        return study_number(run, path, decimals)
    if path.startswith("contrast/"):
        _, i, member = path.split("/")
        return fixed(member_of(run["contrasts"][int(i)], member), decimals)
    mode, length, policy, size, member = path.split("/")
    for block in run["blocks"]:
        for row in block["rows"]:
            named = "~".join([row["policy"], *row["more"].split()] if "~" in policy else [row["policy"]])
            if (block["mode"], str(block["N"]), named, row["size"]) == (mode, length, policy, size):
                return fixed(member_of(row, member), decimals)
    raise SystemExit(f"number {path}: the report has no such row")


def answers_number(answers, path, decimals):
    """Of the records themselves: how many answers are meant, or the mean of a score of theirs in points."""
    _, mode, policy, size, which, member = path.split("/")
    meant = [r for r in answers if (r["mode"], r["policy"], r["size"]) == (mode, policy, size) and which in ("all", "protected" if r["protected"] else "unprotected")]
    if not meant:
        raise SystemExit(f"number {path}: the records have no such answers")
    if member == "n":
        return fixed(len(meant), 0)
    return fixed(sum(100 * (r["score"] if member == "score" else r["scores"][member]) for r in meant) / len(meant), decimals)


def number_of(reports, name, path, decimals):
    """A number by its path, whatever it is of."""
    if path.startswith("answers/"):
        return answers_number(reports.answers(name), path, decimals)
    return number(reports.get(name)[0], path, decimals)


def contrast(run, i):
    c = run["contrasts"][i]
    if not c["measured"]:
        return "not measured"
    p = probability(c["p_holm"])
    return fixed(c["delta"], 1) + interval(c, "lo", "hi") + f", n = {c['n']}, p " + (p if p.startswith("<") else "= " + p)


@functools.cache
def results_of(name):
    """What a profile has measured, or a command has printed."""
    for folder in (ROOT / "share" / "profiles", RESULTS):
        if (folder / f"{name}.json").exists():
            found = json.loads((folder / f"{name}.json").read_text())
            return found.get("results", found)
    raise SystemExit(f"there is no profile {name}.json in share/profiles or docs/results")


def profile_number(name, path, digits):
    value = member_of(results_of(name), path, "/")
    return fixed(100 * value, int(digits[0])) + " %" if digits.endswith("%") else fixed(value, int(digits))


def numbers_of(value):
    """All numbers of nested lists."""
    return [x for item in value for x in numbers_of(item)] if isinstance(value, list) else [value]


def count(name, path, which, bound):
    """How many numbers of a profile are above a bound, or below it."""
    found = numbers_of(member_of(results_of(name), path, "/"))
    return str(sum(x > float(bound) if which == "above" else x < float(bound) for x in found))


def best(scores, k):
    return set(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k])


def common(first, second, member, of, k):
    """What the best heads of two profiles have in common."""
    a, b = results_of(first)[member], results_of(second)[member]
    if of == "model":
        return str(len(best(sum(a, []), k) & best(sum(b, []), k)))
    shares = [len(best(x, k) & best(y, k)) / k for x, y in zip(a, b, strict=True) if max(x) > 0]
    return fixed(100 * sum(shares) / len(shares), 0) + " %"


def block(name, reports):
    """A table for a page that people read as source too: the page has no marks inside of it."""
    if name != "sizes":
        raise SystemExit(f"there is no block {name}")
    smollm, qwen = "long-pieces-smollm2-135m", "long-pieces-qwen2.5-coder-0.5b"
    columns = [(smollm, "answers.0.mean"), (smollm, "answers.1.mean"), (qwen, "macro.mean")]
    near, far = "kvzap:recent=32,room=0.3+shares", "kvzap:recent=0+shares"
    rows = [("everything", "full", "full"), ("half", near, "ratio=0.5"), ("a quarter", near, "ratio=0.75"), ("an eighth", far, "ratio=0.875")]
    lines = ["| kept | SmolLM2-135M, facts | SmolLM2-135M, long copies | Qwen2.5-Coder-0.5B, both |", "|---|---:|---:|---:|"]
    for kept, policy, size in rows:
        cells = [number_of(reports, run, f"agnostic/all/{policy}/{size}/{member}", 0) for run, member in columns]
        lines.append(f"| {kept} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def options_of(text):
    return {item.partition("=")[0]: item.partition("=")[2] for item in text.strip().split(",") if item}


def written(text, reports):
    """A document with its tables and numbers as the records have them."""
    text = TABLE.sub(lambda m: m[1] + table(reports.get(m[2])[0], options_of(m[3])) + m[5], text)
    text = OVERVIEW.sub(lambda m: m[1] + overview(reports) + m[3], text)
    text = BLOCK.sub(lambda m: m[1] + block(m[2], reports) + m[4], text)
    text = CONTRAST.sub(lambda m: m[1] + contrast(reports.get(m[2])[0], int(m[3])) + m[5], text)
    text = PROFILE.sub(lambda m: m[1] + profile_number(m[2], m[3], m[4]) + m[6], text)
    text = COUNT.sub(lambda m: m[1] + count(m[2], m[3], m[4], m[5]) + m[7], text)
    text = COMMON.sub(lambda m: m[1] + common(m[2], m[3], m[4], m[5], int(m[6])) + m[8], text)
    return NUMBER.sub(lambda m: m[1] + number_of(reports, m[2], m[3], int(m[4])) + m[6], text)


def from_records(rows):
    """Whether each row of a table that says a number takes numbers from records."""
    return all("<!-- number" in row or "<!-- contrast" in row or not re.search(r"\d", row) for row in rows)


def tables_without_records():
    """FILE: HEADING of what has a table outside of marks, in the documents of results, and the CSV files without records."""
    found = []
    for path in [PAGES / "results.md", *sorted((PAGES / "results").glob("*.md"))]:
        heading, lines = "", OVERVIEW.sub("", TABLE.sub("", path.read_text())).splitlines()
        for i, line in enumerate(lines):
            heading = line.lstrip("# ") if line.startswith("#") else heading
            entry = f"{path.relative_to(ROOT)}: {heading}"
            rows = list(itertools.takewhile(lambda row: row.startswith("|"), lines[i + 1:]))
            if re.match(r"\|[-| ]+\|$", line) and entry not in found and heading != "What does not stand" and not from_records(rows):
                found.append(entry)
    found += [str(p.relative_to(ROOT)) for p in sorted(RESULTS.glob("*.csv")) if not (RESULTS / p.stem / "results.jsonl.gz").exists()]
    return found


def tasks_from_files(run):
    """Tasks whose questions and references are a benchmark's, which are not ours to ship."""
    return {task["task"] for task in run.get("tasks", []) if isinstance(task, dict) and task.get("file")}


def without_texts(lines, tasks):
    """The answers without what they were asked and what is right, where that is of these tasks."""
    if not tasks:
        return lines
    rows = map(json.loads, lines.splitlines())
    return b"".join(
        json.dumps(row | ({"question": "", "refs": []} if row["task"] in tasks else {}), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for row in rows)


def check_texts(faults):
    for path in sorted(RESULTS.glob("*/run.json")):
        tasks = tasks_from_files(json.loads(path.read_text()))
        if not tasks:
            continue
        with gzip.open(path.parent / "results.jsonl.gz", "rt") as f:
            if any(row["task"] in tasks and (row["question"] or row["refs"]) for row in map(json.loads, f)):
                faults.append(f"{path.parent.relative_to(ROOT)}: has questions or references of a benchmark; --add packs a run without them")


def check_records(faults):
    for path in sorted(RESULTS.glob("*/results.jsonl.gz")):
        with gzip.open(path) as f:
            most = sum(MOST_BYTES_OF_NUMBER * line.count(b",") if b'"changes":[' in line else MOST_BYTES for line in f)
        if path.stat().st_size > most:
            faults.append(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, of {most} that its answers may take")


def check(reports):
    faults = []
    for path in documents():
        text = path.read_text()
        if written(text, reports) != text:
            faults.append(f"{path.relative_to(ROOT)}: a table or number is not what its records give; scripts/results_tables.py writes it")
    for path in sorted(RESULTS.glob("*.csv")):
        if (RESULTS / path.stem / "results.jsonl.gz").exists() and reports.get(path.stem)[1] != path.read_text():
            faults.append(f"{path.relative_to(ROOT)}: not what its records give; scripts/results_tables.py writes it")
    found, listed = tables_without_records(), [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    faults += [f"{entry}: a table without records that docs/results/without-records.txt does not list" for entry in found if entry not in listed]
    faults += [f"docs/results/without-records.txt: '{entry}' has records now, or is gone; remove the line" for entry in listed if entry not in found]
    check_records(faults)
    check_texts(faults)
    return faults


def write(reports):
    for path in documents():
        text = path.read_text()
        now = written(text, reports)
        if now != text:
            path.write_text(now)
            print(path.relative_to(ROOT))
    for path in sorted(RESULTS.glob("*.csv")):
        if (RESULTS / path.stem / "results.jsonl.gz").exists():
            path.write_text(reports.get(path.stem)[1])


def portable(run):
    """A run's description whose command line has lost what belongs to one machine, or one shard, alone."""
    command = ["winnow", *run.get("command", [""])[1:]]
    for i, word in enumerate(command[:-1]):
        if word == "--out":
            command[i + 1] = "DIR"
        elif "/" in command[i + 1] and not command[i + 1].startswith("share/"):
            command[i + 1] = pathlib.Path(command[i + 1]).name
    for i in reversed([i for i, word in enumerate(command) if word == "--shard"]):
        del command[i:i + 2]
    run["command"] = command
    return run


def runs_of(sources, apart, what):
    """The descriptions of runs that differ in nothing but their times and the fields of `apart`."""
    runs = [portable(json.loads((source / "run.json").read_text())) for source in sources]
    for run in runs[1:]:
        for field in sorted(set(runs[0]) | set(run)):
            if field not in ("calibration", "threads", "time_budget", *apart) and runs[0].get(field) != run.get(field):
                raise SystemExit(f"these folders are not {what}: '{field}' differs")
    return runs


def lines_of(source):
    """The answers of a folder, whole lines: a run that was killed leaves the beginning of one."""
    packed = source / "results.jsonl.gz"
    lines = gzip.decompress(packed.read_bytes()) if packed.exists() else (source / "results.jsonl").read_bytes()
    return lines[:lines.rfind(b"\n") + 1]


def pack(name, run, lines):
    to = RESULTS / name
    to.mkdir(parents=True, exist_ok=True)
    (to / "run.json").write_text(json.dumps(run, indent=1) + "\n")
    with gzip.GzipFile(to / "results.jsonl.gz", "wb", 9, mtime=0) as out:
        out.write(without_texts(lines, tasks_from_files(run)))
    faults = []
    check_records(faults)
    return faults


def add(folders, name):
    """Packs the records of a run, or of all its shards; of several machines the first one's times are the run's."""
    sources = [pathlib.Path(folder) for folder in folders]
    runs = runs_of(sources, (), "shards of one run")
    return pack(name, runs[0], b"".join(map(lines_of, sources)))


def asked(run):
    """The recipes that a run's contrasts compare, as its answers name them; None without contrasts: all."""
    if not run.get("contrasts"):
        return None
    return {side.strip() for line in run["contrasts"] for side in line.split(" mode=")[0].split(" vs ")}


def join(folders, name):
    """Packs runs of other policies on the same samples as one. What several of them answered must be equal in all but its times: that is what makes them one."""
    sources = [pathlib.Path(folder) for folder in folders]
    runs = runs_of(sources, ("command", "configs", "contrasts", "recipes"), "runs of the same samples")
    last, wanted = runs[-1], asked(runs[-1])
    recipes = {short: given for run in runs for short, given in run["recipes"].items() if wanted is None or {short, given} & {"full", *wanted}}
    configs = {c["config_id"]: c for run in runs for c in run["configs"] if c["recipe"] in recipes}
    last.update(recipes=recipes, configs=list(configs.values()), joined=[run["command"] for run in runs[:-1]])
    answers, again = {}, 0
    for source in sources:
        for line in lines_of(source).splitlines(True):
            row = json.loads(line)
            if row["config"] not in configs:
                continue
            said = {k: v for k, v in row.items() if k not in ("ms", "peak_bytes")}
            if row["key"] not in answers:
                answers[row["key"]] = (said, line)
            elif answers[row["key"]][0] != said:
                raise SystemExit(f"these folders are not runs of the same samples: {row['key']} ({row['policy']}) was answered in two ways")
            else:
                again += 1
    if not again:
        raise SystemExit("these folders have no answer in common, so that nothing shows that they asked the same samples in the same way")
    print(f"{len(answers)} answers, {again} of which were given twice, and alike")
    return pack(name, last, b"".join(line for _, line in answers.values()))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--check", action="store_true", help="compare and change nothing")
    p.add_argument("--add", nargs="+", metavar="DIR... NAME", help="pack the records of a run")
    p.add_argument("--join", nargs="+", metavar="DIR... NAME", help="pack runs of other policies on the same samples as one")
    p.add_argument("--winnow", default=str(ROOT / "build" / "winnow"), help="the program")
    a = p.parse_args()
    if a.add and len(a.add) < 2:
        p.error("--add needs the folders of a run and a name for its records")
    if a.join and len(a.join) < 3:
        p.error("--join needs the folders of two runs and a name for their records")
    reports = Reports(a.winnow)
    if a.add:
        faults = add(a.add[:-1], a.add[-1])
    elif a.join:
        faults = join(a.join[:-1], a.join[-1])
    else:
        faults = check(reports) if a.check else write(reports) or []
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
