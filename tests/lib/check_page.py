#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens a page of `winnow report` in headless Chromium and compares what it shows with the report's JSON: check_page.py PAGE JSON [WORD...] [-- PAGE JSON [WORD...]]...

Speaks WebDriver with chromedriver. Fails on anything that the browser's console says, on text that became markup, on charts
without marks, on numbers other than the JSON's, on a policy with two looks. WORDs name further things that a run must show: "few" (numbers that look
uncertain), "faint" (methods in the background), "hostile", "two" (runs), "options" (charts over them), "contrasts", "perturbation".
"""
import base64
import json
import math
import os
import re
import sys

from browser import Browser, groups

page, words, report = "", [], {}  # the page at hand


def fixed(x, decimals=1, sign=False):
    """A number as the page writes it."""
    if x is None:
        return "–"
    text = f"{abs(x):.{decimals}f}"
    zero = float(text) == 0
    return ("−" if x < 0 and not zero else "+" if sign and x > 0 and not zero else "") + text


def interval(c):
    if c["delta"] is None:
        return ""
    if c["spread"] == "few":
        return "n<6"
    return f"[{fixed(c['lo'], 1, True)}, {fixed(c['hi'], 1, True)}]" + (" (no variation)" if c["spread"] == "none" else "")


def size(text):
    kind, _, value = text.partition("=")
    return f"{100 * float(value):g} % removed" if kind == "ratio" else text


TABLE = """
const section = document.querySelectorAll(`[data-section=${arguments[0]}]`)[arguments[1]];
const of = [...section.querySelectorAll("[role=region]")].find(t => t.ariaLabel === arguments[2]);
return of && [...of.querySelectorAll("tbody tr")].map(r => [...r.children].map(c => c.firstChild && c.textContent));
"""


def table(browser, section, label, run=0):
    rows = browser.js(TABLE, section, run, label)
    assert rows, f"no table '{label}'"
    return rows


def check_scores(browser, run, number):
    """The tables of means and of tasks: every number of every row."""
    for b in run["blocks"]:
        alone = sum(x["mode"] == b["mode"] and x["N"] != "all" for x in run["blocks"]) == 1
        if alone and b["N"] == "all":
            continue
        length = "all lengths" if b["N"] == "all" else f"N = {b['N']}"
        rows = table(browser, "scores", f"Means, {b['mode']}, {length}", number)
        assert len(rows) == len(b["rows"])
        for shown, row in zip(rows, b["rows"]):
            c = row["macro"]
            want = [str(c["n"]), fixed(c["mean"]), *([fixed(c["delta"], 1, True)] if c["delta"] is not None else ["–"])]
            got = [shown[1], shown[2], shown[3].replace(" ~", "").replace(" =", "")]
            assert got == want, (row["label"], got, want)
            assert shown[4].startswith(interval(c)) and shown[7] == fixed(c["retention"]), (shown, c)
            assert shown[3].endswith(" =") == bool(c["equivalent"]), (shown, c)
            assert shown[5:7] == [fixed(a["mean"]) for a in row["answers"]], (shown, row["answers"])
            kl = fixed(c["kl"], 3) + (f" [{fixed(c['kl_lo'], 3)}, {fixed(c['kl_hi'], 3)}]" if c.get("kl_lo") is not None else "")
            assert shown[9].strip() == kl and shown[11] == fixed(c["kv_bytes"] / 2**20, 2), (shown, c)
        if b["N"] == "all":
            continue
        rows = table(browser, "scores", f"scores by task, {b['mode']}, {length}", number)
        for shown, row in zip(rows, b["rows"]):
            for cell, c in zip(shown[1:], row["tasks"]):
                assert cell.startswith(fixed(c["mean"])), (row["label"], cell, c)


def check_winners(browser, run, number):
    shown = browser.js("return [...document.querySelectorAll('[data-section=verdict]')[arguments[0]].querySelectorAll('.verdict')].map(v => "
                       "[...v.querySelectorAll('tbody tr')].map(r => [...r.children].map(c => c.textContent)))", number)
    whole = [b for b in run["blocks"] if b["N"] == "all"]
    assert len(shown) == len(whole)
    for rows, b in zip(shown, whole):
        by = {r["config"]: r for r in b["rows"]}
        assert len(rows) == len(b["winners"]) > 0
        for row, w in zip(rows, b["winners"]):
            best = by[w["best"]]
            assert row[0] == size(w["size"]) and row[2] == fixed(best["macro"]["mean"]) and row[4].startswith(interval(best["macro"])), (row, w)
            assert best["macro"]["mean"] == max(by[c["config"]]["macro"]["mean"] for c in w["others"] + [{"config": w["best"]}])


LOOKS = """
const looks = {};
for (const g of document.querySelectorAll("svg.chart g[data-policy]")) for (const m of g.querySelectorAll(".mark path")) {
  const look = m.getAttribute("d") + (m.getAttribute("stroke-width") === "0" ? m.getAttribute("fill") : m.getAttribute("stroke"));
  (looks[g.dataset.policy] ||= new Set()).add(look);
}
return Object.fromEntries(Object.entries(looks).map(([k, v]) => [k, [...v]]));
"""


def check_charts(browser, section):
    charts = browser.js("return [...document.querySelectorAll('figure')].map(f => [f.querySelector('h5').textContent, f.querySelectorAll('.mark').length, "
                        "f.querySelectorAll('.legend button').length, f.querySelectorAll('.bar').length, f.querySelector('figcaption').textContent])")
    assert charts, "no charts"
    for title, marks, entries, bars, caption in charts:
        assert marks > 0 and entries > 0, title
        assert bars == 0 or "95 % interval" in caption, f"{title}: bars that say nothing"
    looks = browser.js(LOOKS)
    assert all(len(v) == 1 for v in looks.values()), f"policies with two looks: {looks}"
    assert len({v[0] for v in looks.values()}) == len(looks), "two policies look the same"
    # Keys go through the points, and a press on a legend changes all charts.
    browser.js("document.querySelector('svg.chart').focus()")
    browser.keys("\ue014\ue014\ue015")
    assert browser.js("const t = document.getElementById('tip'); return !t.hidden && t.textContent.length > 3"), "keys show no number"
    browser.keys("\ue00c")
    assert browser.js("return document.getElementById('tip').hidden"), "Escape leaves the number"
    policy = next(k for k in looks if k != "full")
    faint = "return [...document.querySelectorAll(`svg.chart g[data-policy]`)].filter(g => g.dataset.policy === arguments[0]).map(g => g.classList.contains('faint'))"
    before = browser.js(faint, policy)
    browser.js("""const g = [...document.querySelectorAll("figure g[data-policy]")].find(g => g.dataset.policy === arguments[0] && g.querySelector(".mark"));
