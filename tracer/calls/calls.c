// SPDX-License-Identifier: Apache-2.0
// What the kernel tells of calls becomes steps; what the gate says becomes SIGSTOP and SIGCONT. The
// gate's word is passed on by an eventfd that the reader writes.
//
// Whoever stops: the BPF program, always before it tells. Whoever lets go: only this thread, so
// that none is let go twice.
#include "tracer/calls/calls.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/calls.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/proc.h"
#include "common/strings.h"
#include "common/containers/vector.h"
#include "common/target/file.h"
#include "harness/steps/writer.h"
#include "tracer/calls/find.h"
#include "tracer/calls/place.h"
#include "tracer/symbols/maps.h"
#include "tracer/symbols/proc.h"

enum {
    CALLS_POLL_MS = 100,
    CALLS_STOP_NS = 2000000, // in which a signal that was sent has arrived, whether the process has
                             // had the CPU to act on it or not
    CALLS_QUICK_NS = 40000, // a call costs 2 us, in a nested VM up to 20: of shorter steps too much
                            // of the time would be ours
    CALLS_QUICK_MANY = 4096, // such steps, and half of all: it is no step
    CALLS_NAMES_BYTES = 4 << 20,
    CALLS_TEXT_BYTES = 200,
    // breakpoints met without a call, and so many times as often as with one
    CALLS_IDLE_MANY = 4096,
    CALLS_IDLE_TIMES = 8,
    CALLS_SHOWN_MAX = 80, // of a name in a sentence
    // A process that is not stopped may have mapped its libraries before the loader had its
    // breakpoint: it is looked at again, and again after twice the time, up to a second.
    CALLS_LOOK_NS = 4000000,
    CALLS_LOOK_NS_MAX = 1000000000,
};

// While another stands at the gate a process that makes no calls is waited for so long: a rank may
// write a checkpoint between two.
#define CALLS_UNEVEN_NS INT64_C(20000000000)

struct calls_process { // by its number in the programs
    struct step_writer *writer;
    pid_t pid;
    int pid_fd;
    bool refused, ended;
    bool held, at_entry;
    uint32_t steps;
    uint64_t last_begin_ns, quick, stretched_ns;
    int64_t seen_ns; // its last event
};

struct calls_file {
    uint64_t device, inode, offset;
};

struct native_calls {
    struct native_calls_opts opts;
    char *symbol;
    struct find find;
    struct call_programs *programs;
    struct calls_process processes[UG_CALLS_PROCESSES];
    struct calls_file *files, *sites; // looked into; where the function returns to
    size_t file_count, site_count;
    struct names names;
    uint32_t granted, claimed;      // processes that have a place in the step file
    int64_t look_ns, look_pause_ns; // when to look again at what is mapped; 0: not
    bool attached;                  // has its breakpoint
    atomic_bool left;               // has been given up
    bool exact; // breakpoints stand where the function returns to, and not behind that
    char *found, *why;
    pthread_t thread;
    bool running;
    atomic_bool stop;
    int wake_fd;
};

// --- processes -----------------------------------------------------------------------------------

static bool calls_closed(const struct native_calls *calls, uint32_t step)
{
    return calls->opts.holds && !calls->left && calls->granted != UG_STEP_RUN_FREE &&
            (int32_t)(step - calls->granted) >= 0;
}

static void calls_continue(int pid_fd)
{
    if (pid_fd >= 0)
        syscall(SYS_pidfd_send_signal, pid_fd, SIGCONT, NULL, 0);
}

// The signal has been sent; SIGCONT before it has arrived would be too early where the kernel sends
// it a moment later (6.14: by an interrupt to itself).
static void calls_await_stop(pid_t pid)
{
    int64_t until_ns = clock_monotonic_ns() + CALLS_STOP_NS;
    struct proc_stat stat;
    while (proc_stat_of(pid, &stat) == 0 && stat.state != 'T' && stat.state != 't' &&
            stat.state != 'Z' && stat.state != 'X' && clock_monotonic_ns() < until_ns)
        clock_sleep_until_ns(clock_monotonic_ns() + 20000);
}

static void calls_let_go(struct native_calls *calls, struct calls_process *process, uint32_t number)
{
    struct ug_call_state *state = call_programs_state(calls->programs, number);
    // its time begins when it is let go
    if (process->at_entry && state->owner && state->steps == process->steps)
        state->begin_ns = (uint64_t)clock_monotonic_ns();
    if (process->held && process->writer)
        step_writer_go(process->writer);
    process->held = process->at_entry = false;
    calls_continue(process->pid_fd);
}

