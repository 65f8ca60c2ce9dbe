#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records of runs, the numbers that pages take from them, and the pages.

    scripts/records.py --check [--winnow PROGRAM]   compares pages, numbers.csv, RUNS.csv and the archive; exit code 1 where they differ;
    scripts/records.py --render                     writes the pages from docs/src, and charts, with records/numbers.csv;
    scripts/records.py --numbers [--winnow PROGRAM] computes the numbers that pages use and records/numbers.csv lacks;
    scripts/records.py --numbers --all              computes every number of records/numbers.csv again;
    scripts/records.py --unpack DIR                 unpacks the archive; `winnow report DIR/NAME` reads a run of it;
    scripts/records.py --add DIR... NAME            takes in the records of a run, or of all its shards, as records/runs/NAME;
    scripts/records.py --join DIR... NAME           takes in runs that asked other policies about the same samples, as one;
    scripts/records.py --pack VERSION               moves records/runs into the archive of a release, and writes RUNS.csv.

A record is NAME/run.json and NAME/results.jsonl, as `winnow eval --out` writes them. Records of releases are in
records/winnow-records-VERSION.tar.xz, newer ones in records/runs. records/RUNS.csv lists them: name, model, answers, kernel, CPU, SHA-256 of the answers, command.
records/contrasts.txt has the planned comparisons of each run, as they were written before the run.

records/numbers.csv has a row for each number: key, value, low, high, n, p, run. A key is one of

    NAME:contrast/I                      difference of the I-th contrast of a run, 95 % interval, n, Holm's p;
    NAME:MODE/N/POLICY/SIZE/WHAT         a row of a run's table; N is a length or "all"; POLICY~evict=chunk:512 has a rule; WHAT is score (with n), less_full (difference
                                         from the full cache, interval), short, long (kinds of answers), kl (nats, interval) or mib;
    NAME:answers/MODE/POLICY/SIZE/WHICH/WHAT  of the answers themselves: how many (WHAT is n), or the mean of a score. WHICH is all, protected,
                                         unprotected, or depth:A..B for evidence that lies there, as a share of the text;
    NAME:PATH                            any other member of the run's report;
    profile:MODEL/KIND/PATH              a number of a profile that ships, or of one in the archive (profiles/MODEL/KIND.json); ~ for a blank;
    count:MODEL/KIND/PATH/above:X        how many numbers of a profile are above X (or below:X);
    common:FILE,FILE/MEMBER/layer:K      share of the K best heads of each layer that two profiles have in common; model:K, how many of all.

A page in docs/src takes them in double braces. {{KEY}} has one decimal, {{KEY 2}} two, {{KEY 0%}} is in per cent. {{KEY ci}} adds the interval, {{KEY whole}}
interval, n and p. {{KEY n}} is the number of answers. {{KEY verdict}} is one rule for every claim "A is above B". It is yes if the interval is above 0
and p below 0.05, and no if the interval is below 0 and p below 0.05. It is equal if the interval includes 0 and is within 5 points of it, else "not told".
p is Holm's over the contrasts of the run. {{KEY needs}} is how many samples tell a difference of 1 point in four runs of
five (p below 0.05), from the interval and n. A verdict is bold if Holm's p over all verdicts of the page is below 0.05, too.
{{KEY nats}} is {{KEY whole}} of a divergence, with four decimals. {{KEY nearer}} is the rule for "A diverges less than B", which has no "equal".

Two short forms keep sources readable. A line <!-- A = BEGINNING --> defines a beginning of keys: {{A:REST}} is the key BEGINNING and REST. {{/LAST}} is the
key before it with another last part.

