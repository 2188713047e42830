// SPDX-License-Identifier: Apache-2.0
// A recorder of 300 lines that shares nothing with ours: finds the spool of a process in
// /proc/PID/fd, switches the library on, keeps the heartbeat, reads, switches off, and writes every
// record as a line of JSON (fields as contracts/spool.h names them, string ids as text). For the
// mock tests, and for the programs of ci/gpu/trace on real CUPTI: tests/mock/expect.py reads both.
//
// usage: spool_dump PID [--kinds N] [--seconds S] [--wait S] [--out FILE] [--passive] [--sleepy]
//                   [--die] [--count]
//   --passive  reads, asks for nothing
//   --sleepy   reads only at the end
//   --die      goes without switching off
//   --count    prints how many records of each type, not the records
// Ends at S seconds, when stdin ends or gives a line, or when the process is over. Changes of state
// are told on stdout at once.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "contracts/spool.h"

#define POLL_MS 5

static struct options {
    int pid;
    uint32_t kinds;
    double seconds, wait;
    const char *out;
    bool passive, sleepy, die, count;
} options = {.kinds = UG_WANT_DEFAULT, .seconds = 3600, .wait = 5};

static struct spool {
    uint8_t *base;
    struct ug_spool_header *header;
    struct ug_spool_segment *segments;
    uint64_t bytes;
    uint64_t *sequence_done; // of each segment: the take that was read to its end
    uint64_t *sequence_at;
    uint32_t *cursor;
    uint64_t damaged;
} spool;

static uint8_t *records; // all of them, one after another
static size_t records_bytes, records_room;
static char **strings;
static uint32_t string_count;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what)
{
    printf("{\"type\":\"error\",\"error\":\"%s\",\"errno\":\"%s\"}\n", what, strerror(errno));
    fflush(stdout);
    exit(3);
}

static int spool_fd(void)
{
    char path[64], link[256];
    snprintf(path, sizeof(path), "/proc/%d/fd", options.pid);
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    int fd = -1;
    struct dirent *entry;
    while (fd < 0 && (entry = readdir(dir))) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
        if (len < 0)
            continue;
        link[len] = 0;
        if (!strncmp(link, "/memfd:" UG_SPOOL_NAME " ", strlen("/memfd:" UG_SPOOL_NAME " ")))
            fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC);
    }
    closedir(dir);
    return fd;
}

static void attach(void)
{
    int fd;
    uint64_t deadline = now_ns() + (uint64_t)(options.wait * 1e9);
    while ((fd = spool_fd()) < 0) {
        if (now_ns() > deadline || kill(options.pid, 0))
            fail("no spool");
        usleep(2000);
    }
    struct stat status;
    if (fstat(fd, &status) || status.st_size < (off_t)UG_SPOOL_HEADER_BYTES)
        fail("a spool without a header");
    spool.bytes = (uint64_t)status.st_size;
    spool.base = mmap(NULL, spool.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (spool.base == MAP_FAILED)
        fail("mmap");
    spool.header = (struct ug_spool_header *)spool.base;
    struct ug_spool_header *header = spool.header;
    while (__atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) != UG_SPOOL_MAGIC) {
        if (now_ns() > deadline)
            fail("no magic");
        usleep(1000);
    }
    if (header->version != UG_SPOOL_VERSION ||
            header->data_offset + (uint64_t)header->segment_bytes * header->segment_count >
                    spool.bytes)
        fail("another version, or a damaged header");
    spool.segments = (struct ug_spool_segment *)(spool.base + UG_SPOOL_HEADER_BYTES);
    spool.sequence_done = calloc(header->segment_count, 8);
    spool.sequence_at = calloc(header->segment_count, 8);
    spool.cursor = calloc(header->segment_count, 4);
}

