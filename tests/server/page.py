#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of `winnow serve` in headless Chromium: page.py WINNOW [FOLDER]

Clicks through conversations, documents and keys, compares what it shows with /winnow/kv, and fails on anything that the browser's console says.
With a folder, screenshots are left there to be looked at.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from browser import Browser  # noqa: E402
from llama_server import TINY, Server, check, finish, ids, until  # noqa: E402

if not (shutil.which("chromedriver") and shutil.which("chromium")):
    print("skipped: there is no Chromium with chromedriver (scripts/setup.sh browser installs them)")
    sys.exit(77)
winnow, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
model = f"{TINY}/tiny-llama.gguf"
HOSTILE = "<img src=x onerror=alert(1)>.txt"


def serve(*options, rest=()):
    return Server([winnow, "serve", "-m", model, "--port", "0", *options, "--", "-t", "1", "--temp", "0", "--ignore-eos", *rest])


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


def kv(s, key=None):
    return s.ask("/winnow/kv", headers={"Authorization": f"Bearer {key}"} if key else None).json


def open_page(b, s, width=1280, dark=False):
    b.screen(width, dark)
    b.load("http://%s:%d/" % s.address())


def shown(b, selector="body"):
    return b.js("return document.querySelector(arguments[0]).innerText", selector)


def answers(b):
    """Texts of the answers, their notes, and whether one is coming."""
    return b.js("return [...document.querySelectorAll('#log .assistant')].map(a => [a.querySelector('.said').textContent, a.querySelector('.note').textContent])")


def idle(b):
    return b.js("return document.getElementById('stop').disabled")


def ask(b, text):
    """Asks by keys, and waits for the end of the answer."""
    n = len(answers(b))
    b.type("#ask", text + "\ue007")
    check(f"'{text}' is answered", until(lambda: len(answers(b)) == n + 1 and idle(b)), shown(b, "#log"))
    return answers(b)[-1]


def drop(b, name, text):
    b.js("""const data = new DataTransfer(); data.items.add(new File([arguments[1]], arguments[0], {type: "text/plain"}));
document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));""", name, text)


def looks(b):
    """Nothing that runs or loads but the page's own script, nothing wider than the screen, no id twice."""
    tags = b.js("return [...document.querySelectorAll('script, img, iframe, object')].map(e => e.tagName)")
    check("only its own script", tags == ["SCRIPT"], tags)
    check("no handlers in markup", b.js("return [...document.querySelectorAll('*')].every(e => [...e.attributes].every(a => !a.name.startsWith('on')))"))
    twice = b.js("const x = [...document.querySelectorAll('[id]')].map(e => e.id); return x.length - new Set(x).size")
    check("ids are one each", twice == 0)
    unnamed = b.js("return [...document.querySelectorAll('input, select, textarea, button')].filter(e => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).map(e => e.id)")
    check("everything has a name", unnamed == [], unnamed)
    odd = re.search(r".*\b(undefined|NaN|null|\[object)\b.*", shown(b))
    check("no value that is none", not odd, odd)


def quiet(b, *expected):
    """The console said nothing but that requests were refused as they had to be."""
    said = [x["message"] for x in b.said() if not any(e in x["message"] for e in expected)]
    check("the console says nothing", said == [], said)


def choose(b, policy):
    b.js("const s = document.querySelector('#choice'); s.value = arguments[0]; s.dispatchEvent(new Event('input', {bubbles: true}))", policy)


