#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks which folders of src/ and of programs include which others: check_layers.sh [--table]
#
# It fails for
# - an include that the tables below do not allow;
# - an include of a public header from a folder of src/ that PUBLIC does not list;
# - a cycle of folders, or of the rooms of a program;
# - a circle of calls between files, or between folders, of src/ and of all programs, in C and C++ (call_graph.py);
# - a call from a room of a folder to one that LEVELS does not allow, and an include of its header;
# - a header of such a folder itself that includes more than the lowest room's, or declares a function;
# - a file that includes one of a folder more/, which a build can leave out, and is in none itself;
# - a program that includes headers of src/, or a test that does so outside of tests/lib/peek_*.h;
# - a function that NAME.h (or NAME_impl.h) declares and neither NAME.c nor NAME_*.c of the same folder defines
#   (FOLDER/FOLDER.h may declare functions of any file of the folder);
# - a function of src/ with more than seven parameters, except in the kernels.
# --table prints who includes whom, and the walks of WALKS. Only the files are read; nothing needs to be built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python3 - "$@" <<'PY'
import functools, itertools, pathlib, re, sys

sys.dont_write_bytecode = True
sys.path.insert(0, "scripts")
import call_graph

# Folder: the other folders that it may include; itself and include/ are always allowed. A '-' before a name marks an
# existing include that is to be removed. A new one like it fails, and so does a mark that is no longer needed.
MAY = {
    "base": "",
    "kernel": "base",
    "model": "base kernel",
    "text": "base model",
    "cache": "base kernel",
    "attend": "base kernel cache",
    "forward": "base kernel model cache attend",
    "profile": "base",
    "policy": "base",
    "method": "base policy profile",
    "chooser": "base policy profile",
    "score": "base kernel policy method profile",
    "aggregate": "base kernel policy method profile",
    "budget": "base kernel policy method profile",
    "select": "base kernel policy method profile",
    "positions": "base kernel policy method profile",
    "contents": "base kernel policy method profile",
    "plan": "base policy method",
    "observe": "base kernel model cache attend forward profile plan",
    "session": "base kernel model text cache attend forward observe profile policy method plan",
    "study": "base method observe plan policy session",
    "bridge": "base kernel model cache attend forward observe profile policy method plan",
    "llama": "base model text forward bridge",
    "store": "base kernel model cache session policy",
    "reader": "base",
    "calibrate": "base kernel model text cache attend forward observe profile policy method chooser plan session score",
}
# Public headers of a part of the library: the folders of src/ that may include each, so that no lower folder knows what is built on it.
# The others (programs, methods, tools, profiles) have types of every folder.
PUBLIC = {
    "winnow_batch.h": "forward session bridge calibrate",
    "winnow_bridge.h": "bridge llama",
    "winnow_chat.h": "text",
    "winnow_store.h": "store reader",
    "winnow_study.h": "kernel forward profile session study",
}
# Rooms of a folder of src/: the other rooms whose functions each may call and whose headers it may include. Headers in the
# folder itself hold the state that rooms share: they declare no functions, and include the header of the lowest room alone.
LEVELS = {
    "src/bridge": {
        "cells": "",
        "graph": "cells",
        "sequence": "cells graph",
        "watch": "cells graph sequence",
        "drive": "cells graph",
        "wrap": "cells graph sequence watch",
        "device": "cells graph sequence watch drive wrap",
    },
    "src/session": {
        "timeline": "",
        "compact": "timeline",
        "planning": "timeline compact",
        "rules": "timeline compact planning",
        "run": "timeline compact planning rules",
    },
}
# Programs: they may include the public headers, their own folder and these. "base" is src/base/, the one folder of src/
# that programs may include. A family of sub-commands exports only its table, FAMILY/commands.h, to the command. The
# evaluation also exports its statistics to other families.
PROGRAMS = {
    "app": "base",
    "bench": "base app",
    "calibration": "base app",
    "cli": "base app bench calibration eval",
    "eval": "base app perturb",
    "examples": "",
    "perturb": "base app eval",
    "python": "base app",
    "serve": "base app",
}
SHARED = ["eval/base/random.h", "eval/base/stats.h"]
# Rooms are the sub-folders of a program: the rooms that each may include, with the same marks. Files in the program's
# folder itself (the sub-commands and their arguments) may include every room. Rooms may include from it the headers that
# DOORS names. `BESIDE` lists rooms in a folder outside of the program; they export the header FOLDER/FOLDER.h to the sub-commands.
ROOMS = {
    "eval": {
        "base": "",
        "metrics": "base",
        "tasks": "base metrics",
        "run": "base metrics tasks",
        "results": "base",
        "report": "base results",
        "perturb": "base tasks run results report",
    },
}
# Headers that one room, or one file, of a program may include: what a study measures is no part of the public interface, and what a
# server reads is the server's. The exponentials of a whole vocabulary are the kernels' work.
SEAMS = {"app/likelihood": ["kernel/kernel.h"], "perturb/": ["study/perturb.h"], "python/": ["cli/program.h"], "cli/slot_of": ["serve/park_folder.h", "serve/slot_file.h"]}
DOORS = ["eval/args.h", "eval/commands.h"]
BESIDE = {"perturb": "eval"}  # folder: the program whose room it is

