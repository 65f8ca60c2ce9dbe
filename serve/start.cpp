// SPDX-License-Identifier: MIT
// llama.cpp's server checks few of its options. With others it ends by an assertion or an exception that nobody catches. Before it answers
// anyone, such an end is one sentence and an exit code.
#include "serve/start.hpp"

#include "base/said.h"
#include "serve/config.h"

#include <ggml.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace
{

std::atomic<bool> started{false};

void refuse(const char *what)
{
    char line[SERVE_TEXT];
    const char *said = wnw__said_without_place(what);
    snprintf(line, sizeof line, "llama.cpp's server cannot start: %.*s; check the options after --",
             static_cast<int>(std::min<size_t>(strcspn(said, "\n"), 300)), said);
    serve_refuse_input(line);
}

void aborted(const char *what)
{
    if (!started)
        refuse(what);
    fprintf(stderr, "%s\n", what);
}

void thrown()
{
    const char *what = "an exception";
    try {
        if (std::current_exception())
            std::rethrow_exception(std::current_exception());
    } catch (const std::exception &e) {
        if (!started)
            refuse(e.what());
        fprintf(stderr, "%s\n", e.what());
        abort();
    } catch (...) {
    }
    if (!started)
        refuse(what);
    abort();
}

__attribute__((constructor)) void watch_start()
{
    ggml_set_abort_callback(aborted);
    std::set_terminate(thrown);
}

} // namespace

void serve_started()
{
    started = true;
}
