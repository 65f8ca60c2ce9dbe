/* SPDX-License-Identifier: MIT */
/* In front of the main of a program of the wheel (linked with --wrap=main). A program that is linked with glibc 2.34 or newer leaves it to
 * the C library to call its constructors. glibc before 2.34 expects that the program does it, so it is done here. */
#include <stdbool.h>

typedef void constructor(int, char **, char **);
extern constructor *__init_array_start[] __attribute__((visibility("hidden")));
extern constructor *__init_array_end[] __attribute__((visibility("hidden")));

static bool constructed;

__attribute__((constructor)) static void note(void)
{
    constructed = true;
}

int __real_main(int argc, char **argv, char **environment);
int __wrap_main(int argc, char **argv, char **environment);

int __wrap_main(int argc, char **argv, char **environment)
{
    if (!constructed)
        for (constructor **one = __init_array_start; one < __init_array_end; one++)
            (*one)(argc, argv, environment);
    return __real_main(argc, argv, environment);
}
