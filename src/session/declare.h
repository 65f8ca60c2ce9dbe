/* SPDX-License-Identifier: MIT */
/* What a session is told of what comes: policies that will be asked for. */
#ifndef WNW_DECLARE_H
#define WNW_DECLARE_H

#include "winnow.h"

/* wnw_session_observe; generated: queries of generated tokens count too, as these may be dropped again. */
int wnw__session_declare(wnw_session *s, const wnw_policy *const *policies, int32_t n, bool generated);
/* Begins or ends to record something that no policy asks for, by the name of its type. E_ARG: there is no
 * such type, or it is one of the policies'. What is recorded already goes on. */
int wnw__session_record(wnw_session *s, const char *name, bool record);

#endif
