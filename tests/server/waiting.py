#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who waits for whom at `winnow serve`: waiting.py WINNOW

Who waits for a slot by its number holds up only those that want the same one; everything that waits for a slot is done once it is free; a client that has left
gives its slot and its place in the line back, under every header.
"""
import os
import queue
import sys
import tempfile
import threading

from llama_server import TINY, Server, at_once, check, finish, ids, post, rest_of, until

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"
LONG = {"prompt": ids(50, 1), "n_predict": 8000, "temperature": 0, "ignore_eos": True, "stream": True}
# The same in the form of each route.
LONG_OF = {"/completion": LONG, "/v1/completions": {"prompt": ids(50, 1), "max_tokens": 8000, "temperature": 0, "ignore_eos": True, "stream": True},
           "/v1/chat/completions": {"messages": [{"role": "user", "content": "w1"}], "max_tokens": 8000, "temperature": 0, "ignore_eos": True, "stream": True},
           "/v1/messages": {"messages": [{"role": "user", "content": "w1"}], "max_tokens": 8000, "temperature": 0, "stream": True},
           "/v1/responses": {"input": "w1", "max_output_tokens": 8000, "temperature": 0, "stream": True}}


def serve(*options, slots=2):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", str(slots), *options, "--", "-t", "1"])


def kv(s):
    return s.ask("/winnow/kv").json


def busy(s):
    return [x["busy"] for x in kv(s)["slots"]]


def ask(s, path, body=None, timeout=120):
    """The status, or what went wrong."""
    try:
        return s.ask(path, body, timeout=timeout).status
    except OSError as error:
        return repr(error)


class Stream:
    """A client that reads a long answer on a slot until it leaves."""

    def __init__(self, s, slot, path="/completion", headers=()):
        self.c = s.connect()
        self.c.sendall(post({**LONG_OF[path], "id_slot": slot}, path, headers=headers))
        check(f"slot {slot} is taken", until(lambda: busy(s)[slot]), kv(s))
        self.reader = threading.Thread(target=rest_of, args=(self.c,))
        self.reader.start()

    def leave(self):
        self.c.shutdown(2)
        self.reader.join()
        self.c.close()


def started(*calls):
    """Starts calls in threads one after the other; returns where their results will come, as they come."""
    results = queue.Queue()
    for name, call in calls:
        threading.Thread(target=lambda name=name, call=call: results.put((name, call())), daemon=True).start()
    return results


def collect(results, n, seconds=60):
    done = []
    for _ in range(n):
        try:
            done.append(results.get(timeout=seconds))
        except queue.Empty:
            break
    return done


with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".txt") as notes:
    notes.write("w1 w2 w3 " * 30)
    notes.flush()
    # One slot is busy. What waits for it holds up nothing else, and all of it is done once the slot is free.
    with serve("--policy", "keydiff", "--budget", "100", "--save", folder, "--document", f"notes={notes.name}", slots=4) as s:
        check("the document is read", until(lambda: kv(s)["documents"][0]["ready"]))
        s.complete(ids(200, 9), 2, id_slot=0)
        check("a file to restore", ask(s, "/slots/0?action=save", {"filename": "before"}) == 200)
        stream = Stream(s, 0)
        mine = {"prompt": ids(20, 2), "n_predict": 2, "id_slot": 0}
        chat = {"messages": [{"role": "user", "content": "w1"}], "max_tokens": 2}
        waits = [("a completion", lambda: ask(s, "/completion", mine)), ("a look", lambda: ask(s, "/winnow/page?slot=0")), ("a save", lambda: ask(s, "/slots/0?action=save", {"filename": "a"})),
                 ("an erase", lambda: ask(s, "/winnow/slots/0?action=erase", "{}")), ("a restore", lambda: ask(s, "/slots/0?action=restore", {"filename": "before"})),
                 ("another look", lambda: ask(s, "/winnow/page?slot=0")), ("a chat", lambda: ask(s, "/v1/chat/completions", {**chat, "id_slot": 0})),
                 ("two answers", lambda: ask(s, "/completion", {**mine, "n": 2})), ("another save", lambda: ask(s, "/winnow/slots/0?action=save", {"filename": "b"})),
                 ("a message", lambda: ask(s, "/v1/messages", {**chat, "id_slot": 0})), ("a document", lambda: ask(s, "/v1/chat/completions", {**chat, "id_slot": 0, "winnow": {"document": "notes"}})),
                 ("a stream", lambda: ask(s, "/completion", {**mine, "stream": True})), ("one more erase", lambda: ask(s, "/slots/0?action=erase", "{}"))]
        results = started(*waits)
        for i in range(12):
            others = at_once(*[lambda k=k: ask(s, "/completion", {"prompt": ids(20, 30 + k), "n_predict": 2}, 60) for k in range(4)],
                             lambda: ask(s, "/completion", {"prompt": ids(20, 3), "n_predict": 2, "id_slot": 1 + i % 3}, 60), lambda: ask(s, f"/winnow/page?slot={1 + i % 3}", timeout=60),
                             lambda: ask(s, f"/slots/{1 + i % 3}?action=save", {"filename": "c"}, 60), lambda: ask(s, "/winnow/page?document=notes", timeout=60),
                             lambda: ask(s, "/completion", {"prompt": ids(20, 4), "n_predict": 2, "n": 3}, 60), lambda: ask(s, "/v1/chat/completions", {**chat, "winnow": {"document": "notes"}}, 60))
            others[5] = 200 if others[5] == 409 else others[5]  # a slot that is empty now has no page
            check("others go on while slot 0 is busy", others == [200] * 10, others)
        check("and it is still busy", busy(s)[0] and results.empty(), kv(s), results.qsize())
        stream.leave()
        done = dict(collect(results, len(waits)))
        check("all that waited is done", all(done.get(name) in ((200, 409) if "look" in name else (200,)) for name, _ in waits), done)
        check("nothing is left", until(lambda: not any(busy(s))), kv(s))
        check("both files were written", {"a", "b"} <= set(os.listdir(folder)), os.listdir(folder))

    # All slots are busy: who came first has the slot that becomes free, if it is one that it takes.
    with serve("--policy", "keydiff", "--budget", "100") as s:
        streams = [Stream(s, i) for i in range(2)]
        results = queue.Queue()
        for name, body in (("zero", {"id_slot": 0}), ("any", {}), ("one", {"id_slot": 1}), ("any again", {})):
            threading.Thread(target=lambda name=name, body=body: results.put((name, ask(s, "/completion", {**body, "prompt": ids(20, 5), "n_predict": 2}))), daemon=True).start()
            threading.Event().wait(0.5)  # so that they come in this order; if they do not, nothing fails that should not
        look = started(("document", lambda: ask(s, "/winnow/page?document=none")))
        check("what needs no slot does not wait", collect(look, 1) == [("document", 400)])
        streams[1].leave()
        check("slot 1 is for those that take it", sorted(collect(results, 3)) == [("any", 200), ("any again", 200), ("one", 200)])
        check("slot 0 is waited for", results.empty() and busy(s)[0])
        streams[0].leave()
        check("until it is free", collect(results, 1) == [("zero", 200)])
        # A request for several slots, with one of them busy, does not delay requests for one slot. It gets its slots once they are free.
        stream = Stream(s, 0)
        results = started(("two answers", lambda: ask(s, "/completion", {"prompt": ids(20, 8), "n_predict": 2, "n": 2})))
        threading.Event().wait(0.3)
        others = [ask(s, "/completion", {"prompt": ids(20, i), "n_predict": 2, **({"id_slot": 1} if i % 2 else {})}, 60) for i in range(6)]
        check("who wants one slot goes on beside one that wants two", others == [200] * 6 and results.empty(), others)
        stream.leave()
        check("who wants two has them", collect(results, 1) == [("two answers", 200)])
        # Who has left holds up nobody, wherever it stood.
        streams = [Stream(s, i) for i in range(2)]
        gone = [s.connect() for _ in range(9)]
        for i, c in enumerate(gone):
            c.sendall(post([{"prompt": ids(20, 6), "n_predict": 2, "id_slot": 0}, {"prompt": ids(20, 6), "n_predict": 2}, {"prompt": ids(20, 6), "n_predict": 2, "n": 2}][i % 3]))
        threading.Event().wait(0.5)
        results = started(("last", lambda: ask(s, "/completion", {"prompt": ids(20, 7), "n_predict": 2, "n": 2})))
        for c in gone:
            c.close()
        for stream in streams:
            stream.leave()
        check("who stays is served", collect(results, 1) == [("last", 200)], kv(s))
        check("and nothing is left", until(lambda: not any(busy(s))), kv(s))

        # A client that leaves gives its slot back, under llama.cpp's header for streams that go on too.
        for header in "X-Conversation-Id: c", "x-conversation-id: c", "X-CONVERSATION-ID: c::model":
            for path in LONG_OF:
                stream = Stream(s, 0, path, (header,))
                stream.leave()
                check(f"{path}, {header}: its slot is free", until(lambda: not busy(s)[0]), kv(s))
            waiting = s.connect()
            waiting.sendall(post({**LONG, "stream": False}, headers=(header,)))
            check("a whole answer is computed", until(lambda: any(busy(s))))
            waiting.close()
            check(f"{header}: a whole answer is given up too", until(lambda: not any(busy(s))), kv(s))
        check("nothing can be asked of a stream that was given up", s.ask("/v1/stream?conv_id=c").status == 404)

    # Of what the server itself puts off, all is done as well: requests of several prompts claim no slot.
    with serve("--policy", "keydiff", "--budget", "100", "--save", folder, slots=1) as s:
        stream = Stream(s, 0)
        several = [(f"prompts {i}", lambda: ask(s, "/completion", {"prompt": ["w1", "w2 w3"], "n_predict": 2})) for i in range(3)]
        several += [(f"save {i}", lambda i=i: ask(s, "/slots/0?action=save", {"filename": f"s{i}"})) for i in range(3)]
        several += [(f"look {i}", lambda: ask(s, "/winnow/page?slot=0")) for i in range(3)]
        several += [(f"erase {i}", lambda: ask(s, "/slots/0?action=erase", "{}")) for i in range(2)]
        results = started(*several)
        threading.Event().wait(0.5)
        stream.leave()
        done = dict(collect(results, len(several)))
        # A look at an empty slot, or at one that holds nothing to show, is refused with 409.
        check("all of it is done", len(done) == len(several) and all(x == 200 or (x in (400, 409) and not name.startswith("save")) for name, x in done.items()), done)
        check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])
finish()
