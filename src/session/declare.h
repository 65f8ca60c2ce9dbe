/* SPDX-License-Identifier: MIT */
/* A session is told which policies it will be asked for, so that it records what they need. */
#ifndef WNW_DECLARE_H
#define WNW_DECLARE_H

#include "winnow.h"

/* As wnw_session_observe. generated: queries of generated tokens are recorded too, because the rules plan
 * again while decoding. */
int wnw__session_declare(wnw_session *s, const wnw_policy *const *policies, int32_t n, bool generated);
/* Starts or stops the recorder type of this name, which must be one that no policy asks for. Starting a type
 * that is already recording changes nothing. E_ARG: there is no such type, or policies ask for it. */
int wnw__session_record(wnw_session *s, const char *name, bool record);

#endif