const names = [...new Set([...g.parentNode.querySelectorAll("g[data-policy]")].map(x => x.dataset.policy))];
const b = [...g.closest("figure").querySelectorAll(".legend button")].find(b => b.querySelector("path").getAttribute("d") === g.querySelector(".mark path").getAttribute("d") &&
  b.querySelector("path").getAttribute("fill") === g.querySelector(".mark path").getAttribute("fill")); b.focus();""", policy)
    browser.keys("\ue006")
    assert browser.js(faint, policy) == [not x for x in before] and len(before) > 0, "a legend does not change all charts"
    browser.keys("\ue006")
    assert browser.js(faint, policy) == before, "a second press does not undo the first"
    return charts


def option_charts(b):
    """{title: marks} of the charts over options: recipes that differ in one number, three or more of them."""
    lines = {}
    for row in (r for r in b["rows"] if not r["full"] and r["macro"]["mean"] is not None):
        for m in re.finditer(r"([:,])([a-z_]+)=(-?\d+(?:\.\d+)?)(?=[,+]|$)", row["asked"]):
            rest = row["asked"][: m.start(3)] + row["asked"][m.end(3):]
            lines.setdefault((m[2], row["size"]), {}).setdefault((rest, row["kv_type"], row["more"]), set()).add(float(m[3]))
    counts = {key: sum(len(v) for v in of.values() if len(v) > 2) for key, of in lines.items()}
    return {f"Score over {key}, {'' if s == 'own' else size(s) + ', '}{b['mode']}": n for (key, s), n in counts.items() if n}


def check_options(browser, run, number):
    want = {title: n for b in run["blocks"] if b["N"] == "all" for title, n in option_charts(b).items()}
    got = browser.js("return [...document.querySelectorAll('[data-section=curves]')[arguments[0]].querySelectorAll('figure')].map(f => "
                     "[f.querySelector('h5').textContent, f.querySelectorAll('.mark').length]).filter(f => /^Score over (?!share)/.test(f[0]))", number)
    assert dict(got) == want, (got, want)
    assert "options" not in words or len(want) == 2 and set(want.values()) == {9}, want


def check_contrasts(browser, run, number):
    """Rows of the contrasts, and only columns in which they differ."""
    rows = browser.js(TABLE, "contrasts", number, "Primary contrasts") if run["contrasts"] else []
    assert len(rows) == len(run["contrasts"]) and ("contrasts" not in words or len(rows) > 3), rows
    if not rows:
        return
    head = browser.js("return [...document.querySelectorAll('[data-section=contrasts]')[arguments[0]].querySelectorAll('thead th')].map(c => c.textContent)", number)
    keys = {"Size": "size", "n": "n", "Protocol": "mode", "Length": "N", "Cache": "kv_type"}
    varies = [name for name, key in keys.items() if len({c[key] for c in run["contrasts"]}) > 1]
    assert head == ["First, against second", "Δ", "95 % interval", "p", *varies], head
    caption = browser.js("return document.querySelectorAll('[data-section=contrasts]')[arguments[0]].querySelector('.caption').textContent", number)
    assert all(f"{c['mode']}" in caption and f"{c['kv_type']} cache" in caption for c in run["contrasts"]) or "Protocol" in varies, caption
    for shown, c in zip(rows, run["contrasts"]):
        want = [f"{c['a']} against {c['b']}", fixed(c["delta"], 1, True)]
        assert [shown[0], shown[1].replace(" ~", "").replace(" =", "")] == want and shown[2].startswith(interval(c)) and float(shown[3]) == float(f"{c['p_holm']:.2g}"), (shown, c)
        assert "Size" not in varies or shown[4] == size(c["size"]), (shown, c)


MAPS = """
return [...document.querySelectorAll('[data-section=maps]')[arguments[0]].querySelectorAll('.map')].map(m => ({label: m.querySelector('[role=region]').ariaLabel,
  head: [...m.querySelectorAll('thead th')].map(c => c.textContent), rows: [...m.querySelectorAll('tbody tr')].map(r => [...r.children].map(c => c.textContent)),
  painted: [...m.querySelectorAll('td.depth')].every(c => (c.textContent !== '') === (c.style.background !== ''))}));
