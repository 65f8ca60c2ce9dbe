/* SPDX-License-Identifier: MIT */
/*
 * Operations of the template engine, watched: what can make much out of little is measured before it runs, what would
 * end the process is refused, and what would lose the marks of input keeps them.
 */
#ifndef WNW_JINJA_CALLS_H
#define WNW_JINJA_CALLS_H

#include "text/jinja_meter.h"

namespace wnw
{

/* A value with all that it holds. */
struct weight {
    uint64_t bytes = 0; /* of texts */
    uint64_t nodes = 0; /* values */
    bool input = false; /* whether it holds a byte of a message */
};

/* Walks through a value, which is refused if it nests deeper than the engine may recurse. */
weight weigh(const jinja::value &v, meter &m);

/* A filter or method `name` on args[0], or a function if `method` is false. Returns the result where we make it
 * ourselves, else nullptr: then the engine may run it, and its result goes through after_call. */
jinja::value before_call(const std::string &name, bool method, const jinja::func_args &args, weight &all,
                         meter &m);
void after_call(const std::string &name, size_t n_args, const weight &all, const jinja::value &result);

/* The same for an operator between two values. */
void before_operator(const std::string &op, const jinja::value &a, const jinja::value &b, weight &all,
                     meter &m);
void after_operator(const jinja::value &a, const jinja::value &b, const weight &all,
                    const jinja::value &result);

/* Marks the text, or the texts of the list, as input. */
void mark(const jinja::value &v);

/* Now, as strftime_now is to see it: seconds since 1970, UTC; 0 = the present, local time. */
jinja::value time_function(int64_t now, meter &m);

} // namespace wnw

#endif
