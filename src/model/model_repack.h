/* SPDX-License-Identifier: MIT */
/* Layouts of weights that ggml's CPU backend has for its own products (model_repack.c). */
#ifndef WNW_MODEL_REPACK_H
#define WNW_MODEL_REPACK_H

#include <ggml-backend.h>

/* The types of buffers with such a layout, the best first and NULL after the last; NULL: there is none. */
ggml_backend_buffer_type_t *wnw__repack_layouts(ggml_backend_dev_t cpu);
/* Bytes of an arena for n_tensor tensors and one operation. Arenas are the caller's, because ggml_init aborts where it cannot
 * allocate its own. */
size_t wnw__repack_arena(size_t n_tensor);
/* Whether the device multiplies with a weight like w in buffers of a type. arena: for no tensor. */
bool wnw__repack_takes(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft, struct ggml_tensor *w,
                       void *arena);

#endif
