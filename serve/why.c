/* SPDX-License-Identifier: MIT */
#include "serve/why.h"

#include "app/console.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    struct serve_why last[SERVE_WHY_KEPT];
    uint64_t n; /* that have come */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Causes ---- */

static bool has_any(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words))
            return true;
    return false;
}

static bool has_digit(const char *text)
{
    return strpbrk(text, "0123456789") != NULL;
}

const char *serve_why_cause(const char *before, const char *was, const char *is)
{
    static const char *const thoughts[] = {"<think", "</think", "<|channel|>", "reasoning", NULL};
    static const char *const tools[] = {"\"function\"", "\"parameters\"", "\"name\"", "\"description\"",
                                        "input_schema", "<tools>",        NULL};
    static const char *const dates[] = {"date", "Date", "time", "Time", "Today", "today", "day is", NULL};
    static const char *const lines[] = {"header",  "session", "Session", "billing",
                                        "version", "id:",     "id=",     NULL};
    if (has_any(was, thoughts) && !has_any(is, thoughts))
        return "earlier reasoning was removed";
    if (has_any(before, dates) && (has_digit(was) || has_digit(is)))
        return "a date or a time has changed";
    if ((has_any(was, tools) && has_any(is, tools)) || (has_any(before, tools) && has_any(was, tools)))
        return "tools have changed, or their order";
    if (has_any(before, lines))
        return "a line of the client that changes with each request";
    return SERVE_WHY_DIFFERS;
}

void serve_why_text(char to[SERVE_WHY_TEXT], const char *bytes, size_t n)
{
    n = n < SERVE_WHY_TEXT ? n : SERVE_WHY_TEXT - 1;
    memcpy(to, bytes, n);
    to[n] = '\0';
    json_t *text = json_string(to);
    for (size_t i = 0; !text && to[i]; i++) /* a character is cut, or it is none */
        if ((unsigned char)to[i] >= 0x80)
            to[i] = '?';
    json_decref(text);
}

/* ---- The last ones ---- */

void serve_why_add(const struct serve_why *x)
{
    pthread_mutex_lock(&all.lock);
    all.last[all.n++ % SERVE_WHY_KEPT] = *x;
    pthread_mutex_unlock(&all.lock);
    char where[48] = "";
    if (x->broke)
        snprintf(where, sizeof where, "; from token %d on: ", (int)x->at);
    else if (x->cause)
        snprintf(where, sizeof where, "; ");
    app_note("slot %d: %d tokens read, %d from the slot, %d parked, %d of a document%s%s", (int)x->slot,
             (int)x->n_read, (int)x->n_slot, (int)x->n_parked, (int)x->n_document, where,
             x->cause ? x->cause : "");
}

static json_t *json_of(const struct serve_why *x, bool own)
{
    json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i}", "slot", (int)x->slot, "from_slot", (int)x->n_slot,
                          "parked", (int)x->n_parked, "document", (int)x->n_document, "read", (int)x->n_read);
    if (o && x->cause)
        json_object_set_new(o, "cause", json_string(x->cause));
    if (!o || !x->broke)
        return o;
    json_object_set_new(o, "differs_at", json_integer(x->at));
    if (own) {
        json_object_set_new(o, "before", json_string(x->before));
        if (!x->of_others)
            json_object_set_new(o, "was", json_string(x->was));
        json_object_set_new(o, "is", json_string(x->is));
    }
    return o;
}

void serve_why_print(FILE *f, const struct serve_owner *owner)
{
    json_t *list = json_array();
    pthread_mutex_lock(&all.lock);
    for (uint64_t i = 0; list && i < all.n && i < SERVE_WHY_KEPT; i++) {
        const struct serve_why *x = &all.last[(all.n - 1 - i) % SERVE_WHY_KEPT];
        const bool own = owner && serve_same_owner(owner, &x->owner);
        json_array_append_new(list, json_of(x, own));
    }
    pthread_mutex_unlock(&all.lock);
    char *text = list ? json_dumps(list, JSON_COMPACT) : NULL;
    fputs(text ? text : "[]", f);
    free(text);
    json_decref(list);
}
