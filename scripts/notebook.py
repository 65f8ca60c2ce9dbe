#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the code cells of a notebook: notebook.py FILE.ipynb [--set NAME=VALUE]... [--write]

It needs no Jupyter. A cell's last expression and the figures of matplotlib are its results, as in Jupyter. An exception ends the run with its
traceback. --set replaces `NAME = ...` in the first code cell; VALUE is a Python literal, or else a string. --write puts the results into the
file. The last line printed is the number of cells and of figures.
"""
import argparse
import ast
import base64
import contextlib
import io
import json
import pathlib


def literal(value):
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return value


def replaced(source, settings):
    """The first cell with other values; a name that it does not assign is an error."""
    tree, lines = ast.parse(source), source.splitlines()
    places = {one.targets[0].id: one for one in tree.body if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)}
    for name, value in settings.items():
        if name not in places:
            raise SystemExit(f"notebook.py: the first code cell does not set {name}")
        at = places[name]
        lines[at.lineno - 1:at.end_lineno] = [f"{name} = {value!r}"] + [""] * (at.end_lineno - at.lineno)
    return "\n".join(lines)


def execute(source, name, scope):
    """Runs a cell; returns what it printed, and its last expression or None."""
    tree, value, out = ast.parse(source, name), None, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, name, "exec"), scope)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
    return out.getvalue(), value


def figures():
    from matplotlib import pyplot
    found = []
    for number in pyplot.get_fignums():
        data = io.BytesIO()
        pyplot.figure(number).savefig(data, format="png", dpi=70, bbox_inches="tight", metadata={"Software": None})
        found.append(base64.b64encode(data.getvalue()).decode())
    pyplot.close("all")
    return found


def results(printed, value, pictures, count):
    made = [{"name": "stdout", "output_type": "stream", "text": printed.splitlines(True)}] if printed else []
    if value is not None and not pictures:
        data = {"text/plain": repr(value).splitlines(True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(True)
        made.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    made += [{"data": {"image/png": one}, "metadata": {}, "output_type": "display_data"} for one in pictures]
    return made


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file", type=pathlib.Path)
    options.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options.add_argument("--write", action="store_true")
    options = options.parse_args()
    settings = {name: literal(value) for name, _, value in (one.partition("=") for one in options.set)}
    import matplotlib
    matplotlib.use("Agg")
    notebook, scope, n_pictures = json.loads(options.file.read_text(encoding="utf-8")), {"__name__": "__main__"}, 0
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        source = "".join(cell["source"])
        if count == 1 and settings:
            source = replaced(source, settings)
        printed, value = execute(source, f"<cell {count}>", scope)
        pictures = figures()
        n_pictures += len(pictures)
        cell["execution_count"], cell["outputs"] = count, results(printed, value, pictures, count)
    if options.write:
        options.file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(cells)} cells, {n_pictures} figures")


if __name__ == "__main__":
    main()
