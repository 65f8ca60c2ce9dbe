// SPDX-License-Identifier: MIT
// The program is llama.cpp's server, from the archive that scripts/setup.sh compiles. What is ours lies in the other
// files of this folder, which winnow-llama-server has and the plain server of the tests has not.
#include <csignal>
#include <pthread.h>
#include <thread>
#include <unistd.h>

int llama_server(int argc, char **argv);

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

// llama.cpp's handler of these signals locks the queue of tasks. On a thread that works with the queue it could wait for a lock
// that this very thread holds, for ever; so they go to a thread that does nothing else. All threads that follow have the
// mask of the one that starts them.
void take_signals_apart()
{
    const sigset_t set = endings();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::thread([set] {
        pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
        for (;;)
            pause();
    }).detach();
}

} // namespace

int main(int argc, char **argv)
{
    take_signals_apart();
    return llama_server(argc, argv);
}
