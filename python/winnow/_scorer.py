# SPDX-License-Identifier: MIT
"""Scorers written in Python, and the registries that recipes are parsed with."""
import ctypes
import inspect
import math
import signal
import sys
import threading
import traceback

import numpy as np

from . import _declarations as c
from ._library import check, library, note_raised, show_symbols, text, whole

_FLAGS = {
    "keys": c.WNW_NEED_KEYS, "key_norms": c.WNW_NEED_KEYS, "values": c.WNW_NEED_VALUES,
    "window_attention": c.WNW_NEED_WINDOW_ATTN, "window_mean": c.WNW_NEED_WINDOW_ATTN, "window_queries": c.WNW_NEED_WINDOW_ATTN,
    "attention_sum": c.WNW_NEED_ATTN_SUM, "attention_max": c.WNW_NEED_ATTN_MAX, "queries": c.WNW_NEED_QUERIES,
    "query_mean": c.WNW_NEED_QUERY_STATS, "query_cov": c.WNW_NEED_QUERY_STATS, "value_norms": c.WNW_NEED_PROJ_NORM,
}


_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(("PyMemoryView_FromMemory", ctypes.pythonapi))
_floats = ctypes.POINTER(ctypes.c_float)
_READ, _WRITE = 0x100, 0x200  # PyBUF_READ, PyBUF_WRITE


def _array(pointer, shape, kind, how=_READ):
    """An array of memory at a pointer. numpy.ctypeslib, and an array type of ctypes, make a type for every shape, which takes longer than
    many a scorer."""
    kind = np.dtype(kind)
    return np.frombuffer(_memory(pointer, math.prod(shape) * kind.itemsize, how), kind).reshape(shape)


def _is_finite(array):
    """Whether no element is infinite or NaN. np.isfinite would make an array."""
    return array.size == 0 or math.isfinite(array.max()) and math.isfinite(array.min())


_rooms = threading.local()


def _room(what, shape):
    """An array that serves one layer after the other in this thread: new memory for each takes longer than the copy."""
    room = getattr(_rooms, what, None)
    if room is None or room.shape != shape:
        room = np.empty(shape, np.float32)
        setattr(_rooms, what, room)
    return room


class _Past:
    """In place of what an Observation had, once its call has ended: the memory may be gone."""

    def __getattr__(self, name):
        raise LookupError("an Observation is read within the call of its scorer; copy what is to stay")


_past = _Past()


