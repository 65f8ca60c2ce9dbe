# SPDX-License-Identifier: MIT
"""llama-cpp-python on winnow: import this module before you make a Llama.

    import llama_cpp
    import winnow.llama_cpp
    llm = llama_cpp.Llama("MODEL.gguf", n_gpu_layers=-1, n_ctx=8192)
    winnow.llama_cpp.attach(llm, policy="auto", ratio=0.5)
    print(llm("...", max_tokens=64)["choices"][0]["text"])
    print(winnow.llama_cpp.stats(llm))

The import loads winnow's backend and adds its device WINNOW. It raises WinnowError if the backend was built for another ggml than that of
the installed llama-cpp-python. llama-cpp-python itself is not changed.
"""
import collections
import ctypes
import dataclasses
import operator
import os
import pathlib
import weakref

import numpy as np

from . import _declarations as c
from ._library import ArgumentError, UsageError, WinnowError, check_cpu, check_may_load_llama_cpp, declare, find, library, status_error, text

try:
    import llama_cpp
    from llama_cpp import llama_cpp as _functions
except ImportError as fault:
    raise ImportError(f"winnow.llama_cpp needs the package llama-cpp-python: {fault}") from None

from ._model import Model, _Prompt, _size, profile_paths, stored_layout  # after llama_cpp, whose ggml the backend must find
from ._scorer import scorers

__all__ = ["LayerStats", "Stats", "WkvCache", "attach", "stats"]


def _load():
    check_cpu()
    check_may_load_llama_cpp()
    path = find(os.path.join("winnow", "libggml-winnow.so"), "WINNOW_BACKEND")
    try:
        backend = ctypes.CDLL(path)
    except OSError as fault:
        raise WinnowError(f"cannot load {path}: {fault}", "E_IO") from None
    declare(backend, [name for name in c.FUNCTIONS if name.startswith("wnw_bridge_") and hasattr(backend, name)])
    declare(backend, ["wnw_last_error"])
    return backend


_backend = _load()


def _check(status):
    if status < 0:
        raise status_error(status, _backend.wnw_last_error().decode("utf-8", "replace"))
    return status


_check(_backend.wnw_bridge_register())


def _cache(llm):
    """The cache of a Llama on winnow's device."""
    if not isinstance(llm, llama_cpp.Llama):
        raise TypeError(f"llm is a llama_cpp.Llama, not {type(llm).__name__}")
    cache = ctypes.POINTER(c.wnw_bridge)()
    kind = c.FUNCTIONS["wnw_bridge_find"][1]
    synchronize = ctypes.cast(_functions._lib.llama_synchronize, kind[1])
    context = ctypes.cast(llm.ctx, kind[2])
    if _backend.wnw_bridge_find(ctypes.byref(cache), synchronize, context) < 0 or not _layers(cache):
        raise UsageError("no layer of this Llama is on winnow's device; import winnow.llama_cpp first, then make the Llama with n_gpu_layers=-1")
    return cache


def _layers(cache):
    """What the backend says of each layer that it keeps entries of."""
    layers = []
    for i in range(_backend.wnw_bridge_n_layers(cache)):
        one = c.wnw_bridge_layer_default()
        _check(_backend.wnw_bridge_get_layer(cache, i, ctypes.byref(one)))
        if one.ragged:
            layers.append(one)
    return layers


def _whole(chunk):
    n = operator.index(chunk)
    if not 128 <= n < 1 << 31:
        raise ArgumentError(f"chunk is {n} tokens; give 128 or more, or None", "E_RANGE")
    return n


def attach(llm, policy="auto", ratio=None, *, budget=None, kv_bytes=None, chunk=None, profile="auto"):
    """Compresses each prompt of a Llama from now on, when the prompt has ended. A later call replaces the policy; None removes it. A call that
    raises changes nothing.

    ratio: fraction of the entries that is removed; budget: average entries kept per layer and KV head; kv_bytes: bytes of kept keys and values.
    Without a size 0.5 is removed. policy: a recipe, a press or a scorer in Python. A scorer that raises leaves the prompt
    whole, and its traceback is printed.
    chunk: a prompt is compressed while it is read, too, after this number of tokens (at least 128), so that its full cache is never there.
    profile: calibration results, as for winnow.Model. Prompts with fewer than 128 new tokens stay whole."""
    cache, setting = _cache(llm), c.wnw_bridge_setting_default()
    of_press = getattr(policy, "compression_ratio", None)
    size = _size(of_press if ratio is None and budget is None and kv_bytes is None else ratio, budget, kv_bytes)
    paths, setting.found = profile_paths(llm.model_path, profile)
    setting.chunk, setting.n_profiles = 0 if chunk is None else _whole(chunk), len(paths)
    setting.profiles = (ctypes.c_char_p * len(paths))(*map(os.fsencode, paths))
    if policy is None:
        _check(_backend.wnw_bridge_set_policy(cache, None, None, False))
        return
    parts = [one._attached() for one in scorers()]
    setting.recipe, setting.by_itself, setting.n_parts = text(str(policy), "a policy"), True, len(parts)
    setting.parts = (ctypes.POINTER(c.wnw_part) * len(parts))(*parts)
    if size.kind == c.WNW_SIZE_NONE:
        # A recipe may have a size of its own, such as a threshold. Others are refused without one.
        if _backend.wnw_bridge_set(cache, ctypes.byref(setting)) >= 0:
            return
        size = _size(0.5, None, None)
    setting.size = ctypes.pointer(size)
    _check(_backend.wnw_bridge_set(cache, ctypes.byref(setting)))


