// SPDX-License-Identifier: Apache-2.0
// The server of `upgate canary serve` and nothing else, for the end-to-end tests and
// ci/bench/canary_serve.py: a store by its path instead of a rollout file. Not the verb: no help.
//     serve_host STORE [name=N] [listen=HOST:PORT] [token=FILE] [cert=PEM] [key=PEM] [no-token]
//         [open-metrics] [connections=N] [per-address=N]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "harness/canary/serve/serve.h"

static const char *value_of(const char *word, const char *key)
{
    size_t len = strlen(key);
    return strncmp(word, key, len) == 0 && word[len] == '=' ? word + len + 1 : NULL;
}

int main(int argc, char **argv)
{
    struct serve_options options = {.store = argc > 1 ? argv[1] : NULL};
    struct error err = {0};
    for (int i = 2; i < argc; i++) {
        const char *value;
        if ((value = value_of(argv[i], "name")))
            options.name = value;
        else if ((value = value_of(argv[i], "listen")))
            options.listen = value;
        else if ((value = value_of(argv[i], "token")))
            options.token_file = value;
        else if ((value = value_of(argv[i], "cert")))
            options.tls_cert = value;
        else if ((value = value_of(argv[i], "key")))
            options.tls_key = value;
        else if ((value = value_of(argv[i], "connections")))
            options.connections = (uint32_t)strtoul(value, NULL, 10);
        else if ((value = value_of(argv[i], "per-address")))
            options.connections_per_address = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "no-token") == 0)
            options.no_token = true;
        else if (strcmp(argv[i], "open-metrics") == 0)
            options.open_metrics = true;
        else {
            fprintf(stderr, "serve_host: unknown word '%s'\n", argv[i]);
            return 2;
        }
    }
    int rc = canary_serve(&options, &err);
    if (rc)
        log_error("%s", err.text);
    return error_exit_code(rc);
}
