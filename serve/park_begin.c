/* SPDX-License-Identifier: MIT */
/* The folder of parked prompts is opened before the server's main: another server's is refused before a model is read. */
#include "serve/parks.h"

__attribute__((constructor(SERVE_FIRST + 1))) static void begin(void)
{
    const struct serve_config *c = serve_settings();
    const int status = serve_parks_open(&(struct serve_parks_limits){
        .memory = c->park, .disk = c->park_disk, .folder = c->state, .fingerprint = c->fingerprint});
    if (status == WNW_E_NOMEM)
        serve_refuse(wnw_last_error());
    if (status != WNW_OK)
        serve_refuse_input(wnw_last_error());
}
