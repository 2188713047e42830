// SPDX-License-Identifier: Apache-2.0
// The threads that compute: each takes batches and owns a copy of the model, so that none waits for
// another. The model is replaced between two batches (hot swap): a batch is computed by one model,
// no request is lost or waits for the new one.
#ifndef UPGATE_SERVE_WORKERS_H
#define UPGATE_SERVE_WORKERS_H

#include "reference_models/native/model.h"
#include "reference_models/serve/batcher.h"
#include "reference_models/serve/plants.h"

struct model_choice {             // what is served
    char name[REQUEST_MODEL_MAX]; // in answers; letters, digits, "-", "_" and "."
    const struct model_ops *ops;
    enum model_size size;
    uint64_t seed;
};

// By the words of a command line or a model file. -EINVAL names the nearest known word.
int model_choice_set(
        struct model_choice *choice, const char *model, const char *size, struct error *err);
int model_choice_name(struct model_choice *choice, const char *name, struct error *err);
// A model file: JSON {"model": "dlrm"|"transformer", "size": …, "seed": N, "name": …}; all but
// "model" may be left out. `path` is relative to the folder `models` and stays in it. -EINVAL, or
// the error of the system.
int model_choice_load(
        const char *models, const char *path, struct model_choice *ret_choice, struct error *err);

struct workers;

// Starts `count` threads; without a model they take nothing from the batcher. Borrows batcher and
// plants.
int workers_new(size_t count, size_t batch_max, struct batcher *batcher, struct plants *plants,
        struct workers **ret_workers, struct error *err);
// The batcher must be closed: waits until what waits in it is answered.
void workers_free(struct workers *workers); // NULL is fine

// Builds the model, computes full batches until it is warm, and puts it in place of the old one,
// which is freed when its last batch is done. Blocks for all of that; one call at a time.
int workers_load(struct workers *workers, const struct model_choice *choice, struct error *err);

struct workers_state {
    bool ready; // a model is in place
    char model[REQUEST_MODEL_MAX];
    const char *kind;                 // "dlrm", "transformer"; NULL: not ready
    size_t values_least, values_most; // of a request
    int64_t busy_ns; // CLOCK_MONOTONIC at which the oldest batch that is not done was taken; 0:
                     // none
    uint64_t batches, scored, loads;
};
void workers_look(struct workers *workers, struct workers_state *ret_state);

#endif
