// SPDX-License-Identifier: Apache-2.0
#include "bpf/calls.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/capture_inside.h"
#include "bpf/descendants.h"
#include "common/containers/vector.h"
#include "common/strings.h"

#include "bpf/calls.skel.h"

struct call_programs {
    struct calls_bpf *skeleton;
    struct ring_buffer *ring;
    struct bpf_link **links, **returns;
    size_t link_count, return_count;
    call_programs_fn callback;
    void *arg;
};

static int calls_on_event(void *context, void *data, size_t size)
{
    const struct call_programs *programs = context;
    if (size >= sizeof(struct ug_call_event))
        programs->callback(programs->arg, data);
    return 0;
}

// What the kernel or libbpf calls an invalid argument is none of the user's.
static int calls_code(int code)
{
    return code == -EINVAL || code == -ESRCH ? -ENOTSUP : code;
}

static int calls_load(
        struct call_programs *programs, const struct call_programs_opts *opts, struct error *err)
{
    LIBBPF_OPTS(bpf_object_open_opts, options, .btf_custom_path = "/sys/kernel/btf/vmlinux");
    capture_listen();
    programs->skeleton = calls_bpf__open_opts(&options);
    if (!programs->skeleton)
        return error_set(err, calls_code(-errno), "failed to open the BPF programs of steps: %s",
                strerror(errno));
    programs->skeleton->rodata->holds = opts->holds;
    programs->skeleton->rodata->follow_children = !opts->no_children;
    programs->skeleton->rodata->control_ppm = opts->control_ppm;
    programs->skeleton->data->granted = opts->granted;
    int rc = calls_bpf__load(programs->skeleton);
    return rc
            ? error_set(err, calls_code(rc),
                      "failed to load the BPF programs of steps: %s (%s); steps by a symbol need Linux 5.15, and in a "
                      "container the capabilities of the host (--privileged)",
                      strerror(-rc), capture_last_words())
            : 0;
}

static int calls_keep(
        struct call_programs *programs, struct bpf_link *link, const char *what, struct error *err)
{
    if (!link)
        return error_set(err, calls_code(-errno), "failed to attach %s: %s%s", what,
                strerror(errno),
                errno == EACCES || errno == EPERM ? "; it takes CAP_SYS_ADMIN: run as root" : "");
    vector_push(programs->links, programs->link_count, link);
    return 0;
}

int call_programs_open(const struct call_programs_opts *opts, call_programs_fn callback, void *arg,
        struct call_programs **ret_programs, struct error *err)
{
    int rc = capture_permitted(err);
    if (rc)
        return rc;
    struct call_programs *programs = xcalloc(1, sizeof *programs);
    programs->callback = callback;
    programs->arg = arg;
    rc = calls_load(programs, opts, err);
    if (rc == 0) {
        struct bpf_program *const traced[] = {programs->skeleton->progs.call_exec,
                programs->skeleton->progs.call_fork, programs->skeleton->progs.call_exit};
        for (size_t i = 0; rc == 0 && i < sizeof traced / sizeof *traced; i++)
            rc = calls_keep(
                    programs, bpf_program__attach(traced[i]), bpf_program__name(traced[i]), err);
    }
    if (rc == 0) {
        programs->ring = ring_buffer__new(
                bpf_map__fd(programs->skeleton->maps.events), calls_on_event, programs, NULL);
        if (!programs->ring)
            rc = error_set(err, calls_code(-errno), "failed to map the ring of steps: %s",
                    strerror(errno));
    }
    if (rc) {
        call_programs_close(programs);
        return rc;
    }
    *ret_programs = programs;
    return 0;
}

static int calls_follow(struct call_programs *programs, pid_t tgid, struct error *err)
{
    uint32_t key = (uint32_t)tgid, none = 0;
    int rc = bpf_map_update_elem(
            bpf_map__fd(programs->skeleton->maps.followed), &key, &none, BPF_NOEXIST);
    return rc && errno != EEXIST
            ? error_set(err, -errno, "failed to follow process %d: %s", (int)tgid, strerror(errno))
            : 0;
}

