/* SPDX-License-Identifier: MIT */
/* winnow inspect -o: one stored document or keep-plan, or two of the same text, as a page (app/inspect_data.h). */
#include "cli/inspect.h"

#include "app/console.h"
#include "app/inspect_data.h"
#include "app/json.h"
#include "app/models.h"
#include "app/names.h"
#include "app/output.h"
#include "app/page.h"
#include "base/err.h"
#include "cli/inspect_answer.h"
#include "cli/stored.h"
#include "winnow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Longer texts make no page that can be read. */
enum { MAX_TOKENS = 1 << 20 };

/* A file, as it was read. Positions of a moved one are new ones (+rerotate): they name no token. */
struct shown {
    const char *path;
    json_t *o; /* owned */
    int32_t n; /* positions are below it */
    bool moved;
};

/* ---- Reading ---- */

static int read_shown(struct shown *s, const char *path)
{
    s->path = path;
    WNW_TRY(cli_inspect_read(&s->o, path));
    const json_int_t n = json_integer_value(json_object_get(s->o, "n_tokens"));
    const json_t *past = json_object_get(s->o, "n_past");
    if (n < 1 || n > MAX_TOKENS)
        return app_fail(APP_BAD_INPUT, "'%s' is of %lld tokens; a page shows 1 to %d", path, (long long)n,
                        MAX_TOKENS);
    s->moved = past && json_integer_value(past) != n;
    s->n = (int32_t)n;
    if (!s->moved)
        return APP_OK;
    const json_int_t last = json_integer_value(past);
    s->n = (int32_t)(last >= 1 && last <= n ? last : 1);
    return s->n == last ? APP_OK
                        : app_fail(APP_BAD_INPUT, "'%s' is damaged: of %d tokens the next has position %lld",
                                   path, (int)n, (long long)last);
}

static size_t n_heads(const struct shown *s)
{
    const json_t *first = json_array_get(json_object_get(s->o, "layers"), 0);
    return json_array_size(json_object_get(first, "heads"));
}

/* Two files are compared token by token, head by head. */
static int check_pair(const struct shown *a, const struct shown *b)
{
    const json_t *ta = json_object_get(a->o, "tokens"), *tb = json_object_get(b->o, "tokens");
    if (a->moved || b->moved)
        return app_fail(
            APP_BAD_INPUT,
            "'%s' gave its entries new positions, so that its tokens are unknown: it cannot be compared",
            a->moved ? a->path : b->path);
    if (a->n != b->n || (ta && tb && !json_equal(ta, tb)))
        return app_fail(APP_BAD_INPUT, "'%s' and '%s' are of different texts; compare files of the same one",
                        a->path, b->path);
    if (n_heads(a) != n_heads(b) ||
        json_array_size(json_object_get(a->o, "layers")) != json_array_size(json_object_get(b->o, "layers")))
        return app_fail(APP_BAD_INPUT, "'%s' and '%s' are of models with different layers or heads", a->path,
                        b->path);
    return APP_OK;
}

/* ---- Texts of tokens ---- */

/* A stored document has it in an object; a plan has it next to the model's name. */
static const char *of_model(const struct shown *s, const char *key, const char *own)
{
    const json_t *model = json_object_get(s->o, "model");
    return json_string_value(json_is_object(model) ? json_object_get(model, key)
                                                   : json_object_get(s->o, own));
}

static int open_vocabulary(wnw_model **m, const char *name, const struct shown *s)
{
    const char *want = of_model(s, "fingerprint", "fingerprint");
    char *path, fingerprint[WNW_FINGERPRINT_SIZE];
    WNW_TRY(app_model_path(&path, name));
    const int status = app_model_open(m, path, NULL, NULL);
    free(path);
    if (status != WNW_OK)
        return app_fail_status(status);
    wnw_model_fingerprint(*m, fingerprint);
    if (want && strcmp(want, fingerprint) == 0)
        return APP_OK;
    if (want && strlen(want) < strlen(fingerprint))
        return app_fail(
            APP_BAD_INPUT,
            "'%s' was written by an older winnow, whose fingerprint %s covers a part of the model alone: "
            "make it again, or leave -m out",
            s->path, want);
    return app_fail(APP_BAD_INPUT, "'%s' belongs to model %s, and this one is %s", s->path,
                    want ? want : "(it does not say which)", fingerprint);
}

/* Whose tokens they are. */
struct spelling {
    const wnw_model *m;
    const json_t *tokens;
};

/* Adds the text of a token. Returns a wnw_status. */
static int add_piece(struct app_text *t, int32_t i, void *user)
{
    const struct spelling *of = user;
    const json_t *token = json_array_get(of->tokens, (size_t)i);
    const json_int_t id = json_is_integer(token) ? json_integer_value(token) : -1;
    char *piece = NULL;
    if (id < 0 || id > INT32_MAX)
        return WNW_E_ARG;
    int status = wnw_token_piece(of->m, (int32_t)id, &piece);
    if (status == WNW_OK && !app_text_add(t, piece, strlen(piece)))
        status = WNW_E_NOMEM;
    wnw_free(piece);
    return status;
}

