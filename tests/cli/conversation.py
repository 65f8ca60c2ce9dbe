#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""winnow chat as somebody types to it: conversation.py WINNOW MODEL FOLDER

A pseudo-terminal of 40 columns replaces the user's. The test waits for output, never for a time.
"""
import fcntl
import os
import pty
import re
import select
import signal
import stat
import struct
import sys
import termios

winnow, model, folder = sys.argv[1:]
failures = 0


def check(what, good, *seen):
    global failures
    if not good:
        failures += 1
        print(f"FAILED: {what}:", *[repr(s)[:1500] for s in seen], file=sys.stderr)


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
PROGRESS = re.compile(r"(prefill|generate): [^\n]*? left")


class Terminal:
    """The command on a terminal of this kind."""

    def __init__(self, *options, term="xterm", state="state", model=model):
        env = dict(os.environ, TERM=term, XDG_STATE_HOME=f"{folder}/{state}", LC_ALL="C.UTF-8")
        self.text, self.raw, self.closed, self.escaped = "", "", False, False
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
            os.execve(winnow, [winnow, "chat", "-m", model, *options], env)

    def until(self, pattern):
        """Reads until the pattern occurs in the output since the last call. Returns that output."""
        while not (found := re.search(pattern, self.text)):
            if not self.read():
                check(f"no /{pattern}/", False, self.text)
                os.kill(self.pid, signal.SIGKILL)
                sys.exit(1)  # the rest would wait in vain
        text, self.text = self.text[:found.end()], self.text[found.end():]
        self.escaped, self.raw = "\x1b" in self.raw, self.text
        return text

    def read(self):
        if not select.select([self.fd], [], [], 60)[0]:
            return False
        try:
            more = os.read(self.fd, 65536)
        except OSError:
            more, self.closed = b"", True
        self.raw += more.decode("utf-8", "replace")
        self.text = PROGRESS.sub("", ESCAPES.sub("", self.raw))
        return bool(more)

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        """The exit code, once it has closed the terminal."""
        while self.read():
            pass
        if not self.closed:
            check("it does not end", False, self.text)
            os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


# The first words of an answer. What is typed before the line is edited appears twice.
STORY = r"story\.\n(?!T)[^>]*[A-Za-z]{3}"

# A file may be called anything, and no terminal obeys it.
named = os.fsencode(f"{folder}/a\x1b]0;b\x07c\u009bd\u202ee") + b"\x9bf"
with open(named, "w", encoding="ascii") as f:
    f.write("The harbor is red. " * 20)
t = Terminal("-n", "5", "--policy", "full", "-f", os.fsdecode(named))
text = t.until("Ctrl-D ends")
check("names of files are text", ", a?]0;b?c?d?e?f: " in text and "\x1b]" not in text, text)
t.type("\x04")
check("and it ends", t.end() == 0)

for term in ("xterm", "dumb"):
    t = Terminal("-n", "5", "--policy", "full", term=term)
    start = t.until("> ").split("\n")
    check(f"{term}: it begins with model, what is kept and how to get help",
          re.fullmatch(r"\S+\.gguf, all entries kept", start[0]) and start[1] == "/help lists commands, Ctrl-D ends.", start)
    t.type("/help\n")
    text = t.until("begins a text with a slash")
    lines = text.split("\n")
    check(f"{term}: the help fits 40 columns", all(len(line) <= 40 for line in lines), lines)
    check(f"{term}: nothing but text in a dumb terminal", term == "xterm" or not t.escaped, text)
    t.type("Who are you?\n")
    t.until("the answer ends after 5 tokens")
    t.type("/stats\n")
    text = t.until(r"answering [\d.]+ tokens/s")
    lines = text.split("\n")[1:]
    check(f"{term}: /stats fits 40 columns", all(len(line) <= 40 for line in lines), lines)
    check(f"{term}: a turn was counted", "turns     1," in text, text)
    t.type("/undo it\n")
    t.until("/undo takes nothing after it")
    # A letter of Latin-1 is no character here, and the Enter after it counts, as other letters do.
    for typed in (b"/undo caf\xe9\n", b"/undo \xe9\xe8\xc3x\n", b"/undo \xe2\x82\n"):
        os.write(t.fd, typed)
        t.until("/undo takes nothing after it")
    # Ctrl-C at the prompt clears the line.
    t.type("/quit")
    t.until("/quit")
    t.type("\x03")
    t.until("> ")
    t.type("a line \\\n")
    t.until(r"\. ")
    t.type("that goes on\n")
    t.until("the answer ends after 5 tokens")
    t.type("/save " + f"{folder}/{term}.txt\n")
    t.until(r"2 turns as text\n(.|\n)*> ")
    with open(f"{folder}/{term}.txt", encoding="utf-8") as f:
        check(f"{term}: the text of both turns", "> a line \n> that goes on\n" in f.read())
    t.type("\x04")
    check(f"{term}: Ctrl-D ends", t.end() == 0, t.text)

# Ctrl-C while an answer comes stops that; the conversation goes on and can be taken back.
t = Terminal("-n", "600", "--no-history", state="none", model="smollm2-135m")
t.until("> ")
t.type("Tell me a long story.\n")
t.until(STORY)
t.type("\x03\x03")
t.until("> ")
t.type("/stats\n")
text = t.until(r"answering")
check("an answer that was stopped is a turn", "turns     1," in text, text)
check("and did not come to its end", int(re.search(r"context   (\d+) of", text)[1]) < 600, text)
t.type("/undo\n")
t.until("0 turns are left")
t.type("/stats\n")
check("and is taken back", "turns     0, 0 tokens read" in t.until("answering"), t.text)
t.type("/quit\n")
check("/quit ends", t.end() == 0, t.text)
check("no history was kept", not os.path.exists(f"{folder}/none"))

# Ctrl-D that is typed while an answer comes ends the program after it.
t = Terminal("-n", "40", "--no-history", model="smollm2-135m")
t.until("> ")
t.type("Tell me a long story.\n")
t.until(STORY)
t.type("\x04")
check("Ctrl-D, typed early, ends", t.end() == 0, t.text)

# SIGTERM ends the program at the prompt and in an answer.
for when in ("prompt", "answer"):
    t = Terminal("-n", "600", "--no-history", model="smollm2-135m")
    t.until("> ")
    if when == "answer":
        t.type("Tell me a long story.\n")
        t.until(STORY)
    os.kill(t.pid, signal.SIGTERM)
    check(f"SIGTERM, {when}", t.end() == 130, t.text)

# Lines are remembered for the next conversation, where they can be edited.
path = f"{folder}/state/winnow/chat_history"
if os.path.exists(path):
    check("only the user reads the history", stat.S_IMODE(os.stat(path).st_mode) == 0o600, oct(os.stat(path).st_mode))
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    check("lines are remembered", "Who are you?" in lines and "/stats" in lines, lines)
    t = Terminal("-n", "5")
    t.until("> ")
    t.type("\x1b[A")  # up: the last line
    t.until("/save")
    t.type("\x15/st\u00e4ts\x1b[D\x1b[D\x7fa\n")  # kill the line, left twice, rub out
    t.until(r"turns     0,(.|\n)*> ")
    t.type("\x04")
    check("Ctrl-D ends", t.end() == 0, t.text)
else:
    check("a history where lines are edited", os.environ.get("WNW_EDITS") == "no", folder)
sys.exit(1 if failures else 0)
