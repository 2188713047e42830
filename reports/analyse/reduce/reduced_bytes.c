// SPDX-License-Identifier: Apache-2.0
// Reduced ranks as a file: "UGRD", the version, what job it is of, its lists in order, a checksum. docs/SCHEMA.md has each byte. What is read
// may be anybody's: every number is checked before it is used, and what has one form only is refused in another.
#include "reports/analyse/reduce/reduced.h"

#include <errno.h>
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

// --- out ------------------------------------------------------------------------------------------

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
    size_t len = strnlen(text, REDUCED_NAME_MAX);
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
        for (end = first; end < reduced->meeting_count && list[end].communicator == list[first].communicator; end++)
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
    return error_set(err, -E2BIG, "the ranks reduced would have more than %zu bytes, and a file has %d at most: take a larger --window", bytes,
                     (int)REDUCED_BYTES_MAX);
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

int reduced_encode_file(const struct reduced *reduced, FILE *file, size_t *ret_bytes, struct error *err)
{
    struct reduced_out out = {.file = file};
    int rc = reduced_put(&out, reduced, err);
    if (rc == 0)
        *ret_bytes = out.size;
    return rc;
}

// --- in -------------------------------------------------------------------------------------------

static char *reduced_take_text(struct varints *bytes)
{
    uint64_t len = varint_get(bytes);
    const uint8_t *text = len <= REDUCED_NAME_MAX ? varint_take(bytes, (size_t)len) : NULL;
    if (!text || memchr(text, 0, (size_t)len)) {
        bytes->bad = true;
        return xstrdup("");
    }
    return xasprintf("%.*s", (int)len, (const char *)text);
}

