/* SPDX-License-Identifier: MIT */
/* Slots on their way from the decoding thread to a request that parks them. */
#include "serve/own_names.h"
#include "serve/parks.h"
#include "serve/tickets.h"

#include <stdlib.h>

/* One for the process. */
static struct serve_tickets all = SERVE_TICKETS;

int32_t serve_park_ticket(char name[SERVE_TICKET_NAME], bool replaced)
{
    const int32_t ticket = serve_ticket_new(&all);
    serve_ticket_file(name, SERVE_FILE_PARK, ticket, replaced);
    return ticket;
}

void serve_park_give(int32_t ticket, struct serve_slot_read *slot)
{
    struct serve_slot_read *copy = malloc(sizeof *copy);
    if (copy)
        *copy = *slot;
    if (copy && serve_ticket_give(&all, ticket, copy)) {
        *slot = (struct serve_slot_read){0};
        return;
    }
    free(copy);
    serve_slot_read_clear(slot); /* nobody waits for it */
}

bool serve_park_end(struct serve_slot_read *out, int32_t ticket)
{
    struct serve_slot_read *given = serve_ticket_end(&all, ticket);
    const bool has = given != NULL;
    *out = has ? *given : (struct serve_slot_read){0};
    free(given);
    return has;
}

bool serve_park_of_file(const char *path, int32_t *ticket, bool *replaced)
{
    int32_t all_of_it = 0;
    const bool is = serve_ticket_of_file(path, SERVE_FILE_PARK, ticket, &all_of_it);
    *replaced = all_of_it != 0;
    return is;
}
