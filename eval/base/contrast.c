/* SPDX-License-Identifier: MIT */
/* Primary contrasts. */
#include "eval/base/contrast.h"

#include "app/console.h"
#include "app/files.h"
#include "app/json.h"
#include "app/values.h"
#include "base/err.h"
#include "eval/base/grow.h"
#include "eval/base/recipe.h"
#include "winnow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void eval_contrast_clear(struct eval_contrast *c)
{
    free(c->text);
    *c = (struct eval_contrast){.n_target = 0};
}

/* Sets what KEY=VALUE says; of two values with a slash between them both. Returns whether there is such a key and value; *twice: it was
 * set before. */
static bool set_key(struct eval_contrast *c, char *word, bool *twice)
{
    const struct {
        const char *key, **a, **b; /* b NULL: the same for both sides, in one value */
    } texts[] = {{"mode=", &c->mode, NULL},
                 {"of=", &c->of, NULL},
                 {"size=", &c->a.size, &c->b.size},
                 {"kv=", &c->a.kv_type, &c->b.kv_type},
                 {"evict=", &c->a.evict, &c->b.evict},
                 {"every=", &c->a.every, &c->b.every}};
    int64_t n = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *value = word + strlen(texts[i].key);
        if (strncmp(word, texts[i].key, strlen(texts[i].key)) != 0)
            continue;
        char *slash = texts[i].b ? strchr(value, '/') : NULL;
        *twice = *texts[i].a != NULL;
        *texts[i].a = value;
        if (texts[i].b)
            *texts[i].b = slash ? slash + 1 : value;
        if (!slash)
            return *value;
        *slash = '\0';
        return *value && slash[1] && !strchr(slash + 1, '/');
    }
    const bool good = strncmp(word, "N=", 2) == 0 && app_parse_int(&n, word + 2) && n > 0 && n <= INT32_MAX;
    *twice = good && c->n_target > 0;
    c->n_target = good ? (int32_t)n : c->n_target;
    return good;
}

bool eval_contrast_of_kl(const struct eval_contrast *c)
{
    return c->of && strcmp(c->of, "kl") == 0;
}

static bool is_rule(const char *word)
{
    return strcmp(word, "end") == 0 || strcmp(word, "layer") == 0 || strcmp(word, "chunk") == 0 ||
           (strncmp(word, "chunk:", 6) == 0 && word[6]);
}

/* Refuses what is no rule of --evict; NULL: none is named. */
static int check_rule(const char *evict, const char *where)
{
    if (!evict || is_rule(evict))
        return APP_OK;
    return app_fail(
        APP_BAD_INPUT,
        "%s: '%.200s' is no rule of eviction; write evict=RULE or evict=RULE/RULE with end, layer, "
        "chunk or chunk:C",
        where, evict);
}

static int check_policy(const char *recipe, const char *where)
{
    wnw_policy *policy = NULL;
    const int status = strcmp(recipe, "full") == 0 ? WNW_OK : wnw_policy_parse(&policy, recipe, NULL);
    wnw_policy_free(policy);
    if (status == WNW_OK)
        return APP_OK;
    return app_fail(app_exit_code(status), "%s: %s", where, wnw_last_error());
}

int eval_contrast_read(struct eval_contrast *out, const char *line, const char *where)
{
    static const char form[] =
        "write A vs B mode=MODE size=SIZE, and kv=TYPE, evict=RULE, every=RULE, of=kl or "
        "N=LENGTH where needed; size, kv, evict and every may have a value for A and "
        "one for B with a slash between them";
    char *rest = NULL;
    *out = (struct eval_contrast){.text = strdup(line)};
    if (!out->text)
        return eval_no_memory("the contrasts");
    const char *a = strtok_r(out->text, " \t\r", &rest), *vs = strtok_r(NULL, " \t\r", &rest),
               *b = strtok_r(NULL, " \t\r", &rest);
    if (!b || strcmp(vs, "vs") != 0)
        return app_fail(APP_BAD_INPUT, "%s: '%.200s' is no contrast; %s", where, line, form);
    out->a.policy = a;
    out->b.policy = b;
    for (char *word; (word = strtok_r(NULL, " \t\r", &rest));) {
        bool twice = false;
        if (!set_key(out, word, &twice))
            return app_fail(
                APP_BAD_INPUT,
                "%s: '%.200s' is none of mode=, size=, kv=, evict=, every=, of= and N= with a value; %s",
                where, word, form);
        if (twice)
            return app_fail(APP_BAD_INPUT, "%s: '%.200s' says twice what '%.100s' is to say; %s", where, line,
                            word, form);
    }
    if (!out->a.kv_type)
        out->a.kv_type = out->b.kv_type = "f16";
    if (!out->mode || !out->a.size)
        return app_fail(APP_BAD_INPUT, "%s: '%.200s' names no %s; %s", where, line,
                        out->mode ? "size" : "mode", form);
    if (out->of && strcmp(out->of, "score") != 0 && !eval_contrast_of_kl(out))
        return app_fail(APP_BAD_INPUT, "%s: '%.200s' is neither score nor kl; %s", where, out->of, form);
    WNW_TRY(check_rule(out->a.evict, where));
    WNW_TRY(check_rule(out->b.evict, where));
    WNW_TRY(check_policy(out->a.policy, where));
    return check_policy(out->b.policy, where);
}

