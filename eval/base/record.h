/* SPDX-License-Identifier: MIT */
/* The fields of a record, a line of results.jsonl. A run writes them and a report reads them by what is said here;
 * docs/reference/evaluation.md describes them. */
#ifndef WNW_EVAL_RECORD_H
#define WNW_EVAL_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { EVAL_RECORD_VERSION = 1 };

/* Numbers that reports have means of. */
enum eval_measure {
    EVAL_M_SCORE, /* 0 to 1; NaN for texts that are not questions */
    EVAL_M_PARTIAL,
    EVAL_M_CONTAINS, /* of needles and keys: 1 if the answer contains what was hidden; of needles it is the score */
    EVAL_M_WORDSET, /* of needles: share of the expected words */
    EVAL_M_ROUGE1,  /* of needles: recall of the whole sentence's words */
    EVAL_M_ROUGE_PKG, /* of needles: the first of nine, ROUGE-1, -2 and -L with precision, recall and F of each */
    EVAL_M_FGT = EVAL_M_ROUGE_PKG + 9, /* 1 where the first token is the full cache's */
    EVAL_M_AGREE,                      /* share of the full cache's answer that is predicted alike */
    EVAL_M_KL,
    EVAL_M_DNLL,
    EVAL_M_NLL,   /* of a text's second half, nats per token */
    EVAL_M_RATIO, /* share of the entries that was removed */
    EVAL_M_BYTES, /* of keys and values that were kept, with the scales of quantised ones */
    EVAL_M_META,  /* next to them: positions */
    EVAL_M_PEAK,  /* most bytes of keys and values at any time */
    EVAL_M_CONTEXT,
    EVAL_M_GENERATED,
    EVAL_M_DEPTH,   /* place of the evidence in the text, 0 to 1 */
    EVAL_M_PREFILL, /* milliseconds, like the three that follow */
    EVAL_M_COMPRESS,
    EVAL_M_QUESTION,
    EVAL_M_DECODE,
    EVAL_N_MEASURES
};

/* All fields: the measures, and what follows. */
enum eval_field {
    EVAL_F_VERSION = EVAL_N_MEASURES,
    EVAL_F_KEY, /* of the record in its run */
    EVAL_F_TASK,
    EVAL_F_LENGTH, /* in tokens, that was asked for */
    EVAL_F_INDEX,
    EVAL_F_TURN,
    EVAL_F_CONFIG, /* the id; the four that follow say the same in words */
    EVAL_F_POLICY,
    EVAL_F_MODE,
    EVAL_F_SIZE,
    EVAL_F_KV_TYPE,
    EVAL_F_KV_ROTATED, /* rows of quantised keys and values are */
    EVAL_F_MASK,
    EVAL_F_Q_TOKENS, /* read for the question */
    EVAL_F_STOP,
    EVAL_F_PROTECTED, /* the evidence stays regardless of its score */
    EVAL_F_TRUNCATED, /* the context lost its middle */
    EVAL_F_UNCUT,     /* tokens of the context before that */
    EVAL_F_QUESTION,
    EVAL_F_PRED,
    EVAL_F_REFS,
    EVAL_F_PREFIX, /* tokens of the full cache's answer up to the first that is predicted otherwise */
    EVAL_F_SCORES, /* further metrics: the object of those measures */
    EVAL_F_BAD,    /* a number is missing */
    EVAL_F_ID,     /* of the line of a file that asked, like its metric and its bucket (see below) */
    EVAL_F_METRIC,
    EVAL_F_BUCKET,
    EVAL_F_ASKED,    /* the policy as it was asked for, where that is another text */
    EVAL_F_TEXT,     /* identifies the text that contains the evidence: samples may share it */
    EVAL_F_LEFT_OUT, /* why there is no answer: the policy refused the size */
    EVAL_N_FIELDS
};

/* The name of a field, and what tables call a measure. */
const char *eval_field_name(int field);
const char *eval_measure_name(enum eval_measure m);
/* The value of a field, NULL if the record has none. */
json_t *eval_field_get(const json_t *record, int field);
/* Sets a field and takes the value over, under the rules of app_json_set. */
bool eval_field_set(json_t **record, int field, json_t *value);
/* Whether a measure may have the value; its bounds. */
bool eval_measure_allows(enum eval_measure m, double value, double *min, double *max);

/* ---- LongBench-E's buckets: contexts sorted by how many words they have ---- */

/* Buckets have the numbers 1 to EVAL_N_BUCKETS; 0 is none. */
enum { EVAL_N_BUCKETS = 3 };

/* The number of the bucket of a context, and that of a name; 0 for NULL and for a name that is unknown. */
int32_t eval_bucket_of(int64_t n_words);
int32_t eval_bucket_find(const char *name);
/* "0-4k", "4-8k" or "8k+". */
const char *eval_bucket_name(int32_t bucket);

#endif
