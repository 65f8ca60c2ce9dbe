# SPDX-License-Identifier: MIT
# winnow man: every command has a page with all of its options, which roff's programs take without a warning.
. "$(dirname "$0")/lib.sh"
good 'all pages' man -o "$work/man"
[ -s "$work/out" ] && fail 'pages in a folder were printed, too'
good 'all once more' man -o "$work/man"
good 'the overview' man
same 'the page of winnow' "$work/out" "$work/man/winnow.1"
good 'a page' man bench observe
same 'the page of a command of two words' "$work/out" "$work/man/winnow-bench-observe.1"
cat >"$work/check.py" <<'PY'
import glob, os, re, subprocess, sys

winnow, folder = sys.argv[1:]


def output(*args):
    return subprocess.run([winnow, *args], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True).stdout.decode()


def plain(text):
    text = re.sub(r"\\f[BRI]", "", text)
    for roff, char in (("\\-", "-"), ("\\(ga", "`"), ("\\(aq", "'"), ("\\(ha", "^"), ("\\(ti", "~"), ("\\(dq", '"'), ("\\&", ""), ("\\e", "\\")):
        text = text.replace(roff, char)
    return text


faults = []
overview = output("--help")
names = re.findall(r"^  ([a-z]+(?: [a-z]+)?) +[A-Z]", overview, flags=re.M)
commands = [n for n in names if n not in ("help",)]
pages = {os.path.basename(p) for p in glob.glob(folder + "/*")}
expected = {"winnow.1"} | {"winnow-" + n.replace(" ", "-") + ".1" for n in commands}
if pages != expected:
    faults.append(f"pages are not those of the commands: {sorted(pages ^ expected)}")
if len(commands) < 20:
    faults.append(f"only {len(commands)} commands found in the overview")
n_options = 0
for name in commands:
    with open(f"{folder}/winnow-{name.replace(' ', '-')}.1", encoding="utf-8") as f:
        raw = f.read()
    # What is no request has no line that begins like one, and no backslash is on its own.
    for line in raw.splitlines():
        if line[:1] in ".'" and not re.match(r"\.(TH|SH|SS|TP|B|BR)( |$)", line):
            faults.append(f"{name}: unknown request: {line}")
        if re.sub(r"\\(-|e|&|f[BRI]|\((ga|aq|ha|ti|dq))", "", line).count("\\"):
            faults.append(f"{name}: a lone backslash: {line}")
    page = plain(raw).splitlines()
    # Descriptions are wrapped; a wrapped line goes on at column 29.
    help_text = re.sub(r"\n {29}", " ", output(*name.split(), "--help-all"))
    # The page has the text after the options of a help line below them, after the words themselves.
    for line in help_text.splitlines():
        found = re.match(r"  (?:(-\w)|    )?(?:, )?(--[a-z0-9-]+)?(?: (\S+))?  +(.*)$", line) or re.match(
            r"  (?:(-\w)|    )?(?:, )?(--[a-z0-9-]+)?(?: ([A-Z]\S*))? (.*)$", line)
        if not found or not (found.group(1) or found.group(2)):
            continue
        n_options += 1
        title = ", ".join(g for g in found.groups()[:2] if g) + (" " + found.group(3) if found.group(3) else "")
        if title not in page or page[page.index(title) - 1] != ".TP":
            faults.append(f"{name}: no option '{title}' in its page")
        elif found.group(4).split(" [")[0] not in page[page.index(title) + 1]:
            faults.append(f"{name}: {title}: another text than in the help")
if n_options < 200:
    faults.append(f"only {n_options} options found in the help texts")
print("\n".join(faults), file=sys.stderr)
sys.exit(bool(faults))
PY
python3 "$work/check.py" "$WINNOW" "$work/man" || fail 'pages and help differ'
for page in "$work"/man/*; do
    if command -v groff >/dev/null; then
        groff -man -ww -z "$page" 2>"$work/err" && [ ! -s "$work/err" ] || fail "groff: $page: $(head -n 3 "$work/err")"
    fi
    if command -v mandoc >/dev/null; then # pages have no date, so that two builds make the same
        mandoc -Tlint -Wwarning "$page" 2>&1 | grep -v 'missing date' && fail "mandoc: $page"
    fi
done
bad 'an unknown command' 'did you mean .winnow run' man rnu
bad 'half a command' 'needs one of' man calibrate
bad 'two commands' 'takes one command' man run plan
bad 'a command and a folder' 'leave .run. out' man run -o "$work/made/x"
bad 'three words' 'unexpected argument' man bench observe more
: >"$work/file"
bad 'a folder that is a file' "$work/file" man -o "$work/file"
finish