/* A side with every value of its policy written out; NULL without memory. The caller frees it. */
static char *text_of(const struct eval_contrast_side *side)
{
    char *canonical = eval_recipe_canonical(side->policy, NULL), *text = NULL;
    if (!canonical || asprintf(&text, "%s %s %s %s %s", canonical, side->size, side->kv_type,
                               side->evict ? side->evict : "", side->every ? side->every : "") < 0)
        text = NULL;
    free(canonical);
    return text;
}

/* Refuses a contrast that decides nothing: of a policy with itself, or of two that are in seen[], which it is added to. Each would make
 * the others harder to decide. */
static int check_new(json_t *seen, const struct eval_contrast *c, const char *line, const char *where)
{
    char *a = text_of(&c->a), *b = text_of(&c->b), *key = NULL;
    int rc = APP_OK;
    const int order = a && b ? strcmp(a, b) : 0;
    if (!a || !b ||
        asprintf(&key, "%s %s %s %d %d", order < 0 ? a : b, order < 0 ? b : a, c->mode, (int)c->n_target,
                 eval_contrast_of_kl(c)) < 0) {
        key = NULL;
        rc = eval_no_memory("the contrasts");
    } else if (order == 0) {
        rc = app_fail(APP_BAD_INPUT, "%s: '%.200s' compares a policy with itself", where, line);
    } else if (json_object_get(seen, key)) {
        rc = app_fail(
            APP_BAD_INPUT,
            "%s: '%.200s' is there twice, and each contrast makes the others harder to decide; leave one out",
            where, line);
    } else if (json_object_set_new(seen, key, json_true()) != 0) {
        rc = eval_no_memory("the contrasts");
    }
    free(a);
    free(b);
    free(key);
    return rc;
}

/* Adds a line, unless it says nothing. */
static int add_line(json_t **list, json_t *seen, const char *line, const char *where)
{
    struct eval_contrast c = {.n_target = 0};
    line += strspn(line, " \t\r");
    if (*line == '\0' || *line == '#')
        return APP_OK;
    int rc = eval_contrast_read(&c, line, where);
    if (rc == APP_OK)
        rc = check_new(seen, &c, line, where);
    eval_contrast_clear(&c);
    if (rc != APP_OK)
        return rc;
    if (!*list)
        *list = json_array();
    return app_json_append(list, app_json_text(line)) ? APP_OK : eval_no_memory("the contrasts");
}

int eval_contrasts_lines(json_t **out, const char *lines, const char *where)
{
    char *copy = strdup(lines), *rest = copy, *line;
    int rc = copy ? APP_OK : eval_no_memory("the contrasts");
    char location[512];
    json_t *seen = json_object();
    *out = NULL;
    for (int n = 1; rc == APP_OK && (line = strsep(&rest, "\n")); n++) {
        snprintf(location, sizeof location, "%.400s line %d", where, n);
        rc = add_line(out, seen, line, location);
    }
    json_decref(seen);
    free(copy);
    return rc;
}

int eval_contrasts_file(json_t **out, const char *path)
{
    char *text = NULL, where[512];
    size_t len;
    *out = NULL;
    int rc = app_read_file(&text, &len, path);
    snprintf(where, sizeof where, "--contrasts '%.400s'", path);
    if (rc == APP_OK)
        rc = strlen(text) == len ? eval_contrasts_lines(out, text, where)
                                 : app_fail(APP_BAD_INPUT, "%s has a NUL character", where);
    if (rc == APP_OK && !*out)
        rc = app_fail(APP_BAD_INPUT, "%s names no contrast", where);
    free(text);
    return rc;
}