static void calls_hold(
        struct calls_process *process, uint32_t steps, uint64_t at_ns, uint32_t tid, bool at_entry)
{
    process->held = true;
    process->at_entry = at_entry;
    process->steps = steps;
    step_writer_hold(process->writer, steps, at_ns, (pid_t)tid);
}

// No longer than who stores it takes (harness/run/samples.c): what is longer would not be heard at
// all.
static void calls_say(struct calls_process *process, const char *name, const char *text)
{
    char cut[CALLS_TEXT_BYTES];
    snprintf(cut, sizeof cut, "%s", text);
    string_make_utf8(cut, strlen(cut));
    step_writer_text(process->writer, name, cut);
}

// From here on the program runs as if nobody looked; what it is cut by does not hold.
static void calls_give_up(struct native_calls *calls, char *why)
{
    if (calls->left) {
        free(why);
        return;
    }
    calls->left = true;
    free(calls->why);
    calls->why = why;
    call_programs_grant(calls->programs, UG_STEP_RUN_FREE);
    call_programs_found(calls->programs);
    call_programs_detach(calls->programs);
    char *rule = xasprintf("!%s", why);
    for (uint32_t i = 0; i < call_programs_count(calls->programs); i++) {
        struct calls_process *process = &calls->processes[i];
        if (process->writer)
            calls_say(process, "steps_from", rule);
        if (process->held)
            calls_let_go(calls, process, i);
    }
    free(rule);
}

// NULL: it has no place in the step file, and runs free.
static struct calls_process *calls_process(
        struct native_calls *calls, const struct ug_call_event *event)
{
    struct calls_process *process = &calls->processes[event->process % UG_CALLS_PROCESSES];
    if (process->refused) {
        if (event->flags & (UG_CALL_HELD | UG_CALL_STOPPED | UG_CALL_STRETCH))
            calls_continue(process->pid_fd);
        return NULL;
    }
    if (process->writer)
        return process;
    process->pid = (pid_t)event->tgid;
    process->pid_fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    struct error err = {0};
    if (step_writer_claim(calls->opts.steps, process->pid, &process->writer, &err)) {
        process->refused = true;
        if (calls->opts.holds) // else nobody has stopped it, and its handler of SIGCONT would be
                               // called
            calls_continue(process->pid_fd);
        // at the first one the pair fails for want of memory
        if (calls->opts.holds && calls->claimed)
            calls_give_up(calls,
                    xasprintf("'%.*s' is called by more processes than the %u that can be held",
                            CALLS_SHOWN_MAX, calls->find.name, calls->claimed));
        return NULL;
    }
    calls->claimed++;
    calls_say(process, "steps_from", "symbol");
    calls_say(process, "steps_found", calls->found ? calls->found : calls->symbol);
    return process;
}

// --- files ---------------------------------------------------------------------------------------

static bool calls_knows(const struct calls_file *files, size_t count, struct calls_file file)
{
    for (size_t i = 0; i < count; i++)
        if (files[i].device == file.device && files[i].inode == file.inode &&
                files[i].offset == file.offset)
            return true;
    return false;
}

static int calls_break(struct native_calls *calls, enum call_place place, int fd, uint64_t offset,
        struct error *err)
{
    uint8_t code[PLACE_BYTES];
    ssize_t got = target_file_read(fd, code, sizeof code, offset);
    size_t further = got > 0 && !(calls->exact && place == CALL_PLACE_RETURN)
            ? place_cheap(code, (size_t)got, place == CALL_PLACE_FUNCTION)
            : 0;
    return call_programs_attach(calls->programs, place, fd, offset + further, err);
}

// The function stands in this file: its breakpoint.
static void calls_attach(struct native_calls *calls, pid_t pid, const struct mappings *mappings)
{
    const struct find_place *place = &calls->find.places[0];
    struct error err = {0};
    int fd = -1;
    for (uint32_t i = 0; fd < 0 && i < mappings->count; i++)
        if (mappings->all[i].device == place->device && mappings->all[i].inode == place->inode)
            fd = proc_open_mapping("/proc", pid, false, 0, &mappings->all[i]);
    free(calls->found);
    calls->found = xasprintf("calls of %s in %s", place->name, place->module);
    if (fd < 0)
        error_set(&err, -errno, "failed to open '%s': %s", place->module, strerror(errno));
    else if (calls_break(calls, CALL_PLACE_FUNCTION, fd, place->offset, &err) == 0)
        calls->attached = true;
    if (fd >= 0)
        close(fd);
    call_programs_found(calls->programs);
    if (!calls->attached)
        calls_give_up(calls,
                xasprintf("no breakpoint at %s in %s: %s", place->name, place->module, err.text));
}

