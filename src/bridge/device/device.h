/* SPDX-License-Identifier: MIT */
/* The device WINNOW and its backend: registry, version gate, the run of a graph. */
#ifndef WNW_BRIDGE_DEVICE_H
#define WNW_BRIDGE_DEVICE_H

#include "bridge/bridge.h"

ggml_backend_t wnw__bridge_backend_new(ggml_backend_dev_t dev);
/* Sets *reg to our registry if this process has the ggml that we are built for. E_BACKEND: it has another. */
int wnw__bridge_check(ggml_backend_reg_t *reg);
/* Registers devices around those that WINNOW_DEVICES names (device/register.c). E_ARG: a name is unknown. */
int wnw__bridge_wrap_named(ggml_backend_reg_t reg);
enum ggml_status wnw__bridge_graph_run(struct wnw__bridge_backend *b,
                                       struct ggml_cgraph *graph); /* device/run.c */

#endif
