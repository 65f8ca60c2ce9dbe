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


def shade(x, lo, hi):
    if x == 0:
        return 0
    if hi <= lo:
        return 1 if x < lo else 8
    return 1 + math.floor(7 * min(1, max(0, (x - lo) / (hi - lo))) + 0.5)


def scale(b, lists):
    """The ends of the scale: what 2 and 98 of a hundred of the document's tokens do not exceed, of those that have any."""
    first, end = b.js("return data.document") or (0, n)
    values = sorted(x for of in lists for x in of[first:end] if x)
    return [values[math.floor(q * (len(values) - 1))] for q in (0.02, 0.98)] if values else [0, 0]


def counted(layer, head, only=False):
    """Of each plan and token how many of the chosen heads keep it."""
    chosen = [heads(p, layer, head) for p in range(len(plans))]
    lists = [[h - o for h, o in zip(chosen[p], chosen[1 - p])] if only else chosen[p] for p in range(len(plans))]
    return [[sum(i in h for h in of) for i in range(n)] for of in lists]


def check(b, layer=-1, head=-1, only=False):
    counts = counted(layer, head, only)
    ends = scale(b, counts)
    for p, got in enumerate(looks(b)):
        want = [shade(x, *ends) for x in counts[p]]
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


def check_views(b):
    """A phone shows one of two plans, or their difference; a wide screen both as well."""
    if len(plans) < 2:
        assert b.js("return document.getElementById('view').hidden"), "a switch of one plan"
        return
    b.js("const s = document.getElementById('shade'); s.value = 'kept'; s.dispatchEvent(new Event('change'))")
    seen = "return [...document.querySelectorAll('#columns > section')].map(s => !s.hidden)"
    figures = "return [...document.querySelectorAll('#maps figure')].map(f => !f.hidden)"
    for width in (1280, 390):
        b.screen(width)
        if width == 1280:
            b.click("[data-view=both]")
        else:
            assert not b.js("return document.querySelector('[data-view=both]').offsetParent"), "two columns on a phone"
        waited(b, figures, [True, width == 1280, False])
        assert b.js(seen) == [True, width == 1280], "what a switch shows at first"
        for view, shows, draws in (("b", [False, True], [False, True, False]), ("difference", [True, False], [False, False, True]), ("a", [True, False], [True, False, False])):
            b.click(f"[data-view={view}]")
            assert b.js(seen) == shows and b.js(figures) == draws, f"the switch's {view}"
            assert b.js("return [...document.querySelectorAll('#view [aria-pressed=true]')].map(x => x.dataset.view)") == [view]
            if view == "difference":
                check_difference(b)
        b.js("select({view: 'both'})")
    b.screen(1280)
    waited(b, figures, [True, True, False])


def check_difference(b):
    layer, head = b.js("return [state.layer, state.head]")
    first, second = counted(layer, head)
    apart = [x - y for x, y in zip(first, second)]
    ends = scale(b, [[abs(x) for x in apart]])
    got = b.js("return [...document.querySelector('#columns > section').querySelectorAll('.text span')].map(s => [Number(s.className[1]), s.classList.contains('more-b')])")
    assert got == [[shade(abs(x), *ends), x < 0] for x in apart], "shades of the difference"


def waited(b, script, want):
    """A page follows a screen in its next frames."""
    for _ in range(100):
        if b.js(script) == want:
            return
        b.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)))")
    assert b.js(script) == want, (script, b.js(script), want)