static void calls_look_into(struct native_calls *calls, pid_t pid, const struct mapping *mapping)
{
    struct calls_file file = {mapping->device, mapping->inode, 0};
    struct error err = {0};
    uint64_t loader = 0;
    if (mapping->kind != MAPPING_FILE || calls_knows(calls->files, calls->file_count, file))
        return;
    int fd = proc_open_mapping("/proc", pid, false, 0, mapping);
    if (fd < 0)
        return;
    vector_push(calls->files, calls->file_count, file);
    find_in_file(&calls->find, fd, mapping->path, mapping->device, mapping->inode, &loader);
    if (loader && call_programs_attach(calls->programs, CALL_PLACE_LOADER, fd, loader, &err))
        log_debug("libraries that are loaded later are not seen: %s", err.text);
    close(fd);
}

// What a process maps now: is the function in it?
static void calls_look(struct native_calls *calls, pid_t pid)
{
    struct mappings mappings = {0};
    // behind the mappings of the program itself, which are the lowest
    uint32_t own_last = UINT32_MAX;
    char dir[32];
    if (calls->attached || calls->left)
        return;
    snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    if (mappings_read(dir, &calls->names, &mappings))
        return;
    // Of what a program has itself and a library of it, too, its own is meant ("step" is a function
    // of libc).
    for (uint32_t i = 0; i < mappings.count && !(i == own_last && calls->find.place_count); i++) {
        calls_look_into(calls, pid, &mappings.all[i]);
        if (own_last == UINT32_MAX || mappings.all[i].inode == mappings.all[0].inode)
            own_last = i + 1;
    }
    if (calls->find.place_count == 1)
        calls_attach(calls, pid, &mappings);
    else if (calls->find.place_count > 1)
        calls_give_up(calls, find_why_not(&calls->find));
    mappings_free(&mappings);
}

static void calls_look_at(void *arg, pid_t pid)
{
    calls_look(arg, pid);
}

// A breakpoint where a call returns to. False: given up.
static bool calls_add_site(struct native_calls *calls, pid_t pid, uint32_t number, uint64_t site)
{
    struct ug_call_state *state = call_programs_state(calls->programs, number);
    struct mappings mappings = {0};
    struct calls_file place = {0};
    struct error err = {0};
    char dir[32];
    for (uint32_t i = 0; i < UG_CALLS_SITES; i++)
        if (state->sites[i] == site)
            return true;
    if (state->site_count >= UG_CALLS_SITES) {
        calls_give_up(calls,
                xasprintf(
                        "'%.*s' is called from more than %d places of one process; name what calls it",
                        CALLS_SHOWN_MAX, calls->find.name, UG_CALLS_SITES));
        return false;
    }
    snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    int fd = -1, rc = mappings_read(dir, &calls->names, &mappings);
    for (uint32_t i = 0; rc == 0 && i < mappings.count; i++) {
        const struct mapping *one = &mappings.all[i];
        if (site < one->start || site >= one->end || one->kind != MAPPING_FILE)
            continue;
        place = (struct calls_file){one->device, one->inode, site - one->start + one->offset};
        bool known = calls_knows(calls->sites, calls->site_count, place);
        fd = known ? -1 : proc_open_mapping("/proc", pid, false, 0, one);
        rc = known       ? 1
                : fd < 0 ? -errno
                         : calls_break(calls, CALL_PLACE_RETURN, fd, place.offset, &err);
        if (rc == 0)
            vector_push(calls->sites, calls->site_count, place);
        break;
    }
    if (fd >= 0)
        close(fd);
    mappings_free(&mappings);
    if (place.inode && rc >= 0) {
        state->sites[state->site_count] = site;
        state->site_count++;
        return true;
    }
    if (rc == -ESRCH || rc == -ENOENT) // it has ended
        return false;
    calls_give_up(calls,
            place.inode ? xasprintf("no breakpoint where '%.*s' returns to: %s", CALLS_SHOWN_MAX,
                                  calls->find.name, err.code ? err.text : strerror(-rc))
                        : xasprintf("'%.*s' is called by code that is in no file (of a JIT)",
                                  CALLS_SHOWN_MAX, calls->find.name));
    return false;
}

