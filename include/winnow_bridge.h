/* SPDX-License-Identifier: MIT */
/*
 * winnow as a backend of ggml, for programs that run models with libllama: a device WINNOW, whose KV cache is ours.
 * A program either loads libggml-winnow.so as any backend of ggml (GGML_BACKEND_PATH, ggml_backend_load) or, where it
 * links libwinnow, calls wnw_bridge_register. Then it gives libllama the device, and all layers to it:
 *
 *     wnw_bridge_register();
 *     ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name("WINNOW"), NULL};
 *     struct llama_model_params params = llama_model_default_params();
 *     params.devices = devices;
 *     params.n_gpu_layers = -1;
 *
 * docs/backend.md says what becomes of a model's cache, and what the environment can set.
 */
#ifndef WINNOW_BRIDGE_H
#define WINNOW_BRIDGE_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the device WINNOW with the ggml that this process has. Calling it again does nothing.
 * E_BACKEND: this ggml is another version than the one that the backend was built for, or has no CPU backend.
 * E_UNSUPPORTED: winnow was built without the backend. Not to be called while another thread uses ggml's registry. */
WNW_API int wnw_bridge_register(void);

/* The version of ggml that the backend was built for, "0.25.3 0c1e570" for example; NULL: winnow was built without it. Static. */
WNW_API const char *wnw_bridge_built_for(void);

#ifdef __cplusplus
}
#endif

#endif
