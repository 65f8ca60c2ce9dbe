/* SPDX-License-Identifier: MIT */
/* Processes of their own for what may crash or hang, so that the test sees it and goes on. The test itself must not
 * have computed before: OpenMP's threads do not survive fork(). */
#ifndef WNW_TESTS_CHILD_H
#define WNW_TESTS_CHILD_H

#include "asserts.h"

#include <sys/types.h>

/* fork(): 0 in the child, which leaves no core file, dies of signals that cmocka would catch, and of SIGALRM after
 * this many seconds (0 = never). It ends with _exit. */
pid_t test_child(unsigned seconds);
/* Waits for it; its exit status. Fails the test with the sentence `what` where a signal ended it. */
int test_child_status(pid_t child, const char *what);

#endif