// --- the gate ------------------------------------------------------------------------------------

static void calls_take_grant(struct native_calls *calls)
{
    uint32_t granted = reader_granted(calls->opts.steps);
    if (!calls->opts.holds || calls->left || granted == calls->granted || atomic_load(&calls->stop))
        return;
    calls->granted = granted;
    call_programs_grant(calls->programs, granted);
    for (uint32_t i = 0; i < call_programs_count(calls->programs); i++)
        if (calls->processes[i].held && !calls_closed(calls, calls->processes[i].steps))
            calls_let_go(calls, &calls->processes[i], i);
}

// --- events --------------------------------------------------------------------------------------

// A control that the kernel could not do: the process stands still, and that counts.
static uint64_t calls_stretch(struct calls_process *process, const struct ug_call_event *event)
{
    clock_sleep_until_ns((int64_t)(event->end_ns + event->value));
    uint64_t end_ns = (uint64_t)clock_monotonic_ns();
    process->stretched_ns += end_ns - event->end_ns;
    return end_ns;
}

static void calls_on_step(struct native_calls *calls, const struct ug_call_event *event)
{
    struct calls_process *process = calls_process(calls, event);
    bool stopped = event->flags & (UG_CALL_HELD | UG_CALL_STRETCH);
    if (!process)
        return;
    // Where sides are stopped by signals, the harness may have let it go for its turn before we
    // have heard of that.
    calls_take_grant(calls);
    uint64_t end_ns =
            event->flags & UG_CALL_STRETCH ? calls_stretch(process, event) : event->end_ns;
    step_writer_step(process->writer, event->step, event->begin_ns, end_ns);
    process->quick += event->begin_ns - process->last_begin_ns < CALLS_QUICK_NS;
    process->last_begin_ns = event->begin_ns;
    if (process->quick > CALLS_QUICK_MANY && process->quick > event->step / 2)
        calls_give_up(calls,
                xasprintf(
                        "'%.*s' is called more than %d times a second, and seeing a call takes some 2 us; name what calls it",
                        CALLS_SHOWN_MAX, calls->find.name, 1000000000 / CALLS_QUICK_NS));
    else if (calls_closed(calls, event->step)) // the gate was closed when it began
        calls_give_up(calls,
                xasprintf("process %d was let go at its gate by somebody else (SIGCONT)",
                        (int)process->pid));
    if (stopped && calls_closed(calls, event->step + 1)) {
        calls_hold(process, event->step + 1, end_ns, event->tid, false);
    } else if (stopped) {
        calls_await_stop(process->pid);
        calls_let_go(calls, process, event->process);
    }
}

static void calls_on_enter(struct native_calls *calls, const struct ug_call_event *event)
{
    struct calls_process *process = calls_process(calls, event);
    if (!process)
        return;
    calls_add_site(calls, process->pid, event->process, event->site);
    if (!(event->flags & (UG_CALL_HELD | UG_CALL_STOPPED)))
        return;
    process->at_entry = true;
    process->steps = event->step;
    if (calls_closed(calls, event->step)) {
        calls_hold(process, event->step, event->begin_ns, event->tid, true);
        return;
    }
    calls_await_stop(process->pid);
    calls_let_go(calls, process, event->process);
}

static void calls_on_exit(struct native_calls *calls, const struct ug_call_event *event)
{
    for (uint32_t i = 0; i < call_programs_count(calls->programs); i++) {
        struct calls_process *process = &calls->processes[i];
        if (!process->writer || process->ended || process->pid != (pid_t)event->tgid)
            continue;
        process->ended = true;
        process->held = false;
        if ((event->value & 0x7f) == 0) // by no signal
            step_writer_close(process->writer);
        if (process->pid_fd >= 0)
            close(process->pid_fd);
        process->pid_fd = -1;
    }
}

