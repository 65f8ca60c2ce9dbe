# SPDX-License-Identifier: MIT
"""`winnow eval` in this process, so that it runs scorers written in Python."""
import csv
import ctypes
import os
import signal
import sys
import tempfile
import threading

from ._library import UsageError, WinnowError, library, real, take_raised, _raised
from ._model import Model, listed
from ._scorer import registry

_running = threading.Lock()


def _forward(descriptor, to, kept):
    """Passes on what comes through a pipe, to `to` as it comes (None: nowhere)."""
    with os.fdopen(descriptor, "rb") as pipe:
        while True:
            data = os.read(pipe.fileno(), 65536)
            if not data:
                return
            kept.append(data)
            if to is not None:
                to.write(data.decode("utf-8", "replace"))
                to.flush()


def run_command(*arguments, show=True, plugins=()):
    """Runs `winnow` with these arguments in this process, where recipes may name its scorers. Returns (exit code, standard output, standard
    error) as str. show: both also go to sys.stdout and sys.stderr as they come. What a scorer raised is raised."""
    words = [b"winnow"] + [os.fsencode(str(a)) for a in arguments]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    lib = library()
    if not _running.acquire(blocking=False):
        raise UsageError("another command runs in this process; wait for its end")
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_DFL) if in_main else None
    kept = ([], [])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        saved, threads = [os.dup(1), os.dup(2)], []
        try:
            for i, stream in enumerate((sys.stdout, sys.stderr)):
                read, write = os.pipe()
                os.dup2(write, i + 1)
                os.close(write)
                to = _Saved(saved[i]) if show and _is_descriptor(stream, i + 1) else stream if show else None
                thread = threading.Thread(target=_forward, args=(read, to, kept[i]), daemon=True)
                thread.start()
                threads.append(thread)
            with registry(plugins=plugins) as r:
                code = lib.wnw_python_command(len(words), argv, r)
        finally:
            ctypes.CDLL(None).fflush(None)
            for i, descriptor in enumerate(saved):
                os.dup2(descriptor, i + 1)
            for thread in threads:
                thread.join()
            for descriptor in saved:
                os.close(descriptor)
    finally:
        if in_main and before is not None:
            signal.signal(signal.SIGINT, before)
        _running.release()
    raised = take_raised()
    if raised is None and code not in (0, 130) and _raised:
        raised = _raised.pop(next(iter(_raised)))
    if raised is not None:
        raise raised
    if code == 130:
        raise KeyboardInterrupt
    return code, *(b"".join(parts).decode("utf-8", "replace") for parts in kept)


def _is_descriptor(stream, number):
    try:
        return stream.fileno() == number
    except (AttributeError, OSError, ValueError):
        return False


class _Saved:
    """Writes to the descriptor that a stream had before."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def write(self, string):
        data = string.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._descriptor, data):]

    def flush(self):
        pass


def evaluate(policies, tasks, *, model="smollm2-135m", ratios=None, budgets=None, lengths=None, samples=None, out=None, show=True, plugins=(), **options):
    """Evaluates policies on tasks, as `winnow eval` does: one reading of a sample for all policies. Returns the summary with 95 % intervals,
    a pandas DataFrame where pandas is installed, else a list of dicts. Rows of the task "macro" are means over tasks.

    policies: recipes, scorers, presses. Ratios of presses are added to `ratios`
    tasks: names or groups of `winnow eval --list`
    ratios: fractions removed; budgets: entries kept; lengths: tokens of a sample; samples: of each task and length
    out: folder of the results, which an interrupted run continues; a temporary one by default
    options: other options of `winnow eval` by name, such as modes="aware", seed=7, chat="none", threads=2; True for options without a value
    """
    policies, tasks, ratios = listed(policies), listed(tasks), listed(ratios)
    for one in policies:
        ratio = getattr(one, "compression_ratio", None)
        if ratio is not None and ratio not in ratios:
            ratios.append(ratio)
    words = ["eval", "-m", model.path if isinstance(model, Model) else model, "--tasks", ",".join(map(str, tasks)), "--policies", ",".join(map(str, policies))]
    for name, value in {"ratios": ratios, "budgets": listed(budgets), "lengths": listed(lengths)}.items():
        if value:
            words += [f"--{name}", ",".join(str(v) if name != "ratios" or isinstance(v, str) else repr(real(v, "a ratio")) for v in value)]
    if samples is not None:
        words += ["--samples", samples]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:  # 0 is a value
            words += [option, value]
    with tempfile.TemporaryDirectory(prefix="winnow-") as folder:
        where = str(out) if out is not None else os.path.join(folder, "eval")
        code, _, said = run_command(*words, "--out", where, show=show, plugins=plugins)
        if code:
            lines = [line for line in said.splitlines() if line.startswith("winnow: ")]
            raise WinnowError(lines[-1][len("winnow: "):] if lines else f"winnow eval ended with the code {code}")
        return _table(os.path.join(where, "summary.csv"))


def _table(path):
    try:
        import pandas
    except ImportError:
        with open(path, newline="", encoding="utf-8") as f:
            return [dict(row) for row in csv.DictReader(f)]
    return pandas.read_csv(path)
