#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One folder for `winnow serve --state` and the terminal: terminal.py WINNOW

`winnow chat --state` goes on with a chat that the server has parked, and the server with what the terminal has parked; `winnow run --store` begins
with what it has of a document. Prompts of an API key are those of nobody else, one process has the folder, and what cannot be used is refused in one line.
"""
import os
import subprocess
import sys
import tempfile

from llama_server import TINY, Server, check, finish, ids, until

winnow = sys.argv[1]
tiny = f"{TINY}/chat/smollm2.gguf"
model = os.path.join(TINY, "..", "smollm2-135m.gguf")
work = tempfile.TemporaryDirectory()
os.environ["XDG_STATE_HOME"] = f"{work.name}/xdg"
TEXT = "The harbor of Lima is red. The tower of Oslo is blue. " * 6


def run(*arguments, lines=()):
    return subprocess.run([winnow, *arguments], input="".join(x + "\n" for x in lines), capture_output=True, text=True, timeout=300)


def command(state, *policy, of=model, rest=()):
    return [winnow, "serve", "-m", of, "--port", "0", "--slots", "1", "--state", state, *policy, "--", "-t", "1", *rest]


def user(text):
    return {"role": "user", "content": text}


def says(text):
    return {"role": "assistant", "content": text}


def ask(s, messages, n=12, headers=None, **more):
    """An answer as it was noted, which lacks the last token where a limit ended it, and its timings."""
    reply = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": n, "temperature": 0, "logprobs": True, **more}, headers)
    if reply.status != 200:
        sys.exit(f"a chat was refused: {reply.text[:600]}")
    choice = reply.json["choices"][0]
    tokens = [t["token"] for t in choice["logprobs"]["content"]]
    text = "".join(tokens[:-1]) if choice["finish_reason"] == "length" else choice["message"]["content"]
    return text, reply.json["timings"]


def numbers(state, *options, of=model):
    done = run("chat", "-m", of, "-t", "1", "--state", state, "--resume", "list", *options)
    check("the list", done.returncode == 0, done.stderr)
    return {line.split(None, 1)[0]: line for line in done.stdout.splitlines()}


def which(found, what):
    return next((n for n, line in found.items() if what in line), "none")


def resume(state, name, *options, of=model, lines=("Why is it so?",), n=12):
    return run("chat", "-m", of, "-t", "1", "-n", str(n), "--state", state, "--resume", name, *options, lines=lines)


def one_line(done, part, code=2):
    lines = [x for x in done.stderr.splitlines() if "parked prompts;" not in x]
    return done.returncode == code and len(lines) == 1 and part in lines[0]


# ---- There and back ----
for policy in (("--policy", "full"), ("--ratio", "0.5"), ("--policy", "lagkv:lag=32,sink=4")):
    state = f"{work.name}/state{len(policy)}{policy[1]}"
    talk = [user(TEXT + "Which color has the harbor?")]
    with Server(command(state, *policy)) as s:
        talk += [says(ask(s, talk)[0]), user("And which color has the tower?")]
        said, _ = ask(s, talk)
        talk += [says(said)]
        ask(s, [user("Count the ships of the other city, please. " * 8)])
        held = resume(state, "last")
        check("not while a server has the folder", one_line(held, "another server uses this folder"), held.stderr)
    found = numbers(state)
    name = which(found, "has the tower")
    check("both are listed", len(found) == 2 and name != "none" and which(found, "please") != "none", found)
    done = resume(state, name)
    check(f"{policy}: it goes on", done.returncode == 0 and "3 turns" in done.stderr and "warning" not in done.stderr, done.returncode, done.stderr)
    n_parked = int(done.stderr.split("3 turns, ")[1].split()[0]) if "3 turns, " in done.stderr else 1 << 30
    check("the longer one took its place", len(numbers(state)) == 2, numbers(state))
    talk += [user("Why is it so?"), says(done.stdout.rstrip("\n")), user("Thank you.")]
    with Server(command(state, *policy)) as s:
        _, timings = ask(s, talk)
        # Only the last turn is new. What is parked has the last token of an answer that its limit ended, which may be the break of a line that is left out here.
        check(f"{policy}: the server goes on from the terminal", timings["cache_n"] >= n_parked - 1 and timings["prompt_n"] < 30, timings, n_parked)
        held = s.ask("/winnow/kv").json["slots"][0]
    if "lagkv" in policy[1]:
        # Of each block that another one follows a half stays. What was judged here or there is not judged again.
        n_blocks = (held["tokens"] - held["protected"] - 4) // 32 - 1
        check(f"{policy}: blocks are judged once", 0 < held["tokens"] - held["entries"] <= 16 * n_blocks, held)

# A vocabulary that puts a blank before a text and after special tokens.
blank = f"{TINY}/chat/llama2.gguf"
state = f"{work.name}/state-blank"
talk = [user(TEXT + "Which color has the harbor?")]
with Server(command(state, "--policy", "full", of=blank)) as s:
    talk += [says(ask(s, talk)[0]), user("And which color has the tower?")]
    talk += [says(ask(s, talk)[0])]
    ask(s, [user("Count the ships of the other city, please. " * 8)])
name = which(numbers(state, of=blank), "has the tower")
with open(f"{work.name}/blank.txt", "w", encoding="utf-8") as f:
    f.write(TEXT.strip())
about = ["-m", blank, "-t", "1", "-f", f.name, "--context-only", "-p", "Who?", "-n", "4", "--policy", "full", "--store", state]
done = run("run", *about)
check("a blank before texts: run begins with what a chat has", done.returncode == 0 and "of the document come from the store" in done.stderr, done.stderr)
done = resume(state, name, of=blank)
check("a blank before texts: it goes on", done.returncode == 0 and "3 turns" in done.stderr, done.returncode, done.stderr)
n_parked = int(done.stderr.split("3 turns, ")[1].split()[0]) if "3 turns, " in done.stderr else 1 << 30
with Server(command(state, "--policy", "full", of=blank)) as s:
    timings = ask(s, talk + [user("Why is it so?"), says(done.stdout.rstrip("\n")), user("Thank you.")])[1]
    # A random model writes bytes that are no text, so that the last answers differ where they are sent back.
    check("a blank before texts: the server goes on from the terminal", timings["cache_n"] > n_parked - 60, timings, n_parked)
    timings = ask(s, [user(TEXT.strip() + "\n\nWhat?")])[1]
    check("a blank before texts: the server has the document of run", timings["cache_n"] > 150, timings)

# What it says is what the server says.
state = f"{work.name}/state-same"
talk = [user(TEXT + "Which color has the harbor?")]
with Server(command(state, "--policy", "full")) as s:
    said, _ = ask(s, talk)
    talk += [says(said)]
    ask(s, [user("Count the ships of the other city, please. " * 8)])
name = which(numbers(state), "harbor?")
done = resume(state, name, lines=("And which color has the tower?",))
with Server(command(f"{work.name}/none", "--policy", "full")) as s:
    again, _ = ask(s, talk + [user("And which color has the tower?")])
check("the answer of a server", done.stdout.strip()[:12] == again.strip()[:12] and len(again) > 5, done.stdout, again)
fork = resume(state, "last", lines=("/undo", "And how many towers are there?"))
check("a fork is another conversation", fork.returncode == 0 and len(numbers(state)) == 3, fork.stderr, numbers(state))
looked = resume(state, "last", lines=("/stats",))
check("looking parks nothing", looked.returncode == 0 and len(numbers(state)) == 3, looked.stderr)

# ---- Begun in the terminal ----
state = f"{work.name}/begun"
done = run("chat", "-m", model, "-t", "1", "-n", "6", "--state", state, "--system", "You are brief.", lines=(TEXT + "Which color has the harbor?",))
check("it is parked", done.returncode == 0 and "parked in" in done.stderr and oct(os.stat(f"{state}/winnow-0000000000000001.park").st_mode)[-3:] == "600", done.stderr)
seen = f"{work.name}/seen.md"
looked = resume(state, "last", lines=(f"/save {seen}",))
with open(seen, encoding="utf-8") as f:
    seen = f.read()
check("with all of an answer that its limit ended", looked.returncode == 0 and "ends after 6 tokens" in done.stderr and done.stdout.rstrip("\n") in seen, looked.stderr, done.stderr, done.stdout, seen)
again = resume(state, "last")
check("with its system message", again.returncode == 0 and "2 turns" in again.stderr, again.stderr)
begun = [{"role": "system", "content": "You are brief."}, user(TEXT + "Which color has the harbor?"), says(done.stdout.rstrip("\n")), user("Why is it so?"),
         says(again.stdout.rstrip("\n")), user("Thank you.")]
with Server(command(state, "--policy", "full")) as s:
    _, timings = ask(s, begun)
    check("the server finds it", timings["prompt_n"] < 40 and timings["cache_n"] > 100, timings)

# ---- Documents ----
state = f"{work.name}/documents"
with open(f"{work.name}/doc.txt", "w", encoding="utf-8") as f:
    f.write(TEXT.strip())
about = ["-m", model, "-t", "1", "-f", f.name, "--context-only", "-p", "Which color has the harbor?", "-n", "8", "--policy", "full"]
with Server(command(state, "--policy", "full")) as s:
    ask(s, [user(TEXT.strip() + "\n\nWhat is this?")])
plain, first, second = run("run", *about), run("run", *about, "--store", state), run("run", *about, "--store", state)
check("run begins with what a chat has", first.returncode == 0 and "of the document come from the store" in first.stderr, first.stderr)
check("the same answer", plain.stdout[:12] == first.stdout[:12] == second.stdout[:12] and len(plain.stdout) > 3, plain.stdout, first.stdout, second.stdout)
kept = run("run", *about[:-2], "--policy", "keydiff", "--ratio", "0.5", "--store", state)
check("a document that run has parked", kept.returncode == 0 and any("keydiff" in x for x in numbers(state).values()), kept.stderr, numbers(state))
kept = run("run", *about[:-2], "--policy", "keydiff", "--ratio", "0.5", "--store", state)
n = kept.stderr.split(" of the document come")[0].rsplit("\n", 1)[-1].split() if "come from the store" in kept.stderr else []
check("is found whole", len(n) > 3 and n[1] == n[3], kept.stderr)
with Server(command(state, "--policy", "keydiff", "--ratio", "0.5")) as s:
    _, timings = ask(s, [user(TEXT.strip() + "\n\nWho?")])
    check("and by the server", timings["prompt_n"] < 40, timings)
check("no limit of documents", one_line(run("run", *about, "--store", state, "--store-limit", "1M"), "--park-disk"))
check("no list of documents", one_line(run("store", "list", state), "--resume list"))

# ---- Owners ----
state = f"{work.name}/owners"
for name, text in (("key", "its-key\n"), ("empty", "\nkey\n")):
    with open(f"{work.name}/{name}", "w", encoding="utf-8") as f:
        f.write(text)
secret = [user("The secret of Boris is a green door. " * 6 + "Which?")]
with Server(command(state, "--policy", "full", of=tiny)) as s:
    ask(s, secret, headers={"Authorization": "Bearer its-key"})
    ask(s, [user("Nobody has brought this text of many ships. " * 6)])
    ask(s, [user("A third one. " * 20)])
free, own = numbers(state, of=tiny), numbers(state, "--api-key-file", f"{work.name}/key", of=tiny)
check("each sees its own", len(own) == 1 and which(own, "Which?") != "none" and which(free, "Which?") == "none" and len(free) >= 1, free, own)
check("a number of somebody else", one_line(resume(state, which(own, "Which?"), of=tiny), "is no parked conversation"))
done = resume(state, "last", "--api-key-file", f"{work.name}/key", of=tiny)
check("with the key", done.returncode == 0 and "2 turns" in done.stderr, done.stderr)
check("it stays the key's", len(numbers(state, of=tiny)) == len(free) and len(numbers(state, "--api-key-file", f"{work.name}/key", of=tiny)) == 1)
check("a file without a key", one_line(resume(state, "last", "--api-key-file", f"{work.name}/empty", of=tiny), "has no key"))
check("a key without a folder", one_line(run("chat", "-m", tiny, "--api-key-file", f"{work.name}/key"), "name a folder with --state"))

# ---- One at a time ----
chat = subprocess.Popen([winnow, "chat", "-m", tiny, "-n", "4", "--state", state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
chat.stdin.write("Which?\n")
chat.stdin.flush()
until(lambda: chat.stdout.read(1) != "")
refused = subprocess.run(command(state, of=tiny), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
check("a chat has the folder", refused.returncode == 2 and len([x for x in refused.stderr.splitlines() if "uses this folder" in x]) == 1, refused.stderr[-600:])
check("and no other chat", one_line(resume(state, "list", of=tiny), "uses this folder"))
chat.stdin.close()
check("its own is parked", chat.wait(60) == 0 and len(numbers(state, of=tiny)) == len(free) + 1)
chat.stdout.close()

# ---- What cannot be used ----
state = f"{work.name}/bad"
tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}]
with Server(command(state, "--policy", "full", of=tiny)) as s:
    ask(s, [user("A plain chat about a harbor. " * 8)])
    s.complete(ids(300, 7), 4, cache_prompt=True)
    ask(s, [user("And then one more of the towers. " * 8)])
found = numbers(state, of=tiny)
check("two chats and a text", len(found) == 3, found)
text = [n for n, line in found.items() if "assistant" not in line]
check("a text that is no chat", len(text) == 1 and one_line(resume(state, text[0], of=tiny), "no plain chat"), text, found)
check("no such number", one_line(resume(state, "77", of=tiny), "'77' is no parked conversation"))
check("no number", one_line(resume(state, "x1", of=tiny), "is no parked conversation"))
good = which(found, "harbor")
place = f"{state}/winnow-{int(good):016x}.park"
with open(place, "rb") as f:
    whole = f.read()
for what, bytes_ in (("a flipped byte", whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]), ("a file that is cut", whole[:-100])):
    with open(place, "wb") as f:
        f.write(bytes_)
    done = resume(state, good, of=tiny)
    check(what, one_line(done, "damaged") or one_line(done, "is no parked conversation"), done.returncode, done.stderr)
check("the others are still there", resume(state, which(found, "towers"), of=tiny).returncode == 0)
for options, part in ((("-f", f"{work.name}/doc.txt"), "leave out -f"), (("--kv-tail", "32"), "leave out --kv-tail"), (("--context", "endless"), "leave out --context"),
                      (("--store", state), "leave out --store")):
    check(part, one_line(resume(state, "last", *options, of=tiny), part))
check("a file and a folder", one_line(resume(state, f"{work.name}/x.wkv", of=tiny), "leave out --resume FILE.wkv"))
check("a number without a folder", one_line(run("chat", "-m", tiny, "--resume", "3"), "with --state"))
other = resume(state, "list", of=f"{TINY}/tiny-qwen2.gguf")
check("of another model", other.returncode == 0 and other.stdout == "" and "of another model or version are passed over" in other.stderr, other.stderr)
# What libllama's cache cannot hold is not lost.
done = run("chat", "-m", tiny, "-n", "4", "--state", state, "--policy", "snapkv+rerotate", "--budget", "40", lines=("Which? " * 200,))
aside = [f for f in os.listdir(state) if f.startswith("chat-")]
check("what cannot be parked is kept aside", one_line(done, "for `winnow chat -c`", 1) or ("for `winnow chat -c`" in done.stderr and len(aside) == 1), done.returncode, done.stderr, aside)
# A full disk.
disk = f"{work.name}/disk"
os.mkdir(disk)
if os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True).returncode == 0:
    done = run("chat", "-m", tiny, "-n", "4", "--state", disk, lines=("Which? " * 200,))
    check("a full disk", done.returncode == 1 and "No space left" in done.stderr and os.listdir(disk) == ["winnow.lock"] and done.stdout != "", done.returncode, done.stderr, os.listdir(disk))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    done = run("chat", "-m", tiny, "--state", disk, lines=("Which?",))
    check("a read-only disk", one_line(done, "cannot be written") or one_line(done, "Read-only"), done.returncode, done.stderr)
    subprocess.run(["umount", disk], check=True)
finish()
