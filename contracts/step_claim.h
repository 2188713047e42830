/*
 * Part of the writer's side of the step protocol: the first call of a process, which finds, checks
 * and maps the file and claims a slot; fork, exec and exit. Not to be included alone; upgate_step.h
 * is the way in. Whatever is wrong with the file turns the steps off, with one line on stderr.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef UPGATE_CONTRACTS_STEP_CLAIM_H
#define UPGATE_CONTRACTS_STEP_CLAIM_H

#include "contracts/step_gate.h"

static UG_IMPL_COLD void ug_impl_off(struct ug_step_state *s, const char *why)
{
    if (!s->told) {
        s->told = 1;
        dprintf(STDERR_FILENO, "upgate: steps are off: '%s': %s\n", s->path, why);
    }
    __atomic_store_n(&s->retry_ns, ug_impl_now_ns() + UG_IMPL_RETRY_NS, __ATOMIC_RELAXED);
    __atomic_store_n(&s->status, UG_IMPL_OFF, __ATOMIC_RELEASE);
}

/* NULL, or what is wrong with the file. */
static UG_IMPL_COLD const char *ug_impl_header_fault(
        const struct ug_step_header *header, uint64_t file_bytes)
{
    uint64_t records = header->ring_records, bytes = header->ring_bytes;

    if (header->magic != UG_STEP_MAGIC) {
        return "not a step file of upgate";
    }
    if (header->version != UG_STEP_VERSION || header->slot_bytes != sizeof(struct ug_step_slot) ||
            header->record_bytes != sizeof(struct ug_step_record)) {
        return "another version of the step protocol; use the header of this upgate";
    }
    if (header->slot_count == 0 || header->slot_count > UG_STEP_SLOTS_MAX ||
            header->slots_offset != UG_STEP_HEADER_BYTES || records < 2 || records > (1u << 24) ||
            (records & (records - 1)) != 0 || bytes < UG_STEP_ALIGN_BYTES || bytes > (1ull << 32) ||
            (bytes & (bytes - 1)) != 0 || header->rings_offset > (1u << 20) ||
            header->rings_offset % UG_STEP_ALIGN_BYTES != 0 ||
            header->stride_bytes > (1ull << 33) ||
            header->stride_bytes % UG_STEP_ALIGN_BYTES != 0 ||
            header->rings_offset <
                    UG_STEP_HEADER_BYTES + header->slot_count * sizeof(struct ug_step_slot) ||
            header->stride_bytes < ug_step_ring_span(records) + bytes ||
            header->file_bytes != file_bytes ||
            file_bytes < header->rings_offset + header->slot_count * header->stride_bytes) {
        return "damaged header";
    }
    return NULL;
}

/* A decimal number and nothing else but end; UINT64_MAX when it is not one. strtoul() is another
 * symbol in glibc 2.38 and later, see ug_impl_fstat(). */
static UG_IMPL_COLD uint64_t ug_impl_number(const char *text, char end)
{
    uint64_t value = 0;

    if (text == NULL || *text == end) {
        return UINT64_MAX;
    }
    for (; *text != end; text++) {
        if (*text < '0' || *text > '9' || value > UINT64_MAX / 16) {
            return UINT64_MAX;
        }
        value = value * 10 + (uint64_t)(*text - '0');
    }
    return value;
}

/* Field 22 of /proc/self/stat; 0 when there is none to read. */
static UG_IMPL_COLD uint64_t ug_impl_start_ticks(void)
{
    char text[1024];
    const char *at;
    ssize_t length;
    uint64_t ticks;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return 0;
    }
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    at = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 1; at != NULL && field < 21; field++) {
        at = strchr(at + 1, ' ');
    }
    ticks = at == NULL ? UINT64_MAX : ug_impl_number(at + 1, ' ');
    return ticks == UINT64_MAX ? 0 : ticks;
}

/* Inode of a file of /proc/self/ns; 0 when there is none to read. */
static UG_IMPL_COLD uint64_t ug_impl_namespace(const char *path)
{
    struct stat status;
    uint64_t inode = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (ug_impl_fstat(fd, &status) == 0) {
            inode = status.st_ino;
        }
        close(fd);
    }
    return inode;
}

