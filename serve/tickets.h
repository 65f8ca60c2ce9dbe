/* SPDX-License-Identifier: MIT */
/*
 * Things on their way from the decoding thread to a request that waits for them. The request takes a ticket and has a slot saved, under the name
 * of a file that has the ticket's number. The decoding thread gives the thing, and the request takes it.
 */
#ifndef WNW_SERVE_TICKETS_H
#define WNW_SERVE_TICKETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct serve_ticket;
struct serve_tickets {
    pthread_mutex_t lock;
    struct serve_ticket *first;
    int32_t n; /* the next one's number */
};
#define SERVE_TICKETS                     \
    {                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }

/* A new ticket; -1: no memory. */
int32_t serve_ticket_new(struct serve_tickets *all);
/* Gives a thing to who has the ticket. False: nobody waits for it any more, or has it, and it stays the caller's. */
bool serve_ticket_give(struct serve_tickets *all, int32_t ticket, void *thing);
/* Ends a ticket. What was given, which the caller owns; NULL: nothing. */
void *serve_ticket_end(struct serve_tickets *all, int32_t ticket);

enum { SERVE_TICKET_NAME = 64 };
/* The name of a file that means a ticket and another number, and whether a path is such a name. */
void serve_ticket_file(char name[SERVE_TICKET_NAME], const char *prefix, int32_t ticket, int32_t other);
bool serve_ticket_of_file(const char *path, const char *prefix, int32_t *ticket, int32_t *other);

#endif
