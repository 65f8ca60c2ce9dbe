# SPDX-License-Identifier: MIT
"""Servers of the tests: started on free ports of the loopback, asked over HTTP, ended by their process ids."""
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

TINY = os.path.join(os.environ.get("WINNOW_CACHE") or os.path.expanduser("~/.cache/winnow"), "models", "tiny")
failures = []


def check(name, holds, *shown):
    if not holds:
        failures.append(name)
        print("FAILED:", name, *shown, file=sys.stderr, flush=True)


def finish():
    print(f"{len(failures)} checks failed" if failures else "all checks hold")
    sys.exit(1 if failures else 0)


def until(condition, seconds=30):
    """Waits until a condition holds; whether it did. The time only bounds a test that hangs."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def reads_documents(server):
    """Waits until all documents of a server are read; whether they are."""
    return until(lambda: all(d["ready"] for d in server.ask("/winnow/kv").json["documents"]))


class Worker:
    """`winnow worker` at a free port of the loopback, whose kernels are ggml's. popen: more for subprocess.Popen."""

    def __init__(self, winnow, **popen):
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen([winnow, "worker", "--listen", f"127.0.0.1:{self.port}", "--device", "CPU", "-t", "1"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **popen)
        self.started = until(self.answers)

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            return True
        except OSError:
            return False

    @property
    def name(self):
        return f"rpc:127.0.0.1:{self.port}"

    def end(self):
        self.process.kill()
        self.process.wait()


class Reply:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.text)


def rest_of(connection):
    """What still comes; nothing more if the connection is cut."""
    came = b""
    try:
        while part := connection.recv(65536):
            came += part
    except OSError:
        pass
    return came


def post(body, path="/completion", length=None, headers=()):
    """The bytes of a request; `length` in place of the body's own."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["POST %s HTTP/1.1" % path, "Host: localhost", "Content-Type: application/json", "Content-Length: %d" % (len(data) if length is None else length), *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Server:
    """A server that has said where it listens. `log` reads what it has written."""

    def __init__(self, command, env=None):
        self.file = tempfile.NamedTemporaryFile("w+", prefix="server-", suffix=".log")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
                                        env={**os.environ, **(env or {})})
        if not until(lambda: self.address() or self.process.poll() is not None, 300) or not self.address():
            self.stop()
            sys.exit(f"the server did not start: {' '.join(command)}\n{self.log()[-3000:]}")

    def log(self):
        with open(self.file.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def address(self):
        found = re.search(r"listening on http://([\d.]+):(\d+)", self.log())
        return (found[1], int(found[2])) if found else None

    def ask(self, path, body=None, headers=None, timeout=300):
        host, port = self.address()
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        data = None if body is None else body if isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json", **(headers or {})})
        reply = Reply(connection.getresponse())
        connection.close()
        return reply

    def connect(self):
        return socket.create_connection(self.address(), timeout=60)

    def raw(self, data):
        """Sends bytes and returns all that comes until the server closes the connection."""
        with self.connect() as c:
            c.sendall(data)
            return rest_of(c)

    def complete(self, prompt, n, **more):
        """Greedy tokens after a prompt (text or ids), with the log-probability of each."""
        reply = self.ask("/completion", {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True, "n_probs": 1,
                                         "return_tokens": True, **more})
        if reply.status != 200:
            sys.exit(f"a completion was refused: {reply.text[:1000]}\n{self.log()[-2000:]}")
        return reply.json

    def leave(self, path, body, wait_for):
        """Asks, reads until `wait_for` holds of what came, and closes the connection."""
        data = json.dumps(body).encode()
        host, port = self.address()
        with socket.create_connection((host, port)) as s:
            s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                      % (path.encode(), len(data), data))
            came = b""
            s.settimeout(0.02)
            while not wait_for(came):
                try:
                    part = s.recv(65536)
                    if not part:
                        break
                    came += part
                except TimeoutError:
                    pass
        return came

    def stop(self):
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        ended, status = self.process.poll(), self.stop()
        if kind not in (None, SystemExit):
            print(f"the server {'still ran' if ended is None else f'had ended with {ended}'}, ended with {status}; its last lines:\n{self.log()[-3000:]}", file=sys.stderr, flush=True)
        self.file.close()


def at_once(*calls):
    """Runs calls in threads of their own; their results in order."""
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def probabilities(answer):
    return [(entry["id"], entry["logprob"]) for entry in answer["completion_probabilities"]]


def comparable(*answers):
    """Whether answers have probabilities: where all bytes of one are no character, it has none."""
    return all("completion_probabilities" in a for a in answers)


def nearly_same(a, b, bound):
    """Whether two answers agree token by token. If a token differs and both choices have about the same probability, the
    rest is not compared, because rounding may choose either."""
    for (x, p), (y, q) in zip(probabilities(a), probabilities(b)):
        if abs(p - q) > bound:
            return False
        if x != y:
            return True
    return True


def ids(n, seed, first=20, n_kind=200):
    """Tokens of a made-up document, first to first + n_kind - 1."""
    x, out = seed * 7919 + 17, []
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2147483648
        out.append(first + x // 65536 % n_kind)
    return out


class Most:
    """The most bytes of keys and values that a server of winnow has said, asked all the time."""

    def __init__(self, server):
        self.server, self.bytes, self.on = server, 0, True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while self.on:
            self.bytes = max(self.bytes, self.server.ask("/winnow/kv").json["bytes"])

    def end(self):
        self.on = False
        self.thread.join()
        return self.bytes