def check_policies(b, s):
    """Each policy of the list is what the server is asked for, with a word on it; a recipe that was typed and a size of no use are not sent."""
    listed = b.js("return [...document.querySelectorAll('#choice option')].map(o => [o.value, o.textContent])")
    check("the server's, four policies with a word each, and any other", [v for v, _ in listed] == ["", "auto", "full", "keydiff", "snapkv", "other"] and
          all(text.startswith(f"{v}: ") and len(text) > len(v) + 5 for v, text in listed[1:5]), listed)
    said = set()
    for policy, _ in listed:
        b.click("#new")
        choose(b, "other")
        b.type("#policy", "knorm")
        choose(b, policy)
        said.add(shown(b, "#policy-said"))
        b.js("document.querySelector('#kind').value = 'budget'; document.querySelector('#kind').dispatchEvent(new Event('input'))")
        b.js("document.querySelector('#amount').value = '150'; document.querySelector('#amount').dispatchEvent(new Event('input'))")
        field = b.js("return fieldOf(shown)")
        want = {"policy": "knorm" if policy == "other" else policy, "budget": 150}
        if policy in ("", "full"):
            del want["policy" if policy == "" else "budget"]
        check(f"what is asked for with '{policy}'", field == want, field)
        check(f"fields of '{policy}'", b.js("return ['policy', 'kind', 'amount'].map(id => !!document.getElementById(id).offsetParent)") == [policy == "other", policy != "full", policy != "full"])
    check("each has a sentence", len(said) == len(listed) and all(said), said)
    b.click("#new")
    choose(b, "keydiff")
    b.js("document.querySelector('#kind').value = 'budget'; document.querySelector('#kind').dispatchEvent(new Event('input'))")
    b.type("#amount", "150")
    b.type("#ask", words(400, 21) + "\ue007")
    check("a policy of the list compresses", until(lambda: any(x["policy"] == "keydiff" and x["compressed"] for x in kv(s)["slots"])), kv(s))
    check("and answers", until(lambda: idle(b) and answers(b) and answers(b)[-1][0]), answers(b))


def check_conversations(b, s):
    open_page(b, s)
    check("the model's name", until(lambda: "tiny-llama" in shown(b, "#model")), shown(b))
    check("the cursor's way to the question", b.js("document.querySelector('.skip').focus(); return document.activeElement.className") == "skip")
    said, note = ask(b, "hello")
    check("an answer has text and numbers", said and "tokens read" in note and "slot" in note, said, note)
    check("the field is empty again", b.js("return document.getElementById('ask').value") == "")
    check("a further turn reads what is new", "reused" in ask(b, "and then")[1], answers(b))
    # A document of the user's: compressed as the conversation says, and read once.
    b.click("#new")
    check("a new conversation is empty", answers(b) == [])
    drop(b, "binary.bin", "a\0b")
    check("what is no text is refused", until(lambda: "not a text" in shown(b, "#file-said")), shown(b, "#file-said"))
    b.js("document.querySelector('#kind').value = 'budget'; document.querySelector('#kind').dispatchEvent(new Event('input'))")
    check("a recipe is asked for where one is wanted", b.js("return !document.getElementById('policy').offsetParent"))
    choose(b, "other")
    b.type("#policy", "knorm")
    b.type("#amount", "150")
    drop(b, HOSTILE, words(600, 3))
    check("a file's name is text", until(lambda: HOSTILE in shown(b, "#file-said")), shown(b, "#file-said"))
    ask(b, "what is it about")
    slot = next(x for x in kv(s)["slots"] if x["policy"] == "knorm")
    check("the document is compressed as asked", slot["compressed"] and slot["budget"] == 150 and slot["entries"] < 250 < 600 < slot["tokens"], slot)
    check("a second question reads it no more", "reused" in ask(b, "once more")[1] and kv(s)["slots"][slot["id"]]["tokens"] > slot["tokens"], answers(b))
    text = f"#slots [data-slot='{slot['id']}']"
    check("the slot says so", until(lambda: "knorm, 150 entries per head" in shown(b, text) and HOSTILE in shown(b, text)), shown(b, text))
    check("memory is what the server says", until(lambda: shown(b, "#now") in (f"{kv(s)['bytes'] / 1024:.1f} KiB", f"{kv(s)['bytes'] / 2**20:.1f} MiB")), shown(b, "#memory"))
    check("and what it would be", "uncompressed" in shown(b, "#uncompressed"))
    looks(b)
    # The server's own document.
    b.click("#new")
    b.js("const d = document.querySelector('#document'); d.value = 'novel'; d.dispatchEvent(new Event('input'))")
    ask(b, "who is it")
    check("the server's document is behind a slot", any(x.get("document") == "novel" for x in kv(s)["slots"]), kv(s))
    check("and the page says so", until(lambda: "after novel" in shown(b, "#slots")), shown(b, "#slots"))
    # A refusal says why, and the question is there again.
    b.click("#new")
    choose(b, "other")
    b.type("#policy", "snapvk")
    b.type("#ask", "why\ue007")
    check("a refusal is shown", until(lambda: answers(b) and "snapkv" in answers(b)[-1][1]), answers(b))
    check("with the question kept", until(lambda: b.js("return document.getElementById('ask').value") == "why"))
    check("conversations stay apart", b.js("return document.querySelectorAll('#tabs button').length") == 5)
    b.click("#tabs li:nth-child(2) button")
    check("and come back", len(answers(b)) == 2 and b.js("return [document.getElementById('choice').value, document.getElementById('policy').value]") == ["other", "knorm"], answers(b))
    check_policies(b, s)
    quiet(b, "400 (Bad Request)")


