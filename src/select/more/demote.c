/* SPDX-License-Identifier: MIT */
/*
 * The best scores of a head, after marks that come again have lost places. Marks are punctuation and white space, and one
 * comes again if the head holds an earlier entry with the same text. From no paper that we know. The first of each stays
 * where it is, because attention sinks lie on a text's first delimiters (arXiv 2402.17762).
 *
 *     r_i = number of higher scores among the m unprotected entries.
 *     place of entry i = r_i + by m if it is a mark that comes again, else r_i.
 *     The entries of the lowest places stay; of equal places the earlier position.
 *
 * A mark is a token of nothing but punctuation and white space: the 32 marks and six blanks of ASCII, and what Unicode has
 * in Latin-1 Supplement, General Punctuation, CJK Symbols and fullwidth ASCII. A token that is a part of a character only
 * is none. The entries that a head budget promises keep their places.
 *
 * In code and tables marks carry the structure, and an answer may have to copy them. SepLLM (arXiv 2412.12094) even keeps
 * separators in place of the text between them. Cost O(n log n + n m) with m different marks.
 */
#include "base/strings.h"
#include "base/topk.h"
#include "method/protected.h"
#include "method/rank.h"
#include "policy/part.h"

#include <string.h>

enum what { WHAT_BOTH, WHAT_PUNCTUATION, WHAT_BLANK };

struct opts {
    double by;
    int32_t what;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_TOKEN_TEXT;
}

/* Scratch holds ranks of unprotected entries, then their places; whether a mark comes again; what is needed on the way. */
static size_t scratch_size(const void *opts, int32_t n)
{
    (void)opts;
    return 3 * (size_t)n;
}

/* ---- Marks ---- */

enum kind { WORD, BLANK, PUNCTUATION };

static bool within(uint32_t c, uint32_t first, uint32_t last)
{
    return c >= first && c <= last;
}

static enum kind kind_of(uint32_t c)
{
    if (within(c, 0x09, 0x0d) || c == 0x20 || c == 0xa0 || within(c, 0x2000, 0x200b) || c == 0x202f ||
        c == 0x3000)
        return BLANK;
    const bool ascii =
        within(c, 0x21, 0x2f) || within(c, 0x3a, 0x40) || within(c, 0x5b, 0x60) || within(c, 0x7b, 0x7e);
    const bool latin =
        c == 0xa1 || c == 0xa7 || c == 0xab || c == 0xb6 || c == 0xb7 || c == 0xbb || c == 0xbf;
    const bool general = within(c, 0x2010, 0x2027) || within(c, 0x2030, 0x205e);
    const bool wide = within(c, 0x3001, 0x3003) || within(c, 0x3008, 0x3011) || within(c, 0x3014, 0x301f) ||
                      within(c, 0xff01, 0xff0f) || within(c, 0xff1a, 0xff20) || within(c, 0xff3b, 0xff40) ||
                      within(c, 0xff5b, 0xff65);
    return ascii || latin || general || wide ? PUNCTUATION : WORD;
}

/* The kind of the character that s[len] begins with, and its bytes. A part of a character is a word. */
static enum kind first_kind(const char *s, size_t len, size_t *n)
{
    if (wnw__utf8_scan(s, len, n) != WNW_UTF8_WHOLE)
        return WORD;
    if (*n == 1)
        return kind_of((unsigned char)*s);
    uint32_t c = (unsigned char)*s & (0xffu >> (*n + 1));
    for (size_t i = 1; i < *n; i++)
        c = c << 6 | ((unsigned char)s[i] & 0x3f);
    return kind_of(c);
}

static bool is_mark(const char *text, int32_t what)
{
    const size_t len = text ? strlen(text) : 0;
    bool punctuation = false;
    for (size_t at = 0, n = 0; at < len; at += n) {
        const enum kind kind = first_kind(text + at, len - at, &n);
        if (kind == WORD)
            return false;
        punctuation = punctuation || kind == PUNCTUATION;
    }
    if (len == 0)
        return false;
    return what == WHAT_BOTH || punctuation == (what == WHAT_PUNCTUATION);
}

/* ---- Places ---- */

/* The text of entry i; NULL = not known. */
static const char *text_of(const wnw_select_problem *p, int32_t i)
{
    const int32_t pos = p->obs->pos[(int64_t)p->ih * p->obs->n + i];
    return pos >= 0 && pos < p->obs->n_past ? p->obs->token_text[pos] : NULL;
}

/* Sets again[n] to 1 where a mark of the same text comes earlier, else to 0. first[n] is scratch for entries with the first
 * of each. */
static void find_repeats(const struct opts *o, const wnw_select_problem *p, float *again, float *first)
{
    int32_t n_first = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const char *text = text_of(p, i);
        int32_t k = 0;
        again[i] = 0;
        if (!is_mark(text, o->what))
            continue;
        while (k < n_first && strcmp(text_of(p, (int32_t)first[k]), text) != 0)
            k++;
        again[i] = k < n_first;
        if (k == n_first)
            first[n_first++] = (float)i;
    }
}

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const struct opts *o = opts;
    const int32_t first = p->prot.n_first, n = p->n - first - p->prot.n_last;
    const float *score = p->score + first;
    float *rank = scratch, *again = scratch + p->n, *third = scratch + 2 * (size_t)p->n;
    find_repeats(o, p, again, third);
    wnw__ranks(score, n, rank, third);
    struct wnw__cut safe = wnw__topk_cut(score, n, p->n_safe);
    for (int32_t i = 0; i < n; i++) {
        const bool falls = !wnw__cut_take(&safe, score[i]) && again[first + i] > 0;
        /* Negative, since the lowest place is the best. */
        rank[i] = -(float)((double)rank[i] + (falls ? o->by * n : 0));
    }
    int32_t m = wnw__keep_first(p, keep);
    m += wnw__topk(rank, n, p->n_keep - first - p->prot.n_last, first, keep + m);
    return wnw__keep_last(p, keep, m);
}

static const char *const what[] = {"both", "punctuation", "blank", NULL};

static const wnw_option options[] = {
    {.name = "by",
     .help = "how many places a repeated mark loses, as a share of all places; 1 = it comes last",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, by),
     .def = 1,
     .min = 0,
     .max = 1},
    {.name = "what",
     .help = "tokens that count as marks: all, those with punctuation, or blank ones",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, what),
     .def = WHAT_BOTH,
     .choices = what},
    {0}};

const wnw_selector wnw__selector_demote = {
    .part =
        {WNW_SELECTOR_INIT, .name = "demote",
         .about =
             "The highest scores of a head, after repeated punctuation and white space have lost places.",
         .details =
             "A mark is a token of nothing but punctuation and white space. It comes again if the head holds "
             "an "
             "earlier entry with the same text. With `m` unprotected entries its place among "
             "them, the number of higher scores, becomes larger by `by m`. The lowest places stay. The first "
             "of each text keeps its place, because attention sinks lie on the first delimiters (arXiv "
             "2402.17762). So do entries that a head budget promises.\n\n"
             "For example `snapkv+demote`, or `snapkv+demote:by=0.25`. `by=0` is plain top-k. Head budgets "
             "see the scores before the demotion.\n\n"
             "From no paper that we know.\n\n"
             "Code and tables are its risk: marks are their structure, and an answer may have to copy them. "
             "`what=blank` leaves punctuation alone. Token texts are known in winnow's own sessions only, "
             "not under the backend for libllama programs.\n\n"
             "Cost: O(n log n) per head.",
         .options = options, .options_size = sizeof(struct opts), .needs = needs},
    .scratch = scratch_size,
    .select = select_entries,
};