class Observation:
    """What is observed of one layer. Arrays are float32 views of the library's memory, which cannot be written: read them within the call, and copy what is to stay.

    Attributes: `layer`, `n_layer`, `n_head`, `n_head_kv`, `n` (entries of the longest head), `d` (elements of a head), `n_past` (tokens read),
    `n_entry` [n_head_kv], `positions` [n_head_kv, n] (-1 in padding), `scale` (logit = scale * query . key), and what `needs` names:

    - `keys`, `values` [n_head_kv, n, d]: cached keys after RoPE, values; `key_norms` [n_head_kv, n]: L2 norms of the keys
    - `window_attention` [n_head, window, n]: probabilities of the last queries; `window_mean` [n_head, n]: their mean over these queries, in
      less time; `window_queries` [n_head, window, d]
    - `attention_sum`, `attention_max` [n_head, n]: of all queries since an entry was read
    - `queries` [n_queries, n_head, d]: after RoPE, of the last positions
    - `query_mean` [n_head, d], `query_cov` [n_head, d, d]: before RoPE
    - `value_norms` [n_head_kv, n]: L2 norm of a value after the output projection

    `out` can be written: a scorer may put its scores there and return nothing, or `out`.
    """

    def __init__(self, pointer):
        self._out, self.out_used, self._all = None, False, {}
        self._pointer, self._o = pointer, pointer.contents
        o = self._o
        self.layer, self.n_layer, self.n_head, self.n_head_kv = o.il, o.n_layer, o.n_head, o.n_head_kv
        self.n, self.d, self.n_past, self.scale = o.n, o.n_embd_head, o.n_past, o.attn_scale

    def _end(self):
        self._pointer, self._o, self._out, self._all = None, _past, None, {}

    @staticmethod
    def _view(pointer, shape, what, kind=np.float32):
        if not pointer:
            raise LookupError(f"{what} was not observed; name it in needs")
        return _array(pointer, shape, kind)  # which cannot be written: it is the cache, or what other policies are shown too

    @property
    def n_entry(self):
        return self._view(self._o.n_entry, (self.n_head_kv,), "n_entry", np.int32)

    @property
    def positions(self):
        return self._view(self._o.pos, (self.n_head_kv, self.n), "positions", np.int32)

    @property
    def out(self):
        self.out_used = True
        return self._out

    def head_keys(self, head):
        """Keys of one KV head, [n, d], without a copy. The next call for another head ends the view."""
        return self._view(self._o.keys(self._pointer, head) if self._o.keys else None, (self.n, self.d), "keys")

    def head_values(self, head):
        """Values of one KV head, [n, d], likewise."""
        return self._view(self._o.values(self._pointer, head) if self._o.values else None, (self.n, self.d), "values")

    def _heads(self, of_all, what):
        if not of_all:
            return self._view(None, (), what)
        if what not in self._all:
            pointer = of_all(self._pointer)
            if not pointer:
                raise MemoryError(f"no memory for the {what} of {self.n_head_kv} heads")
            self._all[what] = self._view(pointer, (self.n_head_kv, self.n, self.d), what)
        return self._all[what]

    @property
    def keys(self):
        return self._heads(self._o.all_keys, "keys")

    @property
    def values(self):
        return self._heads(self._o.all_values, "values")

    def _reduced(self, function, what, rows):
        """What a function of the library makes of the observation, 0 in padding."""
        out = _room(what, (rows, self.n))
        if function(self._pointer or self._o.pointer, out.ctypes.data_as(_floats)) < 0:
            raise LookupError(f"{what} was not observed; name it in needs")
        return out

    @property
    def key_norms(self):
        return self._reduced(library().wnw_observation_key_norms, "key_norms", self.n_head_kv)

    @property
    def window_mean(self):
        return self._reduced(library().wnw_observation_window_mean, "window_mean", self.n_head)

    @property
    def window_attention(self):
        return self._view(self._o.window_attn, (self.n_head, self._o.n_window, self.n), "window_attention")

    @property
    def window_queries(self):
        return self._view(self._o.window_queries, (self.n_head, self._o.n_window, self.d), "window_attention")

    @property
    def attention_sum(self):
        return self._view(self._o.attn_sum, (self.n_head, self.n), "attention_sum")

    @property
    def attention_max(self):
        return self._view(self._o.attn_max, (self.n_head, self.n), "attention_max")

    @property
    def queries(self):
        return self._view(self._o.queries, (self._o.n_queries, self.n_head, self.d), "queries")

    @property
    def query_mean(self):
        return self._view(self._o.query_mean, (self.n_head, self.d), "query_mean")

    @property
    def query_cov(self):
        return self._view(self._o.query_cov, (self.n_head, self.d, self.d), "query_cov")

    @property
    def value_norms(self):
        norms = self._o.proj_norm(self._pointer, c.WNW_PROJ_L2) if self._o.proj_norm else None
        return self._view(norms, (self.n_head_kv, self.n), "value_norms")


_NAMES = set(_FLAGS) | {"layer", "n_layer", "n_head", "n_head_kv", "n", "d", "n_past", "n_entry", "positions", "scale", "out"}
_types = {name: kind for name, kind in c.wnw_part._fields_}
_score_type = dict(c.wnw_scorer._fields_)["score"]


def _print_raised(raised):
    if isinstance(raised, KeyboardInterrupt):
        # Raised here it would be lost: Python takes it only after this callback.
        threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        return
    print("winnow: a scorer has raised; the prompt stays whole", file=sys.stderr)
    traceback.print_exception(type(raised), raised, raised.__traceback__)


