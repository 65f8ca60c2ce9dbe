/* SPDX-License-Identifier: MIT */
/*
 * A bound on the loss in place of a size: the smallest number of entries that, by calibration, leaves next tokens as
 * they are. From no paper that we know. Scores s of replay or a gate estimate what a second reading would attend to, and
 * can be compared across heads. m(s) = s for scores that are attention, exp(s) for those that are its logarithm (gates,
 * but for Fast KVzip's). Among the unprotected entries of all heads together, the lowest scores are dropped for as long
 * as
 *
 *     sum of m(s) over those that go <= dropped x sum of m(s) over all
 *
 * where `dropped` is the largest share of the profile whose loss is at most 1 - q. The loss of a share is a quantile
 * over texts of 1 - sum over tokens v of min(p(v), p'(v)), p with the full and p' with the compressed cache
 * (calibrate/quality.c). Protected is also what an earlier compression has left. Where the profile has no such share
 * everything stays. A head keeps an entry or more. With a size too, no more than that stays. Equal scores are ordered by
 * lower layer, head, position. Cost O(N log N) for N entries.
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdlib.h>

struct opts {
    double q, dropped;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    if (o->dropped > 0 || (o->q > 0 && o->q < 1))
        return WNW_OK;
    return wnw__fail(WNW_E_ARG, "quality: q is %g; it is what is to be kept, above 0 and below 1", o->q);
}

static void needs(const void *opts, wnw_needs *out)
{
    if (((const struct opts *)opts)->dropped > 0)
        return;
    out->flags = WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_QUALITY;
}

/* What an earlier compression has left stays: a share of the scores that are left, dropped again and again, would come to
 * more than one share of them. A size takes from it all the same. */
static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    (void)opts;
    if (!p->sized && p->n_left > out->n_first)
        out->n_first = p->n_left;
}

/* Finds the share of the scores that may go. */
static int share_that_goes(const struct opts *o, const wnw_layer_problem *p, int32_t scorer, double *share,
                           char *warning)
{
    const wnw_profile *of = p->profile;
    const int32_t kind = scorer < 0 ? -1 : wnw__quality_scorers[scorer].kind;
    *share = o->dropped;
    if (o->dropped > 0)
        return WNW_OK;
    if (!of || scorer < 0 || !of->quality_loss[scorer])
        return wnw__fail(
            WNW_E_MISMATCH,
            "quality: no profile says what is lost with the scores of %s; calibrate it with `winnow "
            "calibrate quality`, %s%s%s",
            p->scorer, kind < 0 ? "or name a profile" : "with a profile of kind ",
            kind < 0 ? "" : wnw_profile_kind_name(kind), kind < 0 ? "" : " at hand");
    if (wnw__quality_is_foreign(of, scorer))
        return wnw__fail(WNW_E_MISMATCH,
                         "quality: what is lost with the scores of %s was measured with another profile of "
                         "kind %s than the one at hand; calibrate again with `winnow calibrate quality`",
                         p->scorer, wnw_profile_kind_name(kind));
    const int32_t k = wnw__quality_share(of->quality_loss[scorer], of->n_quality, o->q);
    if (k >= 0)
        *share = of->quality_dropped[k];
    else
        wnw_part_warn(warning,
                      "quality: every share of the scores that was measured loses more: all entries stay");
    return WNW_OK;
}

/* Whether scores are logarithms, as those that forms are fitted to are; Fast KVzip's gates give them as they are. */
static bool is_log(int32_t scorer, const wnw_profile *p)
{
    return scorer == WNW_QUALITY_KVGATE ||
           (scorer == WNW_QUALITY_INPUTGATE && !(p && p->inputs.form == WNW_INPUT_ATTENTION));
}

static double worth(bool is_log, float score)
{
    return is_log ? exp((double)score) : (double)score;
}

static int rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* How many of the n lowest scores, which it sorts, may go. */
static int64_t may_go(float *flat, int64_t n, bool is_log, double share)
{
    double total = 0, removed = 0;
    int64_t i = 0;
    qsort(flat, (size_t)n, sizeof *flat, rising);
    for (int64_t k = 0; k < n; k++)
        total += worth(is_log, flat[k]);
    while (i < n && removed + worth(is_log, flat[i]) <= share * total)
        removed += worth(is_log, flat[i++]);
    return i;
}

