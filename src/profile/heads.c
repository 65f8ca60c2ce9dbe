/* SPDX-License-Identifier: MIT */
/* Lists of query heads in words: named one by one, the best ones of a profile, or drawn at random. */
#include "base/random.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"
#include "winnow_study.h"

#include <stdlib.h>
#include <string.h>

/* Reads a whole number from 0 on at *text and moves *text after it. False where there is none, or one too
 * large for 31 bits. */
static bool read_number(const char **text, int32_t *out)
{
    int64_t x = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9'; at++) {
        x = x * 10 + (*at - '0');
        if (x > INT32_MAX)
            return false;
    }
    if (at == *text)
        return false;
    *text = at;
    *out = (int32_t)x;
    return true;
}

static int bad_list(const char *text)
{
    return wnw__fail(WNW_E_ARG,
                     "'%.60s' is not a list of heads; give LAYER-HEAD,LAYER-HEAD,... or srh:topN, trad:topN, "
                     "random:N:SEED, random:N:SEED:M",
                     text);
}

/* Puts head i = layer x n_head + head after the list. */
static void add(wnw_head *list, int32_t *n, int32_t i, int32_t n_head)
{
    list[(*n)++] = (wnw_head){.il = i / n_head, .h = i % n_head};
}

/* ---- Named ---- */

/* used[n_layer][n_head] is all false. */
static int read_named(const char *text, const wnw_model_info *info, bool *used, wnw_head *list, int32_t *n)
{
    const char *at = text;
    int32_t il, h;
    for (bool more = true; more; at += more) {
        if (!read_number(&at, &il) || *at++ != '-' || !read_number(&at, &h) || (*at && *at != ','))
            return bad_list(text);
        if (il >= info->n_layer || h >= info->n_head)
            return wnw__fail(WNW_E_RANGE, "there is no query head %d-%d: layers are 0 to %d, heads 0 to %d",
                             (int)il, (int)h, (int)info->n_layer - 1, (int)info->n_head - 1);
        if (used[il * info->n_head + h])
            return wnw__fail(WNW_E_ARG, "head %d-%d is in the list twice", (int)il, (int)h);
        used[il * info->n_head + h] = true;
        add(list, n, il * info->n_head + h, info->n_head);
        more = *at == ',';
    }
    return WNW_OK;
}

/* ---- The best of all layers ---- */

/* Takes the k largest scores, equal ones in the order of layers and heads. */
static void take_best(const float *score, const wnw_model_info *info, int32_t k, bool *used, wnw_head *list,
                      int32_t *n)
{
    for (; k > 0; k--) {
        int32_t best = -1;
        for (int32_t i = 0; i < info->n_layer * info->n_head; i++)
            if (!used[i] && (best < 0 || score[i] > score[best]))
                best = i;
        used[best] = true;
        add(list, n, best, info->n_head);
    }
}

static int scores_of(const wnw_profile *p, bool srh, const wnw_model_info *info, const float **score)
{
    const char *name = srh ? "srh" : "trad";
    if (!p || !(p->kinds >> WNW_PROFILE_SRH & 1u))
        return wnw__fail(WNW_E_ARG, "a ranking by %s scores needs a profile of kind srh", name);
    if (p->model.n_layer != info->n_layer || p->model.n_head != info->n_head)
        return wnw__fail(WNW_E_MISMATCH, "the profile has %d layers of %d heads; the model has %d of %d",
                         (int)p->model.n_layer, (int)p->model.n_head, (int)info->n_layer, (int)info->n_head);
    *score = srh ? p->srh_mean : p->trad_mean;
    return *score
               ? WNW_OK
               : wnw__fail(WNW_E_ARG,
                           "a ranking by %s scores compares heads of all layers; the profile has no %s_mean",
                           name, name);
}

/* ---- At random ---- */

/* Draws k of the heads that are not used, `left` of them. Such a head is taken with probability (still wanted) /
 * (still left), so that every choice of k is as likely as any other, and the list ascends. */