Times are not in numbers.csv, because no record computes them again. records/speed/NAME.csv has those of one command; its first line says which.
{{table NAME}} is the whole file as a table, {{table NAME COLUMN=VALUE... show=COLUMN,...}} some of its rows and columns. Blanks are written as _, and
VALUE * is any text.
"""
import argparse
import csv
import functools
import gzip
import hashlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import charts

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / "records"
NEW = RECORDS / "runs"  # records since the last release
NUMBERS = RECORDS / "numbers.csv"
RUNS = RECORDS / "RUNS.csv"
SOURCES = ROOT / "docs" / "src"  # docs/src/FOLDER/PAGE.md is rendered to docs/FOLDER/PAGE.md
FIELDS = ["key", "value", "low", "high", "n", "p", "run"]
RUN_FIELDS = ["name", "model", "answers", "kernel", "cpu", "sha256", "command"]
MARK = re.compile(r"\{\{([^{} ]+)(?: (\d%?|ci|whole|nats|n|p|verdict|nearer|needs))?\}\}")
SPEED = RECORDS / "speed"
TABLE = re.compile(r"\{\{table ([^{} ]+)((?: [^{} ]+)*)\}\}")
BEGINNING = re.compile(r"^<!-- ([A-Z]) = (\S+) -->\n", re.M)
NOTE = "<!-- Rendered from {} by scripts/records.py --render: edit that file. -->\n\n"


# ---- Records ----

def archive():
    """The newest archive of a release, None where there is none."""
    found = sorted(RECORDS.glob("winnow-records-*.tar.xz"))
    return found[-1] if found else None


class Records:
    """Records of the archive and of records/runs, unpacked on first use into a folder that goes with the process."""

    def __init__(self, winnow):
        self.winnow, self.work, self.made = winnow, tempfile.TemporaryDirectory(), {}
        self.unpacked = False

    def released(self):
        """The folder that the archive was unpacked into; it is empty where there is no archive."""
        if not self.unpacked and archive():
            unpack(archive(), pathlib.Path(self.work.name))
        self.unpacked = True
        return pathlib.Path(self.work.name)

    def folder(self, name):
        found = NEW / name if (NEW / name).is_dir() else self.released() / name
        return found if found.exists() else None

    def names(self):
        return sorted({p.parent.name for base in (self.released(), NEW) for p in base.glob("*/run.json")})

    def report(self, name):
        """What `winnow report --json` says of a run; None where its records are not here."""
        if name not in self.made:
            folder = self.folder(name)
            if folder is None:
                return None
            out = subprocess.run([self.winnow, "report", str(folder), "--json", "-o", str(pathlib.Path(self.work.name) / "report.html")], capture_output=True, text=True)
            if out.returncode:
                raise SystemExit(f"{name}: {out.stderr}")
            made = json.loads(out.stdout)
            self.made[name] = made["runs"][0] if "runs" in made else made
        return self.made[name]

    def configs(self, name):
        return json.loads((self.folder(name) / "run.json").read_text())["configs"]

    def answers(self, name):
        return [json.loads(line) for line in lines_of(self.folder(name)).splitlines()]


def unpack(path, to):
    with tarfile.open(path) as tar:
        tar.extractall(to, filter="data")


def fixed(x, decimals):
    if x is None:
        return "-"
    text = f"{x:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def probability(p):
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def member_of(value, path, border="."):
    for key in path.split(border):
        try:
            value = value[int(key)] if key.isdigit() else value[key]
        except (KeyError, IndexError, TypeError):
            raise SystemExit(f"number {path}: there is no {key}") from None
    return value


# ---- Numbers ----

def cell(value=None, low=None, high=None, n=None, p=None):
    return {"value": value, "low": low, "high": high, "n": n, "p": p}


def study_row(study, path):
    kind, *names, member = path.split("/")
    for row in study[kind + "s"]:
        if [row[key] for key in ("policy", "size")[-len(names):]] == names:
            value = 100 * member_of(row, member)
            try:
                low, high = 100 * member_of(row, member + "_lo"), 100 * member_of(row, member + "_hi")
            except (SystemExit, TypeError):
                low = high = None
            return cell(value, low, high)
    raise SystemExit(f"{path}: the study has no such row")


def row_cells(row):
    """The numbers of a row of a run's table by their names."""
    c, mib = row["macro"], row["macro"].get("kv_bytes")
    short, long = (a["mean"] for a in row["answers"])
    return {"score": cell(c["mean"], n=c["n"]), "less_full": cell(c["delta"], c.get("lo"), c.get("hi"), c["n"]), "short": cell(short), "long": cell(long),
            "kl": cell(c.get("kl"), c.get("kl_lo"), c.get("kl_hi")), "mib": cell(mib and mib / 1048576)}


