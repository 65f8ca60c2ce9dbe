/* SPDX-License-Identifier: MIT */
/*
 * A method of your own as a plugin, which `winnow run`, `plan`, `eval`, `bench` and `ppl` take:
 *
 *     cc -std=c11 -O2 -shared -fPIC examples/plugin.c $(pkg-config --cflags winnow) -lm -o libmine.so
 *     winnow plan -f examples/document.txt --policy mine+adakv --ratio 0.5 --plugin ./libmine.so -o plan.json
 *
 * The scorer keeps entries whose key points away from the mean of their head's keys, and has the number of protected entries as an
 * option. It is here to show the steps. The functions that it calls are found in the program that loads it, so it links nothing.
 */
#include <winnow_method.h>

#include <math.h>

struct mine_opts {
    int32_t recent;
};

static const wnw_option mine_options[] = {{.name = "recent",
                                           .help = "newest entries that always stay",
                                           .type = WNW_OPT_INT,
                                           .offset = offsetof(struct mine_opts, recent),
                                           .def = 16,
                                           .min = 0,
                                           .max = 4096},
                                          {.name = NULL}};

static void mine_needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_KEYS;
}

static void mine_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct mine_opts *o = opts;
    (void)p;
    out->n_first = 4;
    out->n_last = o->recent;
}

/* The mean is as long as a key, so it is the scratch. */
static size_t mine_scratch(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n_embd_head;
}

/* score[ih][i] = -cos(k_i, mean k) */
static int mine_score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const int32_t d = obs->n_embd_head;
    (void)opts;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const float *k = obs->keys(obs, ih); /* [n][d] */
        for (int32_t c = 0; c < d; c++) {
            double sum = 0;
            for (int32_t i = 0; i < obs->n_entry[ih]; i++)
                sum += k[(size_t)i * (size_t)d + (size_t)c];
            scratch[c] = (float)(sum / obs->n_entry[ih]);
        }
        for (int32_t i = 0; i < obs->n_entry[ih]; i++) {
            double dot = 0, kk = 0, mm = 0;
            for (int32_t c = 0; c < d; c++) {
                const double x = k[(size_t)i * (size_t)d + (size_t)c], m = scratch[c];
                dot += x * m;
                kk += x * x;
                mm += m * m;
            }
            score[(size_t)ih * (size_t)obs->n + (size_t)i] = (float)(-dot / (sqrt(kk * mm) + 1e-12));
        }
    }
    return WNW_OK;
}

static const wnw_scorer mine = {
    .part =
        {
            WNW_SCORER_INIT,
            .name = "mine",
            .about = "Entries whose key points away from the mean key of the head.",
            .options = mine_options,
            .options_size = sizeof(struct mine_opts),
            .needs = mine_needs,
            .keep = mine_keep,
        },
    .scratch = mine_scratch,
    .score = mine_score,
};

WNW_PLUGIN(registry)
{
    return wnw_registry_add(registry, &mine.part);
}
