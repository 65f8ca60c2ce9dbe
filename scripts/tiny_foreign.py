# SPDX-License-Identifier: MIT
"""Tiny models of families that run through libllama, with a vocabulary: for make_tiny_models.py.

llama.cpp's own generator writes most families, without a vocabulary. Here are those that it cannot write, in which layers
read the caches of others (gemma3n, gemma4), and some with which the commands are tried: a plain one (olmo2), one with fused
matrices (phi3), and one with a context longer than a chunk (llama4). Recurrent layers are short convolutions (lfm2), state spaces
(granitehybrid) and linear attention (qwen35); gpt-oss has experts, windows and sinks. In gemma4-heads and openelm, layers differ
in how many heads they have; bert and mamba have no cache of keys and values. In lfm2-attends all layers attend, which libllama
cannot compute.
"""
from dataclasses import dataclass

import numpy as np

N_VOCAB = 320


@dataclass
class Sizes:
    n_layer: int
    n_embd: int = 64
    n_ff: int = 96
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16


def add_sizes(writer, s, n_ctx=4096, n_head=0):
    writer.add_context_length(n_ctx)
    writer.add_block_count(s.n_layer)
    writer.add_embedding_length(s.n_embd)
    writer.add_feed_forward_length(s.n_ff)
    writer.add_head_count(n_head or s.n_head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(N_VOCAB)


def add_heads(writer, s, head_dim):
    writer.add_head_count_kv(s.n_head_kv)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)


def add_ends(w, s, norm="output_norm", output=True):
    w.matrix("token_embd.weight", N_VOCAB, s.n_embd, 4.0 if output else 1.0)
    w.vector(norm + ".weight", s.n_embd, 1.0, 0.1)
    if output:
        w.matrix("output.weight", N_VOCAB, s.n_embd, 4.0)


def add_feed_forward(w, s, p, n_ff=0):
    n_ff = n_ff or s.n_ff
    w.matrix(p + "ffn_gate.weight", n_ff, s.n_embd)
    w.matrix(p + "ffn_up.weight", n_ff, s.n_embd)
    w.matrix(p + "ffn_down.weight", s.n_embd, n_ff)


def add_attention(w, s, p, head_dim, cache=True, n_head_kv=0, values=True, gated=False):
    """Queries and keys larger than usual, as in make_tiny_models.py. gated: a gate follows each query."""
    n_head_kv = n_head_kv or s.n_head_kv
    w.matrix(p + "attn_q.weight", (2 if gated else 1) * s.n_head * head_dim, s.n_embd, 1.5)
    if cache:
        w.matrix(p + "attn_k.weight", n_head_kv * head_dim, s.n_embd, 1.5)
        if values:
            w.matrix(p + "attn_v.weight", n_head_kv * head_dim, s.n_embd)
    w.matrix(p + "attn_output.weight", s.n_embd, s.n_head * head_dim)


def norms(w, p, names, n, mean=1.0):
    for name in names:
        w.vector(f"{p}{name}.weight", n, mean, 0.1 * mean)


def olmo2(writer, w):
    s = Sizes(n_layer=3)
    add_sizes(writer, s)
    writer.add_head_count_kv(s.n_head_kv)
    add_ends(w, s)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        add_attention(w, s, p, s.head_dim)
        norms(w, p, ["attn_q_norm"], s.n_head * s.head_dim)
        norms(w, p, ["attn_k_norm"], s.n_head_kv * s.head_dim)
        norms(w, p, ["post_attention_norm", "post_ffw_norm"], s.n_embd)
        add_feed_forward(w, s, p)


def phi3(writer, w):
    s = Sizes(n_layer=2)
    add_sizes(writer, s)
    writer.add_head_count_kv(s.n_head_kv)
    writer.add_rope_dimension_count(s.head_dim)
    add_ends(w, s)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        norms(w, p, ["attn_norm", "ffn_norm"], s.n_embd)
        w.matrix(p + "attn_qkv.weight", (s.n_head + 2 * s.n_head_kv) * s.head_dim, s.n_embd, 1.5)
        w.matrix(p + "attn_output.weight", s.n_embd, s.n_head * s.head_dim)
        w.matrix(p + "ffn_up.weight", 2 * s.n_ff, s.n_embd)
        w.matrix(p + "ffn_down.weight", s.n_embd, s.n_ff)


