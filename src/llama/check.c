/* SPDX-License-Identifier: MIT */
#include "model/model.h"
#include "winnow_bridge.h"

int wnw_bridge_check_model(const char *path)
{
    (void)path;
    return WNW_OK;
}
