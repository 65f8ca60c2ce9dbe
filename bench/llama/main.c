/* SPDX-License-Identifier: MIT */
/* llama.cpp as a program that `winnow bench` runs next to itself: requests on standard input, answers on
 * standard output. */
#include "bench/llama/serve.h"

#include <unistd.h>

int main(void)
{
    /* What libraries print to standard output must not get between the answers. */
    const int out = dup(STDOUT_FILENO);
    if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return 1;
    return bench_llama_serve(STDIN_FILENO, out, NULL);
}
