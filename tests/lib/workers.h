/* SPDX-License-Identifier: MIT */
/* Workers of other machines, which are processes of this one. */
#ifndef WNW_TESTS_WORKERS_H
#define WNW_TESTS_WORKERS_H

#include <sys/types.h>

/* A port of the loopback interface that nobody listens at; -1: there is none. */
int test_free_port(void);
/* A worker that serves the device CPU at 127.0.0.1:port with one thread, in a process of its own, which ends with this one. It
 * accepts clients when this returns. -1: it does not within half a minute. */
pid_t test_worker(int port);
/* The same with ggml's own server, which does not know what winnow's worker is asked. */
pid_t test_plain_worker(int port);
/* Makes a device around the worker's. -1: that failed, and the worker is ended. */
int test_wrap_worker(pid_t worker, int port);
/* Ends a worker; with -1 nothing. */
void test_end_worker(pid_t worker);

#endif
