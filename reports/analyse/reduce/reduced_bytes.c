// SPDX-License-Identifier: Apache-2.0
// Reduced ranks as a file: "UGRD", the version, what job it is of, its lists in order, a checksum.
// docs/SCHEMA.md has each byte. What is read may be anybody's: every number is checked before it is
// used, and what has one form only is refused in another.
#include "reports/analyse/reduce/reduced.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/containers/vector.h"

static const char reduced_magic[4] = {'U', 'G', 'R', 'D'};
enum { REDUCED_CHECKSUM_SIZE = 8 };

static const uint64_t reduced_checksum_begin = 0xcbf29ce484222325u;

// FNV-1a, going on behind what `hash` is of.
static uint64_t reduced_checksum_add(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

uint64_t reduced_checksum(const void *bytes, size_t size)
{
    return reduced_checksum_add(reduced_checksum_begin, bytes, size);
}

// --- out -----------------------------------------------------------------------------------------

struct reduced_out { // where bytes go: into one of both, or nowhere, and are counted
    struct strbuf *buf;
    FILE *file;
    size_t size;
    uint64_t checksum;
};

static void reduced_put_bytes(struct reduced_out *out, const void *bytes, size_t size)
{
    out->size += size;
    if (out->buf)
        strbuf_add_bytes(out->buf, bytes, size);
    if (out->file)
        fwrite(bytes, 1, size, out->file); // its owner asks ferror()
    if (out->buf || out->file)
        out->checksum = reduced_checksum_add(out->checksum, bytes, size);
}

static void reduced_put_number(struct reduced_out *out, uint64_t value)
{
    uint8_t bytes[VARINT_SIZE_MAX];
    size_t size = varint_put(bytes, value);
    reduced_put_bytes(out, bytes, size);
}

static void reduced_put_text(struct reduced_out *out, const char *text)
{
    size_t len = strlen(text);
    len = len < REDUCED_NAME_MAX ? len : REDUCED_NAME_MAX;
    reduced_put_number(out, len);
    reduced_put_bytes(out, text, len);
}

static void reduced_put_word(struct reduced_out *out, uint64_t word) // 8 bytes, little endian
{
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(word >> (8 * i));
    reduced_put_bytes(out, bytes, sizeof bytes);
}

static void reduced_put_gists(struct reduced_out *out, const struct reduced *reduced)
{
    int32_t rank = 0;
    uint64_t next = 0; // the first window that may follow
    reduced_put_number(out, reduced->gist_count);
    for (size_t i = 0; i < reduced->gist_count; i++) {
        const struct reduced_gist *gist = &reduced->gists[i];
        if (gist->rank != rank)
            next = 0;
        reduced_put_number(out, (uint64_t)(gist->rank - rank));
        reduced_put_number(out, gist->window - next);
        reduced_put_number(out, gist->size);
        reduced_put_bytes(out, reduced->gist_bytes.text + gist->at, gist->size);
        rank = gist->rank;
        next = gist->window + 1;
    }
}

static void reduced_put_meetings(struct reduced_out *out, const struct reduced *reduced)
{
    const struct reduced_meeting *list = reduced->meetings;
    for (size_t first = 0, end; first < reduced->meeting_count; first = end) {
        uint64_t number = 0;
        int64_t last_ns = 0;
        for (end = first;
                end < reduced->meeting_count && list[end].communicator == list[first].communicator;
                end++)
            ;
        reduced_put_number(out, end - first);
        reduced_put_word(out, list[first].communicator);
        for (size_t i = first; i < end; i++) {
            reduced_put_number(out, list[i].number - number);
            reduced_put_number(out, list[i].node);
            reduced_put_number(out, (uint64_t)list[i].count << 1 | list[i].repeats);
            reduced_put_number(out, (uint64_t)list[i].last);
            reduced_put_number(out, varint_zigzag(list[i].last_ns - last_ns));
            if (list[i].count > 1)
                reduced_put_number(out, list[i].waits_ns);
            number = list[i].number;
            last_ns = list[i].last_ns;
        }
    }
    reduced_put_number(out, 0); // no communicator follows
}

static int reduced_too_large(size_t bytes, struct error *err)
{
    return error_set(err, -E2BIG,
            "the ranks reduced would have more than %zu bytes, and a file has %d at most: take a larger --window",
            bytes, (int)REDUCED_BYTES_MAX);
}

// The head of a file: what job it is of, its nodes, its ranks.
static void reduced_put_job(struct reduced_out *out, const struct reduced *reduced)
{
    reduced_put_bytes(out, reduced_magic, sizeof reduced_magic);
    reduced_put_number(out, REDUCED_VERSION);
    reduced_put_text(out, reduced->run ? reduced->run : "");
    reduced_put_number(out, varint_zigzag(reduced->restart));
    reduced_put_number(out, (uint64_t)reduced->ranks);
    reduced_put_number(out, reduced->window_steps);
    reduced_put_number(out, reduced->node_count);
    for (size_t i = 0; i < reduced->node_count; i++) {
        const struct reduced_node *node = &reduced->nodes[i];
        reduced_put_text(out, node->boot);
        reduced_put_text(out, node->host);
        reduced_put_number(out, varint_zigzag(node->wall_minus_monotonic_ns));
        reduced_put_number(out, (uint64_t)(node->error_ns + 1));
    }
    int32_t next = 0;
    reduced_put_number(out, reduced->member_count);
    for (size_t i = 0; i < reduced->member_count; i++) {
        const struct reduced_rank *member = &reduced->members[i];
        reduced_put_number(out, (uint64_t)(member->rank - next));
        reduced_put_number(out, member->node);
        reduced_put_number(out, member->flags);
        reduced_put_number(out, member->dropped);
        if (member->flags & REDUCED_GPU) {
            reduced_put_bytes(out, member->gpu, sizeof member->gpu);
            reduced_put_text(out, member->model);
        }
        next = member->rank + 1;
    }
}

static int reduced_put(struct reduced_out *out, const struct reduced *reduced, struct error *err)
{
    size_t gist_bytes = 0;
    for (size_t i = 0; i < reduced->gist_count; i++) // most of it, and seen before anything is put
        gist_bytes += reduced->gists[i].size;
    if (gist_bytes > REDUCED_BYTES_MAX)
        return reduced_too_large(gist_bytes, err);
    out->checksum = reduced_checksum_begin;
    reduced_put_job(out, reduced);
    reduced_put_gists(out, reduced);
    reduced_put_meetings(out, reduced);
    if (out->size + REDUCED_CHECKSUM_SIZE > REDUCED_BYTES_MAX)
        return reduced_too_large(out->size, err);
    reduced_put_word(out, out->checksum);
    return 0;
}

int reduced_encode(const struct reduced *reduced, struct strbuf *ret, struct error *err)
{
    size_t begin = ret->len;
    int rc = reduced_put(&(struct reduced_out){.buf = ret}, reduced, err);
    if (rc && ret->text) {
        ret->len = begin;
        ret->text[begin] = '\0';
    }
    return rc;
}

int reduced_encode_file(
        const struct reduced *reduced, FILE *file, size_t *ret_bytes, struct error *err)
{
    struct reduced_out out = {.file = file};
    int rc = reduced_put(&out, reduced, err);
    if (rc == 0)
        *ret_bytes = out.size;
    return rc;
}

// --- in ------------------------------------------------------------------------------------------

struct reduced_in { // what is read, and why it is refused
    struct varints bytes;
    uint64_t version;
    char why[160]; // of the first thing that cannot be; "": the bytes end too early, or a number
                   // has another form
};

static void __attribute__((format(printf, 2, 3)))
reduced_refuse(struct reduced_in *in, const char *fmt, ...)
{
    va_list args;
    if (in->bytes.bad)
        return;
    in->bytes.bad = true;
    va_start(args, fmt);
    vsnprintf(in->why, sizeof in->why, fmt, args);
    va_end(args);
}

static uint64_t reduced_take_number(struct reduced_in *in)
{
    return varint_get(&in->bytes);
}

static char *reduced_take_text(struct reduced_in *in, const char *what)
{
    uint64_t len = reduced_take_number(in);
    if (len > REDUCED_NAME_MAX)
        reduced_refuse(in, "the name of a %s has %llu bytes, and may have %d", what,
                (unsigned long long)len, (int)REDUCED_NAME_MAX);
    const uint8_t *text = in->bytes.bad ? NULL : varint_take(&in->bytes, (size_t)len);
    if (text && memchr(text, 0, (size_t)len))
        reduced_refuse(in, "the name of a %s has a zero in it", what);
    return in->bytes.bad || !text ? xstrdup("") : xasprintf("%.*s", (int)len, (const char *)text);
}

static uint64_t reduced_take_word(struct varints *bytes)
{
    const uint8_t *at = varint_take(bytes, 8);
    uint64_t word = 0;
    for (unsigned i = 0; at && i < 8; i++)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

// Of things that have `least` bytes each: more than the file has room for are refused before the
// first is read.
static uint64_t reduced_take_count(struct reduced_in *in, size_t least, const char *what)
{
    uint64_t count = reduced_take_number(in),
             room = (uint64_t)(in->bytes.end - in->bytes.at) / least;
    if (count <= room)
        return count;
    reduced_refuse(in, "it counts %llu %s, and has room for %llu", (unsigned long long)count, what,
            (unsigned long long)room);
    return 0;
}

// A number below `end`; else refused.
static uint64_t reduced_take_below(struct reduced_in *in, uint64_t end, const char *what)
{
    uint64_t value = reduced_take_number(in);
    if (value < end)
        return value;
    reduced_refuse(in, "%s is %llu, and has to be below %llu", what, (unsigned long long)value,
            (unsigned long long)end);
    return 0;
}

// What is added to `before`, below `end`; else refused.
static uint64_t reduced_take_from(
        struct reduced_in *in, uint64_t before, uint64_t end, const char *what)
{
    uint64_t value;
    bool over = __builtin_add_overflow(before, reduced_take_number(in), &value);
    if (!over && value < end)
        return value;
    reduced_refuse(in, "%s behind %llu is not below %llu", what, (unsigned long long)before,
            (unsigned long long)end);
    return 0;
}

static bool reduced_is_time(int64_t ns)
{
    return ns > -REDUCED_NS_END && ns < REDUCED_NS_END;
}

static void reduced_take_nodes(struct reduced_in *in, struct reduced *ret)
{
    enum { NODE_BYTES = 4 };
    uint64_t count = reduced_take_count(in, NODE_BYTES, "nodes");
    for (uint64_t i = 0; i < count && !in->bytes.bad; i++) {
        struct reduced_node node = {.boot = reduced_take_text(in, "boot")};
        node.host = reduced_take_text(in, "host");
        node.wall_minus_monotonic_ns = varint_unzigzag(reduced_take_number(in));
        node.error_ns =
                (int64_t)reduced_take_below(in, (uint64_t)REDUCED_NS_END, "the error of a clock") -
                1;
        if (!reduced_is_time(node.wall_minus_monotonic_ns))
            reduced_refuse(in, "the clock of node %llu is %lld ns off", (unsigned long long)i,
                    (long long)node.wall_minus_monotonic_ns);
        if (i && strcmp(ret->nodes[i - 1].boot, node.boot) >= 0)
            reduced_refuse(in, "node %llu is there twice, or out of order", (unsigned long long)i);
        vector_push(ret->nodes, ret->node_count, node);
    }
}

static void reduced_take_gpu(struct reduced_in *in, struct reduced_rank *ret)
{
    const uint8_t *uuid = varint_take(&in->bytes, sizeof ret->gpu);
    char *model = reduced_take_text(in, "GPU");
    size_t len = strlen(model);
    if (len > REDUCED_MODEL_MAX)
        reduced_refuse(in, "the name of a GPU has %zu bytes, and may have %d", len,
                (int)REDUCED_MODEL_MAX);
    if (!in->bytes.bad) {
        memcpy(ret->gpu, uuid, sizeof ret->gpu);
        memcpy(ret->model, model, len);
    }
    free(model);
}

static void reduced_take_members(struct reduced_in *in, struct reduced *ret)
{
    enum { MEMBER_BYTES = 4 };
    uint64_t count = reduced_take_count(in, MEMBER_BYTES, "ranks"), next = 0;
    if (count > (uint64_t)ret->ranks)
        reduced_refuse(in, "it counts %llu ranks of a job of %d", (unsigned long long)count,
                (int)ret->ranks);
    for (uint64_t i = 0; i < count && !in->bytes.bad; i++) {
        struct reduced_rank member = {
                .rank = (int32_t)reduced_take_from(in, next, (uint64_t)ret->ranks, "a rank")};
        member.node = (uint32_t)reduced_take_below(in, ret->node_count, "the node of a rank");
        member.flags = (uint32_t)reduced_take_below(in,
                (in->version > 1 ? REDUCED_FLAGS : REDUCED_FLAGS_1) + 1, "what is told of a rank");
        member.dropped = reduced_take_number(in);
        if (member.flags & REDUCED_GPU)
            reduced_take_gpu(in, &member);
        next = (uint64_t)member.rank + 1;
        vector_push(ret->members, ret->member_count, member);
    }
}

static void reduced_take_gists(struct reduced_in *in, struct reduced *ret)
{
    enum { BYTES_LEAST = 5 }; // two of them of an empty gist
    uint64_t count = reduced_take_count(in, BYTES_LEAST, "windows"), rank = 0, next = 0;
    bool full = false; // behind the last window that there can be
    struct gist gist;
    for (uint64_t i = 0; i < count && !in->bytes.bad; i++) {
        uint64_t before = rank;
        rank = reduced_take_from(in, rank, (uint64_t)ret->ranks, "the rank of a window");
        if (rank != before) {
            next = 0;
            full = false;
        }
        uint64_t window = reduced_take_number(in),
                 size = reduced_take_below(in, GIST_BYTES_MAX + 1, "the size of a window");
        if (full || __builtin_add_overflow(window, next, &window))
            reduced_refuse(in,
                    "windows of rank %llu are out of order: one comes behind the last that there can be",
                    (unsigned long long)rank);
        if (!in->bytes.bad && !reduced_member(ret, (int64_t)rank))
            reduced_refuse(in, "it has a window of rank %llu, which is not among its ranks",
                    (unsigned long long)rank);
        const uint8_t *one = in->bytes.bad ? NULL : varint_take(&in->bytes, (size_t)size);
        if (one && !gist_decode(one, (size_t)size, &gist))
            reduced_refuse(in,
                    "window %llu of rank %llu: its lengths, their counts or sums, or its phases cannot be",
                    (unsigned long long)window, (unsigned long long)rank);
        if (!one || in->bytes.bad)
            return;
        reduced_put_gist(ret, (int32_t)rank, window, one, (size_t)size);
        full = window == UINT64_MAX;
        next = window + 1;
    }
}

static void reduced_take_meeting(struct reduced_in *in, const struct reduced *reduced,
        const struct reduced_meeting *before, const size_t *on_node, struct reduced_meeting *ret)
{
    ret->communicator = before->communicator;
    ret->number =
            reduced_take_from(in, before->number, (uint64_t)1 << 63, "the number of a collective");
    ret->node = (uint32_t)reduced_take_below(in, reduced->node_count, "the node of a collective");
    uint64_t count = reduced_take_number(in),
             last = reduced_take_below(
                     in, (uint64_t)reduced->ranks, "who came last to a collective");
    int64_t step = varint_unzigzag(reduced_take_number(in));
    ret->repeats = count & 1;
    count >>= 1;
    ret->waits_ns = count > 1 ? reduced_take_below(in, REDUCED_WAITS_NS_END,
                                        "the sum of the waits in a collective, in ns,")
                              : 0;
    if (in->bytes.bad)
        return;
    const struct reduced_rank *member = reduced_member(reduced, (int64_t)last);
    if (!member || member->node != ret->node)
        reduced_refuse(in, "rank %llu came last to a collective on node %u, and is not there",
                (unsigned long long)last, ret->node);
    else if (!count || count > on_node[ret->node])
        reduced_refuse(in, "%llu ranks came to a collective on a node that has %zu",
                (unsigned long long)count, on_node[ret->node]);
    else if (__builtin_add_overflow(before->last_ns, step, &ret->last_ns) ||
            !reduced_is_time(ret->last_ns))
        reduced_refuse(in, "the time of a collective is none that a clock shows");
    ret->count = (uint32_t)count;
    ret->last = (int32_t)last;
}

static void reduced_take_meetings(struct reduced_in *in, struct reduced *ret)
{
    enum { MEETING_BYTES = 5 };
    size_t *on_node = xcalloc(ret->node_count + 1, sizeof *on_node);
    for (size_t i = 0; i < ret->member_count; i++)
        on_node[ret->members[i].node]++;
    uint64_t communicator = 0, left;
    for (size_t groups = 0;
            (left = reduced_take_count(in, MEETING_BYTES, "collectives")) && !in->bytes.bad;
            groups++) {
        struct reduced_meeting before = {.communicator = reduced_take_word(&in->bytes)};
        if (groups && before.communicator <= communicator)
            reduced_refuse(in, "a communicator is there twice, or out of order");
        communicator = before.communicator;
        for (uint64_t i = 0; i < left && !in->bytes.bad; i++) {
            struct reduced_meeting one = {0};
            reduced_take_meeting(in, ret, &before, on_node, &one);
            if (i && one.number == before.number && one.node <= before.node)
                reduced_refuse(in, "collective %llu is there twice on a node, or out of order",
                        (unsigned long long)one.number);
            if (ret->meeting_count == REDUCED_MEETINGS_MAX)
                reduced_refuse(in, "it has more than %d collectives", (int)REDUCED_MEETINGS_MAX);
            if (!in->bytes.bad)
                vector_push(ret->meetings, ret->meeting_count, one);
            before = one;
        }
    }
    free(on_node);
}

// All behind the version.
static void reduced_take(struct reduced_in *in, struct reduced *ret)
{
    ret->run = reduced_take_text(in, "run");
    ret->restart = varint_unzigzag(reduced_take_number(in));
    ret->ranks =
            (int32_t)reduced_take_below(in, REDUCED_RANKS_MAX + 1, "how many ranks the job has");
    ret->window_steps = reduced_take_number(in);
    if (!*ret->run || !ret->ranks || !ret->window_steps)
        reduced_refuse(in, "its run has no name, no ranks, or windows of no steps");
    reduced_take_nodes(in, ret);
    reduced_take_members(in, ret);
    reduced_take_gists(in, ret);
    reduced_take_meetings(in, ret);
    if (in->bytes.at != in->bytes.end)
        reduced_refuse(in, "something follows its end");
}

int reduced_decode(
        const void *from, size_t size, const char *name, struct reduced *ret, struct error *err)
{
    *ret = (struct reduced){0};
    if (size < sizeof reduced_magic || memcmp(from, reduced_magic, sizeof reduced_magic) != 0)
        return error_set(err, -EINVAL,
                "'%s' is no file of reduced ranks: `upgate merge DIR --reduced -o FILE` makes one",
                name);
    if (size < sizeof reduced_magic + REDUCED_CHECKSUM_SIZE)
        return error_set(err, -EBADMSG, "'%s' is cut off", name);
    const uint8_t *begin = from, *end = begin + size - REDUCED_CHECKSUM_SIZE;
    struct reduced_in in = {.bytes = {.at = begin + sizeof reduced_magic, .end = end}};
    struct varints sum = {.at = end, .end = end + REDUCED_CHECKSUM_SIZE};
    if (reduced_checksum(begin, (size_t)(end - begin)) != reduced_take_word(&sum))
        return error_set(
                err, -EBADMSG, "'%s' is damaged or cut off: its checksum is another one", name);
    in.version = reduced_take_number(&in);
    if (in.version > REDUCED_VERSION)
        return error_set(err, -EINVAL,
                "'%s' is of version %llu, this upgate knows %d: take a newer upgate", name,
                (unsigned long long)in.version, (int)REDUCED_VERSION);
    if (!in.version)
        reduced_refuse(&in, "there is no version 0");
    reduced_take(&in, ret);
    if (!in.bytes.bad)
        return 0;
    size_t at = (size_t)(in.bytes.at - begin);
    reduced_free(ret);
    return error_set(err, -EBADMSG, "'%s' is damaged before byte %zu: %s", name, at,
            *in.why ? in.why : "it ends too early, or a number there is none");
}

int reduced_read(const char *path, struct reduced *ret, struct error *err)
{
    struct stat info;
    size_t size = 0;
    *ret = (struct reduced){0};
    if (stat(path, &info) < 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? -EINVAL : -errno,
                "failed to read '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size > REDUCED_BYTES_MAX) // a FIFO would be waited for
        return error_set(err, -EINVAL, "'%s' is no file of reduced ranks: %s", path,
                S_ISREG(info.st_mode) ? "it is too large" : "it is no regular file");
    char *bytes = string_read_file(path, REDUCED_BYTES_MAX, &size);
    if (!bytes)
        return error_set(err, -errno, "failed to read '%s': %s", path, strerror(errno));
    int rc = reduced_decode(bytes, size, path, ret, err);
    free(bytes);
    return rc;
}