@dataclasses.dataclass(frozen=True)
class LayerStats:
    """One layer of the cache. entries: over its KV heads; bytes: memory of keys and values."""

    layer: int
    heads: int
    entries: int
    bytes: int
    entry_bytes: int
    sliding: bool


@dataclasses.dataclass(frozen=True)
class Stats:
    """The cache of a Llama. n_tokens: tokens it has read; kept: entries per head, mean over layers without a sliding window; bytes: memory of
    keys and values; bytes_full: of the same tokens without compression; layers: a LayerStats for each layer on winnow's device."""

    n_tokens: int
    kept: float
    bytes: int
    bytes_full: int
    layers: tuple


def stats(llm):
    """What the cache of a Llama holds now: a Stats."""
    layers = [LayerStats(one.layer, one.n_heads, one.n_entries, one.bytes, one.entry_bytes, bool(one.sliding)) for one in _layers(_cache(llm))]
    plain = [one for one in layers if not one.sliding]
    heads = sum(one.heads for one in plain)
    return Stats(int(llm.n_tokens), sum(one.entries for one in plain) / heads if heads else 0.0, sum(one.bytes for one in layers),
                 sum(one.bytes if one.sliding else llm.n_tokens * one.heads * one.entry_bytes for one in layers), tuple(layers))


# ---- A cache for Llama.set_cache ----

