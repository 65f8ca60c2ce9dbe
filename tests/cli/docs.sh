# SPDX-License-Identifier: MIT
# What README and docs name is there: linked files and headings, files in backquotes, commands, their options, methods,
# tests. docs/methods.md is printed by the command (methods_doc.sh) and only its links are looked at here.
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
    folders = [".", "src", "share", "app", "bench", "calibration", "eval", "perturb", "cli", "tests", "docs", "scripts", "examples", "include", "scripts/keepsets", "bench/peers"] + glob.glob("eval/*/") + glob.glob("src/*/") + glob.glob("src/*/*/")
    for name in re.findall(r"`([\w./*-]+\.(?:c|h|md|sh|py|def|txt|csv)|(?:src|app|bench|calibration|eval|perturb|cli|tests|docs|scripts|examples)/[\w./*-]*)`", text):
        if re.search(r"(^|[/_])(x|NAME|PART)\.(c|sh)$", name) and os.path.isdir(os.path.dirname(name) or "."):
            continue  # what the reader is adding
        if not any(glob.glob(os.path.join(folder, name)) for folder in folders + [os.path.dirname(path)]):
            faults.append(f"{path}: there is no {name}")


def check_tests(path, text):
    for name in re.findall(r"`((?:unit|model)_[a-z_0-9]+)`", text) if path == "CONTRIBUTING.md" else []:
        if not glob.glob(f"tests/{name}.c"):
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
    """--policy RECIPE, and the rows of README's table of methods."""
    recipes = re.findall(r"--policy ([a-z0-9_+:=.-]+)", text)
    if path == "README.md":
        recipes += re.findall(r"^\| `([a-z_0-9-]+)` \|", text, flags=re.M)
    names = set(re.findall(r"^  ?(?:  )?(\S+)", output("methods"), flags=re.M))
    for recipe in recipes:
        for part in re.split(r"\+", recipe.rstrip(".")):
            if part.split(":")[0] not in names and part not in ("x", "-", "RECIPE", "auto"):
                faults.append(f"{path}: no method {part}")


checked = 0
for path in ["README.md", "CONTRIBUTING.md", *sorted(glob.glob("docs/**/*.md", recursive=True)), "tests/golden/README.md"]:
    with open(path, encoding="utf-8") as f:
        text = f.read()
    check_links(path, text)
    if path == "docs/methods.md":
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
