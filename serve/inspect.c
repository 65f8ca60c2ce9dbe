/* SPDX-License-Identifier: MIT */
#include "serve/inspect.h"

#include "app/page.h"
#include "serve/own_names.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tickets ---- */

static const char file_prefix[] = SERVE_FILE_LOOK;

/* Requests that wait. */
struct wait {
    int32_t ticket;
    json_t *seen;
    char why[SERVE_TEXT];
    struct wait *next;
};

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    struct wait *first;
    int32_t n;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

int32_t serve_inspect_begin(void)
{
    struct wait *x = calloc(1, sizeof *x);
    if (!x)
        return -1;
    strcpy(x->why, "the server could not look at it now");
    pthread_mutex_lock(&all.lock);
    x->ticket = all.n++;
    x->next = all.first;
    all.first = x;
    const int32_t ticket = x->ticket;
    pthread_mutex_unlock(&all.lock);
    return ticket;
}

void serve_inspect_give(int32_t ticket, json_t *seen, const char *why)
{
    pthread_mutex_lock(&all.lock);
    struct wait *x = all.first;
    while (x && x->ticket != ticket)
        x = x->next;
    if (x && !x->seen) {
        x->seen = seen;
        snprintf(x->why, sizeof x->why, "%s", why);
    } else {
        json_decref(seen); /* nobody waits any more */
    }
    pthread_mutex_unlock(&all.lock);
}

json_t *serve_inspect_end(int32_t ticket, char *why)
{
    json_t *seen = NULL;
    snprintf(why, SERVE_TEXT, "out of memory");
    pthread_mutex_lock(&all.lock);
    for (struct wait **at = &all.first; *at; at = &(*at)->next) {
        struct wait *x = *at;
        if (x->ticket != ticket)
            continue;
        seen = x->seen;
        memcpy(why, x->why, sizeof x->why);
        *at = x->next;
        free(x);
        break;
    }
    pthread_mutex_unlock(&all.lock);
    return seen;
}

void serve_inspect_file(int32_t ticket, int32_t document, char name[64])
{
    snprintf(name, 64, "%s%d.%d", file_prefix, (int)ticket, (int)document);
}

bool serve_inspect_of_file(const char *path, int32_t *ticket, int32_t *document)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int of_ticket, of_document, n = 0;
    if (strncmp(name, file_prefix, sizeof file_prefix - 1) != 0 ||
        sscanf(name + sizeof file_prefix - 1, "%d.%d%n", &of_ticket, &of_document, &n) != 2 ||
        name[sizeof file_prefix - 1 + (size_t)n])
        return false;
    *ticket = of_ticket;
    *document = of_document;
    return true;
}

/* ---- The page ---- */

char *serve_inspect_page(const json_t *seen, size_t *n)
{
    struct app_text text = {0};
    bool placed;
    if (app_page_fill(&text, (const char *)serve_inspect_html, serve_inspect_html_size, seen, &placed)) {
        *n = text.len;
        return text.s;
    }
    free(text.s);
    return NULL;
}
