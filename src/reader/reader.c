/* SPDX-License-Identifier: MIT */
/*
 * The ring of three calls, written with the public interface alone. The document is read once, in a session of its own; each question
 * is answered in a copy of it, so that no question sees another one.
 */
#include "base/err.h"
#include "base/system.h"
#include "winnow_method.h"
#include "winnow_store.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 512 };

/* A document as it was read. Starts as {0}. */
struct document {
    wnw_prompt_params layout; /* its strings are owned by `text`, or borrowed from `stored` */
    char *text;               /* NULL where it was stored */
    char *recipe;             /* as it was asked for, "auto" too; NULL where it was stored */
    double ratio;
    int32_t n_tokens; /* that the session has read */
    int32_t *tokens;  /* [n_tokens], owned */
    bool pieces;      /* the tokens are not those of the text: documents were added one by one */
    wnw_stored *stored;
    wnw_engine *engine;
    wnw_session *session;
};

struct wnw_reader {
    wnw_model *model;
    struct document doc; /* session NULL = none was read */
};

static void clear(struct document *d)
{
    wnw_session_free(d->session);
    wnw_engine_free(d->engine);
    wnw_stored_free(d->stored);
    free(d->tokens);
    free(d->recipe);
    free(d->text);
    *d = (struct document){.n_tokens = 0};
}

static int no_memory(const char *what)
{
    return wnw__fail(WNW_E_NOMEM, "out of memory for %s", what);
}

int wnw_open(wnw_reader **out, const char *path)
{
    WNW_REQUIRE(out);
    *out = NULL;
    wnw_reader *r = calloc(1, sizeof *r);
    if (!r)
        return no_memory("a reader");
    const int rc = wnw_model_open(&r->model, path, NULL);
    if (rc != WNW_OK) {
        free(r);
        return rc;
    }
    *out = r;
    return WNW_OK;
}

void wnw_close(wnw_reader *r)
{
    if (!r)
        return;
    clear(&r->doc);
    wnw_model_free(r->model);
    free(r);
}

const wnw_session *wnw_reader_session(const wnw_reader *r)
{
    return r ? r->doc.session : NULL;
}

/* ---- Reading a document ---- */

/* Reads the tokens of d, the first piece of the prompt, and compresses them; d has its recipe and ratio. */
static int read_first(struct document *d, const wnw_model *m, const wnw_prompt *prompt)
{
    const wnw_run_more more = {WNW_INIT(wnw_run_more), .question_later = true, .once = true};
    wnw_run run = wnw_run_default();
    run.prompt = prompt;
    run.more = &more;
    run.size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = d->ratio};
    WNW_TRY(wnw_session_new(&d->session, m, NULL));
    if (d->ratio > 0) {
        run.recipe = d->recipe;
        WNW_TRY(wnw_session_begin(d->session, &run));
    }
    return wnw_session_read(d->session, d->tokens, d->n_tokens, NULL);
}

static int copy_tokens(struct document *d, const int32_t *tokens, int32_t n)
{
    d->tokens = malloc(((size_t)n + 1) * sizeof *d->tokens);
    if (!d->tokens)
        return no_memory("the tokens of a document");
    if (n > 0)
        memcpy(d->tokens, tokens, (size_t)n * sizeof *tokens);
    d->n_tokens = n;
    return WNW_OK;
}

static int read_document(struct document *d, const wnw_model *m, const char *question)
{
    wnw_prompt *prompt = NULL;
    wnw_prompt_params layout = d->layout;
    layout.question = question;
    int rc = wnw_prompt_build(&prompt, m, &layout);
    if (rc == WNW_OK)
        rc = copy_tokens(d, wnw_prompt_tokens(prompt, NULL), wnw_prompt_n_context(prompt));
    if (rc == WNW_OK)
        rc = read_first(d, m, prompt);
    wnw_prompt_free(prompt);
    return rc;
}

static bool is_read(const struct document *d, const char *recipe, double ratio, const char *text)
{
    return d->session && d->text && strcmp(d->text, text) == 0 && strcmp(d->recipe, recipe) == 0 &&
           d->ratio == ratio;
}

/* Makes the document the one that the reader has read. rc: that of reading it; after a failure the reader stays as it is. */
static int replace(wnw_reader *r, struct document *d, int rc)
{
    if (rc == WNW_OK) {
        clear(&r->doc);
        r->doc = *d;
    } else {
        clear(d);
    }
    return rc;
}

static int take_document(wnw_reader *r, const char *recipe, double ratio, const char *text,
                         const char *question)
{
    struct document d = {.layout = wnw_prompt_default_params(),
                         .text = strdup(text),
                         .recipe = strdup(recipe),
                         .ratio = ratio};
    d.layout.document = d.text;
    d.layout.now = wnw__local_seconds(time(NULL)); /* questions are laid out with it on other days, too */
    return replace(r, &d,
                   d.text && d.recipe ? read_document(&d, r->model, question) : no_memory("a document"));
}

/* ---- Answering ---- */

