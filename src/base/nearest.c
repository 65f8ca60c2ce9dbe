/* SPDX-License-Identifier: MIT */
#include "base/nearest.h"

#include <string.h>

/* Edit distance, computed with one row of the matrix. Words longer than the row get no suggestion. */
static int edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    int row[65];
    if (na > 64 || nb > 64)
        return 999;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            const int above = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            best = best < above + 1 ? best : above + 1;
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[nb];
}

void wnw__guess_name(struct wnw__guess *g, const char *name)
{
    const size_t len = strlen(name);
    const int d = edit_distance(g->word, g->len, name, len);
    const int most = (int)(((g->len > len ? g->len : len) + 2) / 3);
    if (d > (most > 2 ? most : 2) || d >= (int)len || (g->best && d >= g->distance))
        return;
    g->best = name;
    g->distance = d;
}

const char *wnw__nearest(const char *word, const char *const *names)
{
    struct wnw__guess g = {.word = word, .len = strlen(word)};
    for (int i = 0; names[i]; i++)
        wnw__guess_name(&g, names[i]);
    return g.best;
}