/* What needs the model: texts of tokens, which of them the chat template did not write, and an answer. */
struct of_model {
    json_t *texts, *answer; /* owned; NULL = none */
    int32_t first, end;     /* tokens of the document; end 0 = not known */
};

static int read_texts(json_t **texts, const wnw_model *m, const struct shown *s)
{
    struct spelling of = {.m = m, .tokens = json_object_get(s->o, "tokens")};
    const int status = app_inspect_texts(texts, (int32_t)json_array_size(of.tokens), add_piece, &of);
    if (status == WNW_OK)
        return APP_OK;
    if (status == WNW_E_NOMEM)
        return app_fail(APP_FAILED, "out of memory");
    return app_fail(APP_BAD_INPUT, "'%s' has tokens that the model does not have", s->path);
}

static bool has_tokens(const json_t *tokens, size_t at, const int32_t *want, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const json_t *token = json_array_get(tokens, at + (size_t)i);
        if (!token || json_integer_value(token) != want[i])
            return false;
    }
    return true;
}

/* A stored document says how its text was laid out. A plan does not: the template's own layout is tried. */
static bool template_of(wnw_prompt **prompt, const wnw_model *m, const struct shown *s)
{
    wnw_prompt_params text = wnw_prompt_default_params();
    wnw_stored *st = NULL;
    const bool stored =
        wnw_stored_is(s->path) && wnw_stored_open(&st, s->path) == WNW_OK && wnw_stored_get_text(st, &text);
    if (!stored)
        text = wnw_prompt_default_params();
    text.document = "x"; /* the tokens around it are the template's */
    text.question = NULL;
    const int status = wnw_prompt_build(prompt, m, &text);
    wnw_stored_free(st);
    return status == WNW_OK;
}

/* Finds the tokens that the chat template wrote, in front and at the end. Where the template cannot be run, or another one
 * was used, the document is all there is. */
static void find_document(struct of_model *of, const wnw_model *m, const struct shown *s)
{
    const json_t *tokens = json_object_get(s->o, "tokens");
    wnw_prompt *prompt = NULL;
    if (template_of(&prompt, m, s)) {
        const wnw_prompt_parts p = wnw_prompt_parts_of(prompt);
        const int32_t first = has_tokens(tokens, 0, p.tokens, p.n_prefix) ? p.n_prefix : 0;
        const int32_t tail = s->n - p.n_suffix;
        const bool ends =
            p.n_suffix > 0 && tail > first && has_tokens(tokens, (size_t)tail, p.suffix, p.n_suffix);
        of->first = first;
        of->end = ends ? tail : s->n;
        if (of->first >= of->end)
            of->first = of->end = 0;
    }
    wnw_prompt_free(prompt);
}

/* The texts of the tokens, which of them are the document's, and the answer. */
static int take_of_model(struct of_model *of, const wnw_model *m, const struct cli_args *args,
                         const struct shown *s)
{
    const struct inspect_question question = {
        .path = s->path, .text = args->answer, .n = (int32_t)args->app.n};
    WNW_TRY(read_texts(&of->texts, m, s));
    find_document(of, m, s);
    return args->answer ? cli_inspect_answer(&of->answer, m, &question) : APP_OK;
}

static int read_of_model(struct of_model *of, const struct cli_args *args, const struct shown *s)
{
    wnw_model *m = NULL;
    const json_t *tokens = json_object_get(s->o, "tokens");
    if (!args->app.model)
        return APP_OK;
    if (!tokens || s->moved)
        return app_fail(APP_BAD_INPUT, "'%s' does not tell %s; leave out -m", s->path,
                        s->moved ? "which tokens its entries are of, because they have new positions"
                                 : "which tokens were read");
    int rc = open_vocabulary(&m, args->app.model, s);
    if (rc == APP_OK)
        rc = take_of_model(of, m, args, s);
    wnw_model_free(m);
    return rc;
}

/* ---- The data of the page ---- */

/* What a head has kept of n positions. NULL without memory; *good is false where one is not a position of the text. */
static json_t *digits_json(const json_t *head, int32_t n, bool *good)
{
    const json_t *item;
    size_t i;
    unsigned char *kept = calloc((size_t)n, 1);
    if (!kept)
        return NULL;
    json_array_foreach(head, i, item)
    {
        const json_int_t pos = json_is_integer(item) ? json_integer_value(item) : -1;
        if (pos >= 0 && pos < n)
            kept[pos] = 1;
        else
            *good = false;
    }
    json_t *out = app_inspect_digits(kept, n);
    free(kept);
    return out;
}

static json_t *layers_json(const struct shown *s, bool *good)
{
    json_t *out = json_array();
    const json_t *layer, *head;
    size_t il, ih;
    json_array_foreach(json_object_get(s->o, "layers"), il, layer)
    {
        json_t *heads = json_array();
        json_array_foreach(json_object_get(layer, "heads"), ih, head)
            app_json_append(&heads, digits_json(head, s->n, good));
        app_json_append(&out, heads);
    }
    return out;
}