static int generate(wnw_session *s, wnw_text_fn on_text, void *user)
{
    const wnw_generate_params params = {WNW_INIT(wnw_generate_params), .n_max = MOST_TOKENS,
                                        .on_text = on_text, .user = user};
    wnw_generated said = wnw_generated_default();
    wnw_sampler *sampler = NULL;
    int rc = wnw_sampler_new(&sampler, NULL);
    if (rc == WNW_OK)
        rc = wnw_generate(&said, s, sampler, &params);
    wnw_generated_clear(&said);
    wnw_sampler_free(sampler);
    return rc;
}

/* E_MISMATCH where the template writes the document differently than when it was read, as one that writes the date does. */
static int check_beginning(const struct document *d, const wnw_prompt *prompt)
{
    const int32_t *tokens = wnw_prompt_tokens(prompt, NULL);
    if (d->pieces || (wnw_prompt_n_context(prompt) == d->n_tokens &&
                      memcmp(tokens, d->tokens, (size_t)d->n_tokens * sizeof *d->tokens) == 0))
        return WNW_OK;
    return wnw__fail(
        WNW_E_MISMATCH,
        "the model's template writes the document differently than when it was read; read it again");
}

/* A session that has read what comes before the question; *from: the first token of the prompt that it lacks. */
static int begin_answer(wnw_session **s, int32_t *from, const wnw_reader *r, const wnw_prompt *prompt)
{
    *from = 0;
    if (!r->doc.session)
        return wnw_session_new(s, r->model, NULL);
    WNW_TRY(check_beginning(&r->doc, prompt));
    *from = wnw_prompt_n_context(prompt);
    return wnw_session_copy(s, r->doc.session);
}

/* The caller frees *s in any case. */
static int answer_prompt(wnw_session **s, const wnw_reader *r, const wnw_prompt *prompt, wnw_text_fn on_text,
                         void *user)
{
    int32_t from, n;
    WNW_TRY(begin_answer(s, &from, r, prompt));
    const int32_t *tokens = wnw_prompt_tokens(prompt, &n);
    WNW_TRY(wnw_session_read(*s, tokens + from, n - from, NULL));
    return generate(*s, on_text, user);
}

static int answer(const wnw_reader *r, const char *question, wnw_text_fn on_text, void *user)
{
    wnw_prompt_params layout = r->doc.session ? r->doc.layout : wnw_prompt_default_params();
    wnw_prompt *prompt = NULL;
    wnw_session *s = NULL;
    layout.question = question;
    int rc = wnw_prompt_build(&prompt, r->model, &layout);
    if (rc == WNW_OK)
        rc = answer_prompt(&s, r, prompt, on_text, user);
    wnw_session_free(s);
    wnw_prompt_free(prompt);
    return rc;
}

int wnw_ask(wnw_reader *r, const char *policy, double ratio, const char *document, const char *question,
            wnw_text_fn on_text, void *user)
{
    const char *recipe = policy ? policy : "auto";
    WNW_REQUIRE(r);
    WNW_REQUIRE(question);
    if (!(ratio >= 0 && ratio < 1))
        return wnw__fail(WNW_E_RANGE,
                         "a ratio of %g; give the fraction that is removed, at least 0 and less than 1",
                         ratio);
    if (document && !is_read(&r->doc, recipe, ratio, document))
        WNW_TRY(take_document(r, recipe, ratio, document, question));
    return answer(r, question, on_text, user);
}

/* ---- Stored documents ---- */

int wnw_reader_store(const wnw_reader *r, const char *path)
{
    WNW_REQUIRE(r);
    if (!r->doc.session)
        return wnw__fail(WNW_E_ARG, "no document was read; ask something about one first");
    wnw_store_params params = wnw_store_default_params();
    params.text = &r->doc.layout;
    params.pieces = r->doc.pieces;
    return wnw_session_store(r->doc.session, path, &params);
}

static int load(struct document *d, const wnw_model *m, const char *path)
{
    wnw_stored_info info = wnw_stored_info_default();
    int32_t n;
    WNW_TRY(wnw_stored_open(&d->stored, path));
    WNW_TRY(wnw_stored_check_model(d->stored, m));
    WNW_TRY(wnw_stored_get_info(d->stored, &info));
    if (!wnw_stored_get_text(d->stored, &d->layout) || !d->layout.document)
        return wnw__fail(WNW_E_ARG, "'%s' has no text, so that no question can be asked about it", path);
    const int32_t *tokens = wnw_stored_tokens(d->stored, &n);
    d->pieces = info.pieces;
    WNW_TRY(copy_tokens(d, tokens, n));
    WNW_TRY(wnw_engine_new(&d->engine, m, NULL));
    return wnw_stored_session(&d->session, d->stored, d->engine, NULL);
}

int wnw_reader_load(wnw_reader *r, const char *path)
{
    WNW_REQUIRE(r);
    struct document d = {.layout = wnw_prompt_default_params()};
    return replace(r, &d, load(&d, r->model, path));
}