/* Variables that say which rank a process is: the first that is a number, that of the innermost
 * launcher. RANK stands twice: a launcher of processes says LOCAL_RANK beside it, and then it
 * comes first; alone it may be the number of a pod in which mpirun was started, and comes behind
 * those of MPI. */
#define UG_IMPL_RANK_NAMES "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"

/* Where to begin in these, by the value of LOCAL_RANK, NULL: it is not set. */
static inline size_t ug_impl_rank_first(const char *local_rank)
{
    return ug_impl_number(local_rank, '\0') < UG_STEP_RANK_UNKNOWN ? 0 : 1;
}

static UG_IMPL_COLD void ug_impl_read_rank(struct ug_step_slot *slot, uint32_t claim_order)
{
    static const char *const names[] = {UG_IMPL_RANK_NAMES};
    size_t i = ug_impl_rank_first(getenv("LOCAL_RANK"));

    slot->rank = claim_order;
    slot->rank_source = UG_RANK_CLAIM_ORDER;
    for (; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t rank = ug_impl_number(getenv(names[i]), '\0');

        if (rank < UG_STEP_RANK_UNKNOWN) {
            slot->rank = (uint32_t)rank;
            slot->rank_source = UG_RANK_ENVIRONMENT;
            return;
        }
    }
}

/* Finds the slot of this process: the one of its image before exec, or a fresh one. */
static UG_IMPL_COLD struct ug_step_slot *ug_impl_find_slot(
        struct ug_step_state *s, const char **ret_why)
{
    struct ug_step_slot *slots =
            (struct ug_step_slot *)(void *)((char *)s->header + s->header->slots_offset);
    uint32_t pid = (uint32_t)getpid(), slot_count = s->header->slot_count;
    uint64_t ticks = ug_impl_start_ticks(), image = ug_impl_image();
    uint64_t pid_namespace = ug_impl_namespace("/proc/self/ns/pid");
    uint64_t time_namespace = ug_impl_namespace("/proc/self/ns/time");

    for (uint32_t i = 0; i < slot_count; i++) {
        struct ug_step_slot *slot = &slots[i];
        uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);

        if (state != UG_SLOT_FREE && slot->pid == pid && slot->start_ticks == ticks &&
                slot->pid_namespace == pid_namespace) {
            if (slot->image == image && state != UG_SLOT_CLOSED) {
                *ret_why = "another copy of the step protocol in this process marks the steps";
                return NULL;
            }
            slot->image = image;
            slot->time_namespace = time_namespace;
            return slot;
        }
    }
    for (uint32_t i = 0; i < slot_count; i++) {
        struct ug_step_slot *slot = &slots[i];
        uint32_t none = 0;

        if (__atomic_compare_exchange_n(
                    &slot->pid, &none, pid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            slot->start_ticks = ticks;
            slot->pid_namespace = pid_namespace;
            slot->time_namespace = time_namespace;
            slot->image = image;
            slot->claim_ns = ug_impl_now_ns();
            ug_impl_read_rank(slot, i);
            return slot;
        }
    }
    *ret_why = "no slot left for this process";
    return NULL;
}

static UG_IMPL_COLD void ug_impl_unmap(struct ug_step_state *s)
{
    if (s->bytes != NULL) {
        munmap(s->bytes, 2 * s->byte_size);
    }
    if (s->records != NULL) {
        munmap(s->records, s->record_map_bytes);
    }
    if (s->header != NULL) {
        munmap(s->header, s->map_bytes);
    }
    s->bytes = NULL;
    s->records = NULL;
    s->header = NULL;
    s->slot = NULL;
}

/* Maps the rings of a slot and takes the memory of the records. NULL, or what failed. */
static UG_IMPL_COLD const char *ug_impl_map_rings(
        struct ug_step_state *s, int fd, uint64_t slot_idx)
{
    uint64_t offset = s->header->rings_offset + slot_idx * s->header->stride_bytes;
    void *map;
    int rc = EINTR;

