// SPDX-License-Identifier: Apache-2.0
// Checks and times hash.cu. Which slot of its bucket an id gets, and which of several equally old
// ones goes, is in no fixed order; so the reference is a table on the host that follows what the
// device says it did, and holds each step to the rules of kernels.h. Expected on an H200:
// docs/KERNELS-GPU.md.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/hash_bench.cu
#include <string>
#include <unordered_map>

#include "kernels/bench.h"

#include "kernels/hash.cuh"

struct hash_case {
    struct kernel_hash hash;
    struct kernel_hash_evicted evicted;
    int64_t count; // of the ids of a batch
    const int64_t *ids;
    int32_t *places;
    uint32_t step, keep;
};

struct hash_entry {
    int32_t place;
    uint32_t used;
};

struct hash_model {
    std::unordered_map<int64_t, struct hash_entry> entries;
    std::unordered_map<int32_t, int64_t> at; // the id at a place
    std::string fault;                       // the first that was seen
};

static void fault(struct hash_model *model, const char *what, long long id, long long place)
{
    char text[160];
    snprintf(text, sizeof text, "%s: id %lld, place %lld", what, id, place);
    if (model->fault.empty())
        model->fault = text;
}

template <typename T> static std::vector<T> copy_back(const T *device, size_t count)
{
    std::vector<T> host(count);
    BENCH_CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

static void hash_set(struct bench *bench, struct hash_case *t, int64_t slots, int64_t count_max)
{
    struct error err;
    *t = {};
    t->hash.slots = slots;
    t->hash.ids = (int64_t *)bench_memory(bench, (size_t)slots * 8);
    t->hash.used = (uint32_t *)bench_memory(bench, (size_t)slots * 4);
    t->hash.digests = (uint8_t *)bench_memory(bench, (size_t)slots);
    t->hash.locks = (uint32_t *)bench_memory(bench, (size_t)slots / KERNEL_HASH_BUCKET * 4);
    const size_t most = (size_t)std::max(count_max, slots);
    t->evicted.ids = (int64_t *)bench_memory(bench, most * 8);
    t->evicted.places = (int32_t *)bench_memory(bench, most * 4);
    t->evicted.counts = (uint32_t *)bench_memory(bench, 8);
    t->places = (int32_t *)bench_memory(bench, (size_t)count_max * 4);
    bench_must(kernel_hash_clear(&t->hash, bench->stream, &err), &err);
}

// The whole table against the model.
static void hash_compare(const struct hash_case *t, struct hash_model *model)
{
    const size_t slots = (size_t)t->hash.slots;
    const std::vector<uint8_t> digests = copy_back(t->hash.digests, slots);
    const std::vector<int64_t> ids = copy_back(t->hash.ids, slots);
    const std::vector<uint32_t> used = copy_back(t->hash.used, slots),
                                locks = copy_back(t->hash.locks, slots / KERNEL_HASH_BUCKET);
    const uint32_t buckets = (uint32_t)(slots / KERNEL_HASH_BUCKET);
    size_t full = 0;
    for (size_t slot = 0; slot < slots; slot++) {
        if (!digests[slot])
            continue;
        full++;
        const struct hash_home home = hash_home(ids[slot], buckets);
        const auto entry = model->entries.find(ids[slot]);
        if (entry == model->entries.end() || entry->second.place != (int32_t)slot)
            fault(model, "in the table, not inserted there", ids[slot], (long long)slot);
        else if (entry->second.used != used[slot])
            fault(model, "the step of its last use is wrong", ids[slot], (long long)slot);
        else if (home.bucket != slot / KERNEL_HASH_BUCKET || home.digest != digests[slot])
            fault(model, "in a bucket or with a digest that is not its own", ids[slot],
                    (long long)slot);
    }
    if (full != model->entries.size())
        fault(model, "fewer in the table than were inserted", (long long)full,
                (long long)model->entries.size());
    for (uint32_t lock : locks)
        if (lock)
            fault(model, "a lock was left closed", lock, 0);
}

// Takes what the device says it evicted out of the model. newest: of each bucket that evicted, the
// latest use that went.
static void hash_follow_evicted(const struct hash_case *t, struct hash_model *model,
        uint32_t before, std::unordered_map<uint32_t, uint32_t> *newest)
{
    const size_t count = copy_back(t->evicted.counts, 2)[0];
    const std::vector<int64_t> ids = copy_back(t->evicted.ids, count);
    const std::vector<int32_t> places = copy_back(t->evicted.places, count);
    for (size_t i = 0; i < count; i++) {
        const auto entry = model->entries.find(ids[i]);
        if (entry == model->entries.end() || entry->second.place != places[i]) {
            fault(model, "evicted, but was not there", ids[i], places[i]);
            continue;
        }
        if (entry->second.used >= before)
            fault(model, "evicted, but to be kept", ids[i], places[i]);
        uint32_t &most = (*newest)[(uint32_t)places[i] / KERNEL_HASH_BUCKET];
        most = std::max(most, entry->second.used);
        model->at.erase(places[i]);
        model->entries.erase(entry);
    }
}

static void hash_step(struct bench *bench, struct hash_case *t, struct hash_model *model,
        const std::vector<int64_t> &ids, bool insert)
{
    const uint32_t buckets = (uint32_t)(t->hash.slots / KERNEL_HASH_BUCKET);
    std::unordered_map<uint32_t, uint32_t> newest;
    struct error err;
    size_t refused = 0;

    t->ids = (const int64_t *)bench_upload(bench, ids.data(), ids.size() * 8);
    bench_poison(t->places, ids.size() * 4);
    for (int64_t id : ids) { // what is there is used first, so that it is not evicted
        const auto entry = model->entries.find(id);
        if (entry != model->entries.end() && t->step)
            entry->second.used = std::max(entry->second.used, t->step);
    }
    if (insert)
        bench_must(kernel_hash_insert(&t->hash, (int64_t)ids.size(), t->ids, t->step, t->keep,
                           t->places, &t->evicted, bench->stream, &err),
                &err);
    else
        bench_must(kernel_hash_lookup(&t->hash, (int64_t)ids.size(), t->ids, t->step, t->places,
                           bench->stream, &err),
                &err);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    if (insert)
        hash_follow_evicted(t, model, t->keep, &newest);
    const std::vector<int32_t> places = copy_back(t->places, ids.size());
    for (size_t i = 0; i < ids.size(); i++) {
        const auto entry = model->entries.find(ids[i]);
        if (entry != model->entries.end()) {
            if (entry->second.place != places[i])
                fault(model, "two places of one id, or none of one that is there", ids[i],
                        places[i]);
            continue;
        }
        if (places[i] < 0) {
            refused++;
        } else if (!insert || places[i] >= t->hash.slots || model->at.count(places[i])) {
            fault(model, insert ? "a place that is another's" : "found, but is not there", ids[i],
                    places[i]);
        } else {
            model->entries[ids[i]] = {places[i], t->step};
            model->at[places[i]] = ids[i];
        }
    }
    if (!insert)
        return;
    if (refused != copy_back(t->evicted.counts, 2)[1])
        fault(model, "the count of ids without a place", (long long)refused,
                copy_back(t->evicted.counts, 2)[1]);
    auto used_at = [&](uint32_t bucket, uint32_t slot) {
        const auto there = model->at.find((int32_t)(bucket * KERNEL_HASH_BUCKET + slot));
        return there == model->at.end() ? 0 : model->entries[there->second].used;
    };
    // the least recently used went, and only where there was no free slot
    for (const auto &each : newest)
        for (uint32_t slot = 0; slot < KERNEL_HASH_BUCKET; slot++)
            if (used_at(each.first, slot) < each.second)
                fault(model, "evicted, but another was older or free", each.first, slot);
    for (size_t i = 0; i < ids.size(); i++)
        for (uint32_t slot = 0; places[i] < 0 && slot < KERNEL_HASH_BUCKET; slot++)
            if (used_at(hash_home(ids[i], buckets).bucket, slot) < t->keep)
                fault(model, "no place, but there is one", ids[i], slot);
}

// Steps of inserts and lookups with ids that come again, until the table is full several times
// over.
static void hash_check_slots(struct bench *bench, int64_t slots, size_t count, uint64_t range)
{
    struct hash_case t;
    struct hash_model model;
    struct error err;
    char name[96];

    hash_set(bench, &t, slots, (int64_t)count);
    snprintf(name, sizeof name, "%lld slots, %zu ids of %llu", (long long)slots, count,
            (unsigned long long)range);
    // a later step's ids may have been asked for before
    for (uint32_t at : {1u, 3u, 2u, 5u, 4u, 6u}) {
        std::vector<int64_t> ids(count);
        t.step = at;
        t.keep = rng_below(&bench->rng, 2) ? at : at / 2 + 1;
        for (int64_t &id : ids) // some of either sign, and a few that come often
            id = rng_below(&bench->rng, 4)
                    ? (int64_t)rng_below(&bench->rng, range) * 2654435761 - 1000000007
                    : (int64_t)rng_below(&bench->rng, 5);
        hash_step(bench, &t, &model, ids, true);
        hash_compare(&t, &model);
        for (int64_t &id : ids)
            if (rng_below(&bench->rng, 2))
                id += 1;
        const uint32_t step = t.step;
        t.step = t.step % 2 ? step : 0;
        hash_step(bench, &t, &model, ids, false);
        hash_compare(&t, &model);
        t.step = step;
    }
    t.step = 5;
    std::unordered_map<uint32_t, uint32_t> newest;
    bench_must(kernel_hash_evict(&t.hash, t.step, &t.evicted, bench->stream, &err), &err);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    hash_follow_evicted(&t, &model, t.step, &newest);
    hash_compare(&t, &model);
    for (const auto &entry : model.entries)
        if (entry.second.used < t.step)
            fault(&model, "not evicted, but old", entry.first, entry.second.place);
    t.step = t.keep = 7;
    std::vector<int64_t> ids(count); // into the slots that are free again
    for (int64_t &id : ids)
        id = (int64_t)rng_below(&bench->rng, range);
    hash_step(bench, &t, &model, ids, true);
    hash_compare(&t, &model);
    if (!model.fault.empty())
        printf("hash: %s: %s\n", name, model.fault.c_str());
    bench_expect(bench, model.fault.empty() ? 0 : INFINITY, 0, "hash", name);
    bench_release(bench);
}

static void hash_check(struct bench *bench)
{
    hash_check_slots(bench, 32, 10, 20);
    hash_check_slots(bench, 32, 1000, 20);
    hash_check_slots(bench, 32, 1000, 1000); // more in one step than there are slots
    hash_check_slots(bench, 7 * 32, 300, 1000);
    hash_check_slots(bench, 1000 * 32, bench->quick ? 3000 : 30000, 100000);
    if (!bench->quick)
        hash_check_slots(bench, 1 << 20, 400000, 1 << 22);
}

#define HASH_SETS 16

struct hash_timed {
    struct hash_case t;
    const int64_t *ids[HASH_SETS];
};

static void launch_hash_lookup(void *arg, int set, cudaStream_t stream)
{
    struct hash_timed *timed = (struct hash_timed *)arg;
    struct error err;
    bench_must(kernel_hash_lookup(&timed->t.hash, timed->t.count, timed->ids[set], timed->t.step,
                       timed->t.places, stream, &err),
            &err);
}

static void launch_hash_insert(void *arg, int set, cudaStream_t stream)
{
    struct hash_timed *timed = (struct hash_timed *)arg;
    struct error err;
    timed->t.step++;
    bench_must(kernel_hash_insert(&timed->t.hash, timed->t.count, timed->ids[set], timed->t.step,
                       timed->t.step, timed->t.places, &timed->t.evicted, stream, &err),
            &err);
}

// Share of the ids of the last call that have a place.
static double hash_found(const struct hash_timed *timed)
{
    const std::vector<int32_t> places = copy_back(timed->t.places, (size_t)timed->t.count);
    return (double)std::count_if(places.begin(), places.end(), [](int32_t place) {
        return place >= 0;
    }) / (double)places.size();
}

// Ids that are all different, in sets that are taken in turn. lookup: all of them are there.
// insert: a set comes again when its ids have long been evicted, so each id is inserted and evicts
// one.
static void hash_time_slots(struct bench *bench, int64_t slots, int64_t count, bool insert)
{
    struct hash_timed timed;
    struct bench_row row = {insert ? "hash_insert" : "hash_lookup", "", 0, 0,
            (insert ? 420.0 : 108.0) * (double)count, 0};
    std::vector<int64_t> ids((size_t)count);
    int64_t next = (int64_t)(rng_next(&bench->rng) >> 1);

    hash_set(bench, &timed.t, slots, count);
    timed.t.count = count;
    for (int set = 0; set < HASH_SETS; set++) {
        for (int64_t &id : ids)
            id = next++;
        timed.ids[set] = (const int64_t *)bench_upload(bench, ids.data(), ids.size() * 8);
        launch_hash_insert(&timed, set, bench->stream);
    }
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    (insert ? launch_hash_insert : launch_hash_lookup)(&timed, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    const double evicted = copy_back(timed.t.evicted.counts, 2)[0], found = hash_found(&timed);
    // the places were checked by check; here that the work is what the row says
    row.error = found < 0.999 || (insert && evicted < 0.999 * (double)count) ? INFINITY : 0;
    snprintf(row.shape, sizeof row.shape, "%lld of %lld slots%s", (long long)count,
            (long long)slots, insert ? ", all new, each evicts" : ", all there");
    bench_report(bench, &row,
            bench_time(bench, insert ? launch_hash_insert : launch_hash_lookup, &timed, HASH_SETS));
    bench_release(bench);
}

static void hash_time(struct bench *bench)
{
    hash_time_slots(bench, 1 << 26, 1 << 21, false);
    hash_time_slots(bench, 1 << 24, 1 << 21, true);
}

static int hash_host()
{
    alignas(32) static float memory[64];
    const struct kernel_hash good = {
            32, (int64_t *)memory, (uint32_t *)memory, (uint8_t *)memory, (uint32_t *)memory};
    const struct kernel_hash_evicted evicted = {
            (int64_t *)memory, (int32_t *)memory, (uint32_t *)memory};
    const int64_t *ids = (const int64_t *)memory;
    int32_t *places = (int32_t *)memory;
    struct kernel_hash bad = good;
    struct kernel_hash_evicted none = evicted;
    struct error err;
    int failures = 0;
    bad.slots = 33;
    failures += bench_refused(kernel_hash_clear(&bad, 0, &err), &err, "33 slots");
    failures += bench_refused(kernel_hash_lookup(&bad, 1, ids, 1, places, 0, &err), &err,
            "a multiple of 32 up to 2^30");
    bad = good;
    bad.digests = (uint8_t *)memory + 16;
    failures += bench_refused(kernel_hash_insert(&bad, 1, ids, 1, 1, places, &evicted, 0, &err),
            &err, "multiple of 32 bytes");
    failures +=
            bench_refused(kernel_hash_lookup(&good, -1, ids, 1, places, 0, &err), &err, "-1 ids");
    failures += bench_refused(
            kernel_hash_lookup(&good, 1, NULL, 1, places, 0, &err), &err, "must not be NULL");
    failures += bench_refused(kernel_hash_insert(&good, 1, ids, 0, 0, places, &evicted, 0, &err),
            &err, "steps are from 1");
    failures += bench_refused(kernel_hash_insert(&good, 1, ids, 3, 4, places, &evicted, 0, &err),
            &err, "keep 4: from 1 to the step, 3");
    none.counts = NULL;
    failures += bench_refused(kernel_hash_evict(&good, 1, &none, 0, &err), &err, "needs counts");
    return failures;
}

const struct suite suite_hash = {"hash", hash_host, hash_check, hash_time};
