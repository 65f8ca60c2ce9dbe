/* SPDX-License-Identifier: MIT */
/*
 * Key re-rotation: after every eviction the n kept entries of each head get the positions 0 .. n - 1 in their
 * order and the next token gets n, as StreamingLLM does (arXiv 2309.17453: positions inside the cache) and
 * kvpress' KeyRerotationPress and FINCH (arXiv 2408.00167). Keys are cached after RoPE, so that
 *
 *     k_j <- R((rank(j) - pos(j)) theta) k_j,   values stay
 * in float32 with angles in double (session/compact/renumber.c). No distance is ever longer than the cache, and a
 * timeline never ends. All heads must keep the same count, or the next token would have several positions:
 * budgets that differ between heads or layers are refused. Heads may keep different tokens; a position then means
 * different tokens in different heads, and policies that look for one token in all heads (with a second pass, or sums
 * over heads by position) are refused from then on. Every turn rounds to the cache's type once more. Cost O(H_kv n d)
 * per layer.
 */
#include "policy/part.h"

const wnw_positions wnw__positions_rerotate = {
    .part =
        {WNW_POSITIONS_INIT, .name = "rerotate",
         .about = "Kept tokens get the positions 0 .. n-1 in their order; keys are turned accordingly.",
         .paper = "StreamingLLM, arXiv 2309.17453",
         .details =
             "After every eviction the key of the entry of rank `r` and position `p` is turned by `(r - "
             "p) "
             "theta`, and "
             "the next token gets position `n`: StreamingLLM's positions inside the cache, kvpress' "
             "KeyRerotationPress. Values stay. With `--evict chunk` and `--evict-every` prompt and answer "
             "may be "
             "longer than the model's context.\n\n"
             "Every head of every layer must keep the same count: budgets that differ between layers or "
             "heads are "
             "refused, and models with sliding-window layers too. Heads may keep tokens of their own, "
             "each is "
             "ranked "
             "by itself as in kvpress; a position then stands for another token in every head, so that "
             "second "
             "passes "
             "and scores that are put together over heads by position are refused on such a cache. "
             "Keep-plans of "
             "later compressions speak of the new positions. What was seen of queries before is dropped, "
             "attention "
             "sums stay.\n\n"
             "Every turn rounds to the cache's type once more: nothing to f32, about 2^-11 of a key's "
             "elements "
             "with "
             "f16, and with q8_0 or q4_0 their whole rounding error each time. A key that is turned at "
             "every "
             "token "
             "(`--evict-every 1`) collects that a thousand times in a thousand tokens; every 64 tokens is "
             "the "
             "better "
             "bargain.\n\n`O(H_kv n d)` per layer and eviction."},
    .rerotates = true,
};