def lfm2(writer, w, every=2):
    """Layers 1 and 3 attend, 0 and 2 are short convolutions."""
    s = Sizes(n_layer=4)
    taps = 3
    attends = [(il + 1) % every == 0 for il in range(s.n_layer)]
    add_sizes(writer, s)
    writer.add_head_count_kv([s.n_head_kv if here else 0 for here in attends])
    writer.add_uint32("lfm2.shortconv.l_cache", taps)
    add_ends(w, s, norm="token_embd_norm", output=False)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        norms(w, p, ["attn_norm", "ffn_norm"], s.n_embd)
        add_feed_forward(w, s, p)
        if attends[il]:
            add_attention(w, s, p, s.head_dim)
            norms(w, p, ["attn_q_norm", "attn_k_norm"], s.head_dim)
        else:
            w.vectors(p + "shortconv.conv.weight", s.n_embd, taps, 0.5)
            w.matrix(p + "shortconv.in_proj.weight", 3 * s.n_embd, s.n_embd)
            w.matrix(p + "shortconv.out_proj.weight", s.n_embd, s.n_embd)


def lfm2_attends(writer, w):
    lfm2(writer, w, every=1)


def gemma3n(writer, w):
    """Every fifth layer is global, and from layer 20 on layers read the caches of 18 and 19, as libllama has it built in."""
    s = Sizes(n_layer=25, n_ff=64)
    n_altup, n_side, rank = 4, 256, 64  # built in as well
    add_sizes(writer, s)
    add_heads(writer, s, s.head_dim)
    writer.add_sliding_window(16)
    add_ends(w, s, output=False)
    for name in ("altup_proj", "altup_unembd_proj"):
        w.cube(name + ".weight", n_altup - 1, s.n_embd, s.n_embd)
    w.matrix("per_layer_token_embd.weight", N_VOCAB, n_side * s.n_layer)
    w.matrix("per_layer_model_proj.weight", n_side * s.n_layer, s.n_embd)
    w.vector("per_layer_proj_norm.weight", n_side, 1.0, 0.1)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        add_attention(w, s, p, s.head_dim)
        add_feed_forward(w, s, p)
        norms(w, p, ["attn_q_norm", "attn_k_norm"], s.head_dim)
        norms(w, p, ["attn_norm", "ffn_norm", "altup_router_norm", "altup_correct_scale"], s.n_embd)
        # What a layer adds is small, so that 25 of them do not make much of one rounded activation.
        norms(w, p, ["post_attention_norm", "post_ffw_norm", "post_norm", "laurel_post_norm"], s.n_embd, 0.3)
        w.matrix(p + "inp_gate.weight", n_side, s.n_embd)
        w.matrix(p + "proj.weight", s.n_embd, n_side, 0.1)
        w.matrix(p + "altup_correct_coef.weight", n_altup, n_altup, 0.1)
        w.matrix(p + "altup_predict_coef.weight", n_altup * n_altup, n_altup, 0.1)
        w.matrix(p + "altup_router.weight", n_altup, s.n_embd, 0.1)
        w.matrix(p + "laurel_l.weight", rank, s.n_embd)
        w.matrix(p + "laurel_r.weight", s.n_embd, rank, 0.3)


