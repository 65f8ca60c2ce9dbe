// SPDX-License-Identifier: MIT
#include "serve/parking.hpp"

#include "serve/bodies.h"
#include "serve/own_names.h"
#include "serve/parks.h"
#include "serve/restores.h"

#include <strings.h>

namespace serve
{

namespace
{

// The value of a header, whose name may be written in any case; "": it is not there.
std::string header(const server_http_req &req, const char *name)
{
    for (const auto &[key, value] : req.headers)
        if (strcasecmp(key.c_str(), name) == 0)
            return value;
    return "";
}

// Reads what is parked. What it takes goes back in any case.
struct unpacked {
    serve_slot_read read{};
    unpacked() = default;
    unpacked(const unpacked &) = delete;
    unpacked &operator=(const unpacked &) = delete;
    ~unpacked()
    {
        serve_slot_read_clear(&read);
    }
};

// Has the server restore what was read. False: there is no room, or it refuses.
bool put(const server_http_req &req, int32_t slot, serve_slot_read &read)
{
    char why[SERVE_TEXT];
    const std::string name = SERVE_FILE_PARK + std::string("in.") + std::to_string(slot);
    if (!serve_slots_has_room(slot, read.file.n_sequence) ||
        serve_slots_comes_in(slot, read.file.n_sequence, why) != SERVE_CLAIMED)
        return false;
    serve_restore *offered = nullptr;
    const bool good = serve_restore_offer(&offered, slot, name.c_str(), &read) &&
                      act_on_slot(req, slot, "restore", c_text(serve_body_file(name.c_str())));
    if (offered)
        serve_restore_end(offered);
    serve_slots_came_in(slot);
    return good;
}

void park(const server_http_req &req, serve_claim &claim, serve_lost &lost)
{
    char name[SERVE_TICKET_NAME];
    unpacked slot;
    const int32_t ticket = serve_park_ticket(name, lost.replaced);
    if (ticket < 0)
        return;
    act_on_slot(req, lost.slot, "save", c_text(serve_body_file(name)));
    if (!serve_park_end(&slot.read, ticket))
        return;
    lost.about.n_tokens = slot.read.file.n_sequence;
    if (slot.read.file.compressed && !lost.about.compressed) { // by --park-ratio
        lost.about.compressed = true;
        lost.about.by = lost.about.keep_rule;
        if (lost.slot == claim.slot)
            claim.no_reuse = true;
    }
    serve_parks_put(&lost.about, &slot.read);
}

} // namespace

serve_owner owner_of(const server_http_req &req)
{
    static const char bearer[] = "Bearer ";
    std::string key = header(req, "X-Api-Key");
    const std::string said = header(req, "Authorization");
    if (key.empty())
        key =
            strncasecmp(said.c_str(), bearer, sizeof bearer - 1) == 0 ? said.substr(sizeof bearer - 1) : said;
    serve_owner owner{};
    if (!key.empty())
        serve_sha256(owner.id, key.data(), key.size());
    return owner;
}

void park_lost(const server_http_req &req, serve_claim &claim)
{
    for (serve_lost *lost = claim.lost; lost; lost = lost->next) {
        park(req, claim, *lost);
        serve_slots_was_parked(lost);
    }
}

void bring_parked(const server_http_req &req, serve_claim &claim, const serve_ask &ask)
{
    unpacked back;
    if (claim.parked == 0)
        return;
    if (serve_parks_get(&back.read, claim.parked, ask.key, ask.key_len) == WNW_OK &&
        put(req, claim.slot, back.read)) {
        claim.no_reuse = false;
        serve_slots_set_parked(claim.slot);
    }
}

} // namespace serve
