// SPDX-License-Identifier: Apache-2.0
// The refreshing thread. It owns the store's reader; answers go over in one atomic pointer, so that
// neither side waits.
#include "harness/canary/serve/refresh.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"

enum { REFRESH_MS = 1000 };

struct refresh {
    struct snapshot_reader *reader;
    _Atomic(struct answers *) inbox;
    pthread_t thread;
    pthread_mutex_t lock; // of `stop`
    pthread_cond_t wake;
    bool stop;
    int told; // the last problem that was logged: not the same again every second
};

struct verdict_clock refresh_clock(void)
{
    return (struct verdict_clock){.wall_ns = clock_wall_ns(), .monotonic_ns = clock_monotonic_ns()};
}

static int refresh_look(struct refresh *refresh, struct error *err)
{
    int rc = 0;
    const struct snapshot *snapshot = snapshot_read(refresh->reader, &rc, err);
    struct verdict_clock now = refresh_clock();
    answers_free(atomic_exchange(&refresh->inbox, answers_new(snapshot, &now)));
    return rc;
}

static void refresh_tell(struct refresh *refresh, int rc, const struct error *err)
{
    if (rc == refresh->told)
        return;
    if (rc)
        log_warn("%s; answering without it", err->text);
    else
        log_info("the store can be read again");
    refresh->told = rc;
}

static void *refresh_run(void *arg)
{
    struct refresh *refresh = arg;
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    pthread_mutex_lock(&refresh->lock);
    while (!refresh->stop) {
        at.tv_nsec += REFRESH_MS * 1000000L;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        int waited = 0;
        while (!refresh->stop && waited != ETIMEDOUT)
            waited = pthread_cond_timedwait(&refresh->wake, &refresh->lock, &at);
        if (refresh->stop)
            break;
        pthread_mutex_unlock(&refresh->lock);
        struct error err = {0};
        int rc = refresh_look(refresh, &err);
        refresh_tell(refresh, rc, &err);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > at.tv_sec + 1)
            at = now; // a look took long: no looks in a row to make up for it
        pthread_mutex_lock(&refresh->lock);
    }
    pthread_mutex_unlock(&refresh->lock);
    return NULL;
}

static void refresh_free(struct refresh *refresh)
{
    answers_free(atomic_exchange(&refresh->inbox, NULL));
    snapshot_reader_free(refresh->reader);
    pthread_cond_destroy(&refresh->wake);
    pthread_mutex_destroy(&refresh->lock);
    free(refresh);
}

int refresh_start(
        const char *store, const char *name, struct refresh **ret_refresh, struct error *err)
{
    struct refresh *refresh = xcalloc(1, sizeof *refresh);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&refresh->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&refresh->lock, NULL);
    refresh->reader = snapshot_reader_new(store, name);
    struct error why = {0};
    int rc = refresh_look(refresh, &why);
    if (rc == -EINVAL) {
        rc = error_set(err, rc, "%s", why.text);
    } else {
        refresh_tell(refresh, rc, &why);
        sigset_t all, old; // signals are the event loop's
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        rc = -pthread_create(&refresh->thread, NULL, refresh_run, refresh);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (rc)
            rc = error_set(err, rc, "failed to start a thread: %s", strerror(-rc));
    }
    if (rc) {
        refresh_free(refresh);
        return rc;
    }
    *ret_refresh = refresh;
    return 0;
}

void refresh_stop(struct refresh *refresh)
{
    if (!refresh)
        return;
    pthread_mutex_lock(&refresh->lock);
    refresh->stop = true;
    pthread_cond_signal(&refresh->wake);
    pthread_mutex_unlock(&refresh->lock);
    pthread_join(refresh->thread, NULL);
    refresh_free(refresh);
}

struct answers *refresh_take(struct refresh *refresh)
{
    return atomic_exchange(&refresh->inbox, NULL);
}
