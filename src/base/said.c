/* SPDX-License-Identifier: MIT */
#include "base/said.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct wnw__said *keeper;

void wnw__said_begin(struct wnw__said *s)
{
    *s = (struct wnw__said){.outer = keeper};
    keeper = s;
}

void wnw__said_end(struct wnw__said *s)
{
    keeper = s->outer;
}

/* ---- Messages ---- */

const char *wnw__said_without_place(const char *message)
{
    const char *at = message + strcspn(message, ":");
    const size_t n_digit = *at ? strspn(at + 1, "0123456789") : 0;
    return n_digit > 0 && at[1 + n_digit] == ':' && at[2 + n_digit] == ' ' ? at + 3 + n_digit : message;
}

struct words {
    const char *s;
    size_t n;
};

static bool skip(struct words *w, const char *beginning)
{
    const size_t n = strlen(beginning);
    if (w->n < n || memcmp(w->s, beginning, n) != 0)
        return false;
    w->s += n;
    w->n -= n;
    return true;
}

/* The message without the name of the function that says it, and without what only says that it is an
 * error. */
static struct words strip(const char *text)
{
    static const char *const empty[] = {"error loading model: ", "error loading model vocabulary: "};
    struct words w = {text, strlen(text)};
    const size_t name = strcspn(text, ": \n");
    if (name + 1 < w.n && text[name] == ':' && text[name + 1] == ' ') {
        w.s += name + 2;
        w.n -= name + 2;
    }
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        skip(&w, empty[i]);
    while (w.n > 0 && isspace((unsigned char)w.s[w.n - 1]))
        w.n--;
    while (w.n > 0 && isspace((unsigned char)*w.s)) {
        w.s++;
        w.n--;
    }
    return w;
}

/* Frames of asterisks say nothing. */
static bool has_letter(struct words w)
{
    for (size_t i = 0; i < w.n; i++)
        if (isalpha((unsigned char)w.s[i]))
            return true;
    return false;
}

static void keep_warning(struct wnw__said *s, struct words w)
{
    enum { MOST = 3 };
    const size_t used = strlen(s->warning);
    if (s->n_warning++ < MOST)
        snprintf(s->warning + used, sizeof s->warning - used, "%s%.*s", used > 0 ? "; " : "", (int)w.n, w.s);
}

static void keep(struct wnw__said *s, enum ggml_log_level level, const char *text)
{
    const struct words w = strip(text);
    if (!has_letter(w))
        return;
    if (level == GGML_LOG_LEVEL_WARN)
        keep_warning(s, w);
    else if (level == GGML_LOG_LEVEL_ERROR && !*s->reason)
        snprintf(s->reason, sizeof s->reason, ": %.*s", (int)w.n, w.s);
}

void wnw__hear(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (n > 0)
        wnw__log(level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR ? WNW_LOG_INFO : WNW_LOG_DEBUG,
                 "%.*s", (int)n, text);
    if (keeper)
        keep(keeper, level, text);
}