def name_of(row):
    """A policy, and with ~ what else tells its row from others."""
    return "~".join([row["policy"], *row["more"].split()])


def curve_cell(curves, policy, member):
    """Of a policy over all shares: the area under its curve, or the largest share that can go at a loss (loss=0.1)."""
    for curve in curves:
        if curve["policy"] == policy and member.startswith("loss="):
            loss = float(member.removeprefix("loss="))
            return cell(next(t["removed"] for t in curve["tolerance"] if t["loss"] == loss))
        if curve["policy"] == policy:
            return cell(curve[member])
    raise SystemExit(f"{policy}/curve/{member}: the report has no such curve")


def report_cell(run, path):
    if path.startswith("contrast/"):
        _, i, *member = path.split("/")
        c = run["contrasts"][int(i)]
        if member:
            return cell(member_of(c, member[0]))
        return cell(c["delta"], c["lo"], c["hi"], c["n"], c["p_holm"]) if c["measured"] else cell(n=0)
    mode, length, policy, size, member = path.split("/")
    for block in run["blocks"]:
        if (block["mode"], str(block["N"])) != (mode, length):
            continue
        if size == "curve":
            return curve_cell(block["curves"], policy, member)
        for row in block["rows"]:
            if row["size"] == size and policy in ([name_of(row)] if "~" in policy else [row["policy"]]):
                cells = row_cells(row)
                return cells[member] if member in cells else cell(member_of(row, member))
    raise SystemExit(f"{path}: the report has no such row")


def is_of(answer, which):
    """Whether an answer is one of all, protected or unprotected ones, or its evidence lies at a depth of A..B, the end excluded."""
    if which.startswith("depth:"):
        low, high = map(float, which.removeprefix("depth:").split(".."))
        return answer["depth"] is not None and low <= answer["depth"] < high
    return which in ("all", "protected" if answer["protected"] else "unprotected")


def answers_cell(configs, answers, path):
    """Of the records themselves: how many answers are meant, or the mean of a score of theirs in points."""
    _, mode, policy, size, which, member = path.split("/")
    policy, *more = policy.split("~")  # what else tells its configuration from others
    ids = {c["config_id"] for c in configs if all(str(c.get(word.partition("=")[0])) == word.partition("=")[2] for word in more)}
    meant = [r for r in answers if (r["mode"], r["policy"], r["size"]) == (mode, policy, size) and r["config"] in ids and is_of(r, which)]
    if not meant:
        raise SystemExit(f"{path}: the records have no such answers")
    if member == "n":
        return cell(len(meant))
    return cell(sum(100 * (r["score"] if member == "score" else r["scores"][member]) for r in meant) / len(meant))


@functools.cache
def results_of(records, name):
    """What a profile has measured, or a command has printed: of a profile that ships, or of the archive; None where it is in neither."""
    path = ROOT / "share" / "profiles" / f"{name}.json"
    if not path.exists():
        path = (records.folder("profiles") or ROOT / "none") / f"{name}.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return found.get("results", found)


def numbers_of(value):
    """All numbers of nested lists."""
    return [x for item in value for x in numbers_of(item)] if isinstance(value, list) else [value]


def best(scores, k):
    return set(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k])