# Tables (patterns of their names) with functions that lead back to what names the table. To name them is no call of what is in them.
REGISTERS = {
    "cli_commands": "help, manual pages and completion are commands, and are printed from the table of commands",
    "calibrate_commands": "`calibrate all` is a kind of calibration, and runs the others",
    r"wnw__(head|layer)_budget_\w+": "a recipe that names no budget gets one from the parser, and budgets warn through policy/part.c",
    "wnw__bridge_device": "ggml's buffers name the device that made them",
    "wnw__wrap_far": "a layer in another device's memory names the functions that read it there",
}
# What must be reached from a beginning, step by step; --table prints the calls between, and how many lead down and up.
WALKS = {
    "a prompt is read": ["wnw_session_read", "wnw__feed_prompt", "wnw__engine_run", "wnw__attend_run", "wnw__attend_decode"],
    "a prompt is planned": ["wnw_session_read", "wnw__session_plan", "wnw__plan_make_many", "wnw__draft_score"],
    "a plan of a prompt is applied": ["wnw_session_read", "wnw__session_follow", "wnw__rewrite_layer", "wnw__cache_keep_layer"],
    "a layer's keys are stored (backend)": ["src/bridge/device/run.c: graph_compute", "wnw__bridge_node_prepare", "wnw__bridge_layer_write"],
    "a layer's keys are planned (backend)": ["src/bridge/device/run.c: graph_compute", "wnw__bridge_compress", "wnw__plan_make_many", "wnw__draft_score"],
    "a layer's keys are dropped (backend)": ["src/bridge/device/run.c: graph_compute", "wnw__bridge_compress", "wnw__bridge_apply", "wnw__cache_keep_in_place"],
    "a request is taken (server)": ["WRAP(POST)", "generate", "serve_slots_claim"],
    "a request goes on to the server's own route": ["WRAP(POST)", "generate", "call"],
    "a request's prompt is compressed (server)": ["llama_process", "serve_compress", "wnw_bridge_compress_cells", "wnw__bridge_apply"],
}

faults = []
arrows = {}  # (from, to) -> [(file, include)]
src = pathlib.Path("src")
sources = sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h", ".cpp", ".hpp", ".def"))
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def folder(path):
    return path.relative_to(src).parts[0]


