#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows whether the files of a wheel fit glibc 2.28: wheel_symbols.py WHEEL. scripts/wheel.py makes them fit with `lower`.

A shared library names a version with each symbol that it takes from the C library. Where that version is newer than 2.28, one of two holds.
Either glibc 2.28 has the symbol under an older version: then the newer one is removed, and the loader takes what the system has. Or it
lacks the symbol: then python/compat.c has it. Every other symbol is an error. The C++ library is copied into the wheel.
"""
import pathlib
import re
import struct
import sys
import tempfile
import typing
import zipfile

from elftools.elf.elffile import ELFFile

# The newest versions of manylinux_2_28.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 10), "GCC": (7, 0, 0)}
# Symbols that newer versions of glibc have under a newer version, by the library that has them in 2.28.
OLDER = {
    "libc.so.6": ["__libc_start_main"],
    "libm.so.6": ["exp", "exp2", "log", "log2", "pow"],
    "libdl.so.2": ["dladdr", "dlclose", "dlerror", "dlmopen", "dlopen", "dlsym"],
    "libpthread.so.0": [
        "pthread_attr_getstacksize", "pthread_attr_setaffinity_np", "pthread_attr_setstack", "pthread_attr_setstacksize", "pthread_create",
        "pthread_detach", "pthread_getaffinity_np", "pthread_getspecific", "pthread_join", "pthread_key_create", "pthread_key_delete",
        "pthread_kill", "pthread_mutex_trylock", "pthread_mutexattr_destroy", "pthread_mutexattr_init", "pthread_mutexattr_settype",
        "pthread_once", "pthread_rwlock_destroy", "pthread_rwlock_init", "pthread_rwlock_rdlock", "pthread_rwlock_unlock",
        "pthread_rwlock_wrlock", "pthread_setaffinity_np", "pthread_setspecific", "pthread_sigmask",
    ],
}
HOME = {name: library for library, names in OLDER.items() for name in names}
COMPAT = "libwinnow-compat.so"
# Libraries without versions of their symbols that every manylinux has.
PLAIN = {"libz.so.1"}
UNVERSIONED = 1  # VER_NDX_GLOBAL
LOCAL, WEAK, UNIQUE = 0, 2, 10  # kinds of symbols


def version(name):
    """("GLIBC", (2, 34)) of "GLIBC_2.34"; None for names without a number, such as GLIBC_PRIVATE."""
    found = re.fullmatch(r"([A-Z]+)_(\d+(?:\.\d+)*)", name)
    return found and (found[1], tuple(int(part) for part in found[2].split(".")))


def too_new(name):
    parsed = version(name)
    return bool(parsed) and parsed[0] in NEWEST and parsed[1] > NEWEST[parsed[0]]


def elf_files(tree):
    return [p for p in sorted(pathlib.Path(tree).rglob("*")) if p.is_file() and not p.is_symlink() and p.open("rb").read(4) == b"\x7fELF"]


def elf_hash(name):
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high
    return value


class Symbol(typing.NamedTuple):
    name: str
    bind: int
    section: int  # 0: another file has it


class Symbols:
    """What a 64-bit file has and takes from others: names, indexes and places of versions."""

    def __init__(self, path):
        with open(path, "rb") as f:
            elf = ELFFile(f)
            self.order = "<" if elf.little_endian else ">"
            tags = elf.get_section_by_name(".dynamic")
            self.libraries = {tag.needed for tag in tags.iter_tags("DT_NEEDED")} if tags else set()
            needs, self.table = elf.get_section_by_name(".gnu.version_r"), elf.get_section_by_name(".gnu.version")
            dynamic = elf.get_section_by_name(".dynsym")
            self.place = dynamic["sh_offset"] if dynamic else 0
            self.entry_size = dynamic["sh_entsize"] if dynamic else 0
            # A library has thousands of them, and pyelftools takes a second for 15,000.
            self.symbols = self._read(dynamic.data(), elf.get_section(dynamic["sh_link"]).data()) if dynamic else []
            self.indexes = list(struct.unpack(f"{self.order}{len(self.symbols)}H", self.table.data())) if self.table else []
            self.needed = []  # (place in the file, index, name, place of the name in the table of strings)
            if needs:
                at = needs["sh_offset"]
                for one, _ in needs.iter_versions():
                    aux = at + one["vn_aux"]
                    for each in self._aux(needs, at, one):
                        self.needed.append((aux, each["vna_other"], each.name, each["vna_name"]))
                        aux += each["vna_next"]
                    at += one["vn_next"]

    def _read(self, entries, names):
        return [Symbol(names[at:names.index(b"\0", at)].decode(), info >> 4, section)
                for at, info, _, section, _, _ in struct.iter_unpack(self.order + "IBBHQQ", entries)]

    @staticmethod
    def _aux(section, at, one):
        return list(section._iter_version_auxiliaries(at + one["vn_aux"], one["vn_cnt"]))

    def undefined(self):
        """(number, name, index of its version, weak) of each symbol that is taken from another file."""
        for i, symbol in enumerate(self.symbols):
            if i and symbol.section == 0 and symbol.name:
                yield i, symbol.name, self.indexes[i] if self.indexes else UNVERSIONED, symbol.bind == WEAK

    def defined(self):
        return {s.name for s in self.symbols if s.section != 0 and s.bind != LOCAL}


def lower(path, compat):
    """Removes versions that are too new from the file at a path. compat: names that COMPAT has. Returns the libraries that it needs for that."""
    symbols = Symbols(path)
    new = {index: name for _, index, name, _ in symbols.needed if too_new(name)}
    if not new:
        return set()
    libraries, unversioned = set(), []
    for i, name, index, _ in symbols.undefined():
        if index not in new:
            continue
        if new[index].startswith("GLIBC_"):
            if name in compat:
                libraries.add(COMPAT)
            elif name in HOME:
                libraries.add(HOME[name])
            else:
                raise SystemExit(f"wheel_symbols.py: {path.name} needs {name} of {new[index]}; add it to python/compat.c, or to OLDER if glibc 2.28 has it")
        elif new[index].startswith("GCC_"):
            raise SystemExit(f"wheel_symbols.py: {path.name} needs {name} of {new[index]}, which the libgcc_s of glibc 2.28's time lacks")
        unversioned.append(i)
    data = bytearray(path.read_bytes())
    for i in unversioned:
        struct.pack_into(symbols.order + "H", data, symbols.table["sh_offset"] + 2 * i, UNVERSIONED)
    # No symbol has these versions now. The loader asks for them all the same, so each becomes the oldest of its kind.
    for place, _, name, _ in symbols.needed:
        if too_new(name):
            kind = version(name)[0]
            old = [(version(n)[1], n, at) for _, _, n, at in symbols.needed if not too_new(n) and version(n) and version(n)[0] == kind]
            if not old:
                raise SystemExit(f"wheel_symbols.py: {path.name} has no version of {kind} that is old enough")
            _, oldest, at = min(old)
            struct.pack_into(symbols.order + "I", data, place, elf_hash(oldest))
            struct.pack_into(symbols.order + "I", data, place + 8, at)
    path.write_bytes(data)
    return libraries


def part_from_others(path):
    """Symbols that exist once in a process become plain ones, because another libstdc++ in the process has them, too."""
    symbols, data = Symbols(path), bytearray(path.read_bytes())
    unique = [i for i, symbol in enumerate(symbols.symbols) if symbol.bind == UNIQUE]
    for i in unique:
        at = symbols.place + i * symbols.entry_size + 4  # st_info of 64-bit files
        data[at] = WEAK << 4 | data[at] & 0xF
    if unique:
        path.write_bytes(data)


def faults(tree):
    """Sentences about files in a folder that do not fit."""
    files = {path: Symbols(path) for path in elf_files(tree)}
    here = set().union(*(one.defined() for one in files.values())) if files else set()
    found = []
    for path, symbols in files.items():
        found += [f"{path.name} shares {symbol.name} with other packages" for symbol in symbols.symbols if symbol.bind == UNIQUE]
        found += [f"{path.name} needs {name}" for _, _, name, _ in symbols.needed if too_new(name)]
        if symbols.indexes and not symbols.libraries & PLAIN:
            found += [f"{path.name} needs {name}, which neither the wheel nor glibc 2.28 has" for _, name, index, weak in symbols.undefined()
                      if index == UNVERSIONED and not weak and name not in here and name not in HOME]
    return found, len(files)


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as work:
        zipfile.ZipFile(sys.argv[1]).extractall(work)
        found, n = faults(work)
    for one in found:
        print(one)
    print(f"{n} files, {len(found)} symbols that are too new")
    sys.exit(1 if found or not n else 0)


if __name__ == "__main__":
    main()
