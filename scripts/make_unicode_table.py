#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes eval/base/unicode_table.h: letters and digits beyond ASCII, and lower case of single code points.

The metrics of the evaluation split text as Python does; the rows are what this Python's unicodedata says.
"""
import pathlib
import sys
import unicodedata


def code_points():
    return (c for c in range(0x80, sys.maxunicode + 1) if not 0xD800 <= c < 0xE000)


def alnum_rows():
    rows = []
    for c in code_points():
        if not chr(c).isalnum():
            continue
        if rows and rows[-1][1] == c - 1:
            rows[-1][1] = c
        else:
            rows.append([c, c])
    return rows


def lower_rows():
    """[first, last, step, what is added]: every step-th code point from first to last."""
    rows = []
    for c in code_points():
        low = chr(c).lower()
        if len(low) != 1 or low == chr(c):
            continue
        add = ord(low) - c
        row = rows[-1] if rows else None
        if row and row[3] == add and (c - row[1] == row[2] or (row[0] == row[1] and c - row[1] == 2)):
            row[2] = c - row[1]
            row[1] = c
        else:
            rows.append([c, c, 1, add])
    return rows


def table(rows, form):
    out, line = [], "   "
    for row in rows:
        item = " {" + ", ".join(f(v) for f, v in zip(form, row)) + "},"
        if len(line) + len(item) > 108:
            out.append(line)
            line = "   "
        line += item
    return "\n".join(out + [line])


def main():
    hexa = "0x{:x}".format
    text = f"""/* SPDX-License-Identifier: MIT */
/* Printed by scripts/make_unicode_table.py from Unicode {unicodedata.unidata_version}: change that, not this. */
/* clang-format off */
#ifndef WNW_EVAL_UNICODE_TABLE_H
#define WNW_EVAL_UNICODE_TABLE_H

#include <stdint.h>

/* Letters, digits and other numbers beyond ASCII: first and last of each run, ascending. */
static const uint32_t alnum_runs[][2] = {{
{table(alnum_rows(), [hexa, hexa])}
}};

/* Lower case: every step-th code point from first to last has its lower case at a distance of add. */
static const struct {{
    uint32_t first, last, step;
    int32_t add;
}} lower_runs[] = {{
{table(lower_rows(), [hexa, hexa, str, str])}
}};

#endif
"""
    path = pathlib.Path(__file__).resolve().parent.parent / "eval" / "unicode_table.h"
    path.write_text(text)


main()
