/* SPDX-License-Identifier: MIT */
#include "base/opt.h"

#include "base/strings.h"
#include "winnow_method.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool wnw__name_ok(const char *name, size_t len)
{
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        const char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
            return false;
    }
    return true;
}

static size_t value_size(const wnw_option *o)
{
    if (o->type == WNW_OPT_LIST)
        return sizeof(wnw_list);
    return o->type == WNW_OPT_REAL ? sizeof(double) : sizeof(int32_t);
}

static size_t value_alignment(const wnw_option *o)
{
    return o->type == WNW_OPT_LIST ? _Alignof(wnw_list) : value_size(o);
}

static bool is_real(const wnw_option *o)
{
    return o->type == WNW_OPT_REAL || o->type == WNW_OPT_LIST;
}

static int n_choices(const wnw_option *o)
{
    int n = 0;
    while (o->choices && o->choices[n])
        n++;
    return n;
}

/* The range of an option; BOOL and ENUM have fixed ranges, which the table does not change. */
static void option_range(const wnw_option *o, double *min, double *max)
{
    *min = o->type == WNW_OPT_BOOL || o->type == WNW_OPT_ENUM ? 0 : o->min;
    *max = o->type == WNW_OPT_BOOL ? 1 : o->max;
    if (o->type == WNW_OPT_ENUM)
        *max = n_choices(o) - 1;
}

/* Whether the option's type, its place in a struct of `size` bytes, its default and its range can be. */
static int check_value(const wnw_option *o, size_t size, const char *owner)
{
    const size_t need = value_size(o);
    double min, max;
    option_range(o, &min, &max);
    if (o->type > WNW_OPT_LIST || (o->type == WNW_OPT_ENUM && n_choices(o) == 0))
        return wnw__fail(WNW_E_ARG, "%s: option \"%s\" has no valid type or no choices", owner, o->name);
    if (size < need || o->offset > size - need || o->offset % value_alignment(o) != 0)
        return wnw__fail(WNW_E_ARG, "%s: option \"%s\" lies outside its options struct of %zu bytes", owner,
                         o->name, size);
    if (!(min <= o->def && o->def <= max))
        return wnw__fail(WNW_E_ARG, "%s: the default %g of option \"%s\" is not in %g..%g", owner, o->def,
                         o->name, min, max);
    if (!is_real(o) && (min < INT32_MIN || max > INT32_MAX))
        return wnw__fail(WNW_E_ARG, "%s: the range of option \"%s\" is wider than 32 bits", owner, o->name);
    return WNW_OK;
}

int wnw__opt_check_table(const wnw_option *table, size_t size, const char *owner)
{
    for (int i = 0; table && table[i].name; i++) {
        const char *name = table[i].name;
        if (i >= WNW_OPT_MAX)
            return wnw__fail(WNW_E_ARG, "%s has more than %d options", owner, WNW_OPT_MAX);
        if (!wnw__name_ok(name, strlen(name)))
            return wnw__fail(WNW_E_ARG, "%s: option name \"%s\" is not of [a-z0-9_-]", owner, name);
        if (wnw__opt_find(table, name, strlen(name)) != i)
            return wnw__fail(WNW_E_ARG, "%s has two options called \"%s\"", owner, name);
        WNW_TRY(check_value(&table[i], size, owner));
    }
    return WNW_OK;
}

static void store(const wnw_option *o, void *opts, double value)
{
    void *field = (char *)opts + o->offset;
    if (o->type == WNW_OPT_LIST) {
        const wnw_list list = {.n = 1, .x = {value}};
        memcpy(field, &list, sizeof list);
    } else if (o->type == WNW_OPT_REAL) {
        memcpy(field, &value, sizeof value);
    } else {
        const int32_t v = (int32_t)value;
        memcpy(field, &v, sizeof v);
    }
}

static double load(const wnw_option *o, const void *opts)
{
    const void *field = (const char *)opts + o->offset;
    if (o->type == WNW_OPT_REAL) {
        double v;
        memcpy(&v, field, sizeof v);
        return v;
    }
    int32_t v;
    memcpy(&v, field, sizeof v);
    return v;
}

void wnw__opt_defaults(const wnw_option *table, void *opts)
{
    for (; table && table->name; table++)
        store(table, opts, table->def);
}

int wnw__opt_find(const wnw_option *table, const char *name, size_t len)
{
    for (int i = 0; table && table[i].name; i++)
        if (wnw__is_name(name, len, table[i].name))
            return i;
    return -1;
}

/* Parses a decimal number and nothing else; hexadecimal, "inf" and blanks are refused. */
static bool parse_number(const char *text, size_t len, bool whole, double *out)
{
    char buf[64];
    if (len == 0 || len >= sizeof buf || strspn(text, whole ? "-0123456789" : "-.eE0123456789") < len)
        return false;
    memcpy(buf, text, len);
    buf[len] = '\0';
    char *end;
    errno = 0;
    *out = wnw__to_double(buf, &end);
    return *end == '\0' && end != buf && isfinite(*out) && errno != ERANGE;
}