static uint64_t reduced_take_word(struct varints *bytes)
{
    const uint8_t *at = varint_take(bytes, 8);
    uint64_t word = 0;
    for (unsigned i = 0; at && i < 8; i++)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

// A number below `end`; else bad.
static uint64_t reduced_take_below(struct varints *bytes, uint64_t end)
{
    uint64_t value = varint_get(bytes);
    if (value < end)
        return value;
    bytes->bad = true;
    return 0;
}

// What is added to `before`, below `end`; else bad.
static uint64_t reduced_take_from(struct varints *bytes, uint64_t before, uint64_t end)
{
    uint64_t value;
    if (!__builtin_add_overflow(before, varint_get(bytes), &value) && value < end)
        return value;
    bytes->bad = true;
    return 0;
}

static bool reduced_is_time(int64_t ns)
{
    return ns > -REDUCED_NS_END && ns < REDUCED_NS_END;
}

static void reduced_take_nodes(struct varints *bytes, struct reduced *ret)
{
    uint64_t count = varint_get(bytes);
    for (uint64_t i = 0; i < count && !bytes->bad; i++) {
        struct reduced_node node = {.boot = reduced_take_text(bytes)};
        node.host = reduced_take_text(bytes);
        node.wall_minus_monotonic_ns = varint_unzigzag(varint_get(bytes));
        node.error_ns = (int64_t)reduced_take_below(bytes, (uint64_t)REDUCED_NS_END) - 1;
        bytes->bad |= !reduced_is_time(node.wall_minus_monotonic_ns) || (i && strcmp(ret->nodes[i - 1].boot, node.boot) >= 0);
        vector_push(ret->nodes, ret->node_count, node);
    }
}

static void reduced_take_members(struct varints *bytes, struct reduced *ret)
{
    uint64_t count = varint_get(bytes), next = 0;
    for (uint64_t i = 0; i < count && !bytes->bad; i++) {
        struct reduced_rank member = {.rank = (int32_t)reduced_take_from(bytes, next, (uint64_t)ret->ranks)};
        member.node = (uint32_t)reduced_take_below(bytes, ret->node_count);
        member.flags = (uint32_t)reduced_take_below(bytes, REDUCED_FLAGS + 1);
        member.dropped = varint_get(bytes);
        next = (uint64_t)member.rank + 1;
        vector_push(ret->members, ret->member_count, member);
    }
}

static void reduced_take_gists(struct varints *bytes, struct reduced *ret)
{
    uint64_t count = varint_get(bytes), rank = 0, next = 0;
    bool full = false; // behind the last window that there can be
    struct gist gist;
    for (uint64_t i = 0; i < count && !bytes->bad; i++) {
        uint64_t before = rank;
        rank = reduced_take_from(bytes, rank, (uint64_t)ret->ranks);
        if (rank != before) {
            next = 0;
            full = false;
        }
        uint64_t window = varint_get(bytes), size = reduced_take_below(bytes, GIST_BYTES_MAX + 1);
        bool over = full || __builtin_add_overflow(window, next, &window);
        const uint8_t *one = varint_take(bytes, (size_t)size);
        if (!one || over || !reduced_member(ret, (int64_t)rank) || !gist_decode(one, (size_t)size, &gist)) {
            bytes->bad = true;
            return;
        }
        reduced_put_gist(ret, (int32_t)rank, window, one, (size_t)size);
        full = window == UINT64_MAX;
        next = window + 1;
    }
}

static void reduced_take_meeting(struct varints *bytes, const struct reduced *reduced, const struct reduced_meeting *before, const size_t *on_node,
                                 struct reduced_meeting *ret)
{
    uint64_t count, last;
    int64_t step;
    ret->communicator = before->communicator;
    ret->number = reduced_take_from(bytes, before->number, (uint64_t)1 << 63);
    ret->node = (uint32_t)reduced_take_below(bytes, reduced->node_count);
    count = varint_get(bytes);
    last = reduced_take_below(bytes, (uint64_t)reduced->ranks);
    step = varint_unzigzag(varint_get(bytes));
    ret->repeats = count & 1;
    count >>= 1;
    ret->waits_ns = count > 1 ? varint_get(bytes) : 0;
    const struct reduced_rank *member = reduced_member(reduced, (int64_t)last);
    if (bytes->bad || !member || member->node != ret->node || !count || count > on_node[ret->node] ||
        __builtin_add_overflow(before->last_ns, step, &ret->last_ns) || !reduced_is_time(ret->last_ns)) {
        bytes->bad = true;
        return;
    }
    ret->count = (uint32_t)count;
    ret->last = member->rank;
}

static void reduced_take_meetings(struct varints *bytes, struct reduced *ret)
{
    size_t *on_node = xcalloc(ret->node_count + 1, sizeof *on_node);
    for (size_t i = 0; i < ret->member_count; i++)
        on_node[ret->members[i].node]++;
    uint64_t communicator = 0, left;
    for (size_t groups = 0; (left = varint_get(bytes)) && !bytes->bad; groups++) {
        struct reduced_meeting before = {.communicator = reduced_take_word(bytes)};
        bytes->bad |= groups && before.communicator <= communicator;
        communicator = before.communicator;
        for (uint64_t i = 0; i < left && !bytes->bad; i++) {
            struct reduced_meeting one = {0};
            reduced_take_meeting(bytes, ret, &before, on_node, &one);
            bytes->bad |= (i && one.number == before.number && one.node <= before.node) || ret->meeting_count == REDUCED_MEETINGS_MAX;
            if (!bytes->bad)
                vector_push(ret->meetings, ret->meeting_count, one);
            before = one;
        }
    }
    free(on_node);
}

// All behind the version.
static void reduced_take(struct varints *bytes, struct reduced *ret)
{
    ret->run = reduced_take_text(bytes);
    ret->restart = varint_unzigzag(varint_get(bytes));
    ret->ranks = (int32_t)reduced_take_below(bytes, REDUCED_RANKS_MAX + 1);
    ret->window_steps = varint_get(bytes);
    bytes->bad |= !*ret->run || !ret->ranks || !ret->window_steps;
    reduced_take_nodes(bytes, ret);
    reduced_take_members(bytes, ret);
    reduced_take_gists(bytes, ret);
    reduced_take_meetings(bytes, ret);
    bytes->bad |= bytes->at != bytes->end;
}

int reduced_decode(const void *from, size_t size, const char *name, struct reduced *ret, struct error *err)
{
    *ret = (struct reduced){0};
    if (size < sizeof reduced_magic || memcmp(from, reduced_magic, sizeof reduced_magic) != 0)
        return error_set(err, -EINVAL, "'%s' is no file of reduced ranks: `upgate merge DIR --reduced -o FILE` makes one", name);
    if (size < sizeof reduced_magic + REDUCED_CHECKSUM_SIZE)
        return error_set(err, -EBADMSG, "'%s' is cut off", name);
    const uint8_t *begin = from, *end = begin + size - REDUCED_CHECKSUM_SIZE;
    struct varints bytes = {.at = begin + sizeof reduced_magic, .end = end}, sum = {.at = end, .end = end + REDUCED_CHECKSUM_SIZE};
    if (reduced_checksum(begin, (size_t)(end - begin)) != reduced_take_word(&sum))
        return error_set(err, -EBADMSG, "'%s' is damaged or cut off: its checksum is another one", name);
    uint64_t version = varint_get(&bytes);
    if (version > REDUCED_VERSION)
        return error_set(err, -EINVAL, "'%s' is of version %llu, this upgate knows %d: take a newer upgate", name, (unsigned long long)version,
                         (int)REDUCED_VERSION);
    bytes.bad |= version != REDUCED_VERSION;
    reduced_take(&bytes, ret);
    if (!bytes.bad)
        return 0;
    size_t at = (size_t)(bytes.at - begin);
    reduced_free(ret);
    return error_set(err, -EBADMSG, "'%s' is damaged: what stands before byte %zu cannot be", name, at);
}

int reduced_read(const char *path, struct reduced *ret, struct error *err)
{
    struct stat info;
    size_t size = 0;
    *ret = (struct reduced){0};
    if (stat(path, &info) < 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? -EINVAL : -errno, "failed to read '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size > REDUCED_BYTES_MAX) // a FIFO would be waited for
        return error_set(err, -EINVAL, "'%s' is no file of reduced ranks: %s", path, S_ISREG(info.st_mode) ? "it is too large" : "it is no regular file");
    char *bytes = string_read_file(path, REDUCED_BYTES_MAX, &size);
    if (!bytes)
        return error_set(err, -errno, "failed to read '%s': %s", path, strerror(errno));
    int rc = reduced_decode(bytes, size, path, ret, err);
    free(bytes);
    return rc;
}
