/* SPDX-License-Identifier: MIT */
/* What the system and its limits leave to this process: memory, addresses, time on cores. */
#ifndef WNW_APP_LIMITS_H
#define WNW_APP_LIMITS_H

#include <stdint.h>

#define APP_NO_LIMIT UINT64_MAX

/* In bytes. APP_NO_LIMIT means no limit, or that the system does not say. */
struct app_limits {
    uint64_t total, available;  /* memory of the machine, and what of it can be had */
    uint64_t group, group_room; /* the least of the control group's limits, and what is left below it */
    uint64_t addresses, data;   /* RLIMIT_AS and RLIMIT_DATA */
    uint64_t address_room;      /* what is left below RLIMIT_AS */
    uint64_t commit_room;       /* below the kernel's limit where it does not overcommit */
    uint64_t room;              /* the least of what is left */
    int overcommit;             /* vm.overcommit_memory: 0, 1, 2; -1 = not known */
    double cores;               /* that the control group's quota comes to; 0 = no quota */
};

/* root: prefix of /proc and /sys, "" for the system's own. Resource limits are always those of the process. */
void app_limits_read(struct app_limits *out, const char *root);

#endif
