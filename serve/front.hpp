// SPDX-License-Identifier: MIT
// The check of every request before a route sees it.
#ifndef WNW_SERVE_FRONT_HPP
#define WNW_SERVE_FRONT_HPP

#include <string>

namespace serve
{

// Called before the server listens: the prefix of all its paths, and whether it speaks HTTPS.
void open_front(const std::string &prefix, bool tls);

} // namespace serve

#endif
