#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes python/winnow/_declarations.py, the C interface for ctypes, from the public headers: python_declarations.py [--check]

--check compares the file with what would be written, and fails where they differ. The headers go through the C preprocessor (CC, or cc).
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "python/winnow/_declarations.py"
HEADERS = ["winnow.h", "winnow_chat.h", "winnow_tools.h", "winnow_method.h", "winnow_store.h", "winnow_batch.h", "winnow_calibrate.h", "winnow_bridge.h", "winnow_study.h"]
PLAIN = {
    "void": "None", "char": "c_char", "bool": "c_bool", "_Bool": "c_bool", "int": "c_int", "float": "c_float", "double": "c_double",
    "size_t": "c_size_t", "int8_t": "c_int8", "uint8_t": "c_uint8", "int16_t": "c_int16", "uint16_t": "c_uint16", "int32_t": "c_int32",
    "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64", "unsigned": "c_uint",
}


def preprocess():
    """The text of our headers without comments, macros expanded; nothing of the system's headers."""
    source = "".join(f'#include "{h}"\n' for h in HEADERS if (ROOT / "include" / h).exists())
    done = subprocess.run([os.environ.get("CC", "cc"), "-E", "-std=c11", "-D__attribute__(x)=", "-I", str(ROOT / "include"), "-x", "c", "-"],
                          input=source, text=True, capture_output=True, check=True)
    ours, text = False, []
    for line in done.stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = marker.group(1).startswith(str(ROOT / "include"))
        elif ours:
            text.append(line)
    return "\n".join(text)


def macros():
    """Numbers and strings that the headers define by name."""
    found = {}
    for name in HEADERS:
        path = ROOT / "include" / name
        text = path.read_text() if path.exists() else ""
        for key, value in re.findall(r'^#define (WNW_[A-Z0-9_]+)\s+("[^"\n]*"|-?\d+)\s*(?:/\*.*)?$', text, flags=re.M):
            found[key] = value
    return found


class Reader:
    def __init__(self, text):
        self.tokens = re.findall(r'"(?:\\.|[^"])*"|[A-Za-z_]\w*|0[xX][0-9a-fA-F]+[uUlL]*|\d[\w.]*|<<|>>|\.\.\.|->|&&|\|\||[^\s\w]', text)
        self.at = 0
        self.structs, self.order = {}, []  # name -> fields, or None where it is opaque
        self.constants, self.types, self.functions, self.defaults = {}, {}, {}, {}

    def peek(self, k=0):
        return self.tokens[self.at + k] if self.at + k < len(self.tokens) else ""

    def take(self, want=None):
        token = self.peek()
        if want is not None and token != want:
            raise SystemExit(f"python_declarations.py: '{want}' expected, found '{' '.join(self.tokens[max(0, self.at - 8):self.at + 4])}'")
        self.at += 1
        return token

    def skip_block(self):
        """The tokens of a block in braces, or of a constant expression in it."""
        self.take("{")
        depth, begin = 1, self.at
        while depth:
            depth += {"{": 1, "}": -1}.get(self.take(), 0)
        return self.tokens[begin:self.at - 1]

    # ---- Types ----

    def base(self):
        """The type in front of declarators, as an expression of ctypes; enums are c_int."""
        while self.peek() in ("const", "static", "inline", "extern"):
            self.take()
        token = self.take()
        if token == "enum":
            if self.peek() != "{":
                self.take()
            if self.peek() == "{":
                self.enum()
            result = "c_int"
        elif token in ("struct", "union"):
            name = self.take() if self.peek() != "{" else f"_anonymous_{len(self.order)}"
            if self.peek() == "{":
                self.struct(name)
            elif name not in self.structs:
                self.structs[name] = None
                self.order.append(name)
            result = name
        elif token in PLAIN:
            result = PLAIN[token]
        elif token in self.types:
            result = self.types[token]
        else:
            raise SystemExit(f"python_declarations.py: unknown type '{token}' near '{' '.join(self.tokens[self.at - 6:self.at + 6])}'")
        while self.peek() == "const":
            self.take()
        return result

    @staticmethod
    def pointer(to, callback=False):
        if to == "None":
            return "c_void_p"
        if to == "c_char":
            return "POINTER(c_char)" if callback else "c_char_p"
        if to.startswith("CFUNCTYPE("):
            return to
        return f"POINTER({to})"

    def declarator(self, base, callback=False):
        """(name, type) of one declarator."""
        while self.peek() == "*":
            self.take()
            base = self.pointer(base, callback)
            while self.peek() == "const":
                self.take()
        if self.peek() == "(" and self.peek(1) == "*":
            self.take()
            self.take()
            while self.peek() == "const":
                self.take()
            name = self.take() if self.peek() != ")" else ""
            self.take(")")
            return name, self.callback_type(base)
        name = self.take() if re.match(r"[A-Za-z_]\w*$", self.peek()) else ""
        sizes = []
        while self.peek() == "[":
            self.take()
            words = []
            while self.peek() != "]":
                words.append(self.take())
            self.take()
            sizes.append(self.value(words) if words else None)
        for size in reversed(sizes):
            base = f"{base} * {size}" if size is not None else self.pointer(base, callback)
        return name, base

    def callback_type(self, result):
        arguments = [kind for _, kind in self.parameters(True)]
        return "CFUNCTYPE(" + ", ".join([result] + arguments) + ")"

    def parameters(self, callback=False):
        self.take("(")
        found = []
        if self.peek() == "void" and self.peek(1) == ")":
            self.take()
        while self.peek() != ")":
            name, kind = self.declarator(self.base(), callback)
            array = re.match(r"(.*) \* \d+$", kind)  # an array parameter is a pointer
            if array:
                kind = self.pointer(array.group(1), callback)
            found.append((name, kind))
            if self.peek() == ",":
                self.take()
        self.take(")")
        return found

    # ---- Declarations ----

    def value(self, words):
        known = {**self.constants}
        words = [re.sub(r"^(\w*?\d[\da-fA-FxX]*)[uUlL]+$", r"\1", w) for w in words if w not in ("(", ")") or True]
        return eval(" ".join(words), {}, known)  # a constant expression of our own header

    def enum(self):
        last, words = -1, self.skip_block() + [","]
        while words:
            end = words.index(",")
            one, words = words[:end], words[end + 1:]
            if one:
                last = self.value(one[2:]) if len(one) > 1 else last + 1
                self.constants[one[0]] = last

    def struct(self, name):
        if name in self.order:
            self.order.remove(name)
        self.structs.setdefault(name, None)
        self.take("{")
        fields = []
        while self.peek() != "}":
            base = self.base()
            while self.peek() != ";":
                fields.append(self.declarator(base))
                if self.peek() == ",":
                    self.take()
            self.take(";")
        self.take("}")
        self.structs[name] = fields
        self.order.append(name)

    def read(self):
        while self.at < len(self.tokens):
            if self.peek() == ";":
                self.take()
            elif self.peek() == "typedef":
                self.typedef()
            elif self.peek() == "static":
                self.inline()
            else:
                self.prototype()

    def typedef(self):
        self.take()
        base = self.base()
        name, kind = self.declarator(base)
        if self.peek() == "(":  # a function's type
            kind = self.callback_type(kind)
        self.types[name] = kind
        self.take(";")

    def inline(self):
        base = self.base()
        name, _ = self.declarator(base)
        self.parameters()
        body = " ".join(self.skip_block())
        if base in self.structs and "p . struct_size" in body:
            self.defaults[name] = (base, re.findall(r"p \. (\w+) = ([^,;)]+?) *(?=[,;)])", body))

    def prototype(self):
        base = self.base()
        if self.peek() == ";":  # a struct or an enum by itself
            self.take()
            return
        name, kind = self.declarator(base)
        self.functions[name] = (kind, [k for _, k in self.parameters()])
        self.take(";")