    s->record_map_bytes = ug_step_ring_span(s->header->ring_records);
    s->record_mask = s->header->ring_records - 1;
    s->byte_size = s->header->ring_bytes;
    s->byte_offset = offset + s->record_map_bytes;
    s->byte_reserved = 0;
    for (int tries = 0; rc == EINTR && tries < 100; tries++) {
        rc = posix_fallocate(fd, (off_t)offset, (off_t)s->record_map_bytes);
    }
    if (rc != 0) {
        return "no memory left for the records of this process";
    }
    map = mmap(NULL, s->record_map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
            (off_t)offset);
    if (map == MAP_FAILED) {
        return "failed to map the records";
    }
    s->records = (struct ug_step_record *)map;
    map = mmap(
            NULL, 2 * s->byte_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return "failed to map the bytes";
    }
    s->bytes = (unsigned char *)map;
    for (int half = 0; half < 2; half++) {
        if (mmap(s->bytes + (uint64_t)half * s->byte_size, s->byte_size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, fd, (off_t)s->byte_offset) == MAP_FAILED) {
            return "failed to map the bytes";
        }
    }
    return NULL;
}

/* As before the first call. */
static UG_IMPL_COLD void ug_impl_forget(struct ug_step_state *s)
{
    ug_impl_unmap(s);
    s->owner = 0;
    s->in_step = 0;
    s->nested = 0;
    s->phases = 0;
    s->orphan = 0;
    s->putting = 0;
    __atomic_store_n(&s->status, UG_IMPL_UNTRIED, __ATOMIC_RELEASE);
}

/* fork: the child has no slot; its first step claims one. */
static UG_IMPL_COLD void ug_impl_forked(void)
{
    struct ug_step_state *s = &ug_step_state_v2;

    if (s->status == UG_IMPL_ATTACHED || s->status == UG_IMPL_ATTACHING) {
        ug_impl_forget(s);
    }
}

static UG_IMPL_COLD void ug_impl_close(void)
{
    struct ug_step_state *s = &ug_step_state_v2;

    if (__atomic_load_n(&s->status, __ATOMIC_ACQUIRE) == UG_IMPL_ATTACHED) {
        __atomic_store_n(&s->slot->state, UG_SLOT_CLOSED, __ATOMIC_SEQ_CST);
        ug_impl_notify(s->header);
        __atomic_store_n(&s->retry_ns, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&s->status, UG_IMPL_OFF, __ATOMIC_RELEASE);
    }
}

/* Leaves the file as at exit, and the next call reads UPGATE_STEPS again: a process of which one
 * recording after the other is made. No other thread makes a call meanwhile. False: a step is
 * open, and nothing has changed. */
static inline bool ug_impl_reopen(void)
{
    struct ug_step_state *s = &ug_step_state_v2;
    uintptr_t none = 0;

    if (!__atomic_compare_exchange_n(
                &s->owner, &none, (uintptr_t)1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return false;
    }
    ug_impl_close();
    ug_impl_forget(s);
    return true;
}

static UG_IMPL_COLD const char *ug_impl_map_header(struct ug_step_state *s, int fd)
{
    struct ug_step_header *header;
    struct stat status;
    const char *why;
    void *map;

    if (ug_impl_fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
            status.st_size < (off_t)UG_STEP_HEADER_BYTES) {
        return "not a step file of upgate";
    }
    s->file_device = status.st_dev;
    s->file_inode = status.st_ino;
    map = mmap(NULL, UG_STEP_HEADER_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return "failed to map the header";
    }
    header = (struct ug_step_header *)map;
    why = ug_impl_header_fault(header, (uint64_t)status.st_size);
    s->map_bytes = header->rings_offset;
    munmap(map, UG_STEP_HEADER_BYTES);
    if (why != NULL) {
        return why;
    }
    map = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return "failed to map the slots";
    }
    s->header = (struct ug_step_header *)map;
    return NULL;
}

