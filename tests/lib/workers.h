/* SPDX-License-Identifier: MIT */
/* Workers of other machines, which are processes of this one. */
#ifndef WNW_TESTS_WORKERS_H
#define WNW_TESTS_WORKERS_H

#include <sys/types.h>

/* A port of the loopback interface that nobody listens at; -1: there is none. */
int test_free_port(void);
/* A worker that serves the device CPU at 127.0.0.1:port with one thread, in a process of its own. It ends with this one. */
pid_t test_worker(int port);
/* Waits until it answers, and makes a device around its own. -1: it does not answer; the process is ended then. */
int test_wrap_worker(pid_t worker, int port);

#endif