/* n_keep becomes what stays of each row in any case: what is protected, and no less than `least` of the best entries. Copies
 * the scores of the others to flat, and returns their number. */
static int64_t gather(const wnw_layer_problem *p, int32_t n_row, int32_t least, int32_t *n_keep, float *flat)
{
    int64_t n = 0;
    for (int32_t r = 0; r < n_row; r++) {
        const wnw_protected prot = wnw__protected_shrink(p->prot[r], p->budget);
        const int32_t n_prot = prot.n_first + prot.n_last;
        n_keep[r] = n_prot > least ? n_prot : least;
        n_keep[r] = n_keep[r] < p->n_entry[r] ? n_keep[r] : p->n_entry[r];
        n += wnw__candidates(p->score[r / p->n_head_kv] +
                                 (int64_t)(r % p->n_head_kv) * p->row[r / p->n_head_kv],
                             p->n_entry[r], prot, n_keep[r] > n_prot ? n_keep[r] - n_prot : 0, flat + n);
    }
    return n;
}

static int64_t sum_of(const int32_t *n_keep, int32_t n_row)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < n_row; r++)
        sum += n_keep[r];
    return sum;
}

static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    const int32_t n_row = p->n_layer * p->n_head_kv, scorer = wnw__quality_scorer(p->scorer);
    double share;
    WNW_TRY(share_that_goes(opts, p, scorer, &share, warning));
    const int64_t total = wnw__count_together(p, p->n_entry, n_row),
                  n_free = gather(p, n_row, 0, n_keep, scratch);
    const int64_t n_stay = n_free - may_go(scratch, n_free, is_log(scorer, p->profile), share);
    /* Heads that would lose everything keep one more, for which a size must have room. */
    const bool tight =
        sum_of(n_keep, n_row) + n_stay + n_row > total && sum_of(n_keep, n_row) + n_free > total;
    const int64_t n = gather(p, n_row, tight, n_keep, scratch), room = total - sum_of(n_keep, n_row);
    const int64_t some = room > 0 ? room : 0, left = n_stay < room ? n_stay : some;
    struct wnw__cut cut = wnw__topk_cut(scratch, n, left < n ? left : n);
    for (int32_t r = 0; r < n_row; r++) {
        for (int32_t k = p->n_entry[r] - n_keep[r]; k > 0; k--)
            n_keep[r] += wnw__cut_take(&cut, *scratch++);
        n_keep[r] += n_keep[r] == 0 && p->n_entry[r] > 0;
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "q",
     .help = "what is to be kept of the probabilities of next tokens, above 0 and below 1",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, q),
     .def = 0.9,
     .min = 0,
     .max = 1},
    {.name = "dropped",
     .help = "share of all scores that goes, in place of q and without a profile; 0 = by q",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, dropped),
     .def = 0,
     .min = 0,
     .max = 1},
    {0}};

const wnw_head_budget wnw__head_budget_quality = {
    .part = {WNW_HEAD_BUDGET_INIT, .name = "quality",
             .about = "As few entries as keep a share q of the probabilities of next tokens, by calibration.",
             .paper = "",
             .details =
                 "The lowest scores of all layers and heads go, for as long as together they are at "
                 "most a share of all "
                 "scores; scores of gates are logarithms and count as `exp(s)`. The share is the "
                 "largest one of a profile "
                 "of kind `quality` whose loss is at most `1 - q`. A loss is `1 - sum min(p, p')` "
                 "over the next token's "
                 "probabilities with the full and the compressed cache; the profile has, for each "
                 "share, what all but a "
                 "twentieth of the texts of its calibration stay below. `--keep-quality q` of the "
                 "command is this "
                 "budget.\n\n"
                 "What an earlier compression has left stays, so that every turn of a conversation "
                 "loses its share once. "
                 "It needs no size. Given one, no more than that stays. It goes with the scorers "
                 "`replay`, `kvgate` and `inputgate` (`kvzap`), which calibration measures with the last 32 "
                 "tokens kept. What "
                 "holds for the texts of the calibration need not hold for others. From no paper that "
                 "we know.\n\n"
                 "Cost: O(N log N) for the N entries of the model.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_OWN_SIZE | WNW_FLAG_PROMPT_ONLY |
                      WNW_FLAG_SECOND_LOOK,
             .check = check, .needs = needs, .keep = keep},
    .allocate_model = allocate_model,
};
