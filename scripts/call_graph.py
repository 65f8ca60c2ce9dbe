# SPDX-License-Identifier: MIT
"""Which function names which, read from C and C++ sources without a compiler. check_layers.sh uses it.

A function calls what its body names: functions that it calls, and functions that it hands on. Macros and inline functions
of headers count as part of the functions that use them. A table is an object with an initialiser: a function that names it calls what is in
it. Not so the tables that `registers` names, a list of patterns.

The reader knows this repository's form: a definition begins at the left, and clang-format has set its braces.
"""

import collections
import re

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])'")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*)", re.M)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.M)
BRACKETS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
# A function: what is before its name, the name (with its class), arguments, an initialiser list, and the open brace.
FUNCTION = re.compile(
    r"^(?!typedef|return|else|namespace|using)((?:[A-Za-z_][\w\s*&:<>,\"]*?)??)\b((?:\w+::)*~?\w+(?:\(\w+\))?)\s*" + BRACKETS
    + r"(?:\s*(?:const|noexcept|override))*(?:\s*:[^;{}]*(?:\{[^{}]*\}[^;{}]*)*)?\s*\{", re.M)
TABLE = re.compile(
    r"^(?!typedef|return|namespace|using|enum)([A-Za-z_][\w\s*&:<>,]*?(?:\{[^{}]*\}\s*)?)(?:\(\*(?:const\s)?)?\b(\w+)(?:\[[^\]]*\])*"
    r"(?:\)\([^()]*\))?\s*=\s*\{", re.M)
CLASS = re.compile(r"^(struct|class)\s+(\w+)[^;{}()]*\{", re.M)  # with functions in it
NAMESPACE = re.compile(r"\bnamespace\s*(\w*)\s*\{")
WORD = re.compile(r"(?<![.\w])(?<!->)(?<!struct )(?<!enum )(?<!union )(?:(\w+)::)?(\w+)")
# The library's function, where the program has one of the same name (serve/libllama_real.h).
REAL = re.compile(r"\bREAL\(\w+\)")
# Names of this repository. Others that it defines replace a library's functions (serve/calls.c); calls of these mean the library.
OWN = re.compile(r"(?:wnw|app|bench|calibrate|cli|eval|perturb|serve|python|winnow)_")
NAMESPACES = {"serve", "wnw"}  # of this repository
WORDS_OF_C = {"if", "for", "while", "switch", "sizeof", "return"}


def strip(text):
    return REAL.sub("REAL()", STRING.sub('""', COMMENT.sub(" ", text)))


def end_of_braces(text, at):
    """The place after the brace that closes the one just before `at`."""
    depth = 1
    for m in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if m[0] == "{" else -1
        if depth == 0:
            return m.end()
    return len(text)


class Node:
    """A function, the functions of a class, or a table. A static one is seen in its file alone, one of a namespace from files that
    name the namespace."""

    def __init__(self, path, name, words, static, namespace, is_table):
        self.path, self.name, self.words, self.static = path, name, words, static
        self.namespace, self.is_table = namespace, is_table

    def __repr__(self):
        return f"{self.path}: {self.name}"


def words_of(text):
    """The words that can name a function."""
    return {word for _, word in WORD.findall(text)}


class Source:
    """One file: its macros, namespaces, functions and tables."""

    def __init__(self, path, text):
        self.path, self.is_header = path, path.suffix in (".h", ".hpp")
        text = strip(text)
        self.macros = {m[1]: words_of(m[2]) for m in MACRO.finditer(text)}
        text = DIRECTIVE.sub(lambda m: " " * len(m[0]), text)
        self.spaces = []
        if path.suffix in (".cpp", ".hpp"):
            self.spaces = [(m[1], m.start(), end_of_braces(text, m.end())) for m in NAMESPACE.finditer(text)]
        self.namespaces = {name for name, _, _ in self.spaces if name} | set(re.findall(r"\b(\w+)::", text))
        patterns = [FUNCTION, TABLE] + [CLASS] * (path.suffix == ".hpp")
        nodes = [self.node_at(m, text, pattern is TABLE) for pattern in patterns for m in pattern.finditer(text)]
        self.nodes = list(filter(None, nodes))

    def node_at(self, m, text, is_table):
        *owners, name = m[2].split("::")
        if name in WORDS_OF_C or name == "main":
            return None
        around = [name for name, begin, end in self.spaces if begin < m.start() < end]
        if owners and owners[-1] not in NAMESPACES:
            name = owners[-1]  # all functions of a class are one node
        elif owners:
            around.append(owners[-1])
        words = words_of(text[m.start():end_of_braces(text, m.end())])
        space = next(filter(None, around), None)
        before = set(m[1].split())
        before |= {word for name in before & self.macros.keys() for word in self.macros[name]}  # INLINE
        seen = "" not in around and (self.is_header or ("static" not in before and (space or OWN.match(name))))
        return Node(self.path, name, words, not seen, space, is_table)


