/* SPDX-License-Identifier: MIT */
/* Connections to RPC servers of ggml. */
#ifndef WNW_BRIDGE_WRAP_CONNECT_H
#define WNW_BRIDGE_WRAP_CONNECT_H

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { WNW_CONNECT_MS = 5000 }; /* a server accepts and greets within it */

struct wnw__address {
    char host[256];
    char port[8];
};

/* "HOST:PORT"; false: it is none. */
bool wnw__connect_address(struct wnw__address *a, const char *text);
/* E_ARG, with a sentence: the text is no address. */
int wnw__connect_no_address(const char *text);
/* IPv4, as ggml's own sockets are; released with freeaddrinfo. NULL: the host is unknown. */
struct addrinfo *wnw__connect_look_up(const struct wnw__address *a);
/* Milliseconds of a clock that only goes on. */
int64_t wnw__connect_now(void);
/* 1: all went; 0: the other side closed; -1: nothing went for `patience` milliseconds. */
int wnw__connect_send(int fd, const uint8_t *x, size_t n, int64_t patience);
/* Has small messages sent at once. */
void wnw__connect_quick(int fd);
/* Where HOST:PORT is. E_ARG: it is no address; E_BACKEND: the host is unknown. */
int wnw__connect_where(struct sockaddr_in *at, const char *name);
/* A connection to the server there, whose name is for sentences, and which was greeted. E_BACKEND: no server of this ggml's
 * version answers in time. */
int wnw__connect_dial(int *out, const struct sockaddr_in *at, const char *name);

#endif