def python_value(text):
    text = text.strip().replace(" ", "")
    return {"true": "True", "false": "False"}.get(text) or re.sub(r"^([\d.]+)f$", r"\1", text)


def write(reader):
    lines = ['"""The C interface for ctypes. scripts/python_declarations.py writes this file from the public headers."""',
             "# SPDX-License-Identifier: MIT",
             "from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int8, c_int16, c_int32, c_int64,",
             "                    c_size_t, c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, sizeof)",
             "", "# ---- Constants ----", ""]
    for name, value in macros().items():
        lines.append(f"{name} = {value}")
    lines += [f"{name} = {value}" for name, value in reader.constants.items()]
    lines += ["", "# ---- Structs ----", ""]
    lines += [f"\nclass {name}(Structure):\n    pass\n" for name in reader.order]
    for name in reader.order:
        if reader.structs[name]:
            lines.append(f"\n{name}._fields_ = [")
            lines += [f'    ("{field}", {kind}),' for field, kind in reader.structs[name]]
            lines.append("]")
    lines += ["", "# ---- Types of functions ----", ""]
    lines += [f"{name} = {kind}" for name, kind in reader.types.items() if kind.startswith("CFUNCTYPE")]
    lines += ["", "# ---- Defaults ----", ""]
    for name, (struct, values) in reader.defaults.items():
        lines += ["", f"def {name}():", f"    p = {struct}()", "    p.struct_size = sizeof(p)"]
        lines += [f"    p.{field} = {python_value(value)}" for field, value in values if field != "struct_size"]
        lines += ["    return p", ""]
    lines += ["", "# ---- Functions: result, arguments ----", "", "FUNCTIONS = {"]
    lines += [f'    "{name}": ({result}, [{", ".join(arguments)}]),' for name, (result, arguments) in sorted(reader.functions.items())]
    lines += ["}", ""]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))


def main():
    reader = Reader(preprocess())
    reader.read()
    text = write(reader)
    if "--check" in sys.argv[1:]:
        if not OUT.exists() or OUT.read_text() != text:
            raise SystemExit("python/winnow/_declarations.py is not what the headers say: run scripts/python_declarations.py")
        return
    OUT.write_text(text)


if __name__ == "__main__":
    main()
