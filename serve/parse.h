/* SPDX-License-Identifier: MIT */
/*
 * The one reading of a request's body. A body is looked at byte by byte first, which takes no memory: how deep it is and how many values it has.
 * What would take many times its own size as a tree is refused there. What was read is written again for llama.cpp's server, so that
 * both programs have the same values.
 */
#ifndef WNW_SERVE_PARSE_H
#define WNW_SERVE_PARSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;

enum {
    SERVE_DEPTH = 100,         /* arrays and objects in each other, at most */
    SERVE_LEAST_TREE = 8 << 20 /* bytes that the values of a small body may take, without its texts */
};

/* Bytes that the values of a body take as a tree without its texts, its longest text, and how deep it is. For what is no JSON these are no
 * less than up to its fault. */
struct serve_extent {
    uint64_t bytes;
    size_t longest;
    int32_t depth;
};
struct serve_extent serve_parse_extent(const char *body, size_t n);

/* Reads JSON of any type. 0, and *out is the caller's (json_decref); or the HTTP status, and why[SERVE_TEXT] says what is wrong. Keys that
 * an object has twice are refused. Members of the outermost object that are null are left out: they mean what is not there. */
int serve_parse(struct json_t **out, const char *body, size_t n, char *why);

#ifdef __cplusplus
}
#endif

#endif
