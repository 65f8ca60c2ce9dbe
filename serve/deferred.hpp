// SPDX-License-Identifier: MIT
// Tasks that llama.cpp's server has put off because no slot was free.
#ifndef WNW_SERVE_DEFERRED_HPP
#define WNW_SERVE_DEFERRED_HPP

namespace serve
{

// Has the server look at one of them again. Any thread.
void offer_deferred();

} // namespace serve

#endif
