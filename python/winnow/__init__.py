# SPDX-License-Identifier: MIT
"""Language models with a compressed key-value cache: winnow's library in Python.

    import winnow
    m = winnow.Model("smollm2-135m")
    doc = m.compress(text, ratio=0.75)
    print(doc.ask("Who signs for repairs?"))

All work is in the C library; its errors come as WinnowError. Nothing is loaded before the first Model, scorer or plan.
"""
from . import presses
from ._declarations import WNW_VERSION_STRING as __version__
from ._evaluate import evaluate, run_command
from ._library import ArgumentError, FileError, OutOfMemory, UsageError, WinnowError
from ._model import Chat, Document, Model
from ._plan import Plan
from ._scorer import Observation, scorer

__all__ = ["ArgumentError", "Chat", "Document", "FileError", "Model", "Observation", "OutOfMemory", "Plan", "UsageError", "WinnowError",
           "evaluate", "plan", "presses", "run_command", "scorer", "__version__"]


def plan(text, policy="auto", *, model="smollm2-135m", ratio=None, budget=None, kv_bytes=None, question=None, context_only=False):
    """Which entries a policy keeps of a text: a Plan, `[layer][head]` -> kept positions. model: a Model, a path or a name.

    question: is put after the text and compressed with it; context_only: the text alone is compressed."""
    if isinstance(model, Model):
        return model.plan(text, policy, ratio=ratio, budget=budget, kv_bytes=kv_bytes, question=question, context_only=context_only)
    with Model(model) as m:
        return m.plan(text, policy, ratio=ratio, budget=budget, kv_bytes=kv_bytes, question=question, context_only=context_only)
