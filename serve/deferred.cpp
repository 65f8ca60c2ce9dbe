// SPDX-License-Identifier: MIT
// llama.cpp's server looks at one task that it has put off each time a slot becomes free. Where that task leaves the slot free, as a save
// does, or fails at once, no slot becomes free again for the next one, which would wait for ever on an idle server. So each thread that is through
// with a request has one looked at. Requests that claim their slots (slots_claim.c) are never put off; those of other routes may be.
#include "serve/deferred.hpp"

#include <atomic>

#define POP "_ZN12server_queue17pop_deferred_taskEi"

void real_pop(void *queue, int slot) __asm__("__real_" POP);
void wrap_pop(void *queue, int slot) __asm__("__wrap_" POP);

namespace
{

std::atomic<void *> queue_of_tasks{nullptr};

} // namespace

void wrap_pop(void *queue, int slot)
{
    queue_of_tasks = queue; // nothing is put off before a slot was free once
    real_pop(queue, slot);
}

void serve::offer_deferred()
{
    if (void *const queue = queue_of_tasks)
        real_pop(queue, -1);
}
