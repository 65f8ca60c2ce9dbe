# SPDX-License-Identifier: MIT
"""winnow's cache under llama-cpp-python as pip installs it.

    import winnow.llama_cpp                                  # before the model is opened
    llm = llama_cpp.Llama("MODEL.gguf", n_gpu_layers=-1)     # all layers on winnow's device, which computes on the CPU
    winnow.llama_cpp.attach(llm, policy="snapkv", ratio=0.5)
    print(llm(prompt)["choices"][0]["text"], winnow.llama_cpp.stats(llm))

The import loads the backend for the ggml that the package brings, or raises WinnowError with one sentence that says what does not fit.
"""
import ctypes
import os

import llama_cpp as _llama  # first, so that the backend finds this package's ggml

from . import _declarations as c
from ._library import FOLDER, ArgumentError, WinnowError, _CLASS, _STATUS, check_cpu, declare, text
from ._model import _policy_and_ratio, _size

_NAMES = ["wnw_bridge_register", "wnw_bridge_built_for", "wnw_bridge_find", "wnw_bridge_set_policy", "wnw_bridge_set_profile", "wnw_bridge_compress",
          "wnw_bridge_n_layers", "wnw_bridge_get_layer", "wnw_bridge_cells", "wnw_last_error"]


def _load():
    check_cpu()
    path = os.environ.get("WINNOW_BACKEND") or str(FOLDER / "lib" / "winnow" / "libggml-winnow.so")
    if not os.path.exists(path):
        raise WinnowError(f"there is no backend at {path}; install winnow's wheel, or set WINNOW_BACKEND to libggml-winnow.so of a build", "E_IO")
    try:
        backend = ctypes.CDLL(path)
    except OSError as error:
        raise WinnowError(f"winnow's backend does not fit llama-cpp-python {_llama.__version__}: {error}", "E_MISMATCH") from None
    declare(backend, _NAMES)
    return backend


_backend = _load()
_find = _backend.wnw_bridge_find
_find.argtypes = [_find.argtypes[0], ctypes.c_void_p, ctypes.c_void_p]


def _check(status):
    if status < 0:
        name = _STATUS.get(status, "E_ARG")
        raise _CLASS.get(name, WinnowError)(_backend.wnw_last_error().decode("utf-8", "replace"), name)
    return status


_check(_backend.wnw_bridge_register())


def _cache(llm):
    """The cache of a Llama; it lives as long as its context."""
    context = getattr(getattr(llm, "_ctx", None), "ctx", None)
    if context is None:
        raise TypeError(f"an open llama_cpp.Llama is wanted, not {type(llm).__name__}")
    found = ctypes.POINTER(c.wnw_bridge)()
    synchronize = ctypes.cast(_llama.llama_cpp._lib.llama_synchronize, ctypes.c_void_p)
    status = _backend.wnw_bridge_find(ctypes.byref(found), synchronize, ctypes.cast(context, ctypes.c_void_p))
    if status == c.WNW_E_ARG:
        raise ArgumentError("no layer of this model is on winnow's device; import winnow.llama_cpp first and open the model with n_gpu_layers=-1")
    _check(status)
    return found


def attach(llm, policy="auto", *, ratio=None, budget=None, kv_bytes=None, profiles=()):
    """Sets what is kept of every prompt that `llm` reads from now on; it is compressed when its prompt has ended. Call it before the prompt.

    policy: a recipe, a press, "auto", or None, which keeps everything again. Without a size half is removed. profiles: files of calibration
    results. Scorers written in Python cannot be used here."""
    cache = _cache(llm)
    for path in profiles:
        _check(_backend.wnw_bridge_set_profile(cache, os.fsencode(path)))
    if policy is None:
        _check(_backend.wnw_bridge_set_policy(cache, None, None, True))
        return
    policy, ratio = _policy_and_ratio(policy, ratio, budget, kv_bytes)
    size = _size(ratio, budget, kv_bytes)
    if size.kind == c.WNW_SIZE_NONE:
        size = _size(0.5, None, None)
    _check(_backend.wnw_bridge_set_policy(cache, text(policy, "a policy"), ctypes.byref(size), True))


def stats(llm):
    """What the cache holds: {"layers": [{"layer", "entries" (of all heads), "heads", "bytes", "cells" (of the context)}, ..], "entries", "bytes"}."""
    cache, layers = _cache(llm), []
    for i in range(_backend.wnw_bridge_n_layers(cache)):
        layer = c.wnw_bridge_layer_default()
        _check(_backend.wnw_bridge_get_layer(cache, i, ctypes.byref(layer)))
        layers.append({"layer": layer.layer, "entries": layer.n_entries, "heads": layer.n_heads, "bytes": layer.bytes, "cells": layer.n_cells})
    return {"layers": layers, "entries": sum(one["entries"] for one in layers), "bytes": sum(one["bytes"] for one in layers)}