def windows(b):
    return b.call("GET", "/window/handles")


def check_kept(b, s, name, query):
    """The page of a slot or document, opened from the list: what it shades is what /winnow/kv counts."""
    first = windows(b)[0]
    b.click(f"[data-show='{query}']")
    check(f"a window of {name}", until(lambda: len(windows(b)) == 2))
    b.call("POST", "/window", {"handle": windows(b)[1]})
    check(f"the page of {name}", until(lambda: "entries kept" in shown(b)), shown(b)[:300])
    held = next(x for x in kv(s)["slots"] + kv(s)["documents"] if name in (f"slot {x.get('id')}", x.get("name")))
    spans = b.js("return document.querySelectorAll('.text span').length")
    heads = b.js("return plans[0].heads.flat().map(h => h.n)")
    check(f"all tokens of {name}", spans == held["tokens"], spans, held)
    check(f"and the entries of {name}", abs(sum(heads) / len(heads) - held["entries"]) < 0.1, heads, held)
    header = b.js("return data.document && [data.texts.slice(0, data.document[0]).join(''), data.texts.slice(data.document[0]).join(''), data.document[1] === data.n]")
    check(f"without the header of {name}", header and re.fullmatch(r"<\|im_start\|>(system|user)\n", header[0]) and header[1].lstrip().startswith("w") and header[2], header and header[0][:200])
    check(f"with the texts of {name}", all(w in shown(b, ".text") for w in ("w1", "w2")), shown(b, ".text")[:200])
    check("it loads nothing", b.js("return [...document.querySelectorAll('script, img, iframe, object')].filter(e => e.src).length") == 0)
    if folder:
        for dark in (False, True):
            for width in (390, 1280):
                b.screen(width, dark)
                check(f"no wider than {width}", b.js("return document.documentElement.scrollWidth") <= width)
                b.screenshot(f"{folder}/kept-{name.replace(' ', '-')}-{width}-{'dark' if dark else 'light'}.png")
    b.call("DELETE", "/window")
    b.call("POST", "/window", {"handle": first})


def check_command(s, full):
    """`winnow ctl page` writes what the server gives to a browser."""
    url = "http://%s:%d" % s.address()
    with tempfile.TemporaryDirectory() as work:
        for arguments, query in ((["--slot", str(full)], f"slot={full}"), (["--document", "novel"], "document=novel")):
            done = subprocess.run([winnow, "ctl", "page", "--url", url, *arguments, "-o", f"{work}/page.html"], capture_output=True, text=True)
            with open(f"{work}/page.html", encoding="utf-8") as f:
                check(f"ctl page {query}", done.returncode == 0 and f.read() == s.ask(f"/winnow/page?{query}").text, done.stderr)
        for arguments, says in ((["--slot", "40"], "no slot"), (["--document", "none"], "no document")):
            done = subprocess.run([winnow, "ctl", "page", "--url", url, *arguments, "-o", f"{work}/none.html"], capture_output=True, text=True)
            check(f"ctl page {arguments}", done.returncode == 2 and says in done.stderr and not os.path.exists(f"{work}/none.html"), done.stderr)