static void calls_on_event(void *arg, const struct ug_call_event *event)
{
    struct native_calls *calls = arg;
    if (event->kind == UG_CALL_STEP || event->kind == UG_CALL_ENTER)
        calls->processes[event->process % UG_CALLS_PROCESSES].seen_ns = clock_monotonic_ns();
    switch (event->kind) {
    case UG_CALL_STEP:
        calls_on_step(calls, event);
        break;
    case UG_CALL_ENTER:
        calls_on_enter(calls, event);
        break;
    case UG_CALL_EXEC:
    case UG_CALL_LOADED:
        calls_look(calls, (pid_t)event->tgid);
        calls->look_pause_ns = CALLS_LOOK_NS;
        calls->look_ns = clock_monotonic_ns() + CALLS_LOOK_NS;
        if (event->flags & UG_CALL_STOPPED) {
            int pid_fd = (int)syscall(SYS_pidfd_open, (pid_t)event->tgid, 0);
            calls_await_stop((pid_t)event->tgid);
            calls_continue(pid_fd);
            if (pid_fd >= 0)
                close(pid_fd);
        }
        break;
    case UG_CALL_EXIT:
        calls_on_exit(calls, event);
        break;
    default:
        break;
    }
}

// --- the thread ----------------------------------------------------------------------------------

// What a function returns to may be part of a loop that runs without it, which a breakpoint makes a
// hundred times slower. Right where it returns to, few come by another way.
static void calls_check_idle(struct native_calls *calls, const struct ug_call_state *state)
{
    if (calls->left || state->idle < CALLS_IDLE_MANY ||
            state->idle / CALLS_IDLE_TIMES < state->steps + state->misplaced)
        return;
    if (calls->exact) {
        calls_give_up(calls,
                xasprintf(
                        "the code that '%.*s' returns to runs more than %d times as often without it; name what calls it",
                        CALLS_SHOWN_MAX, calls->find.name, CALLS_IDLE_TIMES));
        return;
    }
    calls->exact = true;
    calls->site_count = 0;
    call_programs_forget_returns(calls->programs);
}

// Who is held waits for all others: one that makes no more calls, as of workers who share what
// there is to do, is no rank.
static void calls_check_even(struct native_calls *calls)
{
    int64_t now_ns = clock_monotonic_ns();
    const struct calls_process *held = NULL, *idle = NULL;
    for (uint32_t i = 0; i < call_programs_count(calls->programs); i++) {
        const struct calls_process *process = &calls->processes[i];
        if (!process->writer || process->ended || now_ns - process->seen_ns < CALLS_UNEVEN_NS)
            continue;
        if (process->held)
            held = process;
        else if (!call_programs_state(calls->programs, i)->owner)
            idle = process;
    }
    if (held && idle)
        calls_give_up(calls,
                xasprintf(
                        "process %d makes no calls of '%.*s' while process %d waits for it at the gate",
                        (int)idle->pid, CALLS_SHOWN_MAX, calls->find.name, (int)held->pid));
}

static void calls_say_counts(struct native_calls *calls)
{
    for (uint32_t i = 0; i < call_programs_count(calls->programs); i++) {
        const struct ug_call_state *state = call_programs_state(calls->programs, i);
        struct calls_process *process = &calls->processes[i];
        if (!process->writer)
            continue;
        step_writer_counts(process->writer, state->misplaced, state->dropped,
                state->control_ns + process->stretched_ns);
        // it may stand still, and nobody knows
        if (state->unheld || (state->dropped && calls->opts.holds))
            calls_give_up(calls,
                    state->unheld ? xasprintf("process %d could not be stopped at the gate",
                                            (int)process->pid)
                                  : xasprintf("steps of process %d were lost", (int)process->pid));
        if (state->dropped && calls->opts.holds && !process->ended)
            calls_continue(process->pid_fd);
        calls_check_idle(calls, state);
    }
    if (calls->opts.holds && !calls->left)
        calls_check_even(calls);
}

static void calls_look_again(struct native_calls *calls)
{
    if (!calls->look_ns || calls->attached || calls->left || clock_monotonic_ns() < calls->look_ns)
        return;
    calls->look_pause_ns *= 2;
    calls->look_ns = calls->look_pause_ns > CALLS_LOOK_NS_MAX
            ? 0
            : clock_monotonic_ns() + calls->look_pause_ns;
    call_programs_each(calls->programs, calls_look_at, calls);
}

static int calls_patience_ms(const struct native_calls *calls)
{
    int64_t left_ns = calls->look_ns && !calls->attached && !calls->left
            ? calls->look_ns - clock_monotonic_ns()
            : INT64_MAX;
    return left_ns <= 0                                  ? 0
            : left_ns < CALLS_POLL_MS * INT64_C(1000000) ? (int)(left_ns / 1000000) + 1
                                                         : CALLS_POLL_MS;
}