/* The recipe in its shortest form; a file of other parts than ours has it as it is written. */
static json_t *policy_json(const struct shown *s)
{
    const char *recipe = json_string_value(json_object_get(s->o, "policy"));
    wnw_policy *policy = NULL;
    char *own = NULL;
    if (!recipe)
        return json_null();
    const bool known = wnw_policy_parse(&policy, recipe, NULL) == WNW_OK;
    json_t *out = app_json_text(known ? app_policy_text(policy, &own) : recipe);
    wnw_free(own);
    wnw_policy_free(policy);
    return out;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int add_plan(json_t **plans, const struct shown *s)
{
    bool good = true;
    json_t *layers = layers_json(s, &good);
    if (!good) {
        json_decref(layers);
        return app_fail(APP_BAD_INPUT, "'%s' is damaged: a position is not one of its text", s->path);
    }
    const char *model = of_model(s, "name", "model");
    json_t *plan = app_inspect_plan(&(struct app_inspect_plan){.name = base_name(s->path),
                                                               .model = model ? model : "?",
                                                               .policy = policy_json(s),
                                                               .layers = layers,
                                                               .moved = s->moved});
    return app_json_append(plans, plan) ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

/* Reads what the model says of the text, and makes the plans of the page. */
static int read_parts(struct of_model *of, json_t **plans, const struct shown *shown, int n,
                      const struct shown *known, const struct cli_args *args)
{
    if (n > 1)
        WNW_TRY(check_pair(&shown[0], &shown[1]));
    WNW_TRY(read_of_model(of, args, known));
    for (int i = 0; i < n; i++)
        WNW_TRY(add_plan(plans, &shown[i]));
    return APP_OK;
}

static int make_data(json_t **data, const struct shown *shown, int n, const struct cli_args *args)
{
    struct of_model of = {.texts = NULL};
    json_t *plans = json_array();
    const struct shown *known = n > 1 && !json_object_get(shown->o, "tokens") ? &shown[1] : shown;
    int rc = read_parts(&of, &plans, shown, n, known, args);
    if (rc == APP_OK) {
        *data = app_inspect_data(
            &(struct app_inspect_data){.n = shown->n,
                                       .first = of.first,
                                       .end = of.end,
                                       .texts = of.texts,
                                       .ids = shown->moved ? NULL : json_object_get(known->o, "tokens"),
                                       .plans = plans,
                                       .answer = of.answer});
        rc = *data ? APP_OK : app_fail(APP_FAILED, "out of memory");
    }
    json_decref(of.texts);
    json_decref(of.answer);
    json_decref(plans);
    return rc;
}

/* ---- The page ---- */

static int write_page(const json_t *data, const char *path, const struct app_inputs *inputs)
{
    struct app_text page = {0};
    struct app_out out = {0};
    int rc = app_page_make(&page, "pages/inspect.html", data);
    if (rc == APP_OK)
        rc = app_out_open(&out, path, inputs);
    if (rc == APP_OK) {
        if (fwrite(page.s, 1, page.len, out.f) == page.len)
            rc = app_out_commit(&out);
        else
            rc = app_fail(APP_FAILED, "writing '%s' failed: %s", path, strerror(errno));
    }
    app_out_abort(&out);
    free(page.s);
    return rc;
}

/* An answer comes from one stored document and its model. */
static int check_answer(const struct cli_args *args)
{
    bool stored = false;
    if (!args->answer)
        return APP_OK;
    if (!*args->answer)
        return app_fail(APP_BAD_INPUT, "--answer has no question");
    if (args->compare)
        return app_fail(APP_BAD_INPUT, "--answer shows one document; leave out --compare");
    if (!args->app.model)
        return app_fail(APP_BAD_INPUT, "--answer needs the model; name it with -m");
    WNW_TRY(cli_stored_is(&stored, args->app.rest[0]));
    if (!stored)
        return app_fail(APP_BAD_INPUT, "'%s' is no stored document, which --answer asks", args->app.rest[0]);
    return APP_OK;
}

static int make_page(json_t **data, struct shown *shown, int n, const struct cli_args *args)
{
    struct app_inputs inputs = {.n = 0};
    for (int i = 0; i < n; i++)
        app_inputs_add(&inputs, shown[i].path);
    WNW_TRY(check_answer(args));
    WNW_TRY(app_out_check(args->app.out, &inputs));
    for (int i = 0; i < n; i++)
        WNW_TRY(read_shown(&shown[i], shown[i].path));
    WNW_TRY(make_data(data, shown, n, args));
    WNW_TRY(write_page(*data, args->app.out, &inputs));
    if (!args->app.model)
        app_note("the page shows positions; name the model with -m to see the text");
    return APP_OK;
}

int cli_inspect_page(const struct cli_args *args)
{
    struct shown shown[2] = {{.path = args->app.rest[0]}, {.path = args->compare}};
    json_t *data = NULL;
    if (args->app.json)
        return app_fail(APP_BAD_INPUT, "--json prints what -o shows; give one of them");
    const int rc = make_page(&data, shown, args->compare ? 2 : 1, args);
    json_decref(data);
    json_decref(shown[0].o);
    json_decref(shown[1].o);
    return rc;
}