def _pack(data):
    """Bytes without the words that have all bits set, which are those of dropped entries: (length, mask, other words, last bytes)."""
    words = np.frombuffer(data, np.uint32, len(data) // 4)
    there = words != 0xFFFFFFFF
    return len(data), np.packbits(there), words[there], bytes(data[words.nbytes:])


def _unpack(packed):
    n, mask, words, last = packed
    out = np.full(n // 4, 0xFFFFFFFF, np.uint32)
    out[np.unpackbits(mask, count=len(out)).astype(bool)] = words
    return out.tobytes() + last


def _common(a, b):
    """How many tokens two sequences share at their beginning."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(np.asarray(a[:n]) != np.asarray(b[:n]))
    return int(differ[0]) if differ.size else n


class WkvCache(llama_cpp.BaseLlamaCache):
    """A cache for `llm.set_cache`. A prompt that begins with a stored document continues from it, and does not read it again.
    It also keeps the compressed cache of earlier prompts and answers.

        cache = WkvCache(llm, "doc.wkv")
        llm.set_cache(cache)
        llm.create_completion(cache.prompt("Who signs for repairs?"), max_tokens=64)

    llm: the Llama that the cache is for; it must be on winnow's device. documents: files of `Document.save` or `winnow compress`.
    capacity_bytes: memory for earlier prompts; those that were unused for longest go. Documents are not counted."""

    def __init__(self, llm, *documents, capacity_bytes=2 << 30):
        super().__init__(capacity_bytes)
        _cache(llm)
        self._llm, self._model = weakref.ref(llm), None
        self._documents, self._earlier = {}, collections.OrderedDict()  # name -> (tokens, packed state, layout, pieces); tokens -> packed state
        for path in documents:
            self.add(path)

    def _of(self):
        llm = self._llm()
        if llm is None:
            raise UsageError("the Llama of this WkvCache is gone; make a WkvCache for the new one")
        return llm

    def add(self, path, name=None):
        """Adds a stored document. name: for `prompt`; the file's name without its end by default."""
        lib, llm, path = library(), self._of(), pathlib.Path(path)
        if self._model is None:
            self._model = Model(llm.model_path, profile=None)
        stored, state, n, size = ctypes.POINTER(c.wnw_stored)(), ctypes.POINTER(ctypes.c_uint8)(), ctypes.c_int32(), ctypes.c_size_t()

        def check(status):
            if status < 0:
                raise status_error(status, lib.wnw_last_error().decode("utf-8", "replace"))

        check(lib.wnw_stored_open(ctypes.byref(stored), os.fsencode(path)))
        try:
            check(lib.wnw_stored_check_model(stored, self._model._model))
            check(lib.wnw_stored_sequence(stored, ctypes.byref(state), ctypes.byref(size)))
            data = ctypes.string_at(state, size.value)
            info = c.wnw_stored_info_default()
            check(lib.wnw_stored_get_info(stored, ctypes.byref(info)))
            pieces = bool(info.pieces)
            tokens = np.ctypeslib.as_array(lib.wnw_stored_tokens(stored, ctypes.byref(n)), (n.value,)).copy()
            fields = stored_layout(stored)
        finally:
            lib.wnw_free(state)
            lib.wnw_stored_free(stored)
        self._documents[name or path.stem] = (tokens, _pack(data), fields, pieces)

    def prompt(self, question, document=None):
        """Token ids of a question about a document, for `create_completion`. document: its name; not needed if there is one only."""
        if document is None:
            if len(self._documents) != 1:
                raise ArgumentError(f"the cache has {len(self._documents)} documents; name one of them")
            document = next(iter(self._documents))
        if document not in self._documents:
            raise ArgumentError(f"there is no document '{document}'; there are {', '.join(sorted(self._documents)) or 'none'}")
        tokens, _, fields, pieces = self._documents[document]
        if not fields:
            raise ArgumentError(f"the document '{document}' has no text, so that no question can be asked about it")
        prompt = _Prompt(self._model._model, **fields, question=question)
        ids, n = prompt.parts.tokens[:prompt.parts.n_tokens], prompt.parts.n_context
        if not pieces and ids[:n] != tokens.tolist():
            raise ArgumentError(f"the model's template no longer writes the document '{document}' as it was read; compress it again", "E_MISMATCH")
        return tokens.tolist() + ids[n:]

    @property
    def cache_size(self):
        """Bytes of earlier prompts."""
        return sum(mask.nbytes + words.nbytes for _, mask, words, _ in self._earlier.values())

    def _best(self, key):
        """(tokens that it saves, tokens, packed state) of what continues a prompt best."""
        found = [(len(tokens), tokens, state) for tokens, state, *_ in self._documents.values()
                 if len(tokens) < len(key) and _common(tokens, key) == len(tokens)]
        found += [(_common(tokens, key), tokens, state) for tokens, state in self._earlier.items()]
        return max(found, key=lambda one: one[0], default=(0, (), None))

    def __contains__(self, key):
        return self._best(list(key))[0] > 0

    def __getitem__(self, key):
        """Puts what the prompt continues into the Llama's context. Llama then finds these tokens there, and copies no state."""
        llm, key = self._of(), list(key)
        n, tokens, state = self._best(key)
        if n == 0 or n <= _common(llm._input_ids, key):
            raise KeyError("nothing of this prompt is stored")
        data = _unpack(state)
        llm.reset()
        llm._ctx.kv_cache_clear()
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        if _functions.llama_state_seq_set_data(llm.ctx, buffer, len(data), 0) != len(data):
            raise WinnowError("the context cannot hold what is stored; make the Llama with flash_attn=True, with the type of keys and values that the "
                              f"document has, and with n_ctx of more than {len(tokens)}", "E_MISMATCH")
        llm.input_ids[:len(tokens)] = tokens
        llm.n_tokens = len(tokens)
        llm._requires_eval = True
        if isinstance(tokens, tuple):
            self._earlier.move_to_end(tokens)
        return llama_cpp.LlamaState(input_ids=llm._input_ids.copy(), scores=np.empty((0, 0), np.single), n_tokens=llm.n_tokens, llama_state=b"",
                                    llama_state_size=0, seed=llm._seed)

    def __setitem__(self, key, value):
        """Keeps what the Llama's context has of a prompt and its answer. value is not used: it has the cache at its full size."""
        llm = self._of()
        tokens = tuple(llm._input_ids.tolist())
        size = _functions.llama_state_seq_get_size(llm.ctx, 0)
        buffer = (ctypes.c_uint8 * size)()
        n = _functions.llama_state_seq_get_data(llm.ctx, buffer, size, 0)
        if not tokens or n == 0:
            return
        self._earlier.pop(tokens, None)
        self._earlier[tokens] = _pack(memoryview(buffer)[:n])
        while self.cache_size > self.capacity_bytes and self._earlier:
            self._earlier.popitem(last=False)