static void draw(uint64_t seed, const wnw_model_info *info, int32_t left, int32_t k, const bool *used,
                 wnw_head *list, int32_t *n)
{
    uint64_t state = wnw__mix(seed);
    for (int32_t i = 0; k > 0; i++) {
        if (used[i])
            continue;
        if ((wnw__mix_next(&state) >> 32) * (uint64_t)left-- >> 32 < (uint64_t)k) {
            add(list, n, i, info->n_head);
            k--;
        }
    }
}

/* ---- All forms ---- */

static bool begins(const char **text, const char *word)
{
    const size_t len = strlen(word);
    if (strncmp(*text, word, len) != 0)
        return false;
    *text += len;
    return true;
}

static int check_count(int32_t k, const wnw_model_info *info)
{
    if (k >= 1 && k <= info->n_layer * info->n_head)
        return WNW_OK;
    return wnw__fail(WNW_E_RANGE, "%d heads: 1 to %d are there", (int)k, (int)(info->n_layer * info->n_head));
}

/* "N:SEED" or "N:SEED:M", which leaves out the M best heads by semantic score. */
static int read_random(const char *text, const char *at, const wnw_model_info *info, const wnw_profile *p,
                       bool *used, wnw_head *list, int32_t *n)
{
    const int32_t n_all = info->n_layer * info->n_head;
    const float *score;
    int32_t k, seed, n_out = 0;
    if (!read_number(&at, &k) || *at++ != ':' || !read_number(&at, &seed))
        return bad_list(text);
    WNW_TRY(check_count(k, info));
    if (*at == ':') {
        at++;
        if (!read_number(&at, &n_out))
            return bad_list(text);
        if (n_out < 1 || n_out > n_all - k)
            return wnw__fail(WNW_E_RANGE, "%d of %d heads cannot be drawn without the %d best", (int)k,
                             (int)n_all, (int)n_out);
        WNW_TRY(scores_of(p, true, info, &score));
        take_best(score, info, n_out, used, list, n);
        *n = 0;
    }
    if (*at)
        return bad_list(text);
    draw((uint64_t)seed, info, n_all - n_out, k, used, list, n);
    return WNW_OK;
}

static int read_list(const char *text, const wnw_model_info *info, const wnw_profile *p, bool *used,
                     wnw_head *list, int32_t *n)
{
    const char *at = text;
    const float *score;
    int32_t k;
    const bool srh = begins(&at, "srh:top");
    if (srh || begins(&at, "trad:top")) {
        if (!read_number(&at, &k) || *at)
            return bad_list(text);
        WNW_TRY(check_count(k, info));
        WNW_TRY(scores_of(p, srh, info, &score));
        take_best(score, info, k, used, list, n);
        return WNW_OK;
    }
    if (!begins(&at, "random:"))
        return read_named(text, info, used, list, n);
    return read_random(text, at, info, p, used, list, n);
}

uint32_t wnw_heads_profiles(const char *text)
{
    const char *at = text;
    int32_t number;
    if (!text)
        return 0;
    const bool ranked = begins(&at, "srh:") || begins(&at, "trad:") ||
                        (begins(&at, "random:") && read_number(&at, &number) && begins(&at, ":") &&
                         read_number(&at, &number) && begins(&at, ":"));
    return ranked ? 1u << WNW_PROFILE_SRH : 0;
}

int wnw_heads_parse(wnw_head **heads, int32_t *n, const char *text, const wnw_model *m, const wnw_profile *p)
{
    wnw_model_info info = wnw_model_info_default();
    WNW_REQUIRE(heads);
    WNW_REQUIRE(n);
    *heads = NULL;
    *n = 0;
    WNW_REQUIRE(text);
    WNW_REQUIRE(m);
    WNW_TRY(wnw_model_get_info(m, &info));
    const size_t n_all = (size_t)info.n_layer * (size_t)info.n_head;
    bool *used = calloc(n_all, sizeof *used);
    wnw_head *list = calloc(n_all, sizeof *list);
    const int rc = used && list ? read_list(text, &info, p, used, list, n)
                                : wnw__fail(WNW_E_NOMEM, "no memory for a list of %zu heads", n_all);
    free(used);
    if (rc == WNW_OK) {
        *heads = list;
        return WNW_OK;
    }
    *n = 0;
    free(list);
    return rc;
}
