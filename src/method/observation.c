/* SPDX-License-Identifier: MIT */
/* What many scorers take of an observation, for parts of programs. */
#include "base/err.h"
#include "base/vectors.h"
#include "method/window.h"

/* Rows of a layer that become numbers. Keys are cut into pieces, for threads. */
enum { PIECE = 512 };
struct reducing {
    const wnw_observation *obs;
    const float *keys; /* [n][d] of one KV head */
    int32_t n;
    float *out;
};

/* Does all of the work, on the threads of the session where it has some. */
static void each(const wnw_observation *obs, int32_t n, void (*work)(int32_t i, void *user), void *user)
{
    if (obs->each)
        obs->each(obs, n, work, user);
    else
        for (int32_t i = 0; i < n; i++)
            work(i, user);
}

static void clear_padding(const wnw_observation *obs, int32_t ih, float *out)
{
    for (int32_t i = obs->n_entry[ih]; i < obs->n; i++)
        out[i] = 0;
}

static void take_mean(int32_t h, void *user)
{
    const struct reducing *r = user;
    const wnw_observation *obs = r->obs;
    const int32_t ih = h / (obs->n_head / obs->n_head_kv);
    float *out = r->out + (int64_t)h * obs->n;
    wnw__window_mean(obs->window_attn + (int64_t)h * obs->n_window * obs->n, obs->n_window, obs->n_window,
                     obs->n, obs->n_entry[ih], out);
    clear_padding(obs, ih, out);
}

int wnw_observation_window_mean(const wnw_observation *obs, float *out)
{
    WNW_REQUIRE(obs);
    WNW_REQUIRE(out);
    if (!obs->window_attn || obs->n_window < 1)
        return wnw__fail(WNW_E_ARG, "the attention of the last queries was not observed");
    each(obs, obs->n_head, take_mean, &(struct reducing){.obs = obs, .out = out});
    return WNW_OK;
}

static void take_norms(int32_t piece, void *user)
{
    const struct reducing *r = user;
    const int32_t d = r->obs->n_embd_head, from = piece * PIECE;
    for (int32_t i = from; i < r->n && i < from + PIECE; i++)
        r->out[i] = (float)wnw__norm(r->keys + (int64_t)i * d, d);
}

int wnw_observation_key_norms(const wnw_observation *obs, float *out)
{
    WNW_REQUIRE(obs);
    WNW_REQUIRE(out);
    if (!obs->keys)
        return wnw__fail(WNW_E_ARG, "keys were not observed");
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *row = out + (int64_t)ih * obs->n;
        const float *keys = obs->keys(obs, ih);
        struct reducing r = {.obs = obs, .keys = keys, .n = obs->n_entry[ih], .out = row};
        each(obs, (r.n + PIECE - 1) / PIECE, take_norms, &r);
        clear_padding(obs, ih, row);
    }
    return WNW_OK;
}