"""


def check_maps(browser, run, number):
    """One table for all methods of a task: every cell of every map of the page's data, by depth."""
    blocks = browser.js("return data.runs[arguments[0]].blocks.map(b => [b.mode, b.maps || [], b.rows.map(r => [r.config, r.name])])", number)
    want = {}
    for mode, maps, rows in blocks:
        for m in maps:
            want.setdefault((m["task"], m["score"], mode), []).append(m)
    shown = browser.js(MAPS, number) if want else []
    assert len(shown) == len(want) and all(of["label"] for of in shown), (len(shown), len(want))
    for of, maps in zip(shown, want.values()):
        cells = [c for m in maps for c in m["cells"]]
        lengths, depths = sorted({c[0] for c in cells}), sorted({c[1] for c in cells})
        at = 1 + (len(lengths) > 1)
        assert of["head"][at:at + len(depths)] == [f"{fixed(d, 0)} %" for d in depths] and of["painted"], of["head"]
        lines = [[("" if v is None else fixed(v, 0)) for v in ({(c[0], c[1]): c[2] for c in m["cells"]}.get((n, d)) for d in depths)]
                 for m in maps for n in lengths if any(c[0] == n for c in m["cells"])]
        assert [row[at:at + len(depths)] for row in of["rows"]] == lines, of["label"]
        assert ("Tokens" in of["head"]) == (len(lengths) > 1), of["head"]