// What lies there while nothing is recorded was an earlier recorder's.
static void skip_old(void)
{
    for (uint32_t i = 0; spool.header->state == UG_SPOOL_DORMANT && i < spool.header->segment_count;
            i++) {
        struct ug_spool_segment *segment = &spool.segments[i];
        spool.sequence_at[i] = __atomic_load_n(&segment->sequence, __ATOMIC_ACQUIRE);
        uint32_t state = __atomic_load_n(&segment->state, __ATOMIC_ACQUIRE);
        spool.cursor[i] = __atomic_load_n(&segment->committed, __ATOMIC_ACQUIRE);
        if (state == UG_SEGMENT_FULL) {
            spool.sequence_done[i] = spool.sequence_at[i];
            __atomic_store_n(&segment->state, UG_SEGMENT_FREE, __ATOMIC_RELEASE);
        }
    }
}

static void keep(const uint8_t *from, size_t bytes)
{
    while (records_bytes + bytes > records_room) {
        records_room = records_room ? 2 * records_room : 1u << 20;
        records = realloc(records, records_room);
        if (!records)
            fail("memory");
    }
    memcpy(records + records_bytes, from, bytes);
    records_bytes += bytes;
}

// Whole records between the cursor and committed; what is damaged ends the segment.
static void read_records(uint32_t i, uint32_t committed)
{
    const uint8_t *segment =
            spool.base + spool.header->data_offset + (uint64_t)i * spool.header->segment_bytes;
    if (committed > spool.header->segment_bytes) {
        spool.damaged++;
        committed = spool.header->segment_bytes;
    }
    while (spool.cursor[i] + sizeof(struct ug_rec_head) <= committed) {
        struct ug_rec_head head;
        memcpy(&head, segment + spool.cursor[i], sizeof(head));
        if (head.bytes < sizeof(head) || head.bytes % 8 ||
                spool.cursor[i] + head.bytes > committed || head.type == 0 ||
                head.type >= UG_REC_TYPE_COUNT) {
            spool.damaged++;
            spool.cursor[i] = committed;
            return;
        }
        keep(segment + spool.cursor[i], head.bytes);
        spool.cursor[i] += head.bytes;
    }
}

static void read_spool(void)
{
    for (uint32_t i = 0; i < spool.header->segment_count; i++) {
        struct ug_spool_segment *segment = &spool.segments[i];
        uint64_t sequence = __atomic_load_n(&segment->sequence, __ATOMIC_ACQUIRE);
        if (sequence == spool.sequence_done[i])
            continue;
        if (sequence != spool.sequence_at[i]) {
            spool.sequence_at[i] = sequence;
            spool.cursor[i] = 0;
        }
        uint32_t state = __atomic_load_n(&segment->state, __ATOMIC_ACQUIRE);
        read_records(i, __atomic_load_n(&segment->committed, __ATOMIC_ACQUIRE));
        if (state == UG_SEGMENT_FULL) {
            spool.sequence_done[i] = sequence;
            __atomic_store_n(&segment->state, UG_SEGMENT_FREE, __ATOMIC_RELEASE);
        }
    }
}

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {"dormant", "active", "refused", "ended"};
    return state < 4 ? names[state] : "?";
}

static void text_out(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < 32)
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            fputc(*text, out);
    fputc('"', out);
}

static void tell_state(void)
{
    const struct ug_spool_header *header = spool.header;
    printf("{\"type\":\"state\",\"state\":\"%s\",\"have_kinds\":%u,\"at\":%llu,\"reason\":",
            state_name(header->state), header->have_kinds, (unsigned long long)now_ns());
    text_out(stdout, header->reason);
    printf("}\n");
    fflush(stdout);
}

static uint32_t ask_for(uint32_t state)
{
    struct ug_spool_header *header = spool.header;
    header->heartbeat_ns = now_ns();
    header->want_kinds = options.kinds;
    header->want_state = state;
    uint32_t generation = __atomic_add_fetch(&header->generation, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &header->generation, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    return generation;
}

static bool is_gone(void) // dead, also as a zombie nobody has waited for
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", options.pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (len <= 0)
        return true;
    text[len] = 0;
    const char *state = strrchr(text, ')');
    return state && strlen(state) > 2 && (state[2] == 'Z' || state[2] == 'X');
}

