/* SPDX-License-Identifier: MIT */
/* --devices: readings and answers of sequences of libllama on devices of winnow's backend, in place of sessions. */
#ifndef WNW_EVAL_DEVICES_H
#define WNW_EVAL_DEVICES_H

#include "app/devices.h"
#include "app/sequence.h"
#include "eval/run/entry_impl.h"
#include "eval/run/setup.h"

/* Refuses what sequences lack, before the model is opened. Returns an exit code, as the functions below do. */
int eval_devices_check(const struct eval_args *args, const struct eval_configs *c);
/* Makes the devices and checks that the policies can be had on them. *out is NULL without --devices. The caller closes in any case. */
int eval_devices_open(struct eval_devices **out, const struct eval_setup *s, const struct eval_configs *c);
void eval_devices_close(struct eval_devices *d);

/* eval_read_entries on devices: every config reads by itself. */
int eval_read_on_devices(const struct eval_runtime *m, const struct eval_reading *r,
                         const struct eval_wanted *w, struct eval_reference *reference);

#endif
