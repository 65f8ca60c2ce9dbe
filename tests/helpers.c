/* SPDX-License-Identifier: MIT */
#include "helpers.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gguf.h>

/* Tests run in the top folder of the source tree unless the build says where the data is. */
#ifndef WNW_TEST_GOLDEN_DIR
#define WNW_TEST_GOLDEN_DIR "tests/golden"
#endif

void test_assert_status(int rc, int want, const char *expr, const char *file, int line)
{
    if (rc == want && (want == WNW_OK || wnw_last_error()[0] != '\0'))
        return;
    print_error("%s\n  returned %d (%s), expected %d (%s)\n  last error: \"%s\"\n", expr, rc,
                wnw_strerror(rc), want, wnw_strerror(want), rc == WNW_OK ? "" : wnw_last_error());
    _fail(file, line);
}

/* ---- Files ---- */

static void models_dir(char *out, size_t cap)
{
    const char *cache = getenv("WINNOW_CACHE");
    const char *home = getenv("HOME");
    if (cache && cache[0])
        snprintf(out, cap, "%s/models", cache);
    else
        snprintf(out, cap, "%s/.cache/winnow/models", home ? home : "");
}

static const char *maker_of(const char *name)
{
    if (strncmp(name, "tiny", 4) == 0)
        return "scripts/make_tiny_models.py";
    return strstr(name, "-f32") ? "scripts/dequantize_gguf.py" : "the model script in scripts/";
}

bool test_has_model(char *out, size_t cap, const char *name)
{
    char dir[2048];
    models_dir(dir, sizeof dir);
    const int n = snprintf(out, cap, "%s/%s", dir, name);
    assert_true(n > 0 && (size_t)n < cap);
    return access(out, R_OK) == 0;
}

void test_model_path(char *out, size_t cap, const char *name)
{
    if (!test_has_model(out, cap, name))
        fail_msg("%s is missing: run `make test`, which makes it with %s", out, maker_of(name));
}

wnw_model *test_model_open(const char *name)
{
    char path[4096];
    test_model_path(path, sizeof path, name);
    wnw_model *m = NULL;
    assert_ok(wnw_model_open(&m, path, NULL));
    assert_non_null(m);
    return m;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

int test_tiny_models(char (*names)[TEST_NAME_MAX], int cap)
{
    char dir[2048], path[2080];
    models_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/tiny", dir);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e = NULL; d && (e = readdir(d)) != NULL;) {
        const size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".gguf") != 0)
            continue;
        assert_true(n < cap && len + 6 <= TEST_NAME_MAX);
        snprintf(names[n++], TEST_NAME_MAX, "tiny/%.80s", e->d_name);
    }
    if (d)
        closedir(d);
    if (n == 0)
        fail_msg("no models in %s: run `make test`, which makes them with %s", path, maker_of("tiny"));
    qsort(names, (size_t)n, sizeof names[0], by_name);
    return n;
}

static bool all_of(const char *path, enum ggml_type a, enum ggml_type b)
{
    struct gguf_context *g = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(g);
    bool all = true;
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++)
        all = all && (gguf_get_tensor_type(g, i) == a || gguf_get_tensor_type(g, i) == b);
    gguf_free(g);
    return all;
}

bool test_all_float(const char *path)
{
    return all_of(path, GGML_TYPE_F32, GGML_TYPE_F16);
}

void test_tiny_model_of(char name[TEST_NAME_MAX], const char *arch)
{
    char names[32][TEST_NAME_MAX], path[4096];
    const int n = test_tiny_models(names, 32);
    int32_t best = 0;
    for (int i = 0; i < n; i++) {
        wnw_model *m = test_model_open(names[i]);
        wnw_model_info info;
        wnw_model_get_info(m, &info);
        const bool better = strcmp(info.arch, arch) == 0 && info.n_head_kv > best;
        wnw_model_free(m);
        test_model_path(path, sizeof path, names[i]);
        if (better && all_of(path, GGML_TYPE_F32, GGML_TYPE_F32)) {
            memcpy(name, names[i], TEST_NAME_MAX);
            best = info.n_head_kv;
        }
    }
    if (best == 0)
        fail_msg("no tiny model of architecture %s with float32 weights: see %s", arch, maker_of("tiny"));
}

void test_golden_path(char *out, size_t cap, const char *name)
{
    const int n = snprintf(out, cap, "%s/%s", WNW_TEST_GOLDEN_DIR, name);
    assert_true(n > 0 && (size_t)n < cap);
}

