/* SPDX-License-Identifier: MIT */
/* Slots on their way from the decoding thread to a request that parks them. */
#include "serve/own_names.h"
#include "serve/parks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char file_prefix[] = SERVE_FILE_PARK;

struct wait {
    int32_t ticket;
    bool given;
    struct serve_slot_read slot;
    struct wait *next;
};

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    struct wait *first;
    int32_t n;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

int32_t serve_park_ticket(char name[48], bool replaced)
{
    struct wait *x = calloc(1, sizeof *x);
    if (!x)
        return -1;
    pthread_mutex_lock(&all.lock);
    x->ticket = all.n;
    all.n = all.n < INT32_MAX ? all.n + 1 : 0;
    x->next = all.first;
    all.first = x;
    const int32_t ticket = x->ticket;
    pthread_mutex_unlock(&all.lock);
    snprintf(name, 48, "%s%d.%d", file_prefix, (int)ticket, (int)replaced);
    return ticket;
}

void serve_park_give(int32_t ticket, struct serve_slot_read *slot)
{
    pthread_mutex_lock(&all.lock);
    struct wait *x = all.first;
    while (x && x->ticket != ticket)
        x = x->next;
    if (x && !x->given) {
        x->slot = *slot;
        x->given = true;
        *slot = (struct serve_slot_read){0};
    }
    pthread_mutex_unlock(&all.lock);
    serve_slot_read_clear(slot); /* nobody waits for it */
}

bool serve_park_end(struct serve_slot_read *out, int32_t ticket)
{
    bool given = false;
    *out = (struct serve_slot_read){0};
    pthread_mutex_lock(&all.lock);
    for (struct wait **at = &all.first; *at; at = &(*at)->next) {
        struct wait *x = *at;
        if (x->ticket != ticket)
            continue;
        given = x->given;
        *out = x->slot;
        *at = x->next;
        free(x);
        break;
    }
    pthread_mutex_unlock(&all.lock);
    return given;
}

bool serve_park_of_file(const char *path, int32_t *ticket, bool *replaced)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int n = 0, of = 0, all_of_it = 0;
    if (strncmp(name, file_prefix, sizeof file_prefix - 1) != 0 ||
        sscanf(name + sizeof file_prefix - 1, "%d.%d%n", &of, &all_of_it, &n) != 2 ||
        name[sizeof file_prefix - 1 + (size_t)n])
        return false;
    *ticket = of;
    *replaced = all_of_it != 0;
    return true;
}
