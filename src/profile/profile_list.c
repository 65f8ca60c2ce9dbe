/* SPDX-License-Identifier: MIT */
/* Lists of profiles' files, as the environment names them. */
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <string.h>

static const char between[] = ":";

int wnw_profile_next(char **path, const char **list)
{
    WNW_REQUIRE(path);
    *path = NULL;
    WNW_REQUIRE(list);
    WNW_REQUIRE(*list);
    const char *name = *list + strspn(*list, between);
    const size_t n = strcspn(name, between);
    if (n > 0 && !(*path = strndup(name, n)))
        return wnw__fail(WNW_E_NOMEM, "out of memory for the name of a profile");
    *list = name + n;
    return WNW_OK;
}
