# SPDX-License-Identifier: MIT
"""The library: where it is, its errors as exceptions."""
import ctypes
import math
import operator
import os
import pathlib
import platform
import sys
import threading

from . import _declarations as c

FOLDER = pathlib.Path(__file__).resolve().parent


class WinnowError(Exception):
    """An error of the library. The text is the library's sentence; `status` is its code, such as "E_RANGE"."""

    def __init__(self, sentence, status="E_ARG"):
        super().__init__(sentence)
        self.status = status


class ArgumentError(WinnowError, ValueError):
    """A bad argument, recipe or size (E_ARG, E_RANGE)."""


class FileError(WinnowError, OSError):
    """A file that cannot be read, or is not what it should be (E_IO, E_FORMAT, E_MISMATCH, E_UNSUPPORTED)."""

    def __str__(self):
        return self.args[0]


class OutOfMemory(WinnowError, MemoryError):
    """Memory ran out (E_NOMEM)."""


class UsageError(WinnowError, RuntimeError):
    """An object that is closed, in use by another thread, or was opened before a fork."""


_STATUS = {value: name[4:] for name, value in vars(c).items() if name.startswith("WNW_E_")}
_CLASS = {"E_ARG": ArgumentError, "E_RANGE": ArgumentError, "E_IO": FileError, "E_FORMAT": FileError, "E_MISMATCH": FileError,
          "E_UNSUPPORTED": FileError, "E_NOMEM": OutOfMemory}

_lock = threading.RLock()  # an object of the library may be collected, and so released, while a thread has it
_library = None
_path = None  # of the library
_shows_symbols = False  # to plugins, and so to every other library of the process


def _cpu_flags():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            for line in f:
                if line.startswith("flags"):
                    return set(line.split())
    except OSError:
        pass
    return None


def check_cpu():
    """Raises WinnowError where the CPU lacks what this package was compiled for; loading it would end the process."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    flags = _cpu_flags()
    missing = sorted({"avx2", "bmi2", "fma", "f16c"} - flags) if flags is not None else []
    if missing:
        raise WinnowError(f"this CPU has no {', '.join(missing)}, which this package was compiled for; build winnow on this machine", "E_UNSUPPORTED")


def find(name, variable):
    """The path of a library of this package; the environment's `variable` names another one."""
    given = os.environ.get(variable)
    if given:
        return given
    path = FOLDER / "lib" / name
    if path.exists():
        return str(path)
    raise WinnowError(f"the package has no {name} in {path.parent}; install its wheel, or set {variable} to the library of a build", "E_IO")


def declare(library, names):
    for name in names:
        result, arguments = c.FUNCTIONS[name]
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


def library():
    """The loaded libwinnow. Calls of it release the GIL."""
    global _library, _path
    with _lock:
        if _library is None:
            check_cpu()
            path = find("libwinnow.so", "WINNOW_LIBRARY")
            try:
                loaded = ctypes.CDLL(path)
            except OSError as error:
                raise WinnowError(f"cannot load {path}: {error}", "E_IO") from None
            loaded.wnw_version.restype = ctypes.c_char_p
            version = loaded.wnw_version().decode()
            if version != c.WNW_VERSION_STRING:
                raise WinnowError(f"{path} is winnow {version}, and this package is {c.WNW_VERSION_STRING}", "E_MISMATCH")
            declare(loaded, [name for name in c.FUNCTIONS if hasattr(loaded, name)])
            loaded.wnw_python_command.restype = ctypes.c_int
            loaded.wnw_python_command.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(c.wnw_registry)]
            _library, _path = loaded, path
        return _library


def show_symbols():
    """Plugins in C find the functions of the library only if its symbols are global. Those of its ggml are then global, too, and would take
    the place of those of llama-cpp-python's ggml."""
    global _shows_symbols
    library()
    with _lock:
        if not _shows_symbols:
            if "llama_cpp" in sys.modules:
                raise UsageError("plugins in C cannot be used in a process that has imported llama_cpp; use another process")
            ctypes.CDLL(_path, mode=ctypes.RTLD_GLOBAL)
            _shows_symbols = True


def check_may_load_llama_cpp():
    """Raises UsageError where llama-cpp-python would find the wrong ggml."""
    if _shows_symbols:
        raise UsageError("this process has loaded a plugin in C, so llama_cpp cannot be used with winnow in it; use another process")


# What callbacks raised, by the thread that they ran in.
_raised = {}


def note_raised(error):
    with _lock:
        _raised.setdefault(threading.get_ident(), error)


def take_raised():
    """What a callback in this thread has raised since the last call, or None."""
    with _lock:
        return _raised.pop(threading.get_ident(), None)


def error(status):
    """The exception for a status of the library."""
    lib = library()
    return status_error(status, lib.wnw_last_error().decode("utf-8", "replace") or lib.wnw_strerror(status).decode())


def status_error(status, sentence):
    """The exception for a status and its sentence."""
    name = _STATUS.get(status, "E_ARG")
    return _CLASS.get(name, WinnowError)(sentence, name)


def check(status):
    """Raises what a callback raised, else the library's error. Returns a status that is none."""
    raised = take_raised()
    if status < 0:
        raise raised if raised is not None else error(status)
    return status


def text(value, what):
    """UTF-8 of a str, for the library."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}")
    data = value.encode("utf-8")
    if b"\0" in data:
        raise ArgumentError(f"{what} has a NUL character; remove it")
    return data


def whole(value, what, least, most):
    """A whole number of these bounds as int. Python's and NumPy's are taken."""
    try:
        if isinstance(value, bool):
            raise TypeError
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {value!r}") from None
    if not least <= n <= most:
        raise ArgumentError(f"{what} is {n}; give {least} to {most}", "E_RANGE")
    return n


def real(value, what):
    """A number as float, which is finite or infinite."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is a number, not {value!r}") from None
    if math.isnan(number):
        raise ArgumentError(f"{what} is a number, not nan")
    return number


class Owned:
    """An object of the library. One thread uses it at a time, in the process that opened it."""

    def __init__(self, what):
        self._what, self._pid, self._closed = what, os.getpid(), False
        self._use = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __reduce__(self):
        raise TypeError(f"a {self._what} cannot be copied or pickled; open it again where it is needed")

    def _check(self):
        if self._closed:
            raise UsageError(f"the {self._what} is closed")
        if self._pid != os.getpid():
            raise UsageError(f"the {self._what} was opened before a fork; open it again in this process")

    def _using(self):
        """A context manager: the object belongs to this thread meanwhile."""
        return _Using(self)

    def _release(self):
        raise NotImplementedError

    def close(self):
        """Releases what the object holds. A second call does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        if not self._use.acquire(blocking=False):
            raise UsageError(f"the {self._what} is in use by another call; close it afterwards")
        try:
            self._closed = True
            self._release()
        finally:
            self._use.release()

    def __del__(self):
        try:
            self.close()
        except Exception:  # the interpreter ends, or __init__ failed
            pass


class _Using:
    def __init__(self, owned):
        self._owned = owned

    def __enter__(self):
        self._owned._check()
        if not self._owned._use.acquire(blocking=False):
            raise UsageError(f"the {self._owned._what} is in use by another call; one thread uses it at a time")
        if self._owned._closed:
            self._owned._use.release()
            self._owned._check()
        return self._owned

    def __exit__(self, *unused):
        self._owned._use.release()