for path in sources:
    if len(path.relative_to(src).parts) < 2:
        faults.append(f"{path}: every file of src/ lives in a folder")
        continue
    for name in INCLUDE.findall(path.read_text()):
        target = next((t for t in (src / name, path.parent / name) if t.exists()), None)
        if folder(path) not in PUBLIC.get(name, folder(path)).split():
            faults.append(f"{path} includes {name}: {folder(path)}/ may not know it")
        if target is None:
            if not (pathlib.Path("include") / name).exists():
                faults.append(f"{path}: no file {name}")
        elif "more" in target.parts and "more" not in path.parts:
            faults.append(f"{path} includes {name}: a build without WNW_MORE_METHODS has no {target.parent}/")
        elif f"src/{folder(path)}" in LEVELS and len(target.parts) == len(path.parts) == 4 and folder(target) == folder(path):
            room, other = path.parts[2], target.parts[2]
            if other not in [room, *LEVELS[f"src/{folder(path)}"].get(room, "").split()]:
                faults.append(f"{path} includes {name}: {room}/ may not know {other}/")
        elif f"src/{folder(path)}" in LEVELS and len(path.parts) == 3 and len(target.parts) == 4 and folder(target) == folder(path):
            if LEVELS[f"src/{folder(path)}"].get(target.parts[2]) != "":
                faults.append(f"{path} includes {name}: headers beside the rooms may know the lowest room alone")
        elif folder(target) != folder(path):
            arrows.setdefault((folder(path), folder(target)), []).append((str(path), name))

for home in sorted({a for pair in arrows for a in pair} | {folder(p) for p in sources if len(p.parts) > 2}):
    if home not in MAY:
        faults.append(f"src/{home}/: the table in scripts/check_layers.sh does not know this folder")
for (a, b), where in sorted(arrows.items()):
    words = MAY.get(a, "").split()
    if b not in words and "-" + b not in words:
        faults += [f"{path} includes {name}: {a}/ may not know {b}/" for path, name in where]
for a, words in MAY.items():
    for word in words.split():
        if word.startswith("-") and (a, word[1:]) not in arrows:
            faults.append(f"{a}/ no longer includes {word[1:]}/: take -{word[1:]} out of the table")


def find_circle(may):
    """A circle of folders, without the arrows that are to go. A folder is done once everything that it leads to was seen."""
    graph = {a: [w for w in words.split() if not w.startswith("-")] for a, words in may.items()}
    done = set()

    def follow(a, way):
        if a in way:
            return way[way.index(a):] + [a]
        for b in graph.get(a, []) if a not in done else []:
            found = follow(b, way + [a])
            if found:
                return found
        done.add(a)
        return None

    return next((found for a in graph if (found := follow(a, []))), None)


for may in [MAY, *ROOMS.values()]:
    if circle := find_circle(may):
        faults.append("circle of folders: " + " -> ".join(circle))


def room_of(parts):
    """The room of a file of a program or beside it; None: a file of the program's own folder."""
    return parts[0] if parts[0] in BESIDE else parts[1] if len(parts) == 3 else None


def place_of(program, room):
    return f"{room}/" if room in BESIDE else f"{program}/{room or ''}/"


def check_rooms(program, may):
    """Includes of a program's rooms from each other."""
    seen = set()
    beside = [folder for folder, of in BESIDE.items() if of == program]
    paths = [*pathlib.Path(program).glob("*/*.[ch]"), *(p for folder in beside for p in pathlib.Path(folder).glob("*.[ch]"))]
    for path in sorted(paths):
        room = room_of(path.parts)
        if room not in may:
            faults.append(f"{path}: the table of rooms in scripts/check_layers.sh does not know {place_of(program, room)}")
            continue
        for name in INCLUDE.findall(path.read_text()):
            parts = name.split("/")
            other = room_of(parts)
            if parts[0] not in [program, *beside] or other == room or name in DOORS:
                continue
            seen.add((room, other))
            words = may[room].split()
            if other not in words and f"-{other}" not in words:
                faults.append(f"{path} includes {name}: {place_of(program, room)} may not know {place_of(program, other)}")
    for room, words in may.items():
        for word in words.split():
            if word.startswith("-") and (room, word[1:]) not in seen:
                faults.append(f"{place_of(program, room)} no longer includes {place_of(program, word[1:])}: take {word} out of the table")


for program, may in ROOMS.items():
    check_rooms(program, may)

for path in sorted(pathlib.Path(".").glob("*/*.c")):
    if path.parts[0] not in [*PROGRAMS, "src", "tests"] and not path.parts[0].startswith("build"):
        faults.append(f"{path}: the table of programs in scripts/check_layers.sh does not know this folder")