// Until `generation` is done with, or the end; false: over, for good.
static bool run(uint64_t deadline, bool ends_at_line, uint32_t generation, uint32_t *last_state)
{
    struct ug_spool_header *header = spool.header;
    struct pollfd input = {.fd = ends_at_line ? 0 : -1, .events = POLLIN};
    for (;;) {
        int ready = poll(&input, 1, POLL_MS);
        if (!options.passive)
            __atomic_store_n(&header->heartbeat_ns, now_ns(), __ATOMIC_RELAXED);
        bool gone = is_gone(); // before reading: what it wrote until then is read
        uint32_t state = __atomic_load_n(&header->state, __ATOMIC_ACQUIRE);
        bool done = generation &&
                __atomic_load_n(&header->done_generation, __ATOMIC_ACQUIRE) == generation;
        if (!options.sleepy)
            read_spool();
        if (state != *last_state) {
            *last_state = state;
            tell_state();
        }
        if (gone || state == UG_SPOOL_ENDED)
            return false;
        if (done || ready > 0 || now_ns() > deadline)
            return true;
    }
}

// --- printing
// ---------------------------------------------------------------------------------------

enum field_form { FORM_U, FORM_I, FORM_STRING };

struct field {
    const char *name;
    size_t at, size;
    enum field_form form;
};

