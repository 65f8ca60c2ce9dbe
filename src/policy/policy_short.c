/* SPDX-License-Identifier: MIT */
/*
 * Finds the shortest recipe of a policy: the one with which fewest parts differ from the first name's, of those the one that names
 * fewest, then the one of fewest letters. So a preset that is the policy goes before another one with a part exchanged. The scorer by its
 * own name, if that is a preset's, too, goes before other presets with as many names and no fewer options: keydiff+random_shares
 * before dms+random_shares. Every preset, and the bare scorer, is tried as the first name: all parts and options of the policy are added,
 * then each is left out if it can be. A recipe counts only if it parses to the policy, so this file need not know the parser's rules.
 * Options of a part that is not named otherwise go to the first name: keydiff-sampled:last=32 rather than another preset with
 * +sampled:last=32.
 */
#include "base/opt.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RECIPE 4096
enum { MAX_PIECES = 128 };

/* A recipe in pieces, which can be left out one by one. A piece is the first name or a part ("name") or an option ("key=value") of
 * piece number `of`, of itself where it is a name. A text that is cut off is no policy, so that the long form is the shortest then. */
struct pieces {
    struct {
        char text[192];
        int32_t of;
        bool out;
    } piece[MAX_PIECES];
    int32_t n, n_gathered; /* parts whose options follow the first name */
};

struct search {
    const wnw_policy *policy;
    wnw_registry outside; /* the policy's parts that a program registered */
    const wnw_part *parts[WNW_N_PART_KINDS];
    char best[MAX_RECIPE]; /* "" = none yet */
    int32_t n_best;        /* its cost */
    int32_t n_option;      /* options that a recipe with another first name must be below */
};

static bool is_name(const struct pieces *ps, int32_t i)
{
    return ps->piece[i].of == i;
}

/* Adds a name, or with a value an option of piece `of`. Returns the piece's number. */
static int32_t add(struct pieces *ps, int32_t of, const char *name, const char *value)
{
    if (ps->n == MAX_PIECES)
        return ps->n;
    snprintf(ps->piece[ps->n].text, sizeof ps->piece[ps->n].text, "%s%s%.120s", name, value ? "=" : "",
             value ? value : "");
    ps->piece[ps->n].of = value ? of : ps->n;
    ps->piece[ps->n].out = false;
    return ps->n++;
}

/* Writes the recipe. A part that is left out takes its options along. */
static void write_pieces(const struct pieces *ps, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < ps->n; i++) {
        const char *sep = ":";
        if (!is_name(ps, i) || ps->piece[i].out)
            continue;
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? "+" : "", ps->piece[i].text);
        for (int32_t k = 0; k < ps->n; k++) {
            if (is_name(ps, k) || ps->piece[k].of != i || ps->piece[k].out || n >= size)
                continue;
            n += (size_t)snprintf(out + n, size - n, "%s%s", sep, ps->piece[k].text);
            sep = ",";
        }
    }
}

static bool is_policy(const struct search *se, const char *recipe)
{
    wnw_policy *p = NULL;
    const bool same = wnw_policy_parse(&p, recipe, &se->outside) == WNW_OK &&
                      strcmp(wnw_policy_string(p), wnw_policy_string(se->policy)) == 0;
    wnw_policy_free(p);
    return same;
}

/* Makes the pieces: the first name, then every part and option of the policy. */
static void spell_out(const wnw_policy *p, const char *first, struct pieces *ps)
{
    ps->n = ps->n_gathered = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        char value[WNW_OPT_TEXT];
        const wnw_part *part = &p->part[k].head;
        const int32_t of = add(ps, 0, k == WNW_PART_SCORER ? first : part->name, NULL);
        for (const wnw_option *o = part->options; o && o->name; o++) {
            wnw__opt_format(o, p->opts[k], value, sizeof value);
            add(ps, of, o->name, value);
        }
    }
}