for program, words in PROGRAMS.items():
    for path in sorted(pathlib.Path(program).rglob("*.[ch]")):
        for name in INCLUDE.findall(path.read_text()):
            home = name.split("/")[0]
            if (path.parent / name).exists() or (pathlib.Path("include") / name).exists() or home == program:
                continue
            if any(str(path).startswith(room) and name in names for room, names in SEAMS.items()):
                continue
            if home not in words.split():
                faults.append(f"{path} includes {name}: {program}/ may know the public headers"
                              + "".join(f", {w}/" for w in words.split()) + " alone")
            elif home == "base" and not (src / name).exists():
                faults.append(f"{path}: no file {name}")
            elif BESIDE.get(program) == home:
                pass  # check_rooms holds it to the rooms
            elif BESIDE.get(home) == program and name != f"{home}/{home}.h":
                faults.append(f"{path} includes {name}: of {home}/ it may know {home}/{home}.h alone")
            elif home not in ("app", "base", *BESIDE) and name != home + "/commands.h" and not (program != "cli" and name in SHARED):
                faults.append(f"{path} includes {name}: of {home}/ it may know {home}/commands.h alone")

# Tests see private headers through tests/lib/peek_*.h, and cmocka through tests/lib/asserts.h.
for path in sorted(pathlib.Path("tests").rglob("*.[ch]")):
    text = path.read_text()
    if "#include <cmocka.h>" in text and path.name != "asserts.h":
        faults.append(f"{path} includes cmocka.h: tests include asserts.h, which shows values")
    for name in INCLUDE.findall(text):
        if (src / name).exists() and not path.name.startswith("peek_"):
            faults.append(f"{path} includes {name}: tests see src/ through tests/lib/peek_*.h alone")

# Declared in x.h, defined in x.c or x_*.c of the same folder. Functions of a folder's x/x.h may be defined in any file of it.
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
DECLARED = re.compile(r"^(?!static|typedef|#)[A-Za-z_][\w\s*]*?\b((?:wnw__|app_)\w+)\s*\([^;{]*\)\s*;", re.M)


@functools.cache
def defined(path):
    """Names before a bracket on lines that begin at the left."""
    lines = [line for line in path.read_text().split("\n") if line and not line[0].isspace()]
    return {name for line in lines for name in re.findall(r"\b(\w+)\s*\(", re.split("[;=]", line, maxsplit=1)[0])}


for header in [p for p in sources if p.suffix == ".h"] + sorted(pathlib.Path("app").glob("*.h")):
    text = COMMENT.sub("", header.read_text())
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    stem = header.stem.removesuffix("_impl")
    whole = stem == header.parent.name
    beside = header.parent.rglob("*.c*") if whole else header.parent.glob("*.c*")
    homes = [p for p in beside if whole or p.stem == stem or p.stem.startswith(stem + "_")]
    there = set().union(*map(defined, homes))
    for name in DECLARED.findall(text):
        if name not in there:
            faults.append(f"{header} declares {name}, which no file of the folder defines" if whole else
                          f"{header} declares {name}, which {stem}.c and {stem}_*.c beside it do not define")

# Calls between files, folders and rooms. Files X_absent.c replace other files.
def find_sources():
    tops = [pathlib.Path(top) for top in ("include", "src", *PROGRAMS)]
    paths = sorted(p for top in tops for p in top.rglob("*") if p.suffix in (".c", ".cpp", ".h", ".hpp"))
    return [p for p in paths if not p.stem.endswith("_absent")]


def show_circle(graph, knot, names):
    """A circle in one line: each of its calls with a function that it names."""
    calls = [f"{a} -> {b} ({names(a, b)})" for a in sorted(knot) for b in sorted(graph[a]) if b in knot]
    return "circle of calls: " + ", ".join(calls)


graph = call_graph.Graph(find_sources(), REGISTERS)
for name in REGISTERS:
    if not any(node.is_table and re.fullmatch(name, node.name) for node in graph.calls):
        faults.append(f"REGISTERS in scripts/check_layers.sh: {name} is no table")
