/* SPDX-License-Identifier: MIT */
/* Sessions: making them, and comparing what two of them hold. */
#ifndef WNW_TESTS_SESSIONS_H
#define WNW_TESTS_SESSIONS_H

#include "asserts.h"
#include "winnow_batch.h"

struct test_session {
    wnw_kv_type kv_type;
    wnw_attn attn;
    int32_t n_ctx;
    int32_t n_ubatch;  /* 0 = the default */
    int32_t n_threads; /* 0 = usable cores, at most 2 */
    int32_t kv_tail;
    bool kv_unrotated;
    wnw_engine *engine; /* that it runs on; NULL = one of its own */
};
wnw_session *test_session_new(const wnw_model *m, const struct test_session *want);
/* Has the session observe what plans of the policies need: wnw_session_begin with nothing else, so that rules, a profile
 * and what was said of a prompt are forgotten. Returns its status. */
int test_observe(wnw_session *s, const wnw_policy *const *policies, int32_t n);
/* Tokens without any callback. */
void test_prefill(wnw_session *s, const int32_t *tokens, int32_t n);
/* A session that observes what plans of the policy need, if there is one, and has read n tokens. */
wnw_session *test_session_read(const wnw_model *m, const struct test_session *want, const wnw_policy *p,
                               const int32_t *tokens, int32_t n);
/* Decodes them one after the other. */
void test_decode(wnw_session *s, const int32_t *tokens, int32_t n);
/* Decodes n_step tokens in n sessions of an engine together, session i from tokens[i] on, and in copies of them alone. The NMSE
 * of the last logits to those of the copies is below `most`: products of weights with several rows may round otherwise. */
void test_batches(wnw_engine *e, wnw_session *const *s, int32_t n, const int32_t *tokens, int32_t n_step,
                  double most);

/* The same number of tokens read, and in every layer and head the same positions; `cache`: with the same bytes of
 * keys and values. The first difference is shown with its layer and head. */
#define assert_same_entries(a, b) test_caches(a, b, false, __FILE__, __LINE__)
#define assert_same_cache(a, b)   test_caches(a, b, true, __FILE__, __LINE__)
void test_caches(const wnw_session *a, const wnw_session *b, bool bytes, const char *file, int line);
/* The same bits of every logit. */
#define assert_same_logits(a, b) test_logits(a, b, __FILE__, __LINE__)
void test_logits(const wnw_session *a, const wnw_session *b, const char *file, int line);

/* Key (or value) of entry i as floats, [n_embd_head]. */
void test_read_row(const wnw_session *s, bool key, int32_t il, int32_t ih, int32_t i, float *out);
/* Entries per KV head, over the layers without a sliding window. */
double test_mean_entries(const wnw_session *s);

#endif
