/* SPDX-License-Identifier: MIT */
/*
 * Whether two computations keep the same entries, as far as their scores say so on this CPU.
 *
 * Scores of two correct programs differ by rounding. An entry whose score is that near to the cut may be kept by one
 * and dropped by the other, in any number. The test measures how far rounding changes the scores of a layer: a
 * session plans twice, the second time with ggml's attention and in batches of other sizes. Their products are added up in another
 * order. Then its plan is made once more. The score of every entry
 * that the other program keeps is raised by FACTOR times as much, and every other one is lowered. Counts, budgets over several heads and
 * selectors follow from those scores. What comes out must be what the other program keeps, entry by entry: then each entry that
 * one keeps and the other drops lies within the error of the cut, and the counts follow from those. The selectors of CriticalKV choose
 * by scores first, then by products: there an entry that is missed is raised once more by the same error.
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

/* What a program keeps that notes no scores, as the files of golden/: layers and heads of n_entry entries, of which none is kept
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
/* Kept entries of all heads. */
int64_t test_cuts_kept(const struct test_cuts *c);

#endif