files = graph.files()
for knot in call_graph.find_knots(files):
    faults.append(show_circle(files, knot, lambda a, b: min(files[a][b])))
between = {}  # folder: {folder that it calls: the files of one such call}
for a, targets in files.items():
    for b in targets:
        if a.parent != b.parent:
            between.setdefault(a.parent, {}).setdefault(b.parent, (a, b))
        between.setdefault(b.parent, {})
for knot in call_graph.find_knots(between):
    faults.append(show_circle(between, knot, lambda a, b: f"{between[a][b][0].name} calls {between[a][b][1].name}"))

# Calls between the rooms of a folder.
for home, may in LEVELS.items():
    for path in sorted(p for p in files if pathlib.Path(home) in p.parents):
        room = path.parent.name
        if room not in may:
            faults.append(f"{path}: the table LEVELS in scripts/check_layers.sh does not know {home}/{room}/")
            continue
        for target in sorted(files[path]):
            if pathlib.Path(home) in target.parents and target.parent.name not in [room, *may[room].split()]:
                faults.append(f"{path} calls a function of {target}: {home}/{room}/ may not know {target.parent.name}/")
    for header in pathlib.Path(home).glob("*.h"):
        faults += [f"{header} declares {name}: functions belong into the header of a room"
                   for name in DECLARED.findall(COMMENT.sub("", header.read_text()))]
    if circle := find_circle(may):
        faults.append(f"circle of rooms in {home}/: " + " -> ".join(circle))

# Functions with many parameters take a struct. Kernels do not: their innermost functions are inlined, and their arguments
# are registers.
MOST_PARAMETERS, KERNELS = 7, src / "kernel"
DEFINED = re.compile(r"^(?!#|typedef|return|else)[A-Za-z_][\w\s*]*?\b(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*\{", re.M)


def count_parameters(text):
    """Commas outside of brackets, and one more."""
    depth, n = 0, 1
    for c in text:
        depth += (c in "([") - (c in ")]")
        n += c == "," and depth == 0
    return n


for path in [p for p in sources if p.suffix in (".c", ".h") and KERNELS not in p.parents]:
    for name, parameters in DEFINED.findall(COMMENT.sub(" ", path.read_text())):
        if (n := count_parameters(parameters)) > MOST_PARAMETERS:
            faults.append(f"{path}: {name} has {n} parameters; put them into a struct, at most {MOST_PARAMETERS} may stand alone")



def show_walk(title, stops, order):
    """The calls from stop to stop, a line for each file, and what can be reached from the first one."""
    chain = graph.find(stops[0])[:1]
    for a, b in zip(stops, stops[1:]):
        leg = graph.walk(a, b)
        if not leg:
            faults.append(f"{title}: no calls lead from {a} to {b}")
            return
        chain += leg[1:]
    print(f"\n{title}")
    for path, nodes in itertools.groupby(chain, lambda node: node.path):
        print(f"  {path!s:34} {' > '.join(node.name for node in nodes)}")
    reached = {node for node in graph.reached(stops[0]) if not graph.is_inline(node)}
    calls = [(a.path, b.path) for a in reached for b in graph.outward(a)]
    up = sum(order[a] < order[b] for a, b in calls)
    within, out = sum(a == b for a, b in calls), sum(a.parent != b.parent for a, b in calls)
    print(f"  reached: {len(reached)} functions, {len({n.path for n in reached})} files, {len({n.path.parent for n in reached})} folders; calls: "
          f"{within} within a file, {len(calls) - within - out - up} down in a folder, {out} down to other folders, {up} up")
    if up:
        faults.append(f"{title}: {up} calls go back up")


if "--table" in sys.argv[1:]:
    for a in MAY:
        row = sorted({b for (x, b) in arrows if x == a})
        print(f"{a:10} {' '.join(row) or '-'}")
    order = call_graph.find_order(files) if not faults else {}
    for title, stops in WALKS.items() if order else []:
        show_walk(title, stops, order)
for fault in faults:
    print(fault, file=sys.stderr)
sys.exit(1 if faults else 0)
PY
