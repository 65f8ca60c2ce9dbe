# SPDX-License-Identifier: MIT
"""Tables of what scripts have measured: on the screen, and as a record whose first line is the command."""
import csv
import os
import sys


def write(path, columns, rows, arguments=None):
    """Writes rows to a CSV file. arguments: those of the command that its first line names; None: this process's, without --csv."""
    if arguments is None:
        arguments = [x for x in sys.argv[1:] if x not in ("--csv", path)]
    with open(path, "w", newline="", encoding="utf-8") as f:
        f.write(" ".join([f"# scripts/{os.path.basename(sys.argv[0])}", *arguments]) + "\n")
        w = csv.DictWriter(f, columns, lineterminator="\n")
        w.writeheader()
        w.writerows(rows)


def show(columns, rows, width, path=None):
    """Prints rows in columns of a width, and writes them to a CSV file if one is named."""
    print("  ".join(f"{x:>{width}}" for x in columns))
    for row in rows:
        print("  ".join(f"{row[x]!s:>{width}}" for x in columns))
    if path:
        write(path, columns, rows)
