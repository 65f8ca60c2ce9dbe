/* SPDX-License-Identifier: MIT */
/* Profiles of kind inputgate as JSON, for what makes them: results.layers and the settings that say what it is. */
#ifndef WNW_PROFILE_INPUTS_H
#define WNW_PROFILE_INPUTS_H

#include "profile/input_gate.h"

#include <jansson.h>

/* NULL if memory runs out. g->number is changed in between and the same afterwards. */
json_t *wnw__profile_input_layers(const struct wnw__input_gate *g, const struct wnw__shape *shape);
/* Adds to an object what reading the layers needs. False if memory runs out. */
bool wnw__profile_input_settings(const struct wnw__input_gate *g, json_t *settings);

#endif
