/* SPDX-License-Identifier: MIT */
/*
 * Finds the shortest recipe of a policy: the one that names fewest parts, of those the one of fewest letters. So a
 * preset that is the policy goes before another one with a part exchanged. Every preset, and the bare scorer, is tried
 * as the first name: all parts and options of the policy are added, then each is left out if it can be. A recipe counts
 * only if it parses to the policy, so this file need not know the parser's rules.
 */
#include "base/opt.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RECIPE 4096
enum { MAX_PIECES = 128 };

/* A recipe in pieces, which can be left out one by one. A piece is the first name or a part ("name", `part`
 * true) or an option of the part before it ("key=value"). */
struct pieces {
    struct {
        char text[192];
        bool part, out;
    } piece[MAX_PIECES];
    int32_t n;
};

struct search {
    const wnw_policy *policy;
    wnw_registry outside; /* the policy's parts that a program registered */
    const wnw_part *parts[WNW_N_PART_KINDS];
    char best[MAX_RECIPE]; /* "" = none yet */
    int32_t n_best;        /* parts that it names */
};

static void add(struct pieces *ps, bool part, const char *name, const char *value)
{
    if (ps->n == MAX_PIECES)
        return;
    snprintf(ps->piece[ps->n].text, sizeof ps->piece[ps->n].text, "%s%s%s", name, value ? "=" : "",
             value ? value : "");
    ps->piece[ps->n].part = part;
    ps->piece[ps->n++].out = false;
}

/* Writes the recipe. A part that is left out takes its options along. */
static void write_pieces(const struct pieces *ps, char *out, size_t size)
{
    size_t n = 0;
    bool out_of_part = false, has_option = false;
    out[0] = '\0';
    for (int32_t i = 0; i < ps->n && n < size; i++) {
        const bool part = ps->piece[i].part;
        if (part) {
            out_of_part = ps->piece[i].out;
            has_option = false;
        }
        if (out_of_part || ps->piece[i].out)
            continue;
        const char *sep = part ? i > 0 ? "+" : "" : has_option ? "," : ":";
        n += (size_t)snprintf(out + n, size - n, "%s%s", sep, ps->piece[i].text);
        has_option = has_option || !part;
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
    ps->n = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        char value[128];
        const wnw_part *part = &p->part[k].head;
        add(ps, true, k == WNW_PART_SCORER ? first : part->name, NULL);
        for (const wnw_option *o = part->options; o && o->name; o++) {
            wnw__opt_format(o, p->opts[k], value, sizeof value);
            add(ps, false, o->name, value);
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
                if (ps->piece[i].out || ps->piece[i].part != (pass == 0))
                    continue;
                ps->piece[i].out = true;
                write_pieces(ps, text, sizeof text);
                ps->piece[i].out = is_policy(se, text);
                more = more || ps->piece[i].out;
            }
    }
}

static int32_t count_parts(const struct pieces *ps)
{
    int32_t n = 0;
    for (int32_t i = 0; i < ps->n; i++)
        n += ps->piece[i].part && !ps->piece[i].out;
    return n;
}

static void try_first(struct search *se, const char *first)
{
    struct pieces ps;
    char text[MAX_RECIPE];
    if (se->n_best == 1 && strlen(first) >= strlen(se->best))
        return;
    spell_out(se->policy, first, &ps);
    write_pieces(&ps, text, sizeof text);
    if (!is_policy(se, text))
        return;
    shorten(se, &ps);
    write_pieces(&ps, text, sizeof text);
    const int32_t n = count_parts(&ps);
    if (*se->best && (n > se->n_best || (n == se->n_best && strlen(text) >= strlen(se->best))))
        return;
    memcpy(se->best, text, strlen(text) + 1);
    se->n_best = n;
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
    try_first(se, scorer);
    for (int32_t i = 0; (row = wnw__preset_get(i)); i++)
        if (begins_with(row->recipe, scorer) && strcmp(row->name, scorer) != 0)
            try_first(se, row->name);
    (void)wnw__fail(WNW_OK, "%s", before); /* recipes that did not parse are no failure of the caller */
    *text = strdup(*se->best ? se->best : wnw_policy_string(p));
    free(se);
    return *text ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for a recipe");
}
