# SPDX-License-Identifier: MIT
"""A second forward pass: llama-family GGUF files with float32 weights, in NumPy, with everything kept to look at."""
import numpy as np
from gguf import GGUFReader

LOGIT_ROWS = 64  # of every head, to save memory

class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.w = {t.name: np.asarray(t.data, np.float32).reshape([int(x) for x in reversed(t.shape)])
                  for t in reader.tensors}

        def number(key):
            field = reader.fields["llama." + key]
            return field.parts[field.data[0]][0]

        self.L = int(number("block_count"))
        self.H = int(number("attention.head_count"))
        self.K = int(number("attention.head_count_kv"))
        self.G = self.H // self.K  # query heads j G .. j G + G - 1 read KV head j
        self.d = self.w["blk.0.attn_q.weight"].shape[0] // self.H
        self.eps = float(number("attention.layer_norm_rms_epsilon"))
        self.theta = float(number("rope.freq_base")) ** (-np.arange(0, self.d, 2) / self.d)

    def rope(self, x, pos):
        """Turns x[n][heads][d] to positions pos[n]; GGUF files of this family pair channels 2i and 2i + 1."""
        angle = np.asarray(pos, np.float64)[:, None, None] * self.theta
        c, s = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        y = np.empty_like(x)
        y[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
        y[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
        return y

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def forward(self, tokens, look, past=None, first=None):
        """Feeds tokens after `past` (keys and values per layer) and calls look(layer, dict of its observations). The tokens
        have the positions from `first` on, if entries of the past were dropped."""
        n = len(tokens)
        start = past[0][0].shape[0] if past else 0
        mask = np.where(np.arange(start + n) > start + np.arange(n)[:, None], -np.inf, 0).astype(np.float32)
        pos = np.arange(n) + (start if first is None else first)
        x = self.w["token_embd.weight"][tokens]
        for l in range(self.L):
            blk = f"blk.{l}."
            h = self.norm(x, blk + "attn_norm.weight")
            q0, k0, v = (np.reshape(h @ self.w[blk + f"attn_{m}.weight"].T, (n, -1, self.d)) for m in "qkv")
            q, k = self.rope(q0, pos), self.rope(k0, pos)
            if past:
                k, v = np.concatenate([past[l][0], k]), np.concatenate([past[l][1], v])
            a = np.empty((self.H, n, start + n), np.float32)  # softmax over everything visible
            z = np.empty_like(a)                              # the scaled logits
            out = np.empty((n, self.H, self.d), np.float32)
            for i in range(self.H):
                z[i] = q[:, i] @ k[:, i // self.G].T / np.float32(np.sqrt(self.d))
                e = np.exp(z[i] + mask - (z[i] + mask).max(-1, keepdims=True))
                a[i] = e / e.sum(-1, keepdims=True)
                out[:, i] = a[i] @ v[:, i // self.G]
            look(l, dict(x=h, q0=q0, q=q, k0=k0, k=k, v=v, a=a, z=z[:, -LOGIT_ROWS:].copy(), o=out))
            x = x + out.reshape(n, -1) @ self.w[blk + "attn_output.weight"].T
            h = self.norm(x, blk + "ffn_norm.weight")
            gate, up = h @ self.w[blk + "ffn_gate.weight"].T, h @ self.w[blk + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.w[blk + "ffn_down.weight"].T
        return x

    def most_likely(self, x):
        """The most likely token after the hidden state x[n_embd]."""
        out = self.w.get("output.weight", self.w["token_embd.weight"])
        return int(np.argmax(self.norm(x, "output_norm.weight") @ out.T))

    def nll(self, x, tokens, count):
        """-ln p of each of the last `count` tokens."""
        out = self.w.get("output.weight", self.w["token_embd.weight"])
        logits = (self.norm(x[-count - 1:-1], "output_norm.weight") @ out.T).astype(np.float64)
        top = logits.max(1, keepdims=True)
        total = np.log(np.exp(logits - top).sum(1)) + top[:, 0]
        return total - logits[np.arange(count), tokens[-count:]]


class Prompt:
    """What the methods look at; layer l, KV head j, query head h, position i.

    x[l][n][n_embd] what the attention reads; q0[l][n][H][d], k0[l][n][K][d] before RoPE; q, k after it; v[l][n][K][d]; a[l][H][n][n] attention, z scaled logits
    of the last queries (without the causal mask), o[l][n][H][d] outputs of the query heads.
    """

    def __init__(self, model, tokens, question=()):
        self.model, self.tokens, self.n = model, np.asarray(tokens), len(tokens)
        self.question = np.asarray(question, self.tokens.dtype)  # expected, not read
        self.L, self.H, self.K, self.G, self.d = model.L, model.H, model.K, model.G, model.d
        seen = []
        x = model.forward(self.tokens, lambda l, s: seen.append(s))
        self.last = x[-1]  # the hidden state behind the last layer
        self.nll = model.nll(x, self.tokens, LOGIT_ROWS)  # of the last tokens
        for name in seen[0]:
            setattr(self, name, [s[name] for s in seen])
        self.passes = {}

    def group_mean(self, s):
        """Query heads' rows s[H][...] to KV heads' [K][...]."""
        return s.reshape(self.K, self.G, *s.shape[1:]).mean(1)

    def second_pass(self, name, tokens, mean=False):
        """The largest attention, or the mean, that entries receive from tokens fed after the prompt: [L][H][n]."""
        if name not in self.passes:
            rows = []
            self.model.forward(np.asarray(tokens), lambda l, s: rows.append([f(s["a"][:, :, :self.n], axis=1)
                                                                            for f in (np.max, np.mean)]),
                               list(zip(self.k, self.v)))
            self.passes[name] = rows
        return [row[mean] for row in self.passes[name]]

    def second_pass_by_input(self, name, tokens):
        """The largest attention, of each query divided by the length of what the layer reads of it: [L][H][n]."""
        if name not in self.passes:
            rows = []
            self.model.forward(np.asarray(tokens), lambda l, s: rows.append(
                (s["a"][:, :, :self.n].astype(np.float64) / np.linalg.norm(s["x"], axis=1)[:, None]).max(1)),
                list(zip(self.k, self.v)))
            self.passes[name] = rows
        return self.passes[name]

    def projected(self, l):
        """Values multiplied with each query head's slice of the output projection: yields KV head, [n][n_embd]."""
        w = self.model.w[f"blk.{l}.attn_output.weight"]
        for h in range(self.H):
            yield h // self.G, self.v[l][:, h // self.G] @ w[:, h * self.d:(h + 1) * self.d].T

    def nu(self, l, norm):
        """nu[K][n]: norm of the projected value. l1: mean over the group; l2: root of the mean square."""
        out = np.zeros((self.K, self.n))
        for j, p in self.projected(l):
            out[j] += np.abs(p).sum(1) if norm == "l1" else (p.astype(np.float64) ** 2).sum(1)
        return out / self.G if norm == "l1" else np.sqrt(out / self.G)
