#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens a page of `winnow inspect -o` in headless Chromium and compares it with the files it is made of: check_inspect.py PAGE JSON [JSON] [-- PAGE JSON [JSON]]...

JSON is what `winnow inspect --json` says of a file. Every shade and bar is counted again from its positions; a text that became markup and
anything that the browser's console says fail.
"""
import base64
import json
import math
import os
import sys

from browser import Browser, groups

page, plans, kept = "", [], []  # the page at hand, the files that it is made of, and what stays in each layer and head
n = n_layer = n_head = 0
UP, DOWN, LEFT, RIGHT, ENTER = "\ue013", "\ue015", "\ue012", "\ue014", "\ue007"


def looks(b):
    """Of each column the shades of its tokens."""
    return b.js("return [...document.querySelectorAll('.column')].filter(c => c.tagName === 'SECTION').map(c => [...c.querySelectorAll('.text span')].map(s => Number(s.className[1])))")


def heads(p, layer, head):
    layers = kept[p] if layer < 0 else [kept[p][layer]]
    return [h for of in layers for h in (of if head < 0 else [of[head]])]


def check(b, layer=-1, head=-1, only=False):
    chosen = [heads(p, layer, head) for p in range(len(plans))]
    for p, got in enumerate(looks(b)):
        mine = [h - o for h, o in zip(chosen[p], chosen[1 - p])] if only else chosen[p]
        want = [math.ceil(8 * sum(i in h for h in mine) / len(mine)) for i in range(n)]
        assert got == want, f"layer {layer}, head {head}: shades of column {p}"
    bars = b.js("return ['layers', 'heads'].map(id => [...document.getElementById(id).children].map(r => [...r.querySelectorAll('.bar i')].map(i => parseFloat(i.style.width))))")
    for rows, of in zip(bars, (lambda p, i: heads(p, i, -1), lambda p, i: heads(p, layer, i))):
        for i, row in enumerate(rows):
            want = [100 * sum(map(len, of(p, i - 1))) / (len(of(p, i - 1)) * n) for p in range(len(plans))]
            assert all(abs(x - y) < 0.01 for x, y in zip(row, want)) and len(row) == len(want), f"bar {i}: {row}, expected {want}"
    assert [len(rows) for rows in bars] == [n_layer + 1, n_head + 1], "bars"


def check_page(b):
    check(b)
    b.keys(DOWN + DOWN + RIGHT)
    check(b, 1, 0)
    b.keys(UP + LEFT)
    check(b, 0)
    b.keys(UP + UP + UP)
    check(b)
    b.click("#layers button:nth-child(2)")
    b.click(f"#heads button:nth-child({n_head + 1})")
    check(b, 0, n_head - 1)
    if len(plans) > 1:
        b.js("const s = document.getElementById('shade'); s.value = 'only'; s.dispatchEvent(new Event('change'))")
        check(b, 0, n_head - 1, True)
        b.click("#heads button")
        check(b, 0, -1, True)


def check_token(b):
    b.click(".text span:nth-child(4)")
    at = b.js("return state.at")
    assert f"Position {at}" in b.js("return document.getElementById('token').textContent")
    on = b.js("return [...document.querySelectorAll('.grid')].map(g => [...g.children].map(i => i.className === 'on'))")
    assert on == [[at in h for layer in of for h in layer] for of in kept], "the grid of a token"


def check_search(b):
    words = b.js("return data.texts !== null")
    b.type("#search", "keeper" if words else str(n - 1))
    if words:
        text = b.js("return data.texts.join('')").lower()
        assert b.js("return state.hits.length") == text.count("keeper") > 1
    b.type("#search", ENTER)
    at = b.js("return state.hits[0]")
    assert b.js("return state.at") == at[0] and (not words or "keeper" in b.js("return state.hits[0].map(i => data.texts[i]).join('')").lower())
    assert b.js("return document.querySelectorAll('.text .hit').length") >= len(at) * len(plans)


def check_answer(b):
    """Shades of what the answer attended to, of all its tokens and of one, counted again from the shares in the page's data."""
    answer = b.js("return data.answer")
    if not answer:
        assert b.js("return document.getElementById('answer').hidden && [...document.getElementById('shade').options].every(o => o.value !== 'answer')")
        return
    assert b.js("return document.getElementById('said').textContent") == "".join(t or "·" for t in answer["texts"])

    def shades(rows):
        mass = [0] * n
        for row in rows:
            for at, share in zip(row[::2], row[1::2]):
                mass[at] += share / 1e5 / len(rows)
        return [0 if x <= 0 else max(1, 8 + math.floor(math.log2(x / max(mass)) + 1e-9)) for x in mass]
    b.js("const s = document.getElementById('shade'); s.value = 'answer'; s.dispatchEvent(new Event('change'))")
    assert looks(b) == [shades(answer["mass"])], "shades of the whole answer"
    for i in (0, len(answer["texts"]) - 1):
        b.click(f"#said button:nth-child({i + 1})")
        assert looks(b) == [shades([answer["mass"][i]])], f"shades of token {i}"
        assert f"Token {i + 1}" in b.js("return document.getElementById('attends').textContent")
        assert b.js("return document.querySelectorAll('#said [aria-pressed=true]').length") == 1
    b.click(f"#said button:nth-child({len(answer['texts'])})")
    assert looks(b) == [shades(answer["mass"])], "a second click shows all again"
    b.js("const s = document.getElementById('shade'); s.value = 'kept'; s.dispatchEvent(new Event('change'))")


def check_looks(b):
    for width, dark in ((390, False), (390, True), (1280, True), (1280, False)):
        b.screen(width, dark)
        b.load(page)
        assert b.js("return document.documentElement.scrollWidth") <= width, f"wider than {width}"
        if b.js("return data.answer !== null && data.answer !== undefined"):
            b.click("#said button")
        if os.environ.get("WNW_SCREENS"):
            b.screenshot(f"{os.environ['WNW_SCREENS']}/inspect-{width}-{'dark' if dark else 'light'}.png")
        lightness = b.js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
        assert (lightness < 200) == dark, lightness
    assert base64.b64decode(b.command("Page.printToPDF")["data"]).startswith(b"%PDF")


with Browser() as browser:
    for path, *files in groups(sys.argv[1:]):
        print(path)
        page = "file://" + os.path.abspath(path)
        plans = [json.load(open(file, encoding="utf-8")) for file in files]
        kept = [[[set(head) for head in layer["heads"]] for layer in plan["layers"]] for plan in plans]
        n, n_layer, n_head = plans[0]["n_tokens"], len(kept[0]), len(kept[0][0])
        browser.screen(1280)
        browser.load(page)
        assert browser.js("return document.querySelectorAll('img, iframe, body script').length") == 2, "a text became markup"
        assert "[object" not in browser.js("return document.body.innerText")
        check_page(browser)
        check_token(browser)
        check_search(browser)
        check_answer(browser)
        check_looks(browser)
        browser.check_silent()
