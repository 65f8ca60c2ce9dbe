/* SPDX-License-Identifier: MIT */
#ifndef WNW_OPEN_H
#define WNW_OPEN_H

#include "model/model.h"

/* wnw_model_open through libllama also where arch/ has the family, for tests that compare the two ways. */
int wnw__model_open_foreign(wnw_model **out, const char *path, const wnw_model_params *params);

#endif