static int parse_choice(const wnw_option *o, const char *owner, const char *text, size_t len, double *out)
{
    char list[256] = "";
    for (int i = 0; o->choices[i]; i++) {
        if (wnw__is_name(text, len, o->choices[i])) {
            *out = i;
            return WNW_OK;
        }
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", o->choices[i]);
    }
    return wnw__fail(WNW_E_ARG, "%s: option %s is \"%.*s\"; choose one of: %s", owner, o->name,
                     (int)(len > 60 ? 60 : len), text, list);
}

static int parse_bool(const wnw_option *o, const char *owner, const char *text, size_t len, double *out)
{
    static const char *const words[] = {"0", "1", "off", "on", "false", "true"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (wnw__is_name(text, len, words[i])) {
            *out = (double)(i & 1);
            return WNW_OK;
        }
    }
    return wnw__fail(WNW_E_ARG, "%s: option %s is \"%.*s\"; give 0 or 1", owner, o->name,
                     (int)(len > 60 ? 60 : len), text);
}

static void format_list(const wnw_list *list, char *out, size_t size);

/* Stores numbers with "/" between them. */
static int parse_list(const wnw_option *o, void *opts, const char *owner, const char *text, size_t len)
{
    wnw_list list = {0};
    char back[WNW_OPT_TEXT + 32];
    for (const char *at = text, *end = text + len, *stop; at <= end; at = stop + 1) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        stop = slash ? slash : end;
        if (list.n == WNW_LIST_MAX)
            return wnw__fail(WNW_E_ARG, "%s: option %s has more than %d numbers", owner, o->name,
                             WNW_LIST_MAX);
        double *x = &list.x[list.n++];
        if (!parse_number(at, (size_t)(stop - at), false, x) || *x < o->min || *x > o->max)
            return wnw__fail(
                WNW_E_ARG,
                "%s: number %d of option %s is \"%.*s\"; give numbers from %.10g to %.10g with \"/\" "
                "between them",
                owner, (int)list.n, o->name, (int)(stop - at > 60 ? 60 : stop - at), at, o->min, o->max);
    }
    format_list(&list, back, sizeof back);
    if (strlen(back) >= WNW_OPT_TEXT)
        return wnw__fail(WNW_E_ARG, "%s: option %s takes more than %d characters; give fewer digits", owner,
                         o->name, WNW_OPT_TEXT - 1);
    memcpy((char *)opts + o->offset, &list, sizeof list);
    return WNW_OK;
}

int wnw__opt_parse(const wnw_option *o, void *opts, const char *owner, const char *text, size_t len)
{
    double v = 0;
    if (o->type == WNW_OPT_LIST)
        return parse_list(o, opts, owner, text, len);
    if (o->type == WNW_OPT_ENUM) {
        WNW_TRY(parse_choice(o, owner, text, len, &v));
    } else if (o->type == WNW_OPT_BOOL) {
        WNW_TRY(parse_bool(o, owner, text, len, &v));
    } else {
        const bool whole = o->type == WNW_OPT_INT;
        if (!parse_number(text, len, whole, &v) || v < o->min || v > o->max)
            return wnw__fail(WNW_E_ARG, "%s: option %s is \"%.*s\"; give a %snumber from %.10g to %.10g",
                             owner, o->name, (int)(len > 60 ? 60 : len), text, whole ? "whole " : "", o->min,
                             o->max);
    }
    store(o, opts, v);
    return WNW_OK;
}

static void format_number(double v, char *out, size_t size)
{
    /* 200 is written with 3 digits, not as 2e02. */
    if (v == trunc(v) && fabs(v) < 1e6 && !(v == 0 && signbit(v))) {
        snprintf(out, size, "%d", (int)v);
        return;
    }
    char buf[40];
    for (int digits = 1; digits <= 17; digits++) {
        wnw__format(buf, sizeof buf, "%.*g", digits, v);
        if (wnw__to_double(buf, NULL) == v)
            break;
    }
    /* A plus sign would start the next part of a recipe. */
    size_t n = 0;
    for (const char *c = buf; *c && n + 1 < size; c++)
        if (*c != '+')
            out[n++] = *c;
    out[n] = '\0';
}

static void format_list(const wnw_list *list, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < list->n && n < size; i++) {
        char one[40];
        format_number(list->x[i], one, sizeof one);
        n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? "/" : "", one);
    }
}

void wnw__opt_format(const wnw_option *o, const void *opts, char *out, size_t size)
{
    if (o->type == WNW_OPT_LIST) {
        wnw_list list;
        memcpy(&list, (const char *)opts + o->offset, sizeof list);
        format_list(&list, out, size);
        return;
    }
    const double v = load(o, opts);
    if (o->type == WNW_OPT_ENUM)
        snprintf(out, size, "%s", o->choices[(int)v]);
    else if (o->type != WNW_OPT_REAL)
        snprintf(out, size, "%d", (int)v);
    else
        format_number(v, out, size);
}