def check_papers(browser, run, number):
    """Every table of the papers; rows with a number of winnow come first, the others are folded."""
    boxes = browser.js("return [...document.querySelectorAll('[data-section=papers]')[arguments[0]].querySelectorAll('.box')].map(b => [b.querySelector('[role=region]').ariaLabel, "
                       "[...b.querySelectorAll('tbody tr:not(.ours) th')].map(t => t.textContent)])", number)
    want = []
    for t in run["papers"]:
        name = f"{t['paper']}: {t['table']}"
        mine = [r["method"] for r in t["rows"] if any(o and o["value"] is not None for o in r["ours"])]
        others = [r["method"] for r in t["rows"] if not any(o and o["value"] is not None for o in r["ours"])]
        want += [[name, mine], [f"Other rows of {name}", others]] if t["ours"] and mine and others else [[name, [r["method"] for r in t["rows"]]]]
    assert sorted(boxes) == sorted(want), (boxes, want)


def check_log(browser, section):
    """Numbers of the axis of divergences lie as their logarithms do."""
    axes = browser.js("""return [...document.querySelectorAll(`[data-section=${arguments[0]}] figure`)].filter(f => f.querySelector('h5').textContent.startsWith('KL divergence')).map(f =>
  [...f.querySelectorAll('text[text-anchor=end]')].filter(t => /^[0-9.]+$/.test(t.textContent)).map(t => [Number(t.textContent), Number(t.getAttribute('y'))]))""", section)
    for ticks in axes:
        ticks.sort()
        assert len(ticks) > 1 and ticks[0][0] > 0, ticks
        steps = [(b[1] - a[1]) / math.log(b[0] / a[0]) for a, b in zip(ticks, ticks[1:])]
        assert max(steps) - min(steps) < 1e-3 * abs(steps[0]) and steps[0] < 0, ticks
    return len(axes)


def check_widths(browser):
    """Tables of means need no scrolling on a laptop's screen."""
    wide = browser.js("return [...document.querySelectorAll('[role=region]')].filter(t => t.ariaLabel.startsWith('Means') && t.scrollWidth > t.clientWidth + 1).map(t => [t.ariaLabel, t.scrollWidth, t.clientWidth])")
    assert wide == [], f"wider than the page: {wide}"


def check_run(browser, run, number):
    check_winners(browser, run, number)
    check_scores(browser, run, number)
    check_options(browser, run, number)
    for b in (b for b in run["blocks"] if b["N"] == "all"):
        if b["curves"]:
            rows = table(browser, "curves", f"Areas, {b['mode']}", number)
            assert [r[1:4] for r in rows] == [[fixed(c[k], 2) for k in ("auc", "auc_rel", "auc_one")] for c in b["curves"]]
        n = sum(not r["full"] and r["removed"] is not None for r in b["rows"])
        starts = len({r["name"] for r in b["rows"] if not r["full"]})
        marks = browser.js("return [...document.querySelectorAll('[data-section=curves]')[arguments[0]].querySelectorAll('figure')].filter(f => "
                           "f.querySelector('h5').textContent === arguments[1]).map(f => f.querySelectorAll('.mark').length)", number, f"Score over share removed, {b['mode']}")
        assert marks == [n + starts], (marks, n, starts)
    check_maps(browser, run, number)
    check_contrasts(browser, run, number)
    check_papers(browser, run, number)


