/* SPDX-License-Identifier: MIT */
/* Tables of JSON objects as text and as CSV. */
#include "eval/report/sheet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Members ---- */

static double number_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : NAN;
}

double eval_member_number(const json_t *o, const char *key)
{
    return number_of(json_object_get(o, key));
}

const char *eval_member_text(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

/* ---- Text ---- */

int eval_text_width(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* "[-1.5, +0.3]", after a number if there is one; the number alone where there is no interval. */
static const char *show_interval(char out[EVAL_MAX_SHOWN], const char *number, double lo, double hi,
                                 const struct eval_column *c)
{
    const char *(*const form)(char *, double, int) =
        c->show == EVAL_SHOW_DELTA ? eval_format_signed : eval_format;
    char low[EVAL_MAX_NUMBER], high[EVAL_MAX_NUMBER];
    if (isnan(lo))
        snprintf(out, EVAL_MAX_SHOWN, "%s", number);
    else
        snprintf(out, EVAL_MAX_SHOWN, "%s%s[%s, %s]", number, *number ? " " : "", form(low, lo, c->decimals),
                 form(high, hi, c->decimals));
    return out;
}

static const char *show_delta(char out[EVAL_MAX_SHOWN], const struct eval_column *c, const json_t *o)
{
    const char *spread = eval_member_text(o, "spread");
    if (isnan(eval_member_number(o, "delta")))
        return "";
    if (strcmp(spread, "few") == 0)
        return "n<6";
    show_interval(out, "", eval_member_number(o, "lo"), eval_member_number(o, "hi"), c);
    return strcmp(spread, "none") == 0 ? strcat(out, " (no variation)") : out;
}

static const char *show_verdict(char out[EVAL_MAX_SHOWN], const json_t *o)
{
    snprintf(out, EVAL_MAX_SHOWN, "%.4s%s", eval_member_text(o, "verdict"),
             json_is_true(json_object_get(o, "equivalent")) ? "=" : "");
    return out;
}

static const char *show_share(char out[EVAL_MAX_SHOWN], const struct eval_column *c, const json_t *o)
{
    const double times = c->times > 0 ? c->times : 1.0;
    char lo[64], hi[64];
    snprintf(lo, sizeof lo, "%s_lo", c->key);
    snprintf(hi, sizeof hi, "%s_hi", c->key);
    return show_interval(out, "", times * eval_member_number(o, lo), times * eval_member_number(o, hi), c);
}

static const char *show_estimate(char out[EVAL_MAX_SHOWN], const struct eval_column *c, const json_t *list)
{
    char number[EVAL_MAX_NUMBER];
    const double mean = number_of(json_array_get(list, 0));
    if (isnan(mean) && c->missing)
        return c->missing;
    return show_interval(out, eval_format(number, mean, c->decimals), number_of(json_array_get(list, 1)),
                         number_of(json_array_get(list, 2)), c);
}

const char *eval_column_show(char out[EVAL_MAX_SHOWN], const struct eval_column *c, const json_t *row)
{
    const json_t *o = c->in ? json_object_get(row, c->in) : row;
    o = json_is_array(o) && c->show != EVAL_SHOW_ESTIMATE ? json_array_get(o, (size_t)c->index) : o;
    const json_t *member = c->key ? json_object_get(o, c->key) : o;
    const double value = (c->of ? c->of(row) : number_of(member)) * (c->times > 0 ? c->times : 1.0);
    char number[EVAL_MAX_NUMBER];
    switch (c->show) {
    case EVAL_SHOW_TEXT:
        return eval_member_text(o, c->key);
    case EVAL_SHOW_DELTA:
        return show_delta(out, c, o);
    case EVAL_SHOW_SHARE:
        return show_share(out, c, o);
    case EVAL_SHOW_ESTIMATE:
        return show_estimate(out, c, member);
    case EVAL_SHOW_SIGNED:
        return eval_format_signed(out, value, c->decimals);
    case EVAL_SHOW_VERDICT:
        return show_verdict(out, o);
    case EVAL_SHOW_SCORE: {
        char verdict[EVAL_MAX_SHOWN];
        show_verdict(verdict, o);
        snprintf(out, EVAL_MAX_SHOWN, "%s%.8s%s", eval_format(number, value, c->decimals),
                 *verdict ? verdict : " ", c->mark ? c->mark : "");
        return out;
    }
    case EVAL_SHOW_NUMBER:
        break;
    }
    return eval_format(out, value, c->decimals);
}

/* Adds what the columns show of a row, or their headings where it is NULL. Blanks wait for the next text, so that none are left
 * where the last columns are empty. */
static void put_columns(struct eval_doc *d, const struct eval_sheet *s, const json_t *row)
{
    int blanks = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const struct eval_column *c = &s->columns[i];
        char text[EVAL_MAX_SHOWN];
        const char *shown = row ? eval_column_show(text, c, row) : c->heading;
        const int wide = abs(c->width), rest = wide - eval_text_width(shown), pad = rest > 0 ? rest : 0;
        if (*shown) {
            eval_doc_put(d, "%*s %s", blanks + (c->width > 0 ? pad : 0), "", shown);
            blanks = c->width > 0 ? 0 : pad;
        } else {
            blanks += 1 + wide;
        }
    }
}

/* Adds a text and blanks up to a width. */
static void put_flush_left(struct eval_doc *d, const char *text, int width)
{
    const int n = width - eval_text_width(text);
    eval_doc_put(d, "%s%*s", text, n > 0 ? n : 0, "");
}

void eval_sheet_print(struct eval_doc *d, const struct eval_sheet *s)
{
    const int title = eval_text_width(s->title), width = title > s->width ? title : s->width;
    put_flush_left(d, s->title, width);
    put_columns(d, s, NULL);
    eval_doc_put(d, "%s\n", s->tail ? s->tail : "");
    for (size_t i = 0; i < json_array_size(s->rows); i++) {
        const json_t *row = json_array_get(s->rows, i);
        const json_t *named = s->labels ? json_array_get(s->labels, i) : row;
        put_flush_left(d, eval_member_text(named, s->label), width - s->stars);
        if (s->stars)
            eval_doc_put(d, json_is_true(json_object_get(named, "off_target")) ? "*" : " ");
        put_columns(d, s, row);
        if (s->put_tail)
            s->put_tail(d, row);
        eval_doc_put(d, "\n");
    }
}

/* ---- CSV ---- */

void eval_csv_keys(struct eval_doc *d, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        eval_doc_put(d, "%s,", keys[i]);
}

static void put_value(struct eval_doc *d, const json_t *value)
{
    if (json_is_string(value))
        eval_doc_csv(d, json_string_value(value));
    else if (json_is_boolean(value))
        eval_doc_put(d, "%d", json_is_true(value));
    else if (json_is_number(value))
        eval_doc_put(d, "%.10g", json_number_value(value));
}

void eval_csv_members(struct eval_doc *d, const char *const *keys, size_t n, const json_t *const *objects,
                      size_t n_objects)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *value = NULL;
        for (size_t k = 0; k < n_objects && !value; k++)
            value = json_object_get(objects[k], keys[i]);
        put_value(d, value);
        eval_doc_put(d, ",");
    }
}