// clang-format off
#define U(type, field) \
    {#field, offsetof(struct type, field), sizeof(((struct type *)0)->field), FORM_U}
#define I(type, field) \
    {#field, offsetof(struct type, field), sizeof(((struct type *)0)->field), FORM_I}
#define S(type, field) {#field, offsetof(struct type, field), 4, FORM_STRING}
// clang-format on
#define AT(type, text, field, i) \
    { \
        text, offsetof(struct type, field) + (i) * sizeof(((struct type *)0)->field[0]), \
                sizeof(((struct type *)0)->field[0]), FORM_U \
    }
#define FIELDS_MAX 32

static const struct shape {
    const char *name;
    struct field fields[FIELDS_MAX];
} shapes[UG_REC_TYPE_COUNT] = {
        [UG_REC_STRING] = {"string", {U(ug_rec_string, id), U(ug_rec_string, text_bytes)}},
        [UG_REC_CLOCK] = {"clock",
                {U(ug_rec_clock, before_ns), U(ug_rec_clock, gpu_ns), U(ug_rec_clock, after_ns)}},
        [UG_REC_DEVICE] = {"device",
                {U(ug_rec_device, device), U(ug_rec_device, context), S(ug_rec_device, name),
                        U(ug_rec_device, cc_major), U(ug_rec_device, cc_minor),
                        U(ug_rec_device, sm_count), U(ug_rec_device, max_threads_sm),
                        U(ug_rec_device, registers_sm), U(ug_rec_device, shared_sm_bytes),
                        U(ug_rec_device, memory_bytes), AT(ug_rec_device, "uuid0", uuid, 0)}},
        [UG_REC_STREAM] = {"stream",
                {U(ug_rec_stream, context), U(ug_rec_stream, stream), S(ug_rec_stream, name),
                        I(ug_rec_stream, priority), U(ug_rec_stream, flags)}},
        [UG_REC_THREAD] = {"thread", {S(ug_rec_thread, name)}},
        [UG_REC_KERNEL] = {"kernel",
                {U(ug_rec_kernel, start_gpu), U(ug_rec_kernel, end_gpu),
                        U(ug_rec_kernel, correlation), S(ug_rec_kernel, name),
                        U(ug_rec_kernel, device), U(ug_rec_kernel, context),
                        U(ug_rec_kernel, stream), AT(ug_rec_kernel, "grid_x", grid, 0),
                        AT(ug_rec_kernel, "grid_y", grid, 1), AT(ug_rec_kernel, "grid_z", grid, 2),
                        AT(ug_rec_kernel, "block_x", block, 0),
                        AT(ug_rec_kernel, "block_y", block, 1),
                        AT(ug_rec_kernel, "block_z", block, 2),
                        AT(ug_rec_kernel, "cluster_x", cluster, 0), U(ug_rec_kernel, registers),
                        U(ug_rec_kernel, static_shared_bytes),
                        U(ug_rec_kernel, dynamic_shared_bytes), U(ug_rec_kernel, local_bytes),
                        U(ug_rec_kernel, graph), U(ug_rec_kernel, graph_node),
                        U(ug_rec_kernel, channel), U(ug_rec_kernel, flags)}},
        [UG_REC_COPY] = {"copy",
                {U(ug_rec_copy, start_gpu), U(ug_rec_copy, end_gpu), U(ug_rec_copy, size_bytes),
                        U(ug_rec_copy, graph_node), U(ug_rec_copy, correlation),
                        U(ug_rec_copy, graph), U(ug_rec_copy, device), U(ug_rec_copy, context),
                        U(ug_rec_copy, stream), U(ug_rec_copy, kind), U(ug_rec_copy, source),
                        U(ug_rec_copy, target), U(ug_rec_copy, flags), U(ug_rec_copy, peer_device),
                        U(ug_rec_copy, value)}},
        [UG_REC_GRAPH] = {"graph",
                {U(ug_rec_graph, start_gpu), U(ug_rec_graph, end_gpu), U(ug_rec_graph, correlation),
                        U(ug_rec_graph, graph), U(ug_rec_graph, device), U(ug_rec_graph, context),
                        U(ug_rec_graph, stream)}},
        [UG_REC_CALL] = {"call",
                {U(ug_rec_call, start_gpu), U(ug_rec_call, end_gpu), U(ug_rec_call, correlation),
                        U(ug_rec_call, call), S(ug_rec_call, name), I(ug_rec_call, result)}},
        [UG_REC_SYNC] = {"sync",
                {U(ug_rec_sync, start_gpu), U(ug_rec_sync, end_gpu), U(ug_rec_sync, correlation),
                        U(ug_rec_sync, context), U(ug_rec_sync, stream), U(ug_rec_sync, kind),
                        U(ug_rec_sync, event), U(ug_rec_sync, event_sync)}},
        [UG_REC_MEMORY] = {"memory",
                {U(ug_rec_memory, at_gpu), U(ug_rec_memory, address), U(ug_rec_memory, size_bytes),
                        U(ug_rec_memory, correlation), U(ug_rec_memory, device),
                        U(ug_rec_memory, context), U(ug_rec_memory, stream),
                        U(ug_rec_memory, operation), U(ug_rec_memory, kind),
                        U(ug_rec_memory, flags), U(ug_rec_memory, pool),
                        U(ug_rec_memory, pool_used_bytes), U(ug_rec_memory, pool_bytes)}},
        [UG_REC_RANGE] = {"range",
                {U(ug_rec_range, at_gpu), U(ug_rec_range, id), S(ug_rec_range, name),
                        S(ug_rec_range, domain), U(ug_rec_range, what)}},
        [UG_REC_OVERHEAD] = {"overhead",
                {U(ug_rec_overhead, start_gpu), U(ug_rec_overhead, end_gpu),
                        U(ug_rec_overhead, kind)}},
        [UG_REC_NCCL] = {"nccl",
                {U(ug_rec_nccl, enqueued_ns), U(ug_rec_nccl, ended_ns),
                        U(ug_rec_nccl, kernel_start_ns), U(ug_rec_nccl, kernel_end_ns),
                        U(ug_rec_nccl, communicator), U(ug_rec_nccl, sequence),
                        U(ug_rec_nccl, count), U(ug_rec_nccl, rank), U(ug_rec_nccl, ranks),
                        U(ug_rec_nccl, peer), S(ug_rec_nccl, function), S(ug_rec_nccl, datatype),
                        S(ug_rec_nccl, algorithm), S(ug_rec_nccl, protocol),
                        U(ug_rec_nccl, channels), U(ug_rec_nccl, warps),
                        U(ug_rec_nccl, element_bytes), U(ug_rec_nccl, plugin_version),
                        S(ug_rec_nccl, communicator_name)}},
        [UG_REC_MARK] = {"mark",
                {U(ug_rec_mark, at_ns), U(ug_rec_mark, value), S(ug_rec_mark, name),
                        U(ug_rec_mark, kind)}},
        [UG_REC_GC] = {"gc",
                {U(ug_rec_gc, start_ns), U(ug_rec_gc, end_ns), U(ug_rec_gc, generation),
                        U(ug_rec_gc, collected)}},
        [UG_REC_GRAPH_NODE] = {"graph_node",
                {U(ug_rec_graph_node, at_ns), U(ug_rec_graph_node, node),
                        U(ug_rec_graph_node, original)}},
        [UG_REC_LAUNCH_STACK] = {"launch_stack",
                {U(ug_rec_launch_stack, correlation), U(ug_rec_launch_stack, depth)}},
};

static void print_string(FILE *out, uint32_t id)
{
    if (!id)
        fprintf(out, "null");
    else if (id < string_count && strings[id])
        text_out(out, strings[id]);
    else
        fprintf(out, "\"?%u\"", id); // an id nobody has told: expect.py fails on it
}

static void print_record(FILE *out, const uint8_t *record)
{
    struct ug_rec_head head;
    memcpy(&head, record, sizeof(head));
    const struct shape *shape = &shapes[head.type];
    if (!shape->name)
        return; // of a contract newer than this program
    fprintf(out, "{\"type\":\"%s\",\"tid\":%u", shape->name, head.tid);
    for (size_t i = 0; i < FIELDS_MAX && shape->fields[i].name; i++) {
        const struct field *field = &shape->fields[i];
        uint64_t value = 0;
        if (field->at + field->size > head.bytes)
            continue;
        memcpy(&value, record + field->at, field->size);
        fprintf(out, ",\"%s\":", field->name);
        if (field->form == FORM_STRING)
            print_string(out, (uint32_t)value);
        else if (field->form == FORM_I)
            fprintf(out, "%d", (int)(int32_t)value);
        else
            fprintf(out, "%llu", (unsigned long long)value);
    }
    if (head.type == UG_REC_STRING) {
        fprintf(out, ",\"text\":");
        print_string(out, ((const struct ug_rec_string *)(const void *)record)->id);
    } else if (head.type == UG_REC_LAUNCH_STACK) {
        const struct ug_rec_launch_stack *stack = (const void *)record;
        fprintf(out, ",\"frames\":[");
        for (uint32_t i = 0; i < stack->depth && sizeof(*stack) + 4 * (i + 1) <= head.bytes; i++) {
            fprintf(out, i ? "," : "");
            print_string(out, stack->frames[i]);
        }
        fprintf(out, "]");
    }
    fprintf(out, "}\n");
}

static void collect_strings(void)
{
    for (size_t at = 0; at < records_bytes;) {
        const struct ug_rec_string *string = (const void *)(records + at);
        at += string->head.bytes;
        if (string->head.type != UG_REC_STRING || string->id > 1u << 24)
            continue;
        if (string->id >= string_count) {
            uint32_t count = string->id * 2 + 64;
            strings = realloc(strings, count * sizeof(*strings));
            if (!strings)
                fail("memory");
            memset(strings + string_count, 0, (count - string_count) * sizeof(*strings));
            string_count = count;
        }
        size_t room = string->head.bytes - sizeof(*string);
        char *text = strndup(
                (const char *)(string + 1), string->text_bytes < room ? string->text_bytes : room);
        if (strings[string->id] && text && strcmp(strings[string->id], text))
            spool.damaged++; // one id, two texts
        free(strings[string->id]);
        strings[string->id] = text;
    }
}

static void print_all(FILE *out)
{
    static const char *const producers[] = {"kernel", "copy", "call", "sync", "memory", "nvtx",
            "overhead", "nccl", "python", "other"};
    const struct ug_spool_header *header = spool.header;
    collect_strings();
    size_t kept[UG_REC_TYPE_COUNT] = {0};
    for (size_t at = 0; at < records_bytes;
            at += ((const struct ug_rec_head *)(const void *)(records + at))->bytes) {
        kept[((const struct ug_rec_head *)(const void *)(records + at))->type]++;
        if (!options.count)
            print_record(out, records + at);
    }
    fprintf(out, "{\"type\":\"kept\"");
    for (int i = 1; i < UG_REC_TYPE_COUNT; i++)
        if (shapes[i].name)
            fprintf(out, ",\"%s\":%zu", shapes[i].name, kept[i]);
    fprintf(out,
            "}\n{\"type\":\"header\",\"state\":\"%s\",\"pid\":%u,\"have_kinds\":%u,\"generation\":%u,"
            "\"done_generation\":%u,\"cupti_version\":%u,\"driver_version\":%u,\"nccl_version\":%u,"
            "\"per_thread_buffers\":%u,\"threads\":%u,\"cupti_dropped\":%llu,\"cupti_buffers_"
            "requested\":%llu,"
            "\"cupti_buffers_completed\":%llu,\"cupti_buffers_discarded\":%llu,\"unknown_records\":%"
            "llu,"
            "\"damaged\":%llu,\"reason\":",
            state_name(header->state), header->pid, header->have_kinds, header->generation,
            header->done_generation, header->cupti_version, header->driver_version,
            header->nccl_version, header->per_thread_buffers, header->threads,
            (unsigned long long)header->cupti_dropped,
            (unsigned long long)header->cupti_buffers_requested,
            (unsigned long long)header->cupti_buffers_completed,
            (unsigned long long)header->cupti_buffers_discarded,
            (unsigned long long)header->unknown_records, (unsigned long long)spool.damaged);
    text_out(out, header->reason);
    fprintf(out, ",\"cupti_path\":");
    text_out(out, header->cupti_path);
    fprintf(out, ",\"counts\":{");
    for (int i = 0; i < UG_PRODUCER_COUNT; i++)
        fprintf(out, "%s\"%s\":{\"seen\":%llu,\"dropped\":%llu}", i ? "," : "", producers[i],
                (unsigned long long)header->counts[i].seen,
                (unsigned long long)header->counts[i].dropped);
    fprintf(out, "}}\n");
}

static void parse(int argc, char **argv)
{
    options.pid = atoi(argv[1]);
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--kinds"))
            options.kinds = (uint32_t)strtoul(value, NULL, 0), i++;
        else if (!strcmp(argv[i], "--seconds"))
            options.seconds = strtod(value, NULL), i++;
        else if (!strcmp(argv[i], "--wait"))
            options.wait = strtod(value, NULL), i++;
        else if (!strcmp(argv[i], "--out"))
            options.out = value, i++;
        else if (!strcmp(argv[i], "--passive"))
            options.passive = true;
        else if (!strcmp(argv[i], "--sleepy"))
            options.sleepy = true;
        else if (!strcmp(argv[i], "--die"))
            options.die = true;
        else if (!strcmp(argv[i], "--count"))
            options.count = true;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || atoi(argv[1]) <= 0) {
        fprintf(stderr,
                "usage: spool_dump PID [--kinds N] [--seconds S] [--wait S] [--out FILE] "
                "[--passive] [--sleepy]"
                " [--die] [--count]\n");
        return 2;
    }
    parse(argc, argv);
    attach();
    skip_old();
    tell_state();
    uint32_t last_state = spool.header->state;
    bool is_on = true;
    if (!options.passive)
        is_on = run(now_ns() + 20000000000u, false, ask_for(UG_SPOOL_ACTIVE), &last_state);
    printf("{\"type\":\"asked\",\"state\":\"%s\"}\n", state_name(last_state));
    fflush(stdout);
    if (is_on)
        is_on = run(now_ns() + (uint64_t)(options.seconds * 1e9), true, 0, &last_state);
    if (options.die)
        return 0;
    if (is_on && !options.passive)
        run(now_ns() + 10000000000u, false, ask_for(UG_SPOOL_DORMANT), &last_state);
    read_spool();
    FILE *out = options.out ? fopen(options.out, "w") : stdout;
    if (!out)
        fail("open the output");
    print_all(out);
    if (fflush(out))
        fail("write");
    return 0;
}