int32_t *test_read_tokens(const char *path, int32_t *n)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s: run the tests from the top folder of the source tree", path);
    int32_t *ids = NULL, cap = 0;
    *n = 0;
    for (long id = 0; fscanf(f, "%ld", &id) == 1;) {
        if (*n == cap) {
            cap = cap ? cap * 2 : 1024;
            ids = realloc(ids, (size_t)cap * sizeof *ids);
            assert_non_null(ids);
        }
        ids[(*n)++] = (int32_t)id;
    }
    fclose(f);
    assert_true(*n > 0);
    return ids;
}

/* ---- Random numbers ---- */

uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int32_t *test_random_tokens(int32_t n, int32_t n_vocab, uint64_t seed)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    assert_non_null(ids);
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(test_random(&seed) % (uint64_t)n_vocab);
    return ids;
}

/* ---- Sessions ---- */

wnw_session *test_session_new(const wnw_model *m, const struct test_session *want)
{
    wnw_session_params p = wnw_session_default_params();
    const int32_t cores = wnw_usable_cores();
    p.kv_type = want->kv_type;
    p.attn = want->attn;
    p.n_ctx = want->n_ctx;
    p.n_threads = want->n_threads ? want->n_threads : (cores < 2 ? cores : 2);
    wnw_session *s = NULL;
    assert_ok(wnw_session_new(&s, m, &p));
    assert_non_null(s);
    return s;
}

void test_prefill(wnw_session *s, const int32_t *tokens, int32_t n)
{
    assert_ok(wnw_session_prefill(s, tokens, n, NULL, NULL));
    assert_non_null(wnw_session_logits(s));
}

wnw_policy *test_policy(const char *recipe)
{
    wnw_policy *p = NULL;
    assert_ok(wnw_policy_parse(&p, recipe, NULL));
    assert_non_null(p);
    return p;
}

/* ---- Comparing logits ---- */

int32_t test_argmax(const float *logits, int32_t n_vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static double log_sum_exp(const float *x, int32_t n)
{
    const double max = (double)x[test_argmax(x, n)];
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

void test_diff_add(struct test_diff *d, const float *ref, const float *ours, int32_t n_vocab)
{
    double mean = 0, kl = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        /* A NaN would slip through every comparison below. */
        if (!isfinite(ref[i]) || !isfinite(ours[i]))
            fail_msg("logit %d is %g, reference %g", i, (double)ours[i], (double)ref[i]);
        mean += (double)ref[i] / n_vocab;
    }
    const double lse_ref = log_sum_exp(ref, n_vocab), lse_ours = log_sum_exp(ours, n_vocab);
    for (int32_t i = 0; i < n_vocab; i++) {
        const double diff = (double)ours[i] - (double)ref[i];
        const double log_p = (double)ref[i] - lse_ref, log_q = (double)ours[i] - lse_ours;
        kl += exp(log_p) * (log_p - log_q);
        d->err2 += diff * diff;
        d->ref2 += ((double)ref[i] - mean) * ((double)ref[i] - mean);
        d->max_abs = fmax(d->max_abs, fabs(diff));
    }
    const int32_t want = test_argmax(ref, n_vocab), got = test_argmax(ours, n_vocab);
    d->n++;
    d->top1 += want == got;
    d->identical += memcmp(ref, ours, (size_t)n_vocab * sizeof *ref) == 0;
    d->kl_sum += kl;
    d->kl_max = fmax(d->kl_max, kl);
    if (want != got)
        d->flip_margin = fmax(d->flip_margin, (double)ref[want] - (double)ref[got]);
}

double test_diff_kl(const struct test_diff *d)
{
    return d->n ? d->kl_sum / (double)d->n : INFINITY;
}

double test_diff_nmse(const struct test_diff *d)
{
    return d->ref2 > 0 ? d->err2 / d->ref2 : INFINITY;
}

void test_diff_print(const char *what, const struct test_diff *d)
{
    print_message(
        "%-44s mean KL %.2e max %.2e | nmse %.2e | max abs %.2e | top-1 %lld/%lld | bit-equal %lld\n", what,
        test_diff_kl(d), d->kl_max, test_diff_nmse(d), d->max_abs, (long long)d->top1, (long long)d->n,
        (long long)d->identical);
}
