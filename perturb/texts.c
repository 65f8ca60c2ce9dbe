/* SPDX-License-Identifier: MIT */
#include "perturb/texts.h"

#include "app/console.h"
#include "app/files.h"
#include "base/random.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/tasks/prose.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES_PER_TOKEN = 6 }; /* bytes of generated prose to begin with; more is made when needed */

/* The first n_tokens of ids[n], with a BOS in front where texts begin with one. `ids` has none. */
static int add_text(struct perturb_texts *t, const struct eval_tokenizer *tokenizer, const int32_t *ids,
                    bool of_file)
{
    const int32_t n_bos = tokenizer->bos >= 0;
    int32_t *text = malloc((size_t)t->n_tokens * sizeof *text);
    if (!text)
        return eval_no_memory("texts");
    text[0] = tokenizer->bos; /* overwritten where there is none */
    memcpy(text + n_bos, ids, (size_t)(t->n_tokens - n_bos) * sizeof *text);
    t->of_file[t->n] = of_file;
    t->n_of_file += of_file;
    t->ids[t->n++] = text;
    return APP_OK;
}

/* Makes at least n_least tokens of whole sentences. The caller frees *text and *ids in any case. */
static int encode_prose(int32_t **ids, int32_t n_least, struct app_text *text,
                        const struct eval_tokenizer *tokenizer, struct eval_prose *prose)
{
    int32_t n = 0;
    for (size_t bytes = (size_t)n_least * MOST_BYTES_PER_TOKEN; n < n_least; bytes += 1024) {
        while (text->len < bytes)
            if ((text->len > 0 && !app_text_add(text, " ", 1)) || !eval_prose_next(prose, text))
                return eval_no_memory("texts");
        wnw_free(*ids);
        *ids = NULL;
        WNW_TRY(tokenizer->encode(tokenizer, text->s, text->len, ids, &n));
    }
    return APP_OK;
}

/* The tokens of the next piece of prose: whole sentences until there are enough. */
static int add_prose(struct perturb_texts *t, const struct eval_tokenizer *tokenizer,
                     struct eval_prose *prose)
{
    struct app_text text = {0};
    int32_t *ids = NULL;
    int rc = encode_prose(&ids, t->n_tokens, &text, tokenizer, prose);
    if (rc == APP_OK)
        rc = add_text(t, tokenizer, ids, false);
    wnw_free(ids);
    free(text.s);
    return rc;
}

static int read_file(struct perturb_texts *t, const struct eval_tokenizer *tokenizer, const char *path,
                     int32_t **ids, int32_t *n)
{
    char *text;
    size_t len;
    if (!path)
        return APP_OK;
    WNW_TRY(app_read_file(&text, &len, path));
    eval_hash_text(t->hash, wnw__hash_of(text, len));
    const int rc = tokenizer->encode(tokenizer, text, len, ids, n);
    free(text);
    WNW_TRY(rc);
    if (*n < t->n_tokens)
        return app_fail(APP_BAD_INPUT,
                        "--text '%s' has %d tokens, fewer than one text of %d; give shorter --lengths", path,
                        (int)*n, (int)t->n_tokens);
    return APP_OK;
}

int perturb_texts_make(struct perturb_texts *t, const struct eval_tokenizer *tokenizer, const char *path,
                       int32_t n, int32_t n_tokens, uint64_t seed)
{
    struct eval_prose prose;
    char key[64];
    int32_t *ids = NULL, n_ids = 0;
    *t = (struct perturb_texts){.ids = calloc((size_t)n, sizeof *t->ids),
                                .of_file = calloc((size_t)n, sizeof *t->of_file),
                                .n_tokens = n_tokens};
    snprintf(key, sizeof key, "0|0|%llu", (unsigned long long)seed);
    eval_prose_open(&prose, key);
    int rc = t->ids && t->of_file ? read_file(t, tokenizer, path, &ids, &n_ids) : eval_no_memory("texts");
    for (int32_t used = 0; rc == APP_OK && t->n < n;) {
        const bool from_file = n_ids - used >= n_tokens;
        rc = from_file ? add_text(t, tokenizer, ids + used, true) : add_prose(t, tokenizer, &prose);
        used += from_file ? n_tokens : 0;
    }
    eval_prose_close(&prose);
    wnw_free(ids);
    return rc;
}

void perturb_texts_clear(struct perturb_texts *t)
{
    for (int32_t i = 0; i < t->n; i++)
        free(t->ids[i]);
    free(t->ids);
    free(t->of_file);
    *t = (struct perturb_texts){0};
}
