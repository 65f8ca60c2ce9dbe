/* SPDX-License-Identifier: MIT */
/* The command of the wheel: all of it is in the library. */
#include "python/entry.h"

int main(int argc, char **argv)
{
    return wnw_python_command(argc, argv, NULL);
}
