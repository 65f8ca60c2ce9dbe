/* SPDX-License-Identifier: MIT */
#include "app/page.h"

#include "app/json.h"

#include <stdlib.h>
#include <string.h>

/* What separates words of a command line, and what options put between a path and other things. */
static const char in_list[] = ",=", in_text[] = ",='\" \t\n";

/* Whether a word names a place on this machine: a path from the root with a folder in it, or one from a folder that a shell knows. */
static bool is_path(const char *word, size_t len)
{
    static const char *const begins[] = {"~/", "./", "../"};
    if (len > 1 && word[0] == '/' && memchr(word + 1, '/', len - 1))
        return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (len > strlen(begins[i]) && memcmp(word, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

/* Adds the last name of a path. */
static bool add_name(struct app_text *t, const char *path, size_t len)
{
    size_t begin;
    while (len > 1 && path[len - 1] == '/')
        len--;
    for (begin = len; begin > 0 && path[begin - 1] != '/'; begin--)
        ;
    return app_text_add(t, path + begin, len - begin);
}

static json_t *string_without(const char *s, const char *between)
{
    struct app_text t = {0};
    bool good = true;
    while (good && *s) {
        const size_t len = strcspn(s, between), gap = strspn(s + len, between);
        good = (is_path(s, len) ? add_name(&t, s, len) : app_text_add(&t, s, len)) &&
               app_text_add(&t, s + len, gap);
        s += len + gap;
    }
    const char *text = t.s ? t.s : "";
    json_t *o = good ? json_stringn(text, t.len) : NULL;
    free(t.s);
    return o;
}

static json_t *copy_of(const json_t *o, const char *between)
{
    const char *key;
    json_t *value, *out;
    size_t i;
    if (json_is_string(o))
        return string_without(json_string_value(o), between);
    if (json_is_array(o)) {
        out = json_array();
        json_array_foreach(o, i, value) app_json_append(&out, copy_of(value, in_list));
        return out;
    }
    if (!json_is_object(o))
        return json_copy((json_t *)o);
    out = json_object();
    json_object_foreach((json_t *)o, key, value) app_json_set(&out, key, copy_of(value, in_text));
    return out;
}

json_t *app_page_without_paths(const json_t *o)
{
    return copy_of(o, in_text);
}

json_t *app_page_name_of_path(const char *path)
{
    struct app_text t = {0};
    const bool good = add_name(&t, path, strlen(path));
    const char *text = t.s ? t.s : "";
    json_t *o = good ? app_json_text(text) : NULL;
    free(t.s);
    return o;
}
