/* SPDX-License-Identifier: MIT */
/* Questions that can be asked about any prose, each about something else in it. */
#ifndef WNW_CALIBRATE_QUESTIONS_H
#define WNW_CALIBRATE_QUESTIONS_H

#include <stdint.h>

#define WNW_N_QUESTIONS 30

/* Question i of 0 .. WNW_N_QUESTIONS - 1. Static. */
const char *wnw__question(int32_t i);

#endif
