#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows clang every file that a build folder compiles, and fails on a warning: check_clang.py FOLDER [COMPILED]

FOLDER    a build folder that was configured with CC=clang CXX=clang++ -DWNW_WERROR=ON; of its targets written_sources is built
COMPILED  another folder of clang's: what has an object there is not read again

Code is parsed and checked, and none is generated: clang's warnings do not depend on the optimiser. Files that are not this project's have
none of its warnings and are left out.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def entries(folder):
    return json.loads((folder / "compile_commands.json").read_text())


def name_in(folder, path):
    """The name of a source that the folder wrote itself, in it; of any other the whole path."""
    return path.relative_to(folder) if folder in path.parents else path


def words_of(entry):
    """The words of a command, and the object that it makes."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    return words[:at] + words[at + 2:], pathlib.Path(entry["directory"]) / words[at + 1]


def compiled(folder):
    """The sources that have an object in the folder."""
    return {name_in(folder, pathlib.Path(e["file"])) for e in entries(folder) if words_of(e)[1].exists()}


def commands(folder, known):
    """{command as a text: (file, command, folder it runs in)}: every source once for each set of options."""
    found = {}
    for entry in entries(folder):
        path = pathlib.Path(entry["file"])
        name = name_in(folder, path)
        if name in known or name == path and ROOT not in path.parents:
            continue
        words = [word if word != "-c" else "-fsyntax-only" for word in words_of(entry)[0]]
        found[shlex.join(words)] = name, words, entry["directory"]
    return list(found.values())


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folders = [pathlib.Path(path).resolve() for path in sys.argv[1:]]
    known = compiled(folders[1]) if len(folders) == 2 else set()
    todo = commands(folders[0], known)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(lambda t: subprocess.run(t[1], cwd=t[2], stderr=subprocess.PIPE, text=True), todo))
    bad = [(t[0], run.stderr) for t, run in zip(todo, runs, strict=True) if run.returncode != 0]
    for name, errors in bad:
        print(f"{name}:\n{errors}", file=sys.stderr)
    print(f"check_clang.py: {len(todo)} files read, {len(known)} were compiled, {len(bad)} with warnings")
    if not todo:
        sys.exit("check_clang.py: nothing to read")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