def check_overview(b):
    """The overview's cells, counted again; and a click on it, which opens the place."""
    columns = 10
    first, end = b.js("return data.document") or (0, n)
    got = b.js("return plans.map((_, p) => cellsOf(p, -1, arguments[0]).map(row => [...row]))", columns)
    for p, rows in enumerate(got):
        for il, row in enumerate(rows):
            counts = [sum(i in h for h in kept[p][il]) / n_head for i in range(first, end)]
            for c, x in enumerate(row):
                of = [y for i, y in enumerate(counts) if i * columns // (end - first) == c]
                assert abs(x - sum(of) / len(of)) < 1e-4, f"cell {c} of layer {il}"
    drawn = b.js("""return [...document.querySelectorAll('#maps figure')].filter(f => !f.hidden).map(f => {
  const c = f.querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
  return seen.size; })""")
    assert len(drawn) == len(plans) and all(x > 3 for x in drawn), f"colours of the overview: {drawn}"
    b.click("#maps canvas")
    assert b.js("return state.layer") == n_layer // 2 and first <= b.js("return state.at") < end, b.js("return [state.layer, state.at]")
    b.js("select({layer: -1})")


def check_template(b):
    """What the chat template wrote is shown where that is asked for, or where a token of it is opened."""
    first, end = b.js("return data.document") or (0, n)
    visible = "return [...document.querySelector('.text').querySelectorAll('span')].map((s, i) => s.getClientRects().length > 0 ? i : -1).filter(i => i >= 0)"
    b.js("for (const x of document.querySelectorAll('.block')) x.style.contentVisibility = 'visible'")
    assert b.js(visible) == list(range(first, end)), "tokens of the chat template"
    assert b.js("return document.getElementById('template-label').hidden") == (first == 0 and end == n)
    if first > 0:
        b.click("#template")
        assert b.js(visible) == list(range(n)), "the chat template is not shown"
        b.click("#template")
        assert b.js(visible) == list(range(first, end))
        b.js("choose(0, true)")
        assert b.js(visible) == list(range(n)), "a token of the template is opened and not shown"
        b.click("#template")


def check_token(b):
    b.click(".block:not(.template) span:nth-child(4)")
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
    b.load(page)
    answers = b.js("return [document.getElementById('shade').value, state.sink]")
    assert answers == ["answer", False], f"the page opens on {answers}"
    assert b.js("return document.getElementById('said').textContent") == "".join(t or "·" for t in answer["texts"])

    first, end = b.js("return data.document") or (4, n)
    rows = [dict(zip(row[::2], row[1::2])) for row in answer["mass"]]
    always = [i for i in rows[0] if all(i in row for row in rows)] if len(rows) > 3 else []
    sinks = set(range(first)) | set(range(end, n)) | {i for i in always if 2 * len(rows) * min(row[i] for row in rows) >= sum(row[i] for row in rows)}
    assert set(b.js("return [...sinks]")) == sinks, "attention sinks"

    def shades(rows, without=sinks):
        mass = [0] * n
        for row in rows:
            for at, share in zip(row[::2], row[1::2]):
                if at not in without:
                    mass[at] += share / 1e5 / len(rows)
        if max(mass) <= 0:
            return [shade(x, *scale(b, counted(-1, -1))) for x in counted(-1, -1)[0]]
        return [0 if x <= 0 else max(1, 8 + math.floor(math.log2(x / max(mass)) + 1e-9)) for x in mass]
    assert looks(b) == [shades(answer["mass"])], "shades of the whole answer"
    b.js("document.getElementById('sink').click()")
    assert looks(b) == [shades(answer["mass"], set())], "shades with the sinks"
    b.js("document.getElementById('sink').click()")
    least = {i: min(row[i] for row in rows) for i in always}
    beyond = [max(0, sum(row.get(i, 0) for row in rows) / len(rows) - least.get(i, 0)) if i not in sinks else 0 for i in range(n)]
    place, width = b.js("return [strongest(attention(-1).mass), PLACE]")
    if place >= 0:
        sums = [sum(beyond[i:i + width]) for i in range(n)]
        assert sums[place] >= max(sums) - 1, f"the strongest place is not at {place}"
    for i in (0, len(answer["texts"]) - 1):
        b.click(f"#said [role=button]:nth-child({i + 1})")
        assert looks(b) == [shades([answer["mass"][i]])], f"shades of token {i}"
        assert f"Token {i + 1}" in b.js("return document.getElementById('attends').textContent")
        assert b.js("return document.querySelectorAll('#said [aria-pressed=true]').length") == 1
    b.js("document.querySelector('#said [role=button]:last-child').focus()")
    b.keys(ENTER)
    assert looks(b) == [shades(answer["mass"])], "a second click shows all again"
    b.js("const s = document.getElementById('shade'); s.value = 'kept'; s.dispatchEvent(new Event('change'))")


def check_looks(b):
    for width, dark in ((390, False), (390, True), (1280, True), (1280, False)):
        b.screen(width, dark)
        b.load(page)
        assert b.js("return document.documentElement.scrollWidth") <= width, f"wider than {width}"
        assert b.js("return document.getElementById('controls').open") == (width == 1280), "controls fold on a phone alone"
        if b.js("return data.answer !== null && data.answer !== undefined"):
            b.click("#said [role=button]")
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
        browser.js("const s = document.getElementById('shade'); s.value = 'kept'; s.dispatchEvent(new Event('change'))")
        check_page(browser)
        check_views(browser)
        browser.load(page)
        browser.js("const s = document.getElementById('shade'); s.value = 'kept'; s.dispatchEvent(new Event('change'))")
        check_overview(browser)
        check_template(browser)
        check_token(browser)
        check_search(browser)
        check_answer(browser)
        check_looks(browser)
        browser.check_silent()
