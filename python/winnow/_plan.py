# SPDX-License-Identifier: MIT
"""Keep-sets: which positions stay, per layer and KV head."""
import json

import numpy as np

from ._library import whole


class Plan:
    """What stays of a prompt. `plan[layer][head]` are the kept positions, ascending, int32.

    Attributes: `n_layer`, `n_head_kv`, `n_tokens`, `policy` (the complete recipe), `name` (the recipe as it was given), `tokens` (ids [n_tokens], or None), `warning` ("" or a sentence),
    `times` (milliseconds by name: "observe", "score", "select"; empty where it was not made by a policy here).
    """

    def __init__(self, keep, n_tokens, policy="", tokens=None, warning="", times=None, name=""):
        self.n_tokens, self.policy, self.warning, self.times, self.name = whole(n_tokens, "n_tokens", 0, (1 << 31) - 1), policy, warning, dict(times or {}), name or policy
        self.tokens = None if tokens is None else np.asarray(tokens, np.int32)
        self._keep = [[self._positions(head, il, ih) for ih, head in enumerate(layer)] for il, layer in enumerate(keep)]
        self.n_layer = len(self._keep)
        if self.n_layer == 0 or not self._keep[0]:
            raise ValueError("a plan has one layer and one head or more")
        self.n_head_kv = len(self._keep[0])
        if any(len(layer) != self.n_head_kv for layer in self._keep):
            raise ValueError("a plan has equally many heads in all layers")

    def _positions(self, head, il, ih):
        head = np.asarray(head)
        if head.ndim != 1 or (head.size and head.dtype.kind not in "iu"):
            raise TypeError(f"layer {il}, head {ih}: kept positions are a row of whole numbers, not {head.dtype} of the shape {head.shape}")
        head = head.astype(np.int64)
        if head.size and (head[0] < 0 or head[-1] >= self.n_tokens or (np.diff(head) <= 0).any()):
            raise ValueError(f"layer {il}, head {ih}: positions must ascend and be 0 to {self.n_tokens - 1}")
        return head.astype(np.int32)

    def __getitem__(self, layer):
        return self._keep[layer]

    def __len__(self):
        return self.n_layer

    def __iter__(self):
        return iter(self._keep)

    def __eq__(self, other):
        return isinstance(other, Plan) and self.n_tokens == other.n_tokens and self.counts().shape == other.counts().shape and all(
            np.array_equal(a, b) for la, lb in zip(self, other) for a, b in zip(la, lb))

    __hash__ = None

    def __repr__(self):
        return f"<winnow.Plan {self.name or 'of unknown policy'}: {self.counts().mean():.1f} of {self.n_tokens} entries per head>"

    def to_numpy(self):
        """What is kept as a mask, bool [n_layer, n_head_kv, n_tokens]."""
        mask = np.zeros((self.n_layer, self.n_head_kv, self.n_tokens), bool)
        for il, layer in enumerate(self._keep):
            for ih, head in enumerate(layer):
                mask[il, ih, head] = True
        return mask

    def counts(self):
        """Entries that stay, int64 [n_layer, n_head_kv]."""
        return np.array([[len(head) for head in layer] for layer in self._keep], np.int64)

    def save(self, path):
        """Writes the plan as `winnow plan` does, for `winnow inspect` and `winnow eval --policies plan:DIR`."""
        o = {"format": "winnow-plan-1", "model": "", "n_tokens": self.n_tokens, "policy": self.policy or "unknown"}
        if self.tokens is not None:
            o["tokens"] = self.tokens.tolist()
        o["layers"] = [{"heads": [head.tolist() for head in layer]} for layer in self._keep]
        with open(path, "w", encoding="utf-8") as f:
            json.dump(o, f)

    @classmethod
    def load(cls, path):
        """Reads a plan that `save` or `winnow plan` has written."""
        with open(path, encoding="utf-8") as f:
            try:
                o = json.load(f)
                if o["format"] != "winnow-plan-1":
                    raise ValueError(f"its format is {o['format']!r}")
                return cls([layer["heads"] for layer in o["layers"]], o["n_tokens"], o.get("policy", ""), o.get("tokens"))
            except KeyError as fault:
                raise ValueError(f"'{path}' is no keep-plan: it has no {fault}") from None
            except (TypeError, ValueError, OverflowError, RecursionError) as fault:
                raise ValueError(f"'{path}' is no keep-plan: {fault}") from None

    @classmethod
    def from_kvpress(cls, layers, n_tokens, policy="kvpress"):
        """Keep-sets of kvpress. Each layer is one of
        - kept indices, [n_head_kv, n_kept] or [1, n_head_kv, n_kept] in any order, as `scores.topk(n_kept).indices` has them;
        - masked entries, the tuple `module.masked_key_indices` of (batch, head, position), or (head, position), followed by the number of
          heads: `((batch, head, position), n_head_kv)`.
        Arrays of PyTorch are taken as they are."""
        return cls([_of_kvpress(layer, n_tokens, il) for il, layer in enumerate(layers)], n_tokens, policy)

    @classmethod
    def read_keep_sets(cls, path, n_tokens, policy="kvpress"):
        """Reads a text file with a line `layer head: positions` per head; lines that begin with # are remarks."""
        keep = {}
        with open(path, encoding="utf-8") as f:
            for i, line in enumerate(f, 1):
                if line.startswith("#") or not line.strip():
                    continue
                try:
                    where, _, positions = line.partition(":")
                    il, ih = map(int, where.split())
                    keep.setdefault(il, {})[ih] = [int(p) for p in positions.split()]
                except ValueError:
                    raise ValueError(f"'{path}' line {i}: write 'layer head: positions'") from None
        if sorted(keep) != list(range(len(keep))) or any(sorted(heads) != list(range(len(heads))) for heads in keep.values()):
            raise ValueError(f"'{path}' does not have every layer and head from 0 on")
        return cls([[keep[il][ih] for ih in sorted(keep[il])] for il in sorted(keep)], n_tokens, policy)

    def plot(self, ax=None, columns=200):
        """Draws a heat map of what each layer keeps along the text, light = nothing, dark = all. Needs matplotlib. Returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError("plan.plot() needs matplotlib: pip install winnow[plot]") from None
        if ax is None:
            ax = plt.subplots(figsize=(8, 0.6 + 0.12 * self.n_layer))[1]
        share = self.to_numpy().mean(axis=1)  # [n_layer, n_tokens]
        edges = np.linspace(0, self.n_tokens, min(columns, self.n_tokens) + 1).astype(int)
        cells = np.stack([share[:, a:b].mean(axis=1) for a, b in zip(edges[:-1], edges[1:])], axis=1)
        image = ax.imshow(cells, aspect="auto", cmap="Blues", vmin=0, vmax=1, extent=(0, self.n_tokens, self.n_layer - 0.5, -0.5), interpolation="nearest")
        ax.set(xlabel="position, tokens", ylabel="layer", title=self.name[:60])
        ax.figure.colorbar(image, ax=ax, label="share kept")
        return ax


def _of_kvpress(layer, n_tokens, il):
    if isinstance(layer, tuple) and len(layer) == 2 and isinstance(layer[0], (tuple, list)):
        masked, n_head = layer
        heads, positions = (np.asarray(a).ravel() for a in masked[-2:])
        if len(masked) == 3 and np.asarray(masked[0]).any():
            raise ValueError(f"layer {il}: masked entries of more than one text")
        if heads.size and not (0 <= heads.min() and heads.max() < n_head and 0 <= positions.min() and positions.max() < n_tokens):
            raise ValueError(f"layer {il}: masked entries of heads {heads.min()} to {heads.max()} and positions {positions.min()} to {positions.max()}; "
                             f"there are {n_head} heads and {n_tokens} tokens")
        mask = np.ones((n_head, n_tokens), bool)
        mask[heads, positions] = False
        return [np.flatnonzero(row) for row in mask]
    indices = np.asarray(layer)
    if indices.ndim == 3 and indices.shape[0] == 1:
        indices = indices[0]
    if indices.ndim != 2:
        raise ValueError(f"layer {il}: kept indices have the shape {indices.shape}, not [n_head_kv, n_kept]")
    return list(np.sort(indices, axis=1))