static void *calls_main(void *arg)
{
    struct native_calls *calls = arg;
    struct pollfd polls[] = {{.fd = call_programs_fd(calls->programs), .events = POLLIN},
            {.fd = calls->wake_fd, .events = POLLIN}};
    for (bool stop = false; !stop;) {
        eventfd_t told;
        poll(polls, 2, calls_patience_ms(calls));
        stop = atomic_load(&calls->stop);
        if (stop) { // whoever was stopped until now is let go by what it told
            calls->granted = UG_STEP_RUN_FREE;
            call_programs_grant(calls->programs, UG_STEP_RUN_FREE);
        }
        if (polls[1].revents & POLLIN)
            eventfd_read(calls->wake_fd, &told);
        call_programs_read(calls->programs);
        calls_take_grant(calls);
        if (!stop && !calls->opts.holds)
            calls_look_again(calls);
        calls_say_counts(calls);
    }
    return NULL;
}

static int calls_spawn(struct native_calls *calls, struct error *err)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, &before); // signals are for those whose waits must end
    int rc = pthread_create(&calls->thread, NULL, calls_main, calls);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    calls->running = rc == 0;
    return rc ? error_set(err, -rc, "failed to start a thread for steps: %s", strerror(rc)) : 0;
}

int native_calls_start(
        const struct native_calls_opts *opts, struct native_calls **ret_calls, struct error *err)
{
    struct native_calls *calls = xcalloc(1, sizeof *calls);
    calls->opts = *opts;
    calls->symbol = xstrdup(opts->symbol);
    find_parse(opts->symbol, &calls->find);
    calls->names.bytes_max = CALLS_NAMES_BYTES;
    calls->granted = reader_granted(opts->steps);
    for (size_t i = 0; i < UG_CALLS_PROCESSES; i++)
        calls->processes[i].pid_fd = -1;
    calls->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct call_programs_opts programs = {.holds = opts->holds,
            .no_children = opts->no_children,
            .control_ppm = opts->control_ppm,
            .granted = opts->holds ? calls->granted : UG_STEP_RUN_FREE};
    int rc = calls->wake_fd < 0
            ? error_set(err, -errno, "failed to make an eventfd: %s", strerror(errno))
            : 0;
    if (rc == 0)
        rc = call_programs_open(&programs, calls_on_event, calls, &calls->programs, err);
    for (size_t i = 0; rc == 0 && i < opts->pid_count; i++)
        rc = call_programs_follow(calls->programs, opts->pids[i], !opts->no_children, err);
    if (rc == 0 && opts->running)
        call_programs_each(calls->programs, calls_look_at, calls);
    if (rc == 0)
        rc = calls_spawn(calls, err);
    if (rc) {
        native_calls_free(calls);
        return rc;
    }
    reader_tell(opts->steps, calls->wake_fd);
    *ret_calls = calls;
    return 0;
}

bool native_calls_left(const struct native_calls *calls)
{
    return calls && atomic_load(&calls->left);
}

void native_calls_stop(struct native_calls *calls)
{
    if (!calls || !calls->running)
        return;
    reader_tell(calls->opts.steps, -1);
    atomic_store(&calls->stop, true);
    eventfd_write(calls->wake_fd, 1);
    pthread_join(calls->thread, NULL);
    calls->running = false;
    for (uint32_t i = 0; i < call_programs_count(calls->programs); i++)
        if (calls->processes[i].held)
            calls_let_go(calls, &calls->processes[i], i);
    if (!calls->why && !calls->attached)
        calls->why = find_why_not(&calls->find);
    for (uint32_t i = 0; !calls->why && i < UG_CALLS_PROCESSES && !calls->processes[i].writer; i++)
        if (i == UG_CALLS_PROCESSES - 1)
            calls->why = xasprintf("%s: none came", calls->found);
}

const char *native_calls_found(const struct native_calls *calls, const char **ret_why)
{
    *ret_why = calls->why;
    return calls->why ? NULL : calls->found;
}

void native_calls_free(struct native_calls *calls)
{
    if (!calls)
        return;
    native_calls_stop(calls);
    call_programs_close(calls->programs);
    for (size_t i = 0; i < UG_CALLS_PROCESSES; i++) {
        step_writer_free(calls->processes[i].writer);
        if (calls->processes[i].pid_fd >= 0)
            close(calls->processes[i].pid_fd);
    }
    if (calls->wake_fd >= 0)
        close(calls->wake_fd);
    find_free(&calls->find);
    names_free(&calls->names);
    free(calls->files);
    free(calls->sites);
    free(calls->symbol);
    free(calls->found);
    free(calls->why);
    free(calls);
}