/* Claims a slot. NULL, or what failed; the caller unmaps. */
static UG_IMPL_COLD const char *ug_impl_claim(struct ug_step_state *s, int fd)
{
    const char *why = ug_impl_map_header(s, fd);
    struct ug_step_slot *slot;
    uint64_t slot_idx;

    if (why != NULL) {
        return why;
    }
    slot = ug_impl_find_slot(s, &why);
    if (slot == NULL) {
        __atomic_fetch_add(&s->header->refused_count, 1, __ATOMIC_RELAXED);
        return why;
    }
    slot_idx =
            (uint64_t)((char *)slot - (char *)s->header - s->header->slots_offset) / sizeof(*slot);
    why = ug_impl_map_rings(s, fd, slot_idx);
    if (why != NULL) {
        __atomic_fetch_add(&s->header->refused_count, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == UG_SLOT_FREE) {
            __atomic_store_n(&slot->pid, 0, __ATOMIC_RELEASE);
        }
        return why;
    }
    s->slot = slot;
    s->step = slot->steps; /* not 0 after an exec: the new image goes on */
    s->head = slot->head;
    s->tail = __atomic_load_n(&slot->tail, __ATOMIC_ACQUIRE);
    s->byte_head = slot->byte_head;
    s->byte_tail = __atomic_load_n(&slot->byte_tail, __ATOMIC_ACQUIRE);
    __atomic_store_n(&slot->state, UG_SLOT_RUNNING, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&s->header->claims_count, 1, __ATOMIC_RELEASE); /* after the state */
    ug_impl_notify(s->header);
    return NULL;
}

/* The first call of a process. Another thread that calls meanwhile goes on without a step. */
static UG_IMPL_COLD void ug_impl_attach_now(struct ug_step_state *s)
{
    const char *path = getenv(UG_STEP_VARIABLE), *why = NULL;
    int saved_errno = errno, fd;

    if (path == NULL || *path == '\0') {
        __atomic_store_n(&s->status, UG_IMPL_OFF, __ATOMIC_RELEASE);
        return;
    }
    snprintf(s->path, sizeof(s->path), "%s", path);
    if (strlen(path) >= sizeof(s->path)) {
        ug_impl_off(s, "the path is too long");
        return;
    }
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        ug_impl_off(s, strerror(errno));
        errno = saved_errno;
        return;
    }
    if (!s->atfork_done) {
        s->atfork_done = 1;
        if (pthread_atfork(NULL, NULL, ug_impl_forked) != 0 || atexit(ug_impl_close) != 0) {
            why = "failed to register for fork and exit";
        }
    }
    if (why == NULL) {
        why = ug_impl_claim(s, fd);
    }
    close(fd);
    if (why != NULL) {
        ug_impl_unmap(s);
        ug_impl_off(s, why);
    } else {
        __atomic_store_n(&s->status, UG_IMPL_ATTACHED, __ATOMIC_RELEASE);
    }
    errno = saved_errno;
}

static UG_IMPL_COLD void ug_impl_attach(struct ug_step_state *s)
{
    uint32_t untried = UG_IMPL_UNTRIED;

    if (__atomic_load_n(&s->status, __ATOMIC_RELAXED) == UG_IMPL_UNTRIED &&
            __atomic_compare_exchange_n(&s->status, &untried, UG_IMPL_ATTACHING, false,
                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        ug_impl_attach_now(s);
    }
}

/* The record ring of this process, for a request. NULL: there is none. */
static inline struct ug_step_state *ug_impl_requests(void)
{
    struct ug_step_state *s = &ug_step_state_v2;
    uint32_t status = __atomic_load_n(&s->status, __ATOMIC_ACQUIRE);

    if (__builtin_expect(status != UG_IMPL_ATTACHED, 0)) {
        uint64_t retry_ns = __atomic_load_n(&s->retry_ns, __ATOMIC_RELAXED);

        if (status == UG_IMPL_UNTRIED) {
            ug_impl_attach(s);
        } else if (status == UG_IMPL_OFF && retry_ns != 0 && ug_impl_now_ns() >= retry_ns &&
                __atomic_compare_exchange_n(&s->status, &status, UG_IMPL_ATTACHING, false,
                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            ug_impl_attach_now(s);
        }
        if (__atomic_load_n(&s->status, __ATOMIC_ACQUIRE) != UG_IMPL_ATTACHED) {
            return NULL;
        }
    }
    return s;
}

static inline bool ug_impl_active(void)
{
    const char *path;

    switch (__atomic_load_n(&ug_step_state_v2.status, __ATOMIC_ACQUIRE)) {
    case UG_IMPL_OFF:
        return false;
    case UG_IMPL_UNTRIED:
        path = getenv(UG_STEP_VARIABLE);
        return path != NULL && *path != '\0';
    default:
        return true;
    }
}

#endif
