// SPDX-License-Identifier: MIT
// The program is llama.cpp's server, from the archive that scripts/setup.sh compiles. winnow's code is in the other files of this folder.
// winnow-llama-server includes them; the plain server of the tests does not. They run in two kinds of threads: those that answer HTTP,
// and the one that decodes.
//
//     HTTP's threads                                    the thread that decodes
//     connections.cpp  clients' connections, in bounded number
//     front.cpp     who may ask (origins.c)
//     routes.cpp    winnow's routes                     calls.c           libllama's functions, in front of libllama's own
//     generate.cpp  a request that generates            watched.c         the context, and what its sequences hold
//     request.c     its field `winnow` and its body     batches.c         the rows of the server's batches
//     adapters.cpp  scales of adapters (request_adapters.c)
//     request_messages.c  its document, its header      sequences.c       which cells a sequence has
//     convert.cpp   bodies of other vendors' routes     decode.c          a batch: rows meet cells, prompts end
//     pages.cpp     what is shown                       compress.c        what stays of a prompt
//     internal_requests.cpp  to the server's own routes  sample.c          some tokens of a prompt, fed again before its last batch
//     bodies.c      with these bodies                   document_cells.c  documents in the cache
//     deferred.cpp  tasks that the server has put off
//     replies.cpp   winnow's own replies and errors     slot_save.c       a slot to its file (slot_file.c, slot_state.c), and into a slot
//     moves.cpp     files of slots, read and checked    slot_view.c       what a slot holds, token by token
//     load_documents.cpp  reads documents at start
//     start.cpp     what ends the server before it answers
//
//     for both: config.c (what `winnow serve` set), keep_rule.c (a recipe and a size), slots*.c (who has which slot, and what is in it),
//     restores.c (what was read of a slot's file, from who has read it to who puts it there),
//     documents.c and document_file.c (the server's own documents), inspect.c (from who wants to see a slot to who can, and back)
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <thread>

int llama_server(int argc, char **argv);
// Ends the server's loop if it runs (load_documents.cpp); a program without that file has none.
extern "C" void serve_end_loop() __attribute__((weak));

namespace
{

// The signals that end the server.
sigset_t endings()
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

// How often the loop is asked again to end, once a signal has come.
const timespec AGAIN = {0, 100 * 1000 * 1000};

// Does with a signal that was waited for what the process has set for it.
void handle(int signal)
{
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL &&
        action.sa_handler != SIG_IGN) {
        action.sa_handler(signal);
        return;
    }
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_kill(pthread_self(), signal);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    pthread_sigmask(SIG_BLOCK, &one, nullptr);
}

// llama.cpp's handler of these signals locks the queue of tasks. On a thread that works with the queue it could wait for a lock
// that this very thread holds, for ever; so they go to a thread that does nothing else. All threads that follow have the
// mask of the one that starts them.
//
// A signal that comes before the server's loop has begun would be lost: the handler ends a loop that does not run yet. So the
// loop is asked again until it has ended.
//
// A second SIGTERM changes nothing, because `timeout` and supervisors send two, and what slots hold is being parked. llama.cpp's handler ends
// the process at the second signal that it gets, as at a second Ctrl-C. So it is called here, once, while both signals are blocked: where
// it ran because they were not, one that came in this moment would be its second.
void take_signals_apart()
{
    const sigset_t set = endings();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::thread([set] {
        bool asked = false;
        for (;;) {
            const int signal = asked ? sigtimedwait(&set, nullptr, &AGAIN) : sigwaitinfo(&set, nullptr);
            if (signal > 0 && !(asked && signal == SIGTERM)) {
                asked = true;
                handle(signal);
            } else if (asked && serve_end_loop) {
                serve_end_loop();
            }
        }
    }).detach();
}

} // namespace

int main(int argc, char **argv)
{
    take_signals_apart();
    return llama_server(argc, argv);
}
