/* SPDX-License-Identifier: MIT */
/* Compressing what a slot has read, by what holds for it. */
#ifndef WNW_SERVE_COMPRESS_H
#define WNW_SERVE_COMPRESS_H

#include "serve/watched.h"

/* New tokens of a prompt that make a slot be compressed. */
enum { SERVE_LEAST_NEW = 128 };

/* Compresses a slot whose prompt has ended, if it is time. False: it could not be; the reason was said. */
bool serve_compress(struct serve_watched *w, int32_t seq);

#endif
