/* SPDX-License-Identifier: MIT */
/*
 * A made-up cache for tests of the driver and of policies: random numbers in every field of an observation,
 * a profile of every kind, no model. Values depend on seed, layer, head, position and field alone, never on
 * what else is asked for; fields that are not asked for stay NULL, so that a part that does not
 * declare a need crashes its test. Padding holds huge values, so that reading it changes results.
 */
#ifndef WNW_TESTS_FAKE_SOURCE_H
#define WNW_TESTS_FAKE_SOURCE_H

#include "peek_plan.h"
#include "plans.h"

enum { FAKE_MAX_LAYER = 8, FAKE_MAX_HEAD = 8, FAKE_D = 8, FAKE_N_PASS2 = 24 };

/* Numbers of a field and a layer that were made before. */
struct fake_made {
    float *values;
    int64_t n;
    uint32_t places;
};

struct fake {
    struct wnw__plan_source src; /* first: the callbacks get its address */
    uint32_t seed;               /* other values, same shape: set after fake_init */
    int32_t n;                   /* entries of the longest head */
    int32_t n_entry[FAKE_MAX_LAYER][FAKE_MAX_HEAD];
    int32_t *pos;                    /* [n_layer][n_head_kv][n] */
    int64_t off[FAKE_MAX_HEAD];      /* as in struct wnw__plan_layer */
    bool left_alone[FAKE_MAX_LAYER]; /* of src.shape */
    bool poison;                     /* one NaN in the attention */
    bool unobserved;                 /* nothing is observed */
    int32_t cancel_after;            /* -1 = never */
    int32_t n_observed;
    struct wnw_profile profile; /* set src.profile = NULL for none */
    float *buffers[20];         /* of the layer observed last */
    struct fake_made made[20][FAKE_MAX_LAYER];
    float theta[FAKE_D / 2];
    const char **texts; /* [n_past] of the observation made last */
};

/* ragged: heads hold random subsets of the positions 0 .. n_past - 1, as after an earlier compression. */
void fake_init(struct fake *f, int32_t n_layer, int32_t n_head_kv, int32_t group, int32_t n_past,
               bool ragged);
void fake_free(struct fake *f);

/* Makes layer il one with a sliding window where bit il is set. */
void fake_leave_alone(struct fake *f, uint32_t layers);

/* Parses (the test fails if it cannot) and plans. */
int fake_plan(wnw_plan **plan, struct fake *f, const char *recipe, const wnw_size *size, wnw_report *report);
/* The plan, released with wnw_plan_free: the test fails with the library's sentence where there is none. */
wnw_plan *fake_planned(struct fake *f, const char *recipe, const wnw_size *size, wnw_report *report);
/* Every head: positions ascend and are among those the head holds; layers that policies leave alone are
 * whole. Returns kept entries over the other layers. */
int64_t fake_check_plan(const wnw_plan *plan, const struct fake *f);
/* Entries over the layers that policies may compress. */
int64_t fake_entries(const struct fake *f);

int32_t fake_kept(const wnw_plan *plan, int32_t il, int32_t ih);
bool fake_holds(const wnw_plan *plan, int32_t il, int32_t ih, int32_t position);

#endif
