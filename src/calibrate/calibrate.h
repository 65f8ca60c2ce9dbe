/* SPDX-License-Identifier: MIT */
/*
 * What the kinds of calibration share. A kind is a descriptor in a file of its own and a line in kinds.def;
 * its `run` does, in this order:
 *
 *   1. says what else determines its results: wnw__calibrate_set;
 *   2. begins: wnw__calibrate_begin opens the journal, whose header holds model, settings and texts;
 *   3. asks for its units of work one after the other, always in the same order: wnw__calibrate_unit runs a
 *      unit or takes its result from the journal, so that a run that was interrupted ends with the same
 *      bytes as one that was not;
 *   4. makes of their results one profile or several: wnw__calibrate_profile; and further outputs.
 *
 * A calibration belongs to one thread.
 */
#ifndef WNW_CALIBRATE_H
#define WNW_CALIBRATE_H

#include "base/err.h"
#include "base/shape.h"
#include "winnow_calibrate.h"
#include "winnow_method.h"

#include <jansson.h>

struct wnw_option; /* winnow_method.h */

struct wnw__calibrate_type {
    const char *name;                 /* that of the command: "srh" */
    const char *about;                /* one sentence */
    const struct wnw_option *options; /* NULL, or a table that ends with name == NULL */
    size_t options_size;              /* of the struct it fills */
    bool reads_text;                  /* it needs at least one text */
    int (*run)(wnw_calibration *c, const void *opts);
};

/* Rows of a kind's table of options, for members of its struct `opts`. */
#define WNW_KIND_INT(opts, name, def, min, max, help)                       \
    {                                                                       \
#name, help, WNW_OPT_INT, offsetof(opts, name), def, min, max, NULL \
    }
#define WNW_KIND_REAL(opts, name, def, min, max, help)                       \
    {                                                                        \
#name, help, WNW_OPT_REAL, offsetof(opts, name), def, min, max, NULL \
    }
#define WNW_KIND_BOOL(opts, name, help)                                \
    {                                                                  \
#name, help, WNW_OPT_BOOL, offsetof(opts, name), 0, 0, 1, NULL \
    }
#define WNW_KIND_ENUM(opts, name, list, help)                          \
    {                                                                  \
#name, help, WNW_OPT_ENUM, offsetof(opts, name), 0, 0, 0, list \
    }

/* A text that grows; made by wnw__calibrate_output or _profile. */
struct wnw__calibrate_text {
    char *name; /* owned */
    char *text; /* owned, NUL-terminated; complete when the run has ended */
    size_t len;
    FILE *f; /* NULL = complete */
};

struct wnw_calibration {
    const struct wnw_model *m;
    const struct wnw__calibrate_type *type;
    struct wnw__shape shape; /* of m */
    wnw_model_info info;
    wnw_calibrate_params params; /* n_threads resolved */
    json_t *settings;            /* owned: what the profile will say */
    json_t *data;                /* owned */

    struct wnw__journal *journal;        /* NULL = none */
    int64_t done, total;                 /* cost of finished units, of all */
    int64_t cost;                        /* of the current unit */
    double progress_from, progress_size; /* see wnw__calibrate_progress_in */
    const char *what;                    /* name of the current unit */

    struct wnw__calibrate_text *profiles, *outputs; /* [n], owned */
    int32_t n_profiles, n_outputs;
};

const struct wnw__calibrate_type *wnw__calibrate_type_get(int32_t i);

/* ---- Settings and work (calibrate_work.c) ---- */

/* Adds a setting, or replaces it; v is taken over, and NULL means that memory ran out. Effort, seed and the
 * kind's options are there already; an option that means "as the effort says" is set to what that is. */
int wnw__calibrate_set(wnw_calibration *c, const char *key, json_t *v);
/* Begins the work: no setting changes any more. `total` is the sum of the costs of all units. */
int wnw__calibrate_begin(wnw_calibration *c, int64_t total);

