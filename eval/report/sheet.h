/* SPDX-License-Identifier: MIT */
/* Printers of tables. A report is one JSON object (report_json.c); a table of it is a list of objects, and a column says which
 * member of each it shows, and how. Nothing here knows what is measured. */
#ifndef WNW_EVAL_SHEET_H
#define WNW_EVAL_SHEET_H

#include "eval/report/doc.h"

#include <stdint.h>

/* ---- Members of objects ---- */

/* A number; NaN where there is none. */
double eval_member_number(const json_t *o, const char *key);
/* A text; "" where there is none. */
const char *eval_member_text(const json_t *o, const char *key);

/* ---- Tables in text ---- */

enum eval_show {
    EVAL_SHOW_NUMBER,
    EVAL_SHOW_SIGNED,
    EVAL_SHOW_TEXT,
    EVAL_SHOW_VERDICT, /* the object's verdict, with = after it where it says equivalent */
    EVAL_SHOW_SCORE,   /* a number with that after it */
    EVAL_SHOW_DELTA, /* the interval of the object's difference: "[-33.3, -13.9]", "n<6", "[-24.2, 24.2] (no variation)" */
    EVAL_SHOW_SHARE,    /* the interval from KEY_lo to KEY_hi, "[0.70, 0.89]" */
    EVAL_SHOW_ESTIMATE, /* a list of a number and its interval, "12.41 [11.90, 12.98]" */
};

struct eval_column {
    const char *heading;
    const char *in, *key; /* the member `key` of the row's member `in`; NULL leaves a step out */
    int32_t index;        /* which element where `in` is a list */
    enum eval_show show;
    int width; /* negative: flush left */
    int decimals;
    double times;                    /* what numbers are multiplied by; 0 = 1 */
    double (*of)(const json_t *row); /* a number that is worked out, in place of a member; NULL = none */
    const char *missing;             /* in place of an estimate that is not there; NULL = "-" */
    const char *mark;                /* after every score; NULL = none */
};

struct eval_sheet {
    const char *title;    /* heading of the labels */
    const json_t *labels; /* [rows]: objects whose member `label` names the rows; NULL: the rows themselves */
    const char *label;
    int width;  /* of the labels, at least */
    bool stars; /* a label has a * where its object says off_target */
    const json_t *rows;
    const struct eval_column *columns;
    int32_t n;
    const char *tail; /* heading of what follows the columns; NULL = none */
    void (*put_tail)(struct eval_doc *d, const json_t *row); /* NULL = nothing follows */
};

void eval_sheet_print(struct eval_doc *d, const struct eval_sheet *s);
/* Width in columns of a text in UTF-8. */
int eval_text_width(const char *s);
enum { EVAL_MAX_SHOWN = 160 };
/* What a column shows of a row, without blanks around it. Returns out, or a text of the row. */
const char *eval_column_show(char out[EVAL_MAX_SHOWN], const struct eval_column *c, const json_t *row);

/* ---- CSV ---- */

/* Adds keys, or the members of that name, with a comma after each. A member comes from the first object that has it. Numbers have
 * all their digits, and null is written as an empty field. */
void eval_csv_keys(struct eval_doc *d, const char *const *keys, size_t n);
void eval_csv_members(struct eval_doc *d, const char *const *keys, size_t n, const json_t *const *objects,
                      size_t n_objects);

#endif
