// SPDX-License-Identifier: MIT
// What a request does about parked prompts (parks.h) once it has its slots, before the server sees it.
#ifndef WNW_SERVE_PARKING_HPP
#define WNW_SERVE_PARKING_HPP

#include "serve/internal_requests.hpp"

namespace serve
{

// Who brings a request: by the API key that it was sent with. All that come without one count as one.
serve_owner owner_of(const server_http_req &req);
// Parks the conversations from which the claim takes its slots.
void park_lost(const server_http_req &req, serve_claim &claim);
// Puts the parked prompt of the claim into its slot, if there is one. Without room, or if it cannot be read, the slot stays as it is.
void bring_parked(const server_http_req &req, serve_claim &claim, const serve_ask &ask);

} // namespace serve

#endif