def gemma4(writer, w):
    """Every other layer is global, with heads twice as long; the last three layers read the caches of others."""
    s = Sizes(n_layer=9)
    n_shared, n_side, slides = 3, 32, [il % 2 == 0 for il in range(9)]
    add_sizes(writer, s)
    add_heads(writer, s, 2 * s.head_dim)
    writer.add_uint32("gemma4.attention.key_length_swa", s.head_dim)
    writer.add_uint32("gemma4.attention.value_length_swa", s.head_dim)
    writer.add_uint32("gemma4.attention.shared_kv_layers", n_shared)
    writer.add_uint32("gemma4.embedding_length_per_layer_input", n_side)
    writer.add_rope_dimension_count(2 * s.head_dim)
    writer.add_uint32("gemma4.rope.dimension_count_swa", s.head_dim)
    writer.add_float32("gemma4.rope.freq_base_swa", 1000.0)
    writer.add_array("gemma4.attention.sliding_window_pattern", slides)
    writer.add_sliding_window(16)
    add_ends(w, s, output=False)
    w.matrix("per_layer_token_embd.weight", N_VOCAB, n_side * s.n_layer)
    w.matrix("per_layer_model_proj.weight", n_side * s.n_layer, s.n_embd)
    w.vector("per_layer_proj_norm.weight", n_side, 1.0, 0.1)
    writer.add_tensor("rope_freqs.weight", np.array([1.0] * (s.head_dim // 2) + [1e30] * (s.head_dim // 2), dtype=np.float32))
    for il in range(s.n_layer):
        p, head_dim, cache = f"blk.{il}.", s.head_dim if slides[il] else 2 * s.head_dim, il < s.n_layer - n_shared
        add_attention(w, s, p, head_dim, cache)
        add_feed_forward(w, s, p)
        norms(w, p, ["attn_q_norm"] + ["attn_k_norm"] * cache, head_dim)
        norms(w, p, ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"], s.n_embd)
        w.matrix(p + "inp_gate.weight", n_side, s.n_embd)
        w.matrix(p + "proj.weight", s.n_embd, n_side)


def llama4(writer, w):
    """Three layers that see their own chunk of 8192 tokens, as libllama has it built in, and a global one without RoPE."""
    s = Sizes(n_layer=4)
    add_sizes(writer, s, n_ctx=16384)
    add_heads(writer, s, s.head_dim)
    writer.add_rope_dimension_count(s.head_dim)
    writer.add_expert_count(2)
    writer.add_expert_used_count(1)
    writer.add_expert_feed_forward_length(s.n_ff)
    writer.add_uint32("llama4.interleave_moe_layer_step", 0)  # experts are said to be there, and no layer has them
    add_ends(w, s)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        norms(w, p, ["attn_norm", "ffn_norm"], s.n_embd)
        add_attention(w, s, p, s.head_dim)
        add_feed_forward(w, s, p)


def gemma4_heads(writer, w):
    """As its large models: layers that slide have twice the KV heads of global ones, half as long; those have no matrix for
    values, which are made of the keys' product; no layer reads another's cache."""
    s = Sizes(n_layer=4, n_head=8)
    slides = [il % 2 == 0 for il in range(s.n_layer)]
    n_head_kv = [2 * s.n_head_kv if here else s.n_head_kv for here in slides]
    add_sizes(writer, s)
    writer.add_head_count_kv(n_head_kv)
    writer.add_key_length(2 * s.head_dim)
    writer.add_value_length(2 * s.head_dim)
    writer.add_uint32("gemma4.attention.key_length_swa", s.head_dim)
    writer.add_uint32("gemma4.attention.value_length_swa", s.head_dim)
    writer.add_uint32("gemma4.embedding_length_per_layer_input", 0)
    writer.add_rope_dimension_count(2 * s.head_dim)
    writer.add_uint32("gemma4.rope.dimension_count_swa", s.head_dim)
    writer.add_float32("gemma4.rope.freq_base_swa", 1000.0)
    writer.add_array("gemma4.attention.sliding_window_pattern", slides)
    writer.add_sliding_window(16)
    add_ends(w, s, output=False)
    writer.add_tensor("rope_freqs.weight", np.array([1.0] * (s.head_dim // 2) + [1e30] * (s.head_dim // 2), dtype=np.float32))
    for il in range(s.n_layer):
        p, head_dim = f"blk.{il}.", s.head_dim if slides[il] else 2 * s.head_dim
        add_attention(w, s, p, head_dim, n_head_kv=n_head_kv[il], values=slides[il])
        add_feed_forward(w, s, p)
        norms(w, p, ["attn_q_norm", "attn_k_norm"], head_dim)
        norms(w, p, ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"], s.n_embd)


def openelm(writer, w):
    """Every layer has heads of its own number, of queries and of keys and values."""
    s = Sizes(n_layer=3)
    n_head, n_head_kv = [4, 4, 8], [1, 2, 2]
    add_sizes(writer, s, n_head=n_head)
    writer.add_head_count_kv(n_head_kv)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_rope_dimension_count(s.head_dim)
    add_ends(w, s, output=False)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        w.matrix(p + "attn_qkv.weight", (n_head[il] + 2 * n_head_kv[il]) * s.head_dim, s.n_embd, 1.5)
        w.matrix(p + "attn_output.weight", s.n_embd, n_head[il] * s.head_dim)
        norms(w, p, ["attn_q_norm", "attn_k_norm"], s.head_dim)
        norms(w, p, ["attn_norm", "ffn_norm"], s.n_embd)
        add_feed_forward(w, s, p)


def bert(writer, w):
    """Reads a text at once and has no cache."""
    s = Sizes(n_layer=2, n_head_kv=4)
    add_sizes(writer, s, n_ctx=512)
    writer.add_head_count_kv(s.n_head_kv)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_uint32("bert.pooling_type", 1)
    writer.add_uint32("tokenizer.ggml.token_type_count", 1)
    w.matrix("token_embd.weight", N_VOCAB, s.n_embd, 4.0)
    w.matrix("token_types.weight", 1, s.n_embd)
    w.matrix("position_embd.weight", 512, s.n_embd)
    both_of_norm(w, "token_embd_norm", s.n_embd)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        add_attention(w, s, p, s.head_dim)
        w.matrix(p + "ffn_up.weight", s.n_ff, s.n_embd)
        w.matrix(p + "ffn_down.weight", s.n_embd, s.n_ff)
        both_of_norm(w, p + "attn_output_norm", s.n_embd)
        both_of_norm(w, p + "layer_output_norm", s.n_embd)


def both_of_norm(w, name, n):
    w.vector(name + ".weight", n, 1.0, 0.1)
    w.vector(name + ".bias", n, 0.0, 0.1)


def mamba(writer, w):
    """Recurrent layers alone."""
    n_layer, n_embd, n_state, n_rank, taps = 2, 64, 16, 8, 4
    n_inner = 2 * n_embd
    writer.add_context_length(4096)
    writer.add_block_count(n_layer)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(N_VOCAB)
    for key, value in {"conv_kernel": taps, "inner_size": n_inner, "state_size": n_state, "time_step_rank": n_rank}.items():
        writer.add_uint32("mamba.ssm." + key, value)
    w.matrix("token_embd.weight", N_VOCAB, n_embd, 4.0)
    w.vector("output_norm.weight", n_embd, 1.0, 0.1)
    for il in range(n_layer):
        p = f"blk.{il}."
        w.vector(p + "attn_norm.weight", n_embd, 1.0, 0.1)
        w.matrix(p + "ssm_in.weight", 2 * n_inner, n_embd)
        w.vectors(p + "ssm_conv1d.weight", n_inner, taps, 0.5)
        w.vector(p + "ssm_conv1d.bias", n_inner, 0.0, 0.1)
        w.matrix(p + "ssm_x.weight", n_rank + 2 * n_state, n_inner)
        w.matrix(p + "ssm_dt.weight", n_inner, n_rank)
        w.vector(p + "ssm_dt.bias", n_inner, 0.0, 0.1)
        writer.add_tensor(p + "ssm_a", -np.exp(w.rng.standard_normal((n_inner, n_state), dtype=np.float32)))
        w.vector(p + "ssm_d", n_inner, 1.0, 0.1)
        w.matrix(p + "ssm_out.weight", n_embd, n_inner)


def gpt_oss(writer, w):
    """Every other layer has a sliding window, all have sinks, and two of four experts compute a token."""
    s, n_expert = Sizes(n_layer=4), 4
    add_sizes(writer, s)
    add_heads(writer, s, s.head_dim)
    writer.add_sliding_window(16)
    writer.add_expert_count(n_expert)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(s.n_ff)
    add_ends(w, s)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        norms(w, p, ["attn_norm", "post_attention_norm"], s.n_embd)
        add_attention(w, s, p, s.head_dim)
        for name, n in (("attn_q", s.n_head * s.head_dim), ("attn_k", s.n_head_kv * s.head_dim), ("attn_v", s.n_head_kv * s.head_dim),
                        ("attn_output", s.n_embd), ("ffn_gate_inp", n_expert)):
            w.vector(p + name + ".bias", n, 0.0, 0.1)
        w.vector(p + "attn_sinks.weight", s.n_head, 0.0, 1.0)
        w.matrix(p + "ffn_gate_inp.weight", n_expert, s.n_embd)
        for name, rows, columns in (("gate", s.n_ff, s.n_embd), ("up", s.n_ff, s.n_embd), ("down", s.n_embd, s.n_ff)):
            w.cube(p + f"ffn_{name}_exps.weight", n_expert, rows, columns)
            w.vectors(p + f"ffn_{name}_exps.bias", n_expert, rows, 0.1)


def granitehybrid(writer, w):
    """Layers 1 and 3 attend, 0 and 2 are state spaces of eight heads."""
    s = Sizes(n_layer=4)
    attends = [il % 2 == 1 for il in range(s.n_layer)]
    n_inner, n_state, n_group, n_state_head, taps = 2 * s.n_embd, 16, 1, 8, 4
    n_conv = n_inner + 2 * n_group * n_state
    add_sizes(writer, s)
    writer.add_head_count_kv([s.n_head_kv if here else 0 for here in attends])
    writer.add_rope_dimension_count(s.head_dim)
    for key, value in {"conv_kernel": taps, "inner_size": n_inner, "state_size": n_state, "time_step_rank": n_state_head, "group_count": n_group}.items():
        writer.add_uint32("granitehybrid.ssm." + key, value)
    for key, value in {"attention.scale": 0.25, "embedding_scale": 2.0, "residual_scale": 0.5, "logit_scale": 2.0}.items():
        writer.add_float32("granitehybrid." + key, value)
    add_ends(w, s)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        norms(w, p, ["attn_norm", "ffn_norm"], s.n_embd)
        add_feed_forward(w, s, p)
        if attends[il]:
            add_attention(w, s, p, s.head_dim)
            continue
        w.matrix(p + "ssm_in.weight", n_inner + n_conv + n_state_head, s.n_embd)
        w.vectors(p + "ssm_conv1d.weight", n_conv, taps, 0.5)
        w.vector(p + "ssm_conv1d.bias", n_conv, 0.0, 0.1)
        w.vector(p + "ssm_dt.bias", n_state_head, 0.0, 0.1)
        writer.add_tensor(p + "ssm_a", -np.exp(w.rng.standard_normal((n_state_head, 1), dtype=np.float32)))
        w.vectors(p + "ssm_d", n_state_head, 1, 1.0)
        w.vectors(p + "ssm_norm.weight", n_group, n_inner // n_group, 1.0)
        w.matrix(p + "ssm_out.weight", s.n_embd, n_inner)


def qwen35(writer, w):
    """Layers 1 and 3 attend, with a gate for each number of a query; 0 and 2 are linear attention (gated delta nets)."""
    s = Sizes(n_layer=4)
    d, n_key_head, n_value_head, taps = 16, 2, 4, 4
    n_value, n_conv = n_value_head * d, (2 * n_key_head + n_value_head) * d
    add_sizes(writer, s)
    add_heads(writer, s, s.head_dim)
    writer.add_rope_dimension_count(s.head_dim)
    writer.add_array("qwen35.rope.dimension_sections", [3, 3, 2, 0])
    writer.add_uint32("qwen35.full_attention_interval", 2)
    for key, value in {"conv_kernel": taps, "inner_size": n_value, "state_size": d, "time_step_rank": n_value_head, "group_count": n_key_head}.items():
        writer.add_uint32("qwen35.ssm." + key, value)
    add_ends(w, s)
    for il in range(s.n_layer):
        p = f"blk.{il}."
        norms(w, p, ["attn_norm", "post_attention_norm"], s.n_embd)
        add_feed_forward(w, s, p)
        if il % 2 == 1:
            add_attention(w, s, p, s.head_dim, gated=True)
            norms(w, p, ["attn_q_norm", "attn_k_norm"], s.head_dim)
            continue
        w.matrix(p + "attn_qkv.weight", n_conv, s.n_embd)
        w.matrix(p + "attn_gate.weight", n_value, s.n_embd)
        w.vectors(p + "ssm_conv1d.weight", n_conv, taps, 0.5)
        w.vector(p + "ssm_dt.bias", n_value_head, 0.0, 0.1)
        w.vector(p + "ssm_a", n_value_head, -1.0, 0.3)
        w.matrix(p + "ssm_beta.weight", n_value_head, s.n_embd)
        w.matrix(p + "ssm_alpha.weight", n_value_head, s.n_embd)
        norms(w, p, ["ssm_norm"], d)
        w.matrix(p + "ssm_out.weight", s.n_embd, n_value)


# What each is called, and its family where that is not the name.
FAMILIES = {"olmo2": olmo2, "phi3": phi3, "lfm2": lfm2, "gemma3n": gemma3n, "gemma4": gemma4, "llama4": llama4,
            "gemma4-heads": gemma4_heads, "openelm": openelm, "bert": bert, "mamba": mamba, "gpt-oss": gpt_oss,
            "granitehybrid": granitehybrid, "qwen35": qwen35, "lfm2-attends": lfm2_attends}
FAMILY_OF = {"gemma4-heads": "gemma4", "lfm2-attends": "lfm2"}
