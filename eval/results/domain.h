/* SPDX-License-Identifier: MIT */
/* What kind of ability a task asks for, as RULER and LongBench sort theirs. */
#ifndef WNW_EVAL_DOMAIN_H
#define WNW_EVAL_DOMAIN_H

enum { EVAL_MAX_DOMAINS = 16 };

/* The domain of a task, such as "aggregation"; NULL for tasks of other benchmarks. */
const char *eval_domain_of(const char *task);

#endif
