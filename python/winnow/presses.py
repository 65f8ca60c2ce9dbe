# SPDX-License-Identifier: MIT
"""winnow's presets by the class names of kvpress: `SnapKVPress(compression_ratio=0.5)` is wherever a policy is.

Each is the preset that keeps what kvpress keeps with the class' defaults. `str(press)` is the recipe.
"""
from ._library import real, whole


class Press:
    """A policy with kvpress' meaning of a size: compression_ratio is the fraction of the entries that is removed."""

    recipe = "full"

    def __init__(self, compression_ratio=0.0):
        self.compression_ratio = real(compression_ratio, "compression_ratio")
        if not 0 <= self.compression_ratio < 1:
            raise ValueError(f"compression_ratio is {compression_ratio!r}; give the fraction that is removed, at least 0 and less than 1")

    def __str__(self):
        return self.recipe

    def __format__(self, spec):
        return format(self.recipe, spec)

    def __repr__(self):
        return f"{type(self).__name__}(compression_ratio={self.compression_ratio:g})"


class _WindowPress(Press):
    """One of SnapKV's family."""

    def __init__(self, compression_ratio=0.0, window_size=64, kernel_size=5):
        super().__init__(compression_ratio)
        self.window_size, self.kernel_size = whole(window_size, "window_size", 1, 4096), whole(kernel_size, "kernel_size", 1, 1023)

    @property
    def recipe(self):
        return f"snapkv:window={self.window_size},kernel={self.kernel_size},pool=avg+" + self.rest

    rest = "uniform:rounding=trunc"


class SnapKVPress(_WindowPress):
    """SnapKV (arXiv 2404.14469)."""


class PyramidKVPress(_WindowPress):
    """PyramidKV (arXiv 2406.02069)."""

    rest = "pyramid:rounding=trunc,form=kvpress"


class _Wrapper(Press):
    def __init__(self, press):
        if not isinstance(press, Press):
            raise TypeError(f"{type(self).__name__} takes another press, not {type(press).__name__}")
        super().__init__(press.compression_ratio)
        self.press = press

    @property
    def recipe(self):
        return f"{self.press.recipe}+{self.part}"

    def __repr__(self):
        return f"{type(self).__name__}({self.press!r})"


class AdaKVPress(_Wrapper):
    """Ada-KV's head budgets (arXiv 2407.11550) over another press."""

    part = "adakv"


class CriticalKVPress(_Wrapper):
    """CriticalKV's selection (arXiv 2502.03805) over another press."""

    part = "critical:norm=l1,sinks=0"


class CriticalAdaKVPress(_Wrapper):
    """CriticalKV's selection with Ada-KV's head budgets over another press."""

    part = "adakv+critical:norm=l1,sinks=0"


def _press(name, preset, about):
    made = type(name, (Press,), {"recipe": preset, "__doc__": about, "__module__": __name__})
    globals()[name] = made
    return name


_plain = [_press(*row) for row in (
    ("StreamingLLMPress", "kvpress-streaming_llm", "StreamingLLM (arXiv 2309.17453)."),
    ("TOVAPress", "kvpress-tova", "TOVA (arXiv 2401.06104)."),
    ("KnormPress", "kvpress-knorm", "L2 norms of keys (arXiv 2406.11430)."),
    ("LagKVPress", "kvpress-lagkv-ruler", "LagKV (arXiv 2504.04704) with lag 128."),
    ("KVComposePress", "kvpress-kvcompose", "KVCompose (arXiv 2509.05165), structured."),
    ("KVzipPress", "kvpress-kvzip", "KVzip (arXiv 2505.23416)."),
    ("ExpectedAttentionPress", "kvpress-expected_attention", "Expected Attention (arXiv 2510.00636)."),
    ("ObservedAttentionPress", "kvpress-observed_attention", "Observed attention, as H2O (arXiv 2306.14048)."),
    ("KeyDiffPress", "kvpress-keydiff", "KeyDiff (arXiv 2504.15364)."),
    ("CURPress", "kvpress-cur", "CurDKV (arXiv 2509.15038)."),
    ("NonCausalAttnPress", "kvpress-noncausal", "Compactor's attention (arXiv 2507.08143)."),
    ("CapPress", "kvpress-capkv", "CapKV (arXiv 2604.25975)."),
    ("QFilterPress", "kvpress-qfilters", "Q-Filters (arXiv 2503.02812); needs a profile."),
)]

__all__ = ["AdaKVPress", "CriticalAdaKVPress", "CriticalKVPress", "Press", "PyramidKVPress", "SnapKVPress", *_plain]
