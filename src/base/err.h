/* SPDX-License-Identifier: MIT */
/* How public functions begin and end: parameters that are checked, and errors with a sentence. Each thread has its own text; see
 * wnw_last_error(). */
#ifndef WNW_BASE_ERR_H
#define WNW_BASE_ERR_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Records the sentence and returns `code`. */
int wnw__fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sends one line to the log sink, if there is one. */
void wnw__log(wnw_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds a sentence to warning[WNW_WARNING_SIZE], which is "" or holds earlier ones. */
#define WNW_WARNING_SIZE 256 /* bytes of wnw_report.warning */
void wnw__warn(char *warning, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif

/* Returns from the calling function when expr fails. It is only for places where nothing has to be
 * released. */
#define WNW_TRY(expr)                   \
    do {                                \
        const int wnw_try_rc_ = (expr); \
        if (wnw_try_rc_ != WNW_OK)      \
            return wnw_try_rc_;         \
    } while (0)

/* For public functions: returns E_ARG from the calling function where a pointer that it needs is NULL. */
#define WNW_REQUIRE(pointer)                                                               \
    do {                                                                                   \
        if (!(pointer))                                                                    \
            return wnw__fail(WNW_E_ARG, "%s needs %s, which is NULL", __func__, #pointer); \
    } while (0)

/* ---- Structs of the public headers that begin with uint32_t struct_size ----
 * It is the size that the program was compiled with (decision 025). The structs of a program that is older than the library end
 * earlier. */

/* E_ARG unless the struct_size of `theirs`, a struct of `type`, lies between the first field and the size
 * known here. */
int wnw__sized_check(const void *theirs, size_t size, size_t align, const char *type);
/* Copies the fields that `theirs` has over `own`, which holds the defaults and keeps its struct_size. Errors
 * as above. */
int wnw__sized_take(void *own, const void *theirs, size_t size, size_t align, const char *type);
/* Copies from `own` the fields that `theirs` has room for. `theirs` was checked or is NULL, and keeps its
 * struct_size. */
void wnw__sized_give(void *theirs, const void *own);

/* The same for a type by name. theirs may be NULL: then they succeed, and own stays as it is. */
#define WNW_SIZED_CHECK(type, theirs) wnw__sized_check((theirs), sizeof(type), _Alignof(type), #type)
#define WNW_SIZED_TAKE(type, own, theirs) \
    wnw__sized_take((own), (theirs), sizeof(type), _Alignof(type), #type)

#endif
