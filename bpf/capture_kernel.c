// SPDX-License-Identifier: Apache-2.0
// Does the running kernel have what the BPF programs cannot do without, and may they run in it?
// Asked of its BTF before anything is loaded, because a distribution's kernel has more than its
// number says, and because what the kernel answers instead ("Invalid argument") helps nobody.
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "bpf/capture_inside.h"
#include "common/strings.h"

struct need {
    const char *type, *member; // a field, or a value of an enumeration
    const char *name;
    const char *since;
};

// What else they need (the ring buffer, 5.8; atomic operations, 5.12; task storage in tracepoints,
// 5.13) came before the last of these. docs/KERNELS.md says what newer ones add.
static const struct need needs[] = {
        {"bpf_map_type", "BPF_MAP_TYPE_TASK_STORAGE", "task storage", "5.11"},
        {"task_struct", "__state", "task_struct.__state", "5.14"},
        {"bpf_func_id", "BPF_FUNC_task_pt_regs", "bpf_task_pt_regs", "5.15"},
        {"rt_mutex_base", "owner", "struct rt_mutex_base", "5.15"},
};

static const struct btf_type *find_type(const struct btf *btf, const char *name)
{
    for (uint32_t id = 1; id < btf__type_cnt(btf); id++) {
        const struct btf_type *type = btf__type_by_id(btf, id);

        if ((btf_is_composite(type) || btf_is_any_enum(type)) && btf_vlen(type) &&
                !strcmp(btf__name_by_offset(btf, type->name_off), name))
            return type;
    }
    return NULL;
}

static const struct btf_member *find_member(
        const struct btf *btf, const struct btf_type *type, const char *name)
{
    const struct btf_member *members = btf_members(type);

    for (int i = 0; i < btf_vlen(type); i++)
        if (!strcmp(btf__name_by_offset(btf, members[i].name_off), name))
            return &members[i];
    return NULL;
}

static bool has_value(const struct btf *btf, const struct btf_type *type, const char *name)
{
    for (int i = 0; i < btf_vlen(type); i++) {
        uint32_t at = btf_is_enum(type) ? btf_enum(type)[i].name_off : btf_enum64(type)[i].name_off;

        if (!strcmp(btf__name_by_offset(btf, at), name))
            return true;
    }
    return false;
}

static bool has(const struct btf *btf, const char *type_name, const char *member)
{
    const struct btf_type *type = find_type(btf, type_name);

    if (!type)
        return false;
    return btf_is_composite(type) ? find_member(btf, type, member) != NULL
                                  : has_value(btf, type, member);
}

bool capture_is_realtime(const struct btf *btf)
{
    return has(btf, "rw_semaphore", "rwbase");
}

// The lock of BPF's ring buffer is taken in the scheduler's tracepoints. Until 6.12 ("bpf: Use
// raw_spinlock_t in ringbuf", also in stable releases) it was one that sleeps on PREEMPT_RT.
static bool ring_sleeps(const struct btf *btf)
{
    const struct btf_type *ring = find_type(btf, "bpf_ringbuf"), *lock;
    const struct btf_member *member = ring ? find_member(btf, ring, "spinlock") : NULL;

    lock = member ? btf__type_by_id(btf, member->type) : NULL;
    return lock && !strcmp(btf__name_by_offset(btf, lock->name_off), "spinlock_t");
}

int capture_fits(const struct btf *btf, struct error *err)
{
    struct utsname names = {.release = "?"};
    struct strbuf lacks = {0};
    int status = 0;

    uname(&names);
    for (size_t i = 0; i < sizeof(needs) / sizeof(*needs); i++)
        if (!has(btf, needs[i].type, needs[i].member))
            strbuf_add(&lacks, "%s%s (Linux %s)", lacks.len ? ", " : "", needs[i].name,
                    needs[i].since);
    if (lacks.len)
        status = error_set(err, -ENOTSUP,
                "failed to load the BPF programs: this kernel, %s, lacks %s; boot Linux "
                "5.15 or later, or a distribution's that has them",
                names.release, lacks.text);
    else if (capture_is_realtime(btf) && ring_sleeps(btf))
        status = error_set(err, -ENOTSUP,
                "failed to load the BPF programs: the ring buffer of this PREEMPT_RT "
                "kernel, %s, takes a lock that sleeps, and recording could hang the "
                "machine; boot Linux 6.12 or later, or a stable release with its 'bpf: Use "
                "raw_spinlock_t in ringbuf'",
                names.release);
    strbuf_free(&lacks);
    return status;
}