class Scorer:
    """A scorer of this process. It stays callable; recipes name it, as in f"{mine}+adakv"."""

    def __init__(self, function, name, needs, window, first, last, query_heads):
        if not callable(function):
            raise TypeError(f"a scorer is a function, not {type(function).__name__}")
        self.function, self.name, self.needs = function, name, (needs,) if isinstance(needs, str) else tuple(needs)
        self.__doc__ = function.__doc__
        unknown = [need for need in self.needs if need not in _FLAGS]
        if unknown:
            raise ValueError(f"needs has '{unknown[0]}'; use {', '.join(sorted(_FLAGS))}")
        self._flags = 0
        for need in self.needs:
            self._flags |= _FLAGS[need]
        self._window = whole(window, f"{name}: window", 1, 4096)
        self._first, self._last = whole(first, f"{name}: first", 0, (1 << 31) - 1), whole(last, f"{name}: last", 0, (1 << 31) - 1)
        self._query_heads = bool(query_heads)
        given = inspect.signature(function).parameters
        # What is no observation and has a value of its own keeps it.
        parameters = [p for p in given if p in _NAMES or given[p].default is inspect.Parameter.empty and given[p].kind is not inspect.Parameter.VAR_KEYWORD]
        self._whole = len(parameters) == 1 and parameters[0] not in _NAMES
        if not self._whole:
            wrong = [p for p in parameters if p not in _NAMES]
            if wrong:
                raise TypeError(f"{name}: a scorer has no parameter '{wrong[0]}'; use one for the Observation, or names of what it needs")
            for p in parameters:
                if p in _FLAGS and p not in self.needs:
                    raise TypeError(f"{name}: the parameter '{p}' is not in needs")
        self._parameters = parameters
        self._callbacks, self._of_backend = (), None
        self._struct = self._descriptor(note_raised)  # the call that runs the scorer raises what it raised

    def _descriptor(self, failed):
        """The scorer for a library. failed: is given what the function raises, which must not pass through C."""
        def score(opts, observation, score, scratch):
            try:
                self._score(Observation(observation), score)
                return c.WNW_OK
            except BaseException as raised:
                failed(raised)
                return c.WNW_E_ARG

        callbacks = (_types["needs"](self._needs), _types["keep"](self._keep), _score_type(score))
        part = c.wnw_part(struct_size=ctypes.sizeof(c.wnw_scorer), kind=c.WNW_PART_SCORER, name=self.name.encode(),
                          about=b"A scorer of the Python program.", needs=callbacks[0], keep=callbacks[1],
                          flags=c.WNW_FLAG_QUERY_HEADS if self._query_heads else 0)
        self._callbacks += callbacks
        return c.wnw_scorer(part=part, score=callbacks[2])

    def _attached(self):
        """The scorer for llama-cpp-python's backend. What it raises cannot reach the call of the Llama: it is printed."""
        if self._of_backend is None:
            self._of_backend = self._descriptor(_print_raised)
        return ctypes.pointer(self._of_backend.part)

    def _needs(self, opts, out):
        out.contents.flags |= self._flags
        if self._flags & c.WNW_NEED_WINDOW_ATTN:
            out.contents.window = max(out.contents.window, self._window)

    def _keep(self, opts, problem, out):
        out.contents.n_first = max(out.contents.n_first, self._first)
        out.contents.n_last = max(out.contents.n_last, self._last)

    def _score(self, obs, score):
        rows = obs.n_head if self._query_heads else obs.n_head_kv
        out = obs._out = _array(score, (rows, obs.n), np.float32, _WRITE)
        try:
            if self._whole:
                result = self.function(obs)
            else:
                result = self.function(**{p: getattr(obs, p) for p in self._parameters})
            if result is None and obs.out_used:
                result = out
            if result is not out:
                self._put(result, out)
            if not _is_finite(out):
                self._check_finite(out, obs)
        finally:
            obs._end()

    def _check_finite(self, out, obs):
        group = obs.n_head // obs.n_head_kv if self._query_heads else 1
        for row in range(len(out)):
            if not np.isfinite(out[row, :obs.n_entry[row // group]]).all():  # padding may be anything
                raise ValueError(f"the scorer {self.name} returned scores that are not finite, in layer {obs.layer}")

    def _put(self, result, out):
        """Checks what the function returned, and writes it to out."""
        result = np.asarray(result)
        if result.dtype.kind not in "fiub":
            raise TypeError(f"the scorer {self.name} returned {result.dtype}; scores are numbers")
        if result.shape != out.shape:
            raise ValueError(f"the scorer {self.name} returned the shape {result.shape}, not {out.shape} = [{'n_head' if self._query_heads else 'n_head_kv'}, n]")
        if result.dtype == np.float32:
            out[...] = result
        else:
            with np.errstate(over="ignore"):  # a score above float32 is infinite, which is refused
                out[...] = result

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __str__(self):
        return self.name

    def __format__(self, spec):
        return format(self.name, spec)

    def __add__(self, rest):
        return f"{self.name}+{rest}"


_scorers = {}  # by name; what recipes can use
_kept = []  # policies may point to scorers that were defined again


def scorer(function=None, *, needs=("keys",), name=None, window=32, first=4, last=16, query_heads=False):
    """Makes a scorer of a function, which recipes may then name wherever a policy is: `"mine"`, `"mine+adakv"`.

    The function is called once per layer. Its parameters are names of what it needs (`keys`, `window_attention`, ..., see Observation),
    or one parameter that is the Observation. Others must have defaults. It returns scores [n_head_kv, n], higher = keep. It may write them to the parameter `out`
    and return nothing, which saves a copy.

    needs: what is observed, names of Observation's arrays
    name: of [a-z0-9_-]; the function's name by default. A second scorer of the name takes the place of the first
    window: queries of `window_attention`, the last tokens of the prompt
    first, last: entries that always stay
    query_heads: scores are [n_head, n]; the mean over a group of query heads is taken

    Example:
        @winnow.scorer(needs=["keys"])
        def far_keys(keys):
            return np.linalg.norm(keys - keys.mean(axis=1, keepdims=True), axis=-1)
    """
    def make(f):
        called = name or getattr(f, "__name__", "").strip("_").lower()
        if not isinstance(called, str) or not called:
            raise TypeError("this function has no name; give the scorer one by name=")
        made = Scorer(f, called, needs, window, first, last, query_heads)
        before = _scorers.pop(made.name, None)
        try:
            with registry(made):
                pass
        except BaseException:
            if before is not None:
                _scorers[made.name] = before
            raise
        _scorers[made.name] = made
        _kept.append(made)
        return made

    return make if function is None else make(function)


def scorers():
    """Those that recipes can name now."""
    return list(_scorers.values())


class registry:
    """A context with a registry of all scorers of this process, and of plugins in C."""

    def __init__(self, *more, plugins=()):
        self._more, self._plugins = more, plugins

    def __enter__(self):
        lib = library()
        self._registry = ctypes.POINTER(c.wnw_registry)()
        check(lib.wnw_registry_new(ctypes.byref(self._registry)))
        try:
            for one in [*scorers(), *self._more]:
                check(lib.wnw_registry_add(self._registry, ctypes.cast(ctypes.pointer(one._struct), ctypes.POINTER(c.wnw_part))))
            if self._plugins:
                show_symbols()
            for path in self._plugins:
                check(lib.wnw_registry_load(self._registry, str(path).encode()))
        except BaseException:
            lib.wnw_registry_free(self._registry)
            raise
        return self._registry

    def __exit__(self, *unused):
        library().wnw_registry_free(self._registry)


class Policy:
    """A parsed recipe."""

    def __init__(self, recipe, plugins=(), scorers=()):
        lib = library()
        self.pointer = ctypes.POINTER(c.wnw_policy)()
        with registry(*scorers, plugins=plugins) as r:
            check(lib.wnw_policy_parse(ctypes.byref(self.pointer), text(str(recipe), "a policy"), r))
        self.recipe = lib.wnw_policy_string(self.pointer).decode()
        self.is_full = lib.wnw_policy_is_full(self.pointer)
        self.has_own_size = lib.wnw_policy_has_own_size(self.pointer)
        needs = c.wnw_needs_default()
        check(lib.wnw_policy_get_needs(self.pointer, ctypes.byref(needs)))
        self.needs_profile = bool(needs.flags & c.WNW_NEED_PROFILE) or bool(needs.flags & c.WNW_NEED_INPUT_GATE)

    def __del__(self):
        if getattr(self, "pointer", None):
            library().wnw_policy_free(self.pointer)