def check_why(b, s):
    """The last requests, on the page and by `winnow ctl why`."""
    url = "http://%s:%d" % s.address()
    requests = kv(s)["requests"]
    def listed():
        return b.js("return [...document.querySelectorAll('#requests li')].map(x => x.textContent)")
    check("the page shows the last requests", until(lambda: len(listed()) == len(requests)) and all(f"Slot {r['slot']}" in x and "tokens read" in x for r, x in zip(requests, listed())),
          listed(), requests)
    done = subprocess.run([winnow, "ctl", "why", "--url", url], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("slot ")]
    check("ctl why prints them", done.returncode == 0 and lines == [f"slot {r['slot']}: {r['read']} tokens read, {r['from_slot']} from the slot, {r['parked']} parked, {r['document']} of a document"
                                                                    for r in requests], done.stdout, done.stderr)


def check_screens(b, s):
    for dark in (False, True):
        for width in (390, 1280):
            open_page(b, s, width, dark)
            drop(b, "notes.txt", words(400, 9))
            until(lambda: "notes" in shown(b, "#file-said"))
            ask(b, "in short")
            until(lambda: "compressed so far" in shown(b, "#memory"))
            check(f"no wider than {width}", b.js("return document.documentElement.scrollWidth") == width)
            light = b.js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
            check("dark is dark", (light < 200) == dark, light)
            if folder:
                b.screenshot(f"{folder}/serve-{width}-{'dark' if dark else 'light'}.png")
    quiet(b)


def check_key_and_stop(b, s):
    open_page(b, s)
    check("a key is asked for", until(lambda: not b.js("return document.getElementById('key').hidden")))
    b.type("#secret", "secret\ue007")
    check("and used", until(lambda: "tiny-llama" in shown(b, "#model") and b.js("return document.getElementById('key').hidden")), shown(b))
    b.type("#ask", "go on for ever\ue007")
    check("an answer comes as it is made", until(lambda: answers(b) and len(answers(b)[-1][0]) > 40 and not idle(b)), answers(b))
    b.keys("\ue00c")
    check("Escape stops it", until(lambda: idle(b)) and answers(b)[-1][1] != "", answers(b))
    check("and the server", until(lambda: not any(x["busy"] for x in kv(s, "secret")["slots"])), kv(s, "secret"))
    b.type("#ask", "once more\ue007")
    until(lambda: len(answers(b)) == 2 and answers(b)[-1][0])
    b.click("#stop")
    check("the button too", until(lambda: idle(b)))
    quiet(b, "401 (Unauthorized)")


with Browser() as browser:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as novel:
        novel.write(words(500, 77))
        novel.flush()
        with serve("--document", f"novel={novel.name}", "--slots", "4", rest=("-n", "24")) as server:
            page = server.ask("/")
            check("the page is HTML in no frame", page.status == 200 and page.headers["Content-Type"].startswith("text/html") and
                  "frame-ancestors 'none'" in page.headers["Content-Security-Policy"], page.headers)
            check("and names nothing outside", not any(x in page.text for x in ("http://", "https://", "@import", "url(")))
            check_conversations(browser, server)
            open_page(browser, server)
            until(lambda: "compressed so far" in shown(browser, "#memory"))
            full = next(x["id"] for x in kv(server)["slots"] if x["tokens"] > 500)  # behind it is a document, whose words are known
            check_kept(browser, server, f"slot {full}", f"slot={full}")
            check_kept(browser, server, "novel", "document=novel")
            check_command(server, full)
            check_why(browser, server)
            check_screens(browser, server)
    with serve("--api-key", "secret",) as server:
        check("the page needs no key", server.ask("/").status == 200)
        check("what is kept does", server.ask("/winnow/page?slot=0").status == 401)
        done = subprocess.run([winnow, "ctl", "page", "--url", "http://%s:%d" % server.address(), "-o", "/dev/null/x"], capture_output=True, text=True)
        check("a place that is none", done.returncode == 2, done.stderr)
        with tempfile.TemporaryDirectory() as work:
            for key, code, says in ((None, 2, "--api-key"), ("wrong", 2, "--api-key"), ("secret", 2, "empty")):
                done = subprocess.run([winnow, "ctl", "page", "--url", "http://%s:%d" % server.address(), "-o", f"{work}/page.html", *(["--api-key", key] if key else [])],
                                      capture_output=True, text=True)
                check(f"ctl page with the key {key}", done.returncode == code and says in done.stderr, done.stderr)
        check_key_and_stop(browser, server)
finish()
