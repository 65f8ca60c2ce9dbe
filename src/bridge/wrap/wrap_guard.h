/* SPDX-License-Identifier: MIT */
/* A relay to an RPC server of ggml. */
#ifndef WNW_BRIDGE_WRAP_GUARD_H
#define WNW_BRIDGE_WRAP_GUARD_H

#include <netinet/in.h>
#include <stdbool.h>

/*
 * ggml's client ends the process where a server is gone, and waits for ever where one hangs. So it is given the address of a
 * relay, a thread of this process, which hands all on. Once the server is lost, the relay answers in its place: memory is
 * refused, numbers are NaN. When ggml connects again, the relay tries the server again.
 */
struct wnw__guard;

enum { WNW_WRAP_DEVICES = 64 }; /* that can be around others, and of one server */

/* The name of a node. A graph of it alone means the last one that came for its device. */
#define WNW_GUARD_AGAIN "winnow: the last graph of this device"

/* Starts a relay to the server there. E_BACKEND as wnw__connect_dial; E_NOMEM. */
int wnw__guard_start(struct wnw__guard **out, const struct sockaddr_in *at, const char *name);
/* Ends it; ggml must not use its address any more. NULL: nothing. */
void wnw__guard_stop(struct wnw__guard *g);
/* The relay's address, for ggml. */
const char *wnw__guard_address(const struct wnw__guard *g);
/* The server's, as the user gave it. */
const char *wnw__guard_name(const struct wnw__guard *g);
/* Whether its server is there. */
bool wnw__guard_is_at(const struct wnw__guard *g, const struct sockaddr_in *at);
/* How often a connection to its server was made: another one may find another server there. */
unsigned wnw__guard_connection(struct wnw__guard *g);
/* E_BACKEND with a sentence that names the server: it is lost. */
int wnw__guard_check(struct wnw__guard *g);
/* The same, to say why something failed: also if it was lost since the last call, and is there again. */
int wnw__guard_say(struct wnw__guard *g);

#endif
