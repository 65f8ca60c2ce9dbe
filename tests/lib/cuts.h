/* SPDX-License-Identifier: MIT */
/*
 * Whether two computations keep the same entries, as far as their scores say so on this CPU.
 *
 * Scores of two correct programs differ by rounding. An entry whose score is that near to the cut may be kept by one
 * and dropped by the other, in any number. The test measures how far rounding changes the scores of a layer: a
 * session plans twice, the second time with ggml's attention and in batches of other sizes. Their products are added up in another
 * order.
 *
 * Where the scores of the other program are known, each of them must lie within FACTOR times that error, in relation to its size.
 * So must the norms that its selector has looked at. Then the plan is made once more with these numbers in place of those here. What comes out must be
 * what the other program keeps, entry by entry. So counts of layers and heads follow from scores, by any formula. A scorer that
 * jumps is compared by what it looks at, and its scores follow, too.
 *
 * Where only the kept entries are known, the plan is made once more with other scores: that of every entry
 * that the other program keeps is raised by FACTOR times the error, and every other one is lowered. Counts, budgets over several
 * heads and selectors follow from those scores. What comes out must be what the other program keeps. Then each entry that
 * one alone keeps lies within the error of the cut, and the counts follow from those. The selectors of CriticalKV choose
 * by scores first, then by products. There heads win their counts by their best scores, and an entry that is missed is raised once
 * more by the same error.
 *
 * A test that uses it is linked with the wrapped functions that tests/CMakeLists.txt names.
 */
#ifndef WNW_TESTS_CUTS_H
#define WNW_TESTS_CUTS_H

#include "sessions.h"
#include "winnow_method.h"

/* Scores and kept entries of a plan; released with test_cuts_free. */
struct test_cuts;
/* Plans that are made from now on are noted, until test_cuts_stop; the last of them stays. */
struct test_cuts *test_cuts_note(void);
void test_cuts_stop(void);
void test_cuts_free(struct test_cuts *c);

/* What a program keeps that notes no scores, as the files of golden/: layers and heads of n_entry entries. None is kept
 * until test_cuts_keep says so. */
struct test_cuts *test_cuts_new(int32_t n_layer, int32_t n_head_kv, int32_t n_entry);
void test_cuts_keep(struct test_cuts *c, int32_t k, int32_t ih, int32_t i);

/* A computation that makes one plan, from the beginning; `other`: with another rounding. */
struct test_keeper {
    void (*run)(void *user, bool other);
    void *user;
};
/* What `there` keeps is what k keeps, but for entries within the error of the cut. Entries are put together from the last one of a
 * head on, because a program may hide the first ones from the policy. */
void test_keeps_as(const char *name, const struct test_keeper *k, const struct test_cuts *there);
/* Whether it does; says on stderr what does not. */
bool test_keeps_near(const char *name, const struct test_keeper *k, const struct test_cuts *there);

/* A session that reads n tokens and plans. */
struct test_keep {
    const wnw_model *m;
    struct test_session want;
    wnw_run run; /* its policy plans; without the size */
    wnw_size size;
    const int32_t *tokens;
    int32_t n;
};
void test_session_keeps_as(const char *name, const struct test_keep *k, const struct test_cuts *there);

/* Kept entries of KV head ih of the k-th layer that was compressed, by their number in the head before; entries[..] has room. */
int32_t test_cuts_head(const struct test_cuts *c, int32_t k, int32_t ih, int32_t *entries);
/* The number of layer il among those that were compressed; -1: none of its entries may go. */
int32_t test_cuts_number(const struct test_cuts *c, int32_t il);
/* Kept entries of all heads. */
int64_t test_cuts_kept(const struct test_cuts *c);
/* Whether both keep the same. */
bool test_cuts_same(const struct test_cuts *a, const struct test_cuts *b);

#endif
