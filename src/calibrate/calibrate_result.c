/* SPDX-License-Identifier: MIT */
/* Profiles and other outputs of a calibration. */
#include "calibrate/calibrate.h"

#include "base/json.h"
#include "base/strings.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Adds an element to a list, with its name alone. */
static struct wnw__calibrate_text *add(struct wnw__calibrate_text **list, int32_t *n, const char *name)
{
    struct wnw__calibrate_text *grown = realloc(*list, (size_t)(*n + 1) * sizeof *grown);
    char *copy = grown ? strdup(name) : NULL;
    if (grown)
        *list = grown;
    if (!copy)
        return NULL;
    grown[*n] = (struct wnw__calibrate_text){.name = copy};
    return &grown[(*n)++];
}

/* ---- Profiles ---- */

/* What docs/reference/profiles.md describes. Takes settings and results over. */
static json_t *document(const wnw_calibration *c, const char *kind, json_t *settings, json_t *results)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:O, s:o}", "format", "winnow-profile-1", "kind", kind, "model",
                     wnw__calibrate_model(c), "settings", settings, "data", c->data, "results", results);
}

int wnw__calibrate_profile(wnw_calibration *c, const char *file, const char *kind, json_t *more,
                           json_t *results)
{
    json_t *settings = json_copy(c->settings);
    const bool good = settings && (!more || json_object_update(settings, more) == 0);
    json_decref(more);
    if (!good) {
        json_decref(settings);
        json_decref(results);
        return wnw__fail(WNW_E_NOMEM, "no memory for the settings of a profile");
    }
    json_t *v = document(c, kind, settings, results);
    struct wnw__calibrate_text *p = v ? add(&c->profiles, &c->n_profiles, file) : NULL;
    const int rc = p ? wnw__json_text(&p->text, &p->len, v, true)
                     : wnw__fail(WNW_E_NOMEM, "no memory for a profile of kind %s", kind);
    json_decref(v);
    return rc;
}

/* ---- Other outputs ---- */

static bool is_wanted(const wnw_calibration *c, const char *name)
{
    bool wanted = strcmp(name, "report") == 0;
    for (int32_t i = 0; i < c->params.n_outputs; i++)
        wanted = wanted || strcmp(c->params.outputs[i], name) == 0;
    return wanted;
}

/* Outputs are few; their list is as long as it can become from the start, so that pointers into it stay. */
enum { MAX_OUTPUTS = 16 };

int wnw__calibrate_output(wnw_calibration *c, const char *name, struct wnw__calibrate_text **out)
{
    *out = NULL;
    if (!is_wanted(c, name))
        return WNW_OK;
    for (int32_t i = 0; i < c->n_outputs; i++)
        if (strcmp(c->outputs[i].name, name) == 0)
            *out = &c->outputs[i];
    if (*out)
        return WNW_OK;
    if (!c->outputs)
        c->outputs = calloc(MAX_OUTPUTS, sizeof *c->outputs);
    struct wnw__calibrate_text *t =
        c->outputs && c->n_outputs < MAX_OUTPUTS ? &c->outputs[c->n_outputs] : NULL;
    char *copy = t ? strdup(name) : NULL;
    if (!copy)
        return wnw__fail(WNW_E_NOMEM, "no memory for the output %s", name);
    *t = (struct wnw__calibrate_text){.name = copy};
    c->n_outputs++;
    t->f = open_memstream(&t->text, &t->len);
    *out = t->f ? t : NULL;
    return t->f ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the output %s", name);
}

/* A failed write shows in wnw__calibrate_finish. */
void wnw__calibrate_print(struct wnw__calibrate_text *out, const char *fmt, ...)
{
    struct wnw__locale l;
    va_list ap;
    if (!out)
        return;
    wnw__locale_begin(&l);
    va_start(ap, fmt);
    vfprintf(out->f, fmt, ap);
    va_end(ap);
    wnw__locale_end(&l);
}

int wnw__calibrate_line(struct wnw__calibrate_text *out, const json_t *v)
{
    char *text;
    size_t len;
    if (!out)
        return WNW_OK;
    WNW_TRY(wnw__json_text(&text, &len, v, false));
    fwrite(text, 1, len, out->f);
    fputc('\n', out->f);
    free(text);
    return WNW_OK;
}

int wnw__calibrate_finish(wnw_calibration *c)
{
    bool good = true;
    for (int32_t i = 0; i < c->n_outputs; i++) {
        struct wnw__calibrate_text *t = &c->outputs[i];
        good = good && t->f && !ferror(t->f);
        good = (!t->f || fclose(t->f) == 0) && good;
        t->f = NULL;
    }
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the outputs of %s", c->type->name);
}