def check_order(browser):
    order = browser.js("return [...document.querySelectorAll('[data-section]')].map(s => s.dataset.section)")
    want = ["verdict", "notes", "contrasts", "curves", "scores", "predictions", "compared", "turns", "maps", "costs", "papers", "cases", "how"]
    assert order[:2] == want[:2] and all(a in want for a in order), order
    places = [want.index(name) for name in order]
    assert sum(a >= b for a, b in zip(places, places[1:])) == len(report["runs"]) - 1, order
    commands = browser.js("return [...document.querySelectorAll('header .command code')].map(c => c.textContent)")
    assert len(commands) == len(report["runs"]) and all(c.startswith("winnow eval") for c in commands), commands


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def check_page(browser):
    browser.screen(1280)
    browser.load("file://" + page)
    # Everything that a click opens is there, and the page itself makes nothing that runs or loads.
    opened = browser.js("for (const s of document.querySelectorAll('summary')) if (!s.parentNode.open) s.click(); return document.querySelectorAll('details').length")
    assert opened > 0
    browser.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert browser.js("return [...document.querySelectorAll('details')].every(d => d.open && d.children.length > 1)"), "a section stays empty"
    tags = browser.js("return [...document.querySelectorAll('script, img, iframe, link, object, form')].map(e => e.tagName + (e.type || ''))")
    assert tags == ["SCRIPTapplication/json", "SCRIPT"], tags
    assert browser.js("return [...document.querySelectorAll('*')].every(e => [...e.attributes].every(a => !a.name.startsWith('on') && "
                      "(a.name !== 'href' || (a.value.startsWith('#') && document.getElementById(a.value.slice(1))))))"), "attributes"
    ids = browser.js("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids)), "ids repeat"
    text = browser.js("return document.body.innerText")
    assert not re.search(r"\b(undefined|NaN|null|\[object)\b", re.sub(r"run\.json.*", "", text, flags=re.S)), re.search(r".*\b(undefined|NaN|\[object)\b.*", text)
    if "perturbation" in words:
        assert len(browser.js("return [...document.querySelectorAll('.map')].length and 0 || [...document.querySelectorAll('.map')].map(m => 1)".replace("and", "&&"))) == len(report["policies"]) - 1
        pairs = browser.js("return [...document.querySelectorAll('#summary tbody tr')].map(r => [...r.children].map(c => c.textContent))")
        assert [p[3:5] for p in pairs] == [[fixed(x["heads"]["base"], 4), fixed(x["heads"]["other"], 4)] for x in report["pairs"]], pairs
    else:
        check_order(browser)
        for number, run in enumerate(report["runs"]):
            check_run(browser, run, number)
        check_widths(browser)
        axes = check_log(browser, "curves")
        assert axes > 0 or all(r["full"] or not r["macro"]["kl"] for run in report["runs"] for b in run["blocks"] for r in b["rows"]), "no chart of divergences"
    check_charts(browser, "curves")
    assert ("few" in words) == (browser.js("return document.querySelectorAll('td.few').length") > 0), "numbers of few samples"
    assert ("faint" in words) == (browser.js("return document.querySelectorAll('g.faint').length") > 0), "methods in the background"
    assert ("two" in words) == (browser.js("return document.querySelectorAll('#side tbody tr').length") > 0), "runs side by side"
    if "hostile" in words:
        assert HOSTILE in text and text.count("alert(2)") > 10


def check_phone(browser):
    for dark in (False, True):
        browser.screen(390, dark)
        if not dark:  # a page follows when it gets dark
            browser.load("file://" + page)
        browser.js("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        assert browser.js("return document.documentElement.scrollWidth") == 390, "the page is wider than a phone"
        hidden = browser.js("return [...document.querySelectorAll('.box')].filter(b => b.offsetParent && b.querySelector('.scroll').scrollWidth > "
                            "b.querySelector('.scroll').clientWidth + 1 && getComputedStyle(b.querySelector('.hint')).display === 'none').length")
        assert hidden == 0, f"{hidden} tables do not say that they can be scrolled"
        lightness = browser.js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
        assert (lightness < 200) == dark, lightness


OPEN = "return [...document.querySelectorAll('details')].map(d => d.open)"


def check_paper(browser):
    """On paper more sections are open, and afterwards the same as before. The page of thirty methods is not printed, too: Chromium would need half a
    minute to break its tables into 181 pages, with the same code that printed the others."""
    browser.screen(1280)
    was = browser.js(OPEN)  # as the phone left it: as at first
    shown = browser.js("dispatchEvent(new Event('beforeprint')); const open = (() => { " + OPEN + " })(); dispatchEvent(new Event('afterprint')); return open")
    assert all(s or not w for s, w in zip(shown, was)) and (sum(shown) > sum(was) or "perturbation" in words), "sections stay closed on paper"
    assert browser.js(OPEN) == was, "printing leaves sections open"
    if "faint" not in words:
        assert base64.b64decode(browser.command("Page.printToPDF", preferCSSPageSize=True)["data"]).startswith(b"%PDF")
        assert browser.js(OPEN) == was, "printing leaves sections open"


with Browser() as browser:
    for path, numbers, *words in groups(sys.argv[1:]):
        page = os.path.abspath(path)
        with open(numbers, encoding="utf-8") as f:
            report = json.load(f)
        print(page)
        check_page(browser)
        check_phone(browser)
        check_paper(browser)
        browser.check_silent()
