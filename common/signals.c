// SPDX-License-Identifier: Apache-2.0
// Signals that a program of ours may handle or ignore, and how it found them.
#include "common/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static const int signals_changed[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
enum { SIGNALS_COUNT = sizeof signals_changed / sizeof *signals_changed };

static bool signals_ignored[SIGNALS_COUNT];

static bool signals_is_ignored(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void signals_remember(void)
{
    for (size_t i = 0; i < SIGNALS_COUNT; i++)
        signals_ignored[i] = signals_is_ignored(signals_changed[i]);
}

void signals_catch_end(void (*handler)(int number))
{
    struct sigaction action = {.sa_handler = handler}; // no SA_RESTART: waits must end
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!signals_is_ignored(SIGHUP))
        sigaction(SIGHUP, &action, NULL);
}

void signals_restore(void)
{
    for (size_t i = 0; i < SIGNALS_COUNT; i++)
        signal(signals_changed[i], signals_ignored[i] ? SIG_IGN : SIG_DFL);
}
