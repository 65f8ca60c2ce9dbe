/* SPDX-License-Identifier: MIT */
#include "serve/inspect.h"

#include "app/page.h"
#include "serve/own_names.h"
#include "serve/tickets.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Tickets ---- */

/* What was seen, or why not. */
struct view {
    json_t *seen;
    char why[SERVE_TEXT];
};

/* One for the process. */
static struct serve_tickets all = SERVE_TICKETS;

int32_t serve_inspect_begin(void)
{
    return serve_ticket_new(&all);
}

void serve_inspect_give(int32_t ticket, json_t *seen, const char *why)
{
    struct view *v = calloc(1, sizeof *v);
    if (v) {
        v->seen = seen;
        snprintf(v->why, sizeof v->why, "%s", why);
    }
    if (v && serve_ticket_give(&all, ticket, v))
        return;
    json_decref(seen); /* nobody waits any more */
    free(v);
}

json_t *serve_inspect_end(int32_t ticket, char *why)
{
    struct view *v = serve_ticket_end(&all, ticket);
    json_t *seen = v ? v->seen : NULL;
    snprintf(why, SERVE_TEXT, "%s", v ? v->why : "the server could not look at it now");
    free(v);
    return seen;
}

void serve_inspect_file(int32_t ticket, int32_t document, char name[64])
{
    serve_ticket_file(name, SERVE_FILE_LOOK, ticket, document);
}

bool serve_inspect_of_file(const char *path, int32_t *ticket, int32_t *document)
{
    return serve_ticket_of_file(path, SERVE_FILE_LOOK, ticket, document);
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