int call_programs_follow(
        struct call_programs *programs, pid_t tgid, bool children, struct error *err)
{
    struct descendant *all = NULL;
    // first: what it starts from now on the kernel follows
    int rc = calls_follow(programs, tgid, err);
    size_t count = children ? capture_read_processes(&all) : 0;
    descendants_mark(all, count, tgid, -1);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (all[i].below)
            rc = calls_follow(programs, all[i].pid, err);
    free(all);
    return rc;
}

void call_programs_each(
        struct call_programs *programs, void (*each)(void *arg, pid_t tgid), void *arg)
{
    int map = bpf_map__fd(programs->skeleton->maps.followed);
    uint32_t key = 0, next = 0;
    for (void *at = NULL; bpf_map_get_next_key(map, at, &next) == 0; at = &key) {
        key = next;
        each(arg, (pid_t)key);
    }
}

int call_programs_attach(struct call_programs *programs, enum call_place place, int fd,
        uint64_t offset, struct error *err)
{
    struct bpf_program *const of[] = {[CALL_PLACE_FUNCTION] = programs->skeleton->progs.call_enter,
            [CALL_PLACE_RETURN] = programs->skeleton->progs.call_return,
            [CALL_PLACE_LOADER] = programs->skeleton->progs.loader_changed};
    char path[64]; // the kernel takes a name; this one leads to what we have open, whatever its own
                   // has become
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = calls_keep(programs, bpf_program__attach_uprobe(of[place], false, -1, path, offset),
            "a breakpoint", err);
    if (rc == 0 && place == CALL_PLACE_RETURN) {
        struct bpf_link *link = programs->links[--programs->link_count];
        vector_push(programs->returns, programs->return_count, link);
    }
    return rc;
}

int call_programs_read(struct call_programs *programs)
{
    return ring_buffer__consume(programs->ring);
}

int call_programs_fd(const struct call_programs *programs)
{
    return ring_buffer__epoll_fd(programs->ring);
}

struct ug_call_state *call_programs_state(struct call_programs *programs, uint32_t process)
{
    return &programs->skeleton->bss->states[process % UG_CALLS_PROCESSES];
}

uint32_t call_programs_count(const struct call_programs *programs)
{
    uint32_t count = __atomic_load_n(&programs->skeleton->bss->process_count, __ATOMIC_ACQUIRE);
    return count < UG_CALLS_PROCESSES ? count : UG_CALLS_PROCESSES;
}

void call_programs_grant(struct call_programs *programs, uint32_t granted)
{
    __atomic_store_n(&programs->skeleton->data->granted, granted, __ATOMIC_SEQ_CST);
}

void call_programs_found(struct call_programs *programs)
{
    __atomic_store_n(&programs->skeleton->data->seeking, 0, __ATOMIC_SEQ_CST);
}

void call_programs_forget_returns(struct call_programs *programs)
{
    while (programs->return_count)
        bpf_link__destroy(programs->returns[--programs->return_count]);
    free(programs->returns);
    programs->returns = NULL;
    for (uint32_t i = 0; i < call_programs_count(programs); i++) {
        struct ug_call_state *state = call_programs_state(programs, i);
        memset(state->sites, 0, sizeof state->sites);
        state->site_count = 0;
        state->idle = 0;
    }
}

void call_programs_detach(struct call_programs *programs)
{
    call_programs_forget_returns(programs);
    while (programs->link_count)
        bpf_link__destroy(programs->links[--programs->link_count]);
    free(programs->links);
    programs->links = NULL;
}

void call_programs_close(struct call_programs *programs)
{
    if (!programs)
        return;
    call_programs_detach(programs);
    ring_buffer__free(programs->ring);
    calls_bpf__destroy(programs->skeleton);
    free(programs);
}
