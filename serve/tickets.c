/* SPDX-License-Identifier: MIT */
#include "serve/tickets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct serve_ticket {
    int32_t number;
    void *thing; /* NULL: nothing was given */
    struct serve_ticket *next;
};

int32_t serve_ticket_new(struct serve_tickets *all)
{
    struct serve_ticket *x = calloc(1, sizeof *x);
    if (!x)
        return -1;
    pthread_mutex_lock(&all->lock);
    const int32_t number = all->n;
    all->n = all->n < INT32_MAX ? all->n + 1 : 0;
    x->number = number;
    x->next = all->first;
    all->first = x;
    pthread_mutex_unlock(&all->lock);
    return number;
}

bool serve_ticket_give(struct serve_tickets *all, int32_t ticket, void *thing)
{
    pthread_mutex_lock(&all->lock);
    struct serve_ticket *x = all->first;
    while (x && x->number != ticket)
        x = x->next;
    const bool given = x && !x->thing;
    if (given)
        x->thing = thing;
    pthread_mutex_unlock(&all->lock);
    return given;
}

void *serve_ticket_end(struct serve_tickets *all, int32_t ticket)
{
    pthread_mutex_lock(&all->lock);
    struct serve_ticket **at = &all->first;
    while (*at && (*at)->number != ticket)
        at = &(*at)->next;
    struct serve_ticket *x = *at;
    if (x)
        *at = x->next;
    pthread_mutex_unlock(&all->lock);
    void *thing = x ? x->thing : NULL;
    free(x);
    return thing;
}

void serve_ticket_file(char name[SERVE_TICKET_NAME], const char *prefix, int32_t ticket, int32_t other)
{
    snprintf(name, SERVE_TICKET_NAME, "%s%d.%d", prefix, (int)ticket, (int)other);
}

bool serve_ticket_of_file(const char *path, const char *prefix, int32_t *ticket, int32_t *other)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t n_prefix = strlen(prefix);
    int a, b, n = 0;
    if (strncmp(name, prefix, n_prefix) != 0 || sscanf(name + n_prefix, "%d.%d%n", &a, &b, &n) != 2 ||
        name[n_prefix + (size_t)n])
        return false;
    *ticket = a;
    *other = b;
    return true;
}