class Graph:
    def __init__(self, paths, registers=()):
        self.registers = re.compile("|".join(registers) or "(?!)")
        self.sources = [Source(p, p.read_text()) for p in paths]
        self.by_name = collections.defaultdict(list)  # seen from other files
        self.local = collections.defaultdict(lambda: collections.defaultdict(list))
        self.macros = {}  # of headers
        for s in self.sources:
            if s.is_header:
                self.macros.update(s.macros)
            for node in s.nodes:
                (self.local[s.path] if node.static else self.by_name)[node.name].append(node)
        # Most words name nothing that any file defines.
        self.known = self.by_name.keys() | {name for s in self.sources for name in (*s.macros, *self.local[s.path])}
        self.calls = {}
        for s in self.sources:
            for node in s.nodes:
                self.calls[node] = sorted(self.called(node, s), key=repr)

    def called(self, node, source):
        found, seen, todo = [], set(), list(node.words & self.known)
        while todo:
            word = todo.pop()
            if word in seen:
                continue
            seen.add(word)
            macro = source.macros.get(word) or self.macros.get(word)
            todo += macro & self.known if macro else []
            for other in self.named(word, source):
                if other is not node and self.sees(source, other) and not (other.is_table and self.registers.fullmatch(other.name)):
                    found.append(other)
        return found

    def named(self, word, source):
        own = self.local[source.path].get(word) or [n for n in self.by_name.get(word, []) if n.path == source.path]
        return own or self.by_name.get(word, [])

    @staticmethod
    def sees(source, other):
        """Whether a file can name the function. src/ cannot know a program's functions."""
        if other.path == source.path:
            return True
        if source.path.parts[0] == "src" and other.path.parts[0] not in ("src", "include"):
            return False
        return not other.namespace or other.namespace in source.namespaces

    def is_inline(self, node):
        return node.path.suffix in (".h", ".hpp")

    def outward(self, node, seen=None):
        """What a node calls, with what inline functions of headers call in their place."""
        seen = set() if seen is None else seen
        for other in self.calls[node]:
            if not self.is_inline(other):
                yield other
            elif other not in seen:
                seen.add(other)
                yield from self.outward(other, seen)

    def files(self):
        """File: {file that it calls: the names of the functions}."""
        out = {s.path: collections.defaultdict(set) for s in self.sources if not s.is_header}
        for node in self.calls:
            if node.path in out:
                for other in self.outward(node):
                    if other.path != node.path:
                        out[node.path][other.path].add(other.name)
        return out

    def find(self, name):
        """The functions of a name, or of "file: name"."""
        return [node for node in self.calls if name in (node.name, repr(node)) and not self.is_inline(node) and not node.is_table]

    def walk(self, first, last):
        """The shortest chain of calls between two functions; None where there is none."""
        before = dict.fromkeys(self.find(first))
        todo = collections.deque(before)
        ends = self.find(last)
        while todo:
            node = todo.popleft()
            if node in ends:
                chain = [node]
                while before[chain[0]]:
                    chain.insert(0, before[chain[0]])
                return chain
            for other in self.calls[node]:
                if other not in before:
                    before[other] = node
                    todo.append(other)
        return None

    def reached(self, first):
        """All functions that calls lead to from one, with itself."""
        seen = set(self.find(first))
        todo = list(seen)
        while todo:
            for other in self.calls[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen


def find_order(graph):
    """Numbers such that each node has a larger one than all nodes that it leads to. The graph has no knot."""
    number = {}

    def visit(a):
        if a not in number:
            number[a] = 1 + max([visit(b) for b in graph[a]], default=0)
        return number[a]

    for a in graph:
        visit(a)
    return number


def find_knots(graph):
    """Sets of nodes that all lead to each other (Tarjan, without recursion)."""
    number, lowest, stack, on_stack, knots = {}, {}, [], set(), []
    for root in graph:
        if root in number:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            a, targets = work[-1]
            b = next(targets, None)
            if b is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[a])
                if lowest[a] == number[a]:
                    knot = stack[stack.index(a):]
                    del stack[stack.index(a):]
                    on_stack -= set(knot)
                    knots.extend([knot] if len(knot) > 1 else [])
            elif b not in number:
                number[b] = lowest[b] = len(number)
                stack.append(b)
                on_stack.add(b)
                work.append((b, iter(graph[b])))
            elif b in on_stack:
                lowest[a] = min(lowest[a], number[b])
    return knots