/* Leaves out pieces as long as any can be left out: whole parts first, then options. */
static void shorten(const struct search *se, struct pieces *ps)
{
    char text[MAX_RECIPE];
    for (bool more = true; more;) {
        more = false;
        for (int pass = 0; pass < 2; pass++)
            for (int32_t i = ps->n - 1; i > 0; i--) {
                if (ps->piece[i].out || is_name(ps, i) != (pass == 0))
                    continue;
                ps->piece[i].out = true;
                write_pieces(ps, text, sizeof text);
                ps->piece[i].out = is_policy(se, text);
                more = more || ps->piece[i].out;
            }
    }
}

/* Leaves out parts that are named for their options alone, which then follow the first name. */
static void gather_options(const struct search *se, struct pieces *ps)
{
    char text[MAX_RECIPE];
    for (int32_t i = 1; i < ps->n; i++) {
        if (!is_name(ps, i) || ps->piece[i].out)
            continue;
        const struct pieces before = *ps;
        ps->piece[i].out = true;
        for (int32_t k = i + 1; k < ps->n; k++)
            ps->piece[k].of = ps->piece[k].of == i ? 0 : ps->piece[k].of;
        write_pieces(ps, text, sizeof text);
        ps->n_gathered++;
        if (!is_policy(se, text))
            *ps = before;
    }
}

/* The pieces that were not left out: names, or options. */
static int32_t n_left(const struct pieces *ps, bool names)
{
    int32_t n = 0;
    for (int32_t i = 0; i < ps->n; i++)
        n += is_name(ps, i) == names && !ps->piece[i].out;
    return n;
}

static int32_t cost_of(const struct pieces *ps)
{
    const int32_t n_named = n_left(ps, true);
    return (n_named + ps->n_gathered) * MAX_PIECES + n_named;
}

/* Whether a recipe of as many parts goes before the best one. A preset alone is read more easily than a scorer with options. */
static bool goes_before(const struct search *se, const struct pieces *ps, const char *text)
{
    const bool is_alone = strpbrk(text, ":+") == NULL;
    return strlen(text) < strlen(se->best) && (is_alone || n_left(ps, false) < se->n_option);
}

/* is_method: the name is the scorer's, and that of a preset. */
static void try_first(struct search *se, const char *first, bool is_method)
{
    struct pieces ps;
    char text[MAX_RECIPE];
    if (se->n_best == MAX_PIECES + 1 && strlen(first) >= strlen(se->best))
        return;
    spell_out(se->policy, first, &ps);
    write_pieces(&ps, text, sizeof text);
    if (!is_policy(se, text))
        return;
    shorten(se, &ps);
    gather_options(se, &ps);
    write_pieces(&ps, text, sizeof text);
    const int32_t n = cost_of(&ps);
    if (*se->best && (n > se->n_best || (n == se->n_best && !goes_before(se, &ps, text))))
        return;
    memcpy(se->best, text, strlen(text) + 1);
    se->n_best = n;
    se->n_option = is_method ? n_left(&ps, false) : INT32_MAX;
}

/* Whether the recipe begins with the name of a part. */
static bool begins_with(const char *recipe, const char *name)
{
    const size_t n = strcspn(recipe, ":+");
    return n == strlen(name) && memcmp(recipe, name, n) == 0;
}

int wnw_policy_short(const wnw_policy *p, char **text)
{
    WNW_REQUIRE(text);
    *text = NULL;
    WNW_REQUIRE(p);
    struct search *se = calloc(1, sizeof *se);
    if (!se)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a recipe");
    se->policy = p;
    se->outside.parts = se->parts;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        if (!wnw__part_is_ours(&p->part[k].head))
            se->parts[se->outside.n++] = &p->part[k].head;
    const char *scorer = p->part[WNW_PART_SCORER].head.name;
    const struct wnw__preset *row;
    char before[512];
    snprintf(before, sizeof before, "%s", wnw_last_error());
    try_first(se, scorer, wnw__preset_find(scorer, strlen(scorer)) != NULL);
    for (int32_t i = 0; (row = wnw__preset_get(i)); i++)
        if (begins_with(row->recipe, scorer) && strcmp(row->name, scorer) != 0)
            try_first(se, row->name, false);
    (void)wnw__fail(WNW_OK, "%s", before); /* recipes that did not parse are no failure of the caller */
    *text = strdup(*se->best ? se->best : wnw_policy_string(p));
    free(se);
    return *text ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for a recipe");
}
