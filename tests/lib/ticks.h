/* SPDX-License-Identifier: MIT */
/* A clock that no CPU moves, for tests of what is measured. Every look at it takes a tick, and every piece of real work
 * that the linker's --wrap leads through here takes TEST_WORK ticks, many more than all looks together. What is measured is then the same
 * on every machine, and a piece of work outside of all measurements is missing from their sum. Works in executables
 * that are linked with the options WNW_TICKS_OPTIONS of tests/CMakeLists.txt. */
#ifndef WNW_TESTS_TICKS_H
#define WNW_TESTS_TICKS_H

/* Milliseconds that a piece of work takes: a graph, the scores of a layer, what is chosen of a layer, the entries of a layer
 * that are moved. */
#define TEST_WORK 1e6

/* Pieces of work so far: graphs computed, scores, choices, layers rewritten. */
struct test_work {
    int graph, score, select, rewrite;
};
struct test_work test_work_done(void);

#endif
