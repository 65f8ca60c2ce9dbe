/* SPDX-License-Identifier: MIT */
/* Noticing that an answer repeats itself without an end, as small models do. */
#include "cli/loop.h"

#include <string.h>

/* Whether the text ends with one piece of p bytes, again and again. */
static bool repeats(const char *text, size_t n, size_t p)
{
    const size_t wanted = CLI_LOOP_TIMES * p > CLI_LOOP_LEAST ? CLI_LOOP_TIMES * p : CLI_LOOP_LEAST;
    if (n < wanted)
        return false;
    for (size_t i = n - wanted + p; i < n; i++)
        if (text[i] != text[i - p])
            return false;
    return true;
}

bool cli_loop_add(struct cli_loop *l, const char *text, size_t n)
{
    if (n > sizeof l->text) {
        text += n - sizeof l->text;
        n = sizeof l->text;
    }
    const size_t stays = l->n + n > sizeof l->text ? sizeof l->text - n : l->n;
    memmove(l->text, l->text + l->n - stays, stays);
    memcpy(l->text + stays, text, n);
    l->n = stays + n;
    for (size_t p = 1; n > 0 && p <= CLI_LOOP_PIECE; p++)
        if (repeats(l->text, l->n, p))
            return true;
    return false;
}