def common(a, b, of, k):
    """What the best heads of two tables have in common."""
    if of == "model":
        return len(best(sum(a, []), k) & best(sum(b, []), k))
    shares = [len(best(x, k) & best(y, k)) / k for x, y in zip(a, b, strict=True) if max(x) > 0]
    return 100 * sum(shares) / len(shares)


def profile_cell(records, kind, path):
    """A number of profiles; None where one of them is not in the tree."""
    if kind == "common":
        files, member, which = path.rsplit("/", 2)
        found = [results_of(records, name) for name in files.split(",")]
        of, k = which.split(":")
        return None if None in found else cell(common(found[0][member], found[1][member], of, int(k)))
    name, rest = "/".join(path.split("/")[:2]), path.split("/", 2)[2].replace("~", " ")
    found = results_of(records, name)
    if found is None:
        return None
    if kind == "profile":
        return cell(member_of(found, rest, "/"))
    at, which = rest.rsplit("/", 1)
    above, bound = which.split(":")
    return cell(sum(x > float(bound) if above == "above" else x < float(bound) for x in numbers_of(member_of(found, at, "/"))))


def computed(records, key):
    """The cell of a key, from records or profiles; None where these are not here."""
    run, path = key.split(":", 1)
    if run in ("profile", "count", "common"):
        return profile_cell(records, run, path)
    report = records.report(run)
    if report is None:
        return None
    if "pairs" in report:
        return study_row(report, path)
    return answers_cell(records.configs(run), records.answers(run), path) if path.startswith("answers/") else report_cell(report, path)


def as_text(x):
    return "" if x is None else f"{x:.9g}"


def row_of(key, c):
    run = key.split(":", 1)[0]
    return {"key": key, **{k: as_text(c[k]) for k in ("value", "low", "high", "n", "p")}, "run": "" if run in ("profile", "count", "common") else run}


def read_numbers():
    if not NUMBERS.exists():
        return {}
    with open(NUMBERS, newline="") as f:
        return {row["key"]: row for row in csv.DictReader(f)}


