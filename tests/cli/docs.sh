# SPDX-License-Identifier: MIT
# What README and docs name is there: linked files and headings, files in backquotes, commands, their options, methods,
# tests. docs/reference/methods.md is printed by the command (methods_doc.sh) and only its links are looked at here.
# Every page can be reached from README, pages that users open are short, no comment hides in a sentence, and every decision that code
# cites by its number is in the table of docs/internals/design. All files name one version.
. "$(dirname "$0")/lib.sh"

cat >"$work/check.py" <<'PY'
import functools, glob, os, re, subprocess, sys

winnow = sys.argv[1]
faults = []


@functools.cache
def output(*args):
    done = subprocess.run([winnow, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return done.stdout.decode() if done.returncode == 0 else None


@functools.cache
def headings(path):
    """Anchors of a Markdown file, as GitHub makes them."""
    with open(path, encoding="utf-8") as f:
        lines = re.findall(r"^#+ (.*)$", f.read(), flags=re.M)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def check_links(path, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(file):
            faults.append(f"{path}: {target} leads nowhere")
        elif anchor and file.endswith(".md") and anchor not in headings(file):
            faults.append(f"{path}: {target}: no such heading")


def check_files(path, text):
    """`dir/name`, `name.c` and the like; a * or <...> stands for any."""
    folders = [".", "src", "share", "app", "bench", "calibration", "eval", "perturb", "cli", "tests", "docs", "docs/research", "docs/reference", "docs/internals", "scripts", "examples", "include", "scripts/keepsets", "bench/peers"] + glob.glob("tests/*/") + glob.glob("eval/*/") + glob.glob("src/*/") + glob.glob("src/*/*/")
    for name in re.findall(r"`([\w./*-]+\.(?:c|h|md|sh|py|def|txt|csv)|(?:src|app|bench|calibration|eval|perturb|cli|tests|docs|scripts|examples)/[\w./*-]*)`", text):
        if re.search(r"(^|[/_])(x|NAME|PART)\.(c|sh)$", name) and os.path.isdir(os.path.dirname(name) or "."):
            continue  # what the reader is adding
        if not any(glob.glob(os.path.join(folder, name)) for folder in folders + [os.path.dirname(path)]):
            faults.append(f"{path}: there is no {name}")


def check_tests(path, text):
    for name in re.findall(r"`((?:unit|model)_[a-z_0-9]+)`", text) if path in ("CONTRIBUTING.md", "docs/internals/which-test.md") else []:
        if not glob.glob(f"tests/{name.replace('_', '/', 1)}.*"):
            faults.append(f"{path}: there is no test {name}")


def commands(text):
    """(subcommand, its arguments) of every `winnow ...` in a code block or in backquotes."""
    blocks = re.findall(r"^    (?:\$ )?(.*)$", text.replace("\\\n", " "), flags=re.M) + re.findall(r"`([^`\n]+)`", text)
    for line in blocks:
        found = re.match(r"(?:build/)?winnow ([a-z]+)\b(.*)", line)
        if found:
            rest = re.sub(r'"[^"]*"', "TEXT", found.group(2))
            yield found.group(1), rest.split(" -- ")[0]  # what follows are another program's


def check_commands(path, text):
    for command, rest in commands(text):
        family = (output(command, "--help") or "").startswith(f"usage: winnow {command} WHAT")
        sub = [command] + [w for w in rest.split()[:1]
                           if (command == "bench" and w in ("observe", "methods", "batch", "roofline"))
                           or (family and re.fullmatch("[a-z]+", w))]
        if family and sub == [command]:
            continue  # the family itself
        known = output(*sub, "--help-all")
        if known is None:
            faults.append(f"{path}: winnow {' '.join(sub)} is no command")
            continue
        for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*|-[a-zA-Z])\b", rest):
            if not re.search(rf"(?<![\w-]){option}\b", known):
                faults.append(f"{path}: winnow {' '.join(sub)} has no {option}")


def check_bare_options(path, text):
    """`--option ...` without a command: some command has it."""
    known = " ".join(output(*c.split(), "--help-all") for c in ("run", "compress", "ask", "inspect", "plan", "tokens", "ppl", "methods", "bench", "bench observe", "bench batch", "bench roofline", "eval", "score"))
    for line in re.findall(r"`(--[^`\n]+)`", text) if path == "README.md" else []:
        for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)\b", line):
            if not re.search(rf"(?<![\w-]){option}\b", known):
                faults.append(f"{path}: no command has {option}")


def check_recipes(path, text):
    """--policy RECIPE without a plugin's parts, and the rows of README's table of methods."""
    recipes = re.findall(r"--policy ([a-z0-9_+:=.-]+)", re.sub(r"^.* --plugin .*$", "", text, flags=re.M))
    if path == "README.md":
        recipes += re.findall(r"^\| `([a-z_0-9-]+)` \|", text, flags=re.M)
    names = set(re.findall(r"^  ?(?:  )?(\S+)", output("methods"), flags=re.M))
    for recipe in recipes:
        for part in re.split(r"\+", recipe.rstrip(".")):
            if part.split(":")[0] not in names and part not in ("x", "-", "RECIPE", "auto"):
                faults.append(f"{path}: no method {part}")


GENERATED = re.compile(r"<!-- (?:BEGIN .*|END(?: \w+)?|Rendered from docs/src/\S+ by scripts/records.py --render: edit that file\.) -->")
MOST_LINES = {"README.md": 150, "docs/README.md": 60, "docs/internals/architecture.md": 100}


def check_size(path, text):
    """Pages that a user opens, and design notes but for their table, are read in one go."""
    most = MOST_LINES.get(path, 120 if re.match(r"docs/(?:use|internals/design)/(?!README)", path) else None)
    n = text.count("\n")
    if most and n > most:
        faults.append(f"{path}: {n} lines, and {most} are the most")


def check_comments(path, text):
    """A comment is a line of its own that begins or ends a generated block."""
    for line in text.splitlines():
        if "<!--" in line and not GENERATED.fullmatch(line.strip()):
            faults.append(f"{path}: a comment where a reader of the source stumbles over it: {line[:80]}")


def check_reachable(pages):
    """Every page of docs is linked from README, or from a page that is."""
    seen, to_read = set(), ["README.md"]
    while to_read:
        path = to_read.pop()
        if path in seen or not path.endswith(".md") or not os.path.isfile(path):
            continue
        seen.add(path)
        with open(path, encoding="utf-8") as f:
            links = re.findall(r"\]\(([^)\s#]+)", f.read())
        to_read += [os.path.normpath(os.path.join(os.path.dirname(path), link)) for link in links if not re.match(r"[a-z]+:", link)]
    faults.extend(f"{path}: no page that README leads to has a link to it" for path in pages if path not in seen)


def check_decisions():
    """Numbers of decisions in the tree are rows of the table, and rows are there once."""
    with open("docs/internals/design/README.md", encoding="utf-8") as f:
        rows = re.findall(r"^\| (\d{3}) \| \[", f.read(), flags=re.M)
    faults.extend(f"decision {n} has {rows.count(n)} rows in docs/internals/design/README.md" for n in sorted(set(rows)) if rows.count(n) > 1)
    folders = ["app", "bench", "calibration", "cli", "cmake", "eval", "include", "perturb", "scripts", "serve", "src", "tests"]
    files = [p for d in folders for p in glob.glob(f"{d}/**/*", recursive=True) if re.search(r"\.(?:c|cpp|h|def|sh|py|cmake|txt)$", p)]
    cited = 0
    for path in ["CMakeLists.txt", "README.md", "CONTRIBUTING.md", *glob.glob("docs/**/*.md", recursive=True), *files]:
        with open(path, encoding="utf-8", errors="replace") as f:
            for numbers in re.findall(r"[Dd]ecisions? \[?(\d{3}(?:(?:, | and |, and )\d{3})*)", f.read()):
                for n in re.findall(r"\d{3}", numbers):
                    cited += 1
                    if n not in rows:
                        faults.append(f"{path}: decision {n} is not in the table of docs/internals/design/README.md")
    if cited < 50:
        faults.append(f"only {cited} decisions are cited: the pattern of this test is worn out")


checked = 0
def check_version():
    """Every file that names the version has that of CMakeLists.txt."""
    version = re.search(r"^project\(winnow VERSION ([\d.]+)", open("CMakeLists.txt", encoding="utf-8").read(), flags=re.M).group(1)
    for path, pattern in (("include/winnow.h", r'WNW_VERSION_STRING "([\d.]+)"'), ("debian/changelog", r"\Awinnow \(([\d.]+)\)"),
                          ("CHANGELOG.md", r"^## ([\d.]+) \(\d{4}-\d\d-\d\d\)$"), ("docs/reference/wkv.md", r'"writer": "([\d.]+)"'),
                          ("records/RUNS.csv", r"^winnow-records-([\d.]+)\.tar\.xz")):
        if os.path.exists(path):
            found = re.search(pattern, open(path, encoding="utf-8").read(), flags=re.M)
            if not found or found.group(1) != version:
                faults.append(f"{path}: version {found.group(1) if found else 'missing'}, and CMakeLists.txt has {version}")
    header = dict(re.findall(r"#define WNW_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)", open("include/winnow.h", encoding="utf-8").read()))
    if ".".join(header.get(k, "?") for k in ("MAJOR", "MINOR", "PATCH")) != version:
        faults.append("include/winnow.h: WNW_VERSION_MAJOR, _MINOR and _PATCH are another version")


check_version()
# docs/src has what pages are rendered from (scripts/records.py); the pages are looked at.
pages = sorted(p for p in glob.glob("docs/**/*.md", recursive=True) if not p.startswith("docs/src/"))
check_reachable(pages)
check_decisions()
for path in ["README.md", "CONTRIBUTING.md", *(p for p in ["CHANGELOG.md"] if os.path.exists(p)), *pages, "tests/golden/README.md"]:
    with open(path, encoding="utf-8") as f:
        text = f.read()
    check_links(path, text)
    check_size(path, text)
    check_comments(path, text)
    if path == "docs/reference/methods.md":
        continue
    check_files(path, text)
    check_tests(path, text)
    check_commands(path, text)
    check_bare_options(path, text)
    check_recipes(path, text)
    checked += len(list(commands(text)))
with open("NOTICE", encoding="utf-8") as f:
    quotes = re.findall(r"\b(?:eval|src|tests)/[\w/.]*\w", f.read())
faults += [f"NOTICE: there is no {name}" for name in quotes if not os.path.exists(name)]
if len(quotes) < 10:
    faults.append("NOTICE: hardly a file that quotes a benchmark")
if checked < 20:
    faults.append(f"only {checked} commands found in the documents: the patterns of this test are worn out")
print("\n".join(faults), file=sys.stderr)
sys.exit(bool(faults))
PY
python3 "$work/check.py" "$WINNOW" || fail 'documents name what is not there'
finish
