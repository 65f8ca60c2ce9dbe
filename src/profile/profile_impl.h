/* SPDX-License-Identifier: MIT */
/* The inside of reading profiles: profile.c owns the arrays; profile_size.c refuses files that are too large;
 * profile_json.c reads checked values; profile_kinds.c knows the library's own format; profile_import.c and
 * profile_tsv.c know those of the papers' authors; profile_read.c takes over what one of them has read;
 * profile_table.c lists what a profile holds. */
#ifndef WNW_PROFILE_IMPL_H
#define WNW_PROFILE_IMPL_H

#include "profile/profile.h"

#include <jansson.h>

struct wnw__profile_file {
    const char *path;
    json_t *root; /* an object */
};

/* Frees the arrays of CompilerKV's tables. */
void wnw__profile_free_compiler(struct wnw__compiler_table *t);

/* How large a profile may be (profile_size.c). */
struct wnw__profile_limit {
    int64_t n_bytes, n_values, n_lists; /* lists: arrays and objects; values: lists and their elements */
};
void wnw__profile_limit(struct wnw__profile_limit *out, const struct wnw__profile_shape *shape);
/* Counts the values and lists of a JSON text, or a few more; it starts as {0}, and the text may come in
 * pieces. */
struct wnw__profile_count {
    int64_t n_values, n_lists;
    bool in_string, escaped; /* where the last piece ended */
};
void wnw__profile_count(struct wnw__profile_count *c, const char *text, size_t len);

/* Reads and parses the file; path is borrowed. f->root is NULL after a failure. */
int wnw__profile_open(struct wnw__profile_file *f, const char *path, const struct wnw__profile_limit *limit);

/* Fails with E_FORMAT; the sentence begins with the file's name. */
int wnw__profile_bad(const struct wnw__profile_file *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes a remark to the log; it begins with the file's name. */
void wnw__profile_note(const struct wnw__profile_file *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* What a rectangular array of numbers must be. */
enum wnw__element { WNW_ELEMENT_I32, WNW_ELEMENT_F32, WNW_ELEMENT_F64 };
struct wnw__array_spec {
    const char *name; /* for messages */
    enum wnw__element element;
    int32_t rank; /* 1..4 */
    int32_t shape[4];
    double min, max; /* of every element */
};
/* Checks v against the spec before it allocates. In place of arrays of numbers there may be a text of base64: float32, or
 * 16 bits for whole numbers; not for doubles. out is the address of a pointer, whose
 * array the caller frees; it is NULL after a failure. */
int wnw__profile_array(void *out, const struct wnw__profile_file *f, const json_t *v,
                       const struct wnw__array_spec *spec);
/* Reads the whole number at `key` of `object`; where the key is absent it gives def and WNW_OK. */
int wnw__profile_int(const struct wnw__profile_file *f, const json_t *object, const char *key, int32_t def,
                     int32_t min, int32_t max, int32_t *out);
/* Reads one of the names at `key` and gives its index, or -1 where the key is absent. */
int wnw__profile_choice(const struct wnw__profile_file *f, const json_t *object, const char *key,
                        const char *const *names, int32_t *out);
/* E_FORMAT unless every row of rank[n_layer][n_head] holds every head once. */
int wnw__profile_check_ranks(const struct wnw__profile_file *f, const char *name, const int32_t *rank,
                             int32_t n_layer, int32_t n_head);
/* Scales share[n] so that it sums to 1; a remark is logged where its sum was far off. */
int wnw__profile_normalise(const struct wnw__profile_file *f, double *share, int32_t n);

/* Both fill `fresh`, whose shapes are set, and mark its kinds. _read_kind reads the library's own format,
 * _import the authors' formats, in which one file may hold only a part of a kind. */
int wnw__profile_read_kind(const struct wnw__profile_file *f, wnw_profile *fresh);
int wnw__profile_import(const struct wnw__profile_file *f, wnw_profile *fresh);
/* As _import, of a file that is known to be one of these: importance of heads, ranks or scores of heads
 * (semantic ones if `srh`), shares of layers. */
int wnw__profile_import_heads(const struct wnw__profile_file *f, wnw_profile *fresh);
int wnw__profile_import_srh(const struct wnw__profile_file *f, wnw_profile *fresh, bool srh);
int wnw__profile_import_layers(const struct wnw__profile_file *f, wnw_profile *fresh);
/* Reads the gates of KV heads from a table of text, and nothing else (profile_tsv.c). */
int wnw__profile_read_gates(const char *path, wnw_profile *fresh);
/* Reads the results of kind inputgate (profile_inputs.c). */
int wnw__profile_read_inputs(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p);
/* Reads published gates on hidden states, KVzap's or Fast KVzip's, and nothing else (profile_tensors.c). */
int wnw__profile_import_gates(const char *path, wnw_profile *fresh, bool kvzap);
/* The shape and fingerprint that a file in the library's own format names. E_FORMAT. */
int wnw__profile_shape_of(const struct wnw__profile_file *f, struct wnw__profile_shape *shape);

#endif