def write_csv(path, fields, rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(out.getvalue())


def source_text(source):
    """A page's source with whole keys in place of short ones."""
    text, before = source.read_text(), ""
    beginnings = dict(BEGINNING.findall(text))

    def whole(m):
        nonlocal before
        key = m[1]
        if key.startswith("/"):
            key = before.rpartition("/")[0] + key
        elif key[0] in beginnings and key[1:2] == ":":
            key = beginnings[key[0]] + key[2:]
        before = key
        return "{{" + key + (f" {m[2]}" if m[2] else "") + "}}"

    return MARK.sub(whole, BEGINNING.sub("", text))


def verdict_keys(text):
    return sorted({m[1] for m in MARK.finditer(text) if m[2] in ("verdict", "nearer")})


def keys_of_pages():
    texts = [source_text(source) for source in sources()]
    return {m[1] for text in texts for m in MARK.finditer(text)} | {key + "/p" for text in texts for key in verdict_keys(text)}


def update_numbers(records, every):
    numbers, needed = read_numbers(), keys_of_pages()
    for key in sorted({*numbers, *needed, *charts.keys()}):
        c = computed(records, key) if every or key not in numbers else None
        if c is not None:
            numbers[key] = row_of(key, c)
        elif key not in numbers and key in needed:  # a chart without its numbers is not drawn
            raise SystemExit(f"{key}: neither the records nor the profile are here")
    write_csv(NUMBERS, FIELDS, [numbers[key] for key in sorted(numbers)])


# ---- Pages ----

def sources():
    return sorted(SOURCES.rglob("*.md"))


def page_of(source):
    return ROOT / "docs" / source.relative_to(SOURCES)


def holm(p):
    """Holm's probabilities of a dict of probabilities."""
    found, least = {}, 0.0
    for i, key in enumerate(sorted(p, key=lambda key: (p[key], key))):
        least = max(least, min(1.0, (len(p) - i) * p[key]))
        found[key] = least
    return found


def verdict(number, p_page):
    """One rule for every claim, the same both ways."""
    low, high, p = number["low"], number["high"], number["p"]
    if low is None or high is None or p is None:
        return "not told"
    if (low > 0 or high < 0) and p < 0.05:
        said = "yes" if low > 0 else "no"
        return f"**{said}**" if p_page < 0.05 else said
    return "equal" if low <= 0 <= high and low > -5 and high < 5 else "not told"


def nearer(number, p_page):
    """The rule for divergences, where less is better: whether that of A is below that of B. No margin is named for nats."""
    low, high = (None if number[k] is None else -number[k] for k in ("high", "low"))
    said = verdict({"low": low, "high": high, "p": number["p"]}, p_page)
    return "not told" if said == "equal" else said


def needs(number):
    """Samples that tell a difference of 1 point in four runs of five, with the spread of these, in two digits."""
    if number["low"] is None or number["high"] is None or not number["n"] or number["high"] <= number["low"]:
        return "–"
    variance = number["n"] * ((number["high"] - number["low"]) / (2 * 1.95996)) ** 2
    found = (1.95996 + 0.84162) ** 2 * variance  # quantiles of 97.5 and 80 %
    step = 10 ** max(0, len(str(int(found))) - 2)
    return f"{round(found / step) * step:,}"


def shown(row, how, p_page):
    number = {k: float(row[k]) if row[k] else None for k in ("value", "low", "high", "n", "p")}
    if how == "n":
        return fixed(number["n"], 0)
    if how == "p":
        return probability(number["p"])
    if how == "needs":
        return needs(number)
    if how in ("verdict", "nearer"):
        return (verdict if how == "verdict" else nearer)(number, p_page.get(row["key"], 1.0))
    if how and how.endswith("%"):
        return fixed(100 * number["value"], int(how[0])) + " %"
    digits = 4 if how == "nats" else int(how) if how and how.isdigit() else 1
    text = fixed(number["value"], digits)
    if how in ("ci", "whole", "nats") and number["low"] is not None:
        text += f" ({fixed(number['low'], digits)} .. {fixed(number['high'], digits)})"
    if how in ("whole", "nats"):
        p = probability(number["p"])
        text += f", n = {fixed(number['n'], 0)}, p " + (p if p.startswith("<") else "= " + p)
    return text


def speed_table(where, name, options):
    """Rows of records/speed/NAME.csv as a table; columns of numbers are flush right."""
    path = SPEED / f"{name}.csv"
    if not path.exists():
        raise SystemExit(f"{where}: there is no records/speed/{name}.csv")
    with open(path, newline="") as f:
        head, *rows = csv.reader(line for line in f if not line.startswith("# "))
    wanted = dict(option.split("=", 1) for option in options)
    shown_columns = wanted.pop("show", None)
    shown_columns = shown_columns.split(",") if shown_columns else [c for c in head if wanted.get(c, "*") == "*"]
    for column in [*wanted, *shown_columns]:
        if column not in head:
            raise SystemExit(f"{where}: records/speed/{name}.csv has no column {column}")
    rows = [dict(zip(head, row, strict=True)) for row in rows]
    rows = [row for row in rows if all(row[c] == v.replace("_", " ") if v != "*" else row[c] for c, v in wanted.items())]
    if not rows:
        raise SystemExit(f"{where}: records/speed/{name}.csv has no such row")
    number = re.compile(r"[\d.,]+(x| %|)$")
    right = {c for c in shown_columns if all(number.match(row[c]) or not row[c] for row in rows)}
    lines = [[c.replace("_", " ") for c in shown_columns], ["---:" if c in right else "---" for c in shown_columns], *[[row[c] for c in shown_columns] for row in rows]]
    return "\n".join(("|" + "|".join(cells) + "|") if i == 1 else ("| " + " | ".join(cells) + " |") for i, cells in enumerate(lines))


def rendered(source, numbers):
    text = source_text(source)

    def found(key):
        if key not in numbers:
            raise SystemExit(f"{source.relative_to(ROOT)}: records/numbers.csv has no {key}")
        return numbers[key]

    text = TABLE.sub(lambda m: speed_table(source.relative_to(ROOT), m[1], m[2].split()), text)
    raw = {key: found(key + "/p")["value"] for key in verdict_keys(text)}
    p_page = holm({key: float(p) for key, p in raw.items() if p})
    return NOTE.format(source.relative_to(ROOT)) + MARK.sub(lambda m: shown(found(m[1]), m[2], p_page), text)


def render():
    numbers = read_numbers()
    for source in sources():
        page_of(source).parent.mkdir(parents=True, exist_ok=True)
        page_of(source).write_text(rendered(source, numbers))
    for name, text in charts.drawn(numbers).items():
        (ROOT / "docs" / "images" / name).write_text(text)


# ---- Taking in records ----

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


def keep(name, run, lines):
    to = NEW / name
    to.mkdir(parents=True, exist_ok=True)
    (to / "run.json").write_text(json.dumps(run, indent=1) + "\n")
    with gzip.GzipFile(to / "results.jsonl.gz", "wb", 9, mtime=0) as out:
        out.write(without_texts(lines, tasks_from_files(run)))
    write_runs()


def add(folders, name):
    """Takes in the records of a run, or of all its shards; of several machines the first one's times are the run's."""
    sources = [pathlib.Path(folder) for folder in folders]
    runs = runs_of(sources, (), "shards of one run")
    return keep(name, runs[0], b"".join(map(lines_of, sources)))


def asked(run):
    """The recipes that a run's contrasts compare, as its answers name them; None without contrasts: all."""
    if not run.get("contrasts"):
        return None
    return {side.strip() for line in run["contrasts"] for side in line.split(" mode=")[0].split(" vs ")}


def join(folders, name):
    """Takes in runs of other policies on the same samples as one. What several of them answered must be equal in all but its times: that is what makes them one."""
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
    return keep(name, last, b"".join(line for _, line in answers.values()))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def described(folder):
    """The row of RUNS.csv."""
    run, lines = json.loads((folder / "run.json").read_text()), lines_of(folder)
    return {"name": folder.name, "model": run.get("model", {}).get("name", ""), "answers": lines.count(b"\n"), "kernel": run.get("kernel", ""), "cpu": run.get("device", ""),
            "sha256": sha256(lines), "command": " ".join(run.get("command", []))}


def all_runs(records):
    rows = [described(records.folder(name)) for name in records.names()]
    if archive():
        rows.insert(0, {"name": archive().name, "sha256": sha256(archive().read_bytes())})
    return rows


def write_runs():
    write_csv(RUNS, RUN_FIELDS, all_runs(Records("")))


def pack(version):
    """Writes the archive of a release: what the last one had, and records/runs, whose answers are unpacked, since xz packs them all better at once."""
    last, to = archive(), RECORDS / f"winnow-records-{version}.tar.xz"
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        if last:
            unpack(last, work)
        for folder in sorted(NEW.glob("*/")):
            shutil.copytree(folder, work / folder.name, dirs_exist_ok=True)
            (work / folder.name / "results.jsonl").write_bytes(lines_of(folder))
            (work / folder.name / "results.jsonl.gz").unlink(missing_ok=True)
        with tarfile.open(work / "new.tar.xz", "w:xz", preset=9) as tar:
            for path in sorted(p for p in work.rglob("*") if p.is_file() and p.name != "new.tar.xz"):
                info = tar.gettarinfo(path, str(path.relative_to(work)))
                info.mtime = info.uid = info.gid = 0
                info.uname, info.gname, info.mode = "", "", 0o644
                with open(path, "rb") as f:
                    tar.addfile(info, f)
        shutil.move(work / "new.tar.xz", to)
    if last and last != to:
        last.unlink()
    if NEW.exists():
        shutil.rmtree(NEW)
    write_runs()


# ---- Checks ----

def check_pages(faults, numbers):
    for source in sources():
        page = page_of(source)
        if not page.exists() or page.read_text() != rendered(source, numbers):
            faults.append(f"{page.relative_to(ROOT)}: not what its source and records/numbers.csv give; scripts/records.py --render writes it")
    for name, text in charts.drawn(numbers).items():
        chart = ROOT / "docs" / "images" / name
        if not chart.exists() or chart.read_text() != text:
            faults.append(f"{chart.relative_to(ROOT)}: not what records/numbers.csv gives; scripts/records.py --render draws it")


def check_numbers(faults, numbers, records):
    """Numbers against the records and profiles that are here; the last digit may be rounded otherwise."""
    for key, row in numbers.items():
        c = computed(records, key)
        if c is None:
            continue
        for k, text in row_of(key, c).items():
            old = row[k]
            if text != old and not (text and old and k in ("value", "low", "high", "p") and abs(float(text) - float(old)) <= 1e-7 * max(1, abs(float(old)))):
                faults.append(f"records/numbers.csv: {key}: {k} is {old or 'empty'}, the records give {text or 'nothing'}")


def check_runs(faults, records):
    if not archive():
        return
    with open(RUNS, newline="") as f:
        listed = [{k: v for k, v in row.items() if v} for row in csv.DictReader(f)]
    found = [{k: str(v) for k, v in row.items() if v} for row in all_runs(records)]
    if listed != found:
        wrong = [row["name"] for row in listed if row not in found] + [row["name"] for row in found if row not in listed]
        faults.append(f"records/RUNS.csv: not what the records are: {', '.join(sorted(set(wrong)))}")


def check_texts(faults, records):
    for name in records.names():
        tasks = tasks_from_files(json.loads((records.folder(name) / "run.json").read_text()))
        if tasks and any(row["task"] in tasks and (row["question"] or row["refs"]) for row in records.answers(name)):
            faults.append(f"{name}: has questions or references of a benchmark; --add takes in a run without them")


def check(records):
    faults, numbers = [], read_numbers()
    check_pages(faults, numbers)
    check_numbers(faults, numbers, records)
    check_runs(faults, records)
    check_texts(faults, records)
    return faults


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--check", action="store_true", help="compare and change nothing")
    p.add_argument("--render", action="store_true", help="write the pages")
    p.add_argument("--numbers", action="store_true", help="write records/numbers.csv from the records")
    p.add_argument("--all", action="store_true", help="with --numbers: those that are there, too")
    p.add_argument("--unpack", metavar="DIR", help="unpack the archive")
    p.add_argument("--pack", metavar="VERSION", help="make the archive of a release")
    p.add_argument("--add", nargs="+", metavar="DIR... NAME", help="take in the records of a run")
    p.add_argument("--join", nargs="+", metavar="DIR... NAME", help="take in runs of other policies on the same samples as one")
    p.add_argument("--winnow", default=str(ROOT / "build" / "winnow"), help="the program")
    a = p.parse_args()
    if a.add and len(a.add) < 2:
        p.error("--add needs the folders of a run and a name for its records")
    if a.join and len(a.join) < 3:
        p.error("--join needs the folders of two runs and a name for their records")
    records, faults = Records(a.winnow), []
    if a.add:
        add(a.add[:-1], a.add[-1])
    if a.join:
        join(a.join[:-1], a.join[-1])
    if a.pack:
        pack(a.pack)
    if a.unpack:
        unpack(archive(), pathlib.Path(a.unpack))
    if a.numbers:
        update_numbers(records, a.all)
    if a.render:
        render()
    if a.check:
        faults = check(records)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
