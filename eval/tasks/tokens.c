/* SPDX-License-Identifier: MIT */
/* Tokens of a sample. */
#include "eval/tasks/tokens.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* ---- The model's tokenizer ---- */

/* Takes over ids of the library. */
static int take_ids(int32_t **ids, int32_t *n, int status, int32_t *own)
{
    *ids = NULL;
    if (status != WNW_OK)
        return app_fail_status(status);
    *ids = malloc(((size_t)*n + 1) * sizeof **ids);
    if (*ids && *n > 0)
        memcpy(*ids, own, (size_t)*n * sizeof **ids);
    wnw_free(own);
    return *ids ? APP_OK : app_fail(APP_FAILED, "out of memory for tokens");
}

static int encode(const struct eval_tokenizer *t, const char *text, size_t len, int32_t **ids, int32_t *n)
{
    int32_t *own;
    const int status = wnw_tokenize(t->model, text, len, false, false, &own, n);
    return take_ids(ids, n, status, own);
}

static int encode_marked(const struct eval_tokenizer *t, const struct eval_marked *text, int32_t **ids,
                         int32_t *n)
{
    int32_t *own;
    const int status = wnw_tokenize_marked(t->model, text->text.s, text->text.len, text->plain, text->n_plain,
                                           text->follows ? &text->before : NULL, &own, n);
    return take_ids(ids, n, status, own);
}

static int decode(const struct eval_tokenizer *t, const int32_t *ids, int32_t n, char **text)
{
    char *own;
    const int status = wnw_detokenize(t->model, ids, n, &own);
    if (status != WNW_OK)
        return app_fail_status(status);
    *text = strdup(own);
    wnw_free(own);
    return *text ? APP_OK : app_fail(APP_FAILED, "out of memory for a text");
}

static bool adds_bos(const wnw_model *m)
{
    int32_t *with = NULL, *without = NULL, n_with = 0, n_without = 0;
    const bool adds = wnw_tokenize(m, "a", 1, true, false, &with, &n_with) == WNW_OK &&
                      wnw_tokenize(m, "a", 1, false, false, &without, &n_without) == WNW_OK &&
                      n_with > n_without && with[0] != without[0];
    wnw_free(with);
    wnw_free(without);
    return adds;
}

struct eval_tokenizer eval_tokenizer_of(const wnw_model *m)
{
    return (struct eval_tokenizer){.encode = encode,
                                   .encode_marked = encode_marked,
                                   .decode = decode,
                                   .model = m,
                                   .adds_bos = adds_bos(m)};
}

int eval_count_tokens(int32_t *n, const struct eval_tokenizer *t, const char *text, size_t len)
{
    int32_t *ids;
    const int rc = t->encode(t, text, len, &ids, n);
    free(ids);
    return rc;
}
