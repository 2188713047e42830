// SPDX-License-Identifier: Apache-2.0
// The limit that `upgate canary serve` is compared with: libmicrohttpd in epoll mode, one thread,
// that answers every request with the same few bytes and looks at nothing. serve_bare PORT BYTES;
// until SIGTERM.
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t ends;

static void signalled(int number)
{
    (void)number;
    ends = 1;
}

static enum MHD_Result answer(void *cls, struct MHD_Connection *connection, const char *url,
        const char *method, const char *version, const char *upload, size_t *upload_size,
        void **request)
{
    (void)url, (void)method, (void)version, (void)upload;
    if (!*request) { // at the headers: an answer here would end the connection
        *request = cls;
        return MHD_YES;
    }
    *upload_size = 0;
    return MHD_queue_response(connection, MHD_HTTP_OK, cls);
}

int main(int argc, char **argv)
{
    static char body[65536];
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 2;
    memset(body, 'x', sizeof body);
    struct MHD_Response *response = MHD_create_response_from_buffer(
            bytes < sizeof body ? bytes : sizeof body, body, MHD_RESPMEM_PERSISTENT);
    struct MHD_Daemon *daemon =
            MHD_start_daemon(MHD_USE_EPOLL, (uint16_t)atoi(argc > 1 ? argv[1] : "0"), NULL, NULL,
                    answer, response, MHD_OPTION_CONNECTION_LIMIT, 4096U, MHD_OPTION_END);
    signal(SIGTERM, signalled);
    if (!daemon || !response) {
        fprintf(stderr, "serve_bare: cannot listen\n");
        return 4;
    }
    while (!ends && MHD_run_wait(daemon, 100) == MHD_YES)
        ;
    MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    return 0;
}