/* A unit of work: a step that is not split. */
struct wnw__calibrate_unit {
    const char *name; /* no other unit of the run has it; shown to the user */
    int64_t cost;     /* roughly how long it takes, e.g. in tokens */
    /* Sets *result to what is to be remembered: an object or an array whose numbers are made by json.h. */
    int (*run)(wnw_calibration *c, void *user, json_t **result);
    void *user;
};
/* Runs the unit, or takes its result from the journal. *result is released with json_decref. Results from a
 * journal come from outside: the caller checks their shape (wnw__calibrate_damaged). */
int wnw__calibrate_unit(wnw_calibration *c, const struct wnw__calibrate_unit *unit, json_t **result);
/* The lines of a journal after its header are {"unit": NAME, "result": ...}, in the order in which units are asked for.
 * _next takes the next result out of it; *result is NULL where there is no more, else released with json_decref. E_FORMAT: the
 * line is damaged, or of another unit. _add adds a result, once _next has found nothing. */
int wnw__calibrate_next(struct wnw__journal *j, const char *unit, json_t **result);
int wnw__calibrate_add(struct wnw__journal *j, const char *unit, const json_t *result);
/* E_FORMAT with a sentence: the journal's result of this unit has not the shape that it must have. */
int wnw__calibrate_damaged(const wnw_calibration *c, const char *unit);
/* Tells the user how far the current unit is. E_CANCELLED: the user wants to stop. To be called a few times a
 * second; sessions of wnw__calibrate_session do so while they read. */
int wnw__calibrate_progress(wnw_calibration *c, double share);
/* Later shares given to wnw__calibrate_progress are of a part of the unit: it begins at share `from` and has the size
 * `size`. A unit begins with 0 and 1. */
void wnw__calibrate_progress_in(wnw_calibration *c, double from, double size);

/* A session with the calibration's threads and cache type, for n_ctx tokens, that reports progress and stops
 * when the user wants it. */
int wnw__calibrate_session(wnw_session **out, wnw_calibration *c, int32_t n_ctx);
/* The part of a profile, and of a journal, that says which model it belongs to. */
json_t *wnw__calibrate_model(const wnw_calibration *c);
/* Sets *bos to the token that the vocabulary wants in front of a text; -1 = none. */
int wnw__calibrate_bos(const wnw_calibration *c, int32_t *bos);
/* All texts one after the other as tokens, without BOS; *tokens is released with wnw_free. At most n_most
 * tokens are made. */
int wnw__calibrate_tokens(const wnw_calibration *c, int32_t n_most, int32_t **tokens, int32_t *n_tokens);
/* The same; text i ends before token end[i], [n_texts of the parameters]. */
int wnw__calibrate_tokens_of_texts(const wnw_calibration *c, int32_t n_most, int32_t **tokens, int32_t *end);

/* ---- Results (calibrate_result.c) ---- */

/* Adds a profile file with these results, under a file name, "srh.json"; `kind` is its kind. Its settings are
 * those of the run and, where not NULL, those of `more`. results and more are taken over; results NULL means
 * that memory ran out. */
int wnw__calibrate_profile(wnw_calibration *c, const char *file, const char *kind, json_t *more,
                           json_t *results);
/* Sets *out to the output of this name, and to NULL if nobody wants it. The name "report" is always
 * wanted. */
int wnw__calibrate_output(wnw_calibration *c, const char *name, struct wnw__calibrate_text **out);
/* Adds to an output, with a decimal point in every locale. out NULL: does nothing. */
void wnw__calibrate_print(struct wnw__calibrate_text *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds v as one line of JSON. out NULL: does nothing. */
int wnw__calibrate_line(struct wnw__calibrate_text *out, const json_t *v);
/* Completes all outputs. E_NOMEM: some of an output is missing. */
int wnw__calibrate_finish(wnw_calibration *c);

#endif
