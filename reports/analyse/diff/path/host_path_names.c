// SPDX-License-Identifier: Apache-2.0
// What a stack is called: the leaf (native or kernel function, the interpreter as one) and the
// place (Python functions below a phase) that both versions would call the same: paths from the
// package on, no line numbers, no plumbing that one version has and the other has not. Each
// distinct stack is looked at once. Reads trace frames, writes memos of host_path.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/host_path_index.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/names/wordlists.h"

// ---- native leaves ----

static bool host_begins(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

// Stripped builds of the OpenMP runtimes tell no names: what a thread does in them is nearly always
// to wait.
static bool host_spins(const char *name, const char *module)
{
    static const char *const gnu[] = {"gomp_team_barrier_wait", "gomp_barrier_wait",
            "gomp_team_end", "gomp_simple_barrier", NULL};
    // With a template or a namespace of the build around it:
    // "_INTERNAL92a63c0c::__kmp_wait_template<...>".
    static const char *const llvm[] = {"__kmp_wait", "__kmp_hyper_barrier", "kmp_flag",
            "__kmp_yield", "__kmp_fork_barrier", "__kmp_join_barrier", "__kmp_barrier", NULL};
    static const char *const runtimes[] = {"libgomp", "libiomp", "libomp.", "libomp-", NULL};
    if (words_begin(name, gnu) || words_within(name, llvm) || !strcmp(name, "sched_yield") ||
            !strcmp(name, "__sched_yield"))
        return true;
    return words_begin(module, runtimes) && names_is_nameless(name);
}

uint32_t host_leaf_named(
        struct host_path *path, enum cost_kind kind, const char *name, const char *module)
{
    const char *name_text = cost_tree_text(path->tree, name),
               *module_text = cost_tree_text(path->tree, module);
    // Equal texts are one: their addresses are good for a key, and what was found is compared.
    uint64_t key = (uint64_t)(uintptr_t)name_text * UINT64_C(0xd6e8feb86659fd93) ^
            ((uint64_t)(uintptr_t)module_text << 1) ^ kind;
    for (;; key++) {
        uint32_t found = map_get(&path->leaf_of_name, key);
        if (found == HOST_NONE)
            break;
        const struct host_leaf *leaf = &path->leaves[found];
        if (leaf->name == name_text && leaf->module == module_text && leaf->kind == kind)
            return found;
    }
    *map_put(&path->leaf_of_name, key) = (uint32_t)path->leaf_count;
    vector_push(path->leaves, path->leaf_count,
            (struct host_leaf){.name = name_text, .module = module_text, .kind = (uint8_t)kind});
    return (uint32_t)path->leaf_count - 1;
}

static const struct trace_frame *host_frame_at(
        const struct trace *host, const struct trace_stack *stack, uint32_t i)
{
    return &host->frames[host->stack_frames[stack->first + i]];
}

static uint32_t host_leaf_kernel(struct host_path *path, const struct trace_stack *stack)
{
    static const char *const entries[] = {"asm_", "entry_", "do_syscall_", "x64_sys_call",
            "do_fast_syscall", "__do_fast_syscall", "do_int80", "el0", "do_el0", "invoke_syscall",
            "ret_from_fork", "secondary_startup", "vectors", "__pi_", "__x86_", "srso_",
            "retbleed_", NULL};
    static const char *const calls[] = {"__x64_sys_", "__ia32_sys_", "__arm64_sys_", "__se_sys_",
            "__do_sys_", "ksys_", "__sys_", NULL};
    static const char *const faults[] = {"exc_page_fault", "do_user_addr_fault", "handle_mm_fault",
            "do_page_fault", "do_mem_abort", "do_translation_fault", "el1_abort", NULL};
    static const char *const interrupts[] = {"sysvec_", "common_interrupt", "handle_softirqs",
            "__do_softirq", "irq_exit", "__irq_exit", "irq_enter", "__sysvec_", "irqentry_",
            "el1_interrupt", "el1h_64_irq", "do_interrupt_handler", "call_on_irq_stack",
            "gic_handle_irq", NULL};
    const char *name = NULL;
    for (uint32_t i = stack->count; i-- && !name;) {
        const char *frame = host_frame_at(path->host, stack, i)->name;
        if (!frame || words_begin(frame, entries))
            continue;
        name = frame;
    }
    if (!name) // no further than the way in or out
        name = "system call entry";
    if (words_begin(name, faults))
        name = "page fault";
    else if (words_begin(name, interrupts))
        name = "interrupt";
    const char *const *call = calls;
    while (*call && !host_begins(name, *call))
        call++;
    name += *call ? strlen(*call) : 0;
    uint32_t leaf = host_leaf_named(path, COST_FUNCTION, name, "[kernel]");
    path->leaves[leaf].flags |= *call ? HOST_LEAF_CALL : 0;
    if (!strcmp(name, "sched_yield"))
        path->leaves[leaf].flags |= HOST_LEAF_SPIN;
    return leaf;
}

// Of a function without a name: what it is inside of; else where it begins, if that is the same on
// both sides; else nothing tells it from the others of its library.
static const char *host_nameless(struct host_path *path, uint32_t stack)
{
    const struct trace_frame *leaf = host_frame_at(path->host, &path->host->stacks[stack], 0);
    const char *inside = trace_inside(path->host, stack, 0);
    char name[NAMES_LENGTH_MAX];
    if (inside)
        snprintf(name, sizeof name, "[inside %s]", inside);
    else if (leaf->starts)
        snprintf(name, sizeof name, "[function %s]", strrchr(leaf->name, '+') + 1);
    else
        return "[unknown]";
    return cost_tree_text(path->tree, name);
}

static uint32_t host_leaf_user(struct host_path *path, uint32_t number)
{
    const struct trace_stack *stack = &path->host->stacks[number];
    if (!stack->count)
        return host_leaf_named(path, COST_FUNCTION, "[unknown]", "[unknown]");
    const struct trace_frame *frame = host_frame_at(path->host, stack, 0);
    const char *name = frame->name ? frame->name : "[unknown]",
               *module = frame->module ? frame->module : "[unknown]";
    if (names_is_interpreter(name, module))
        return host_leaf_named(path, COST_FUNCTION, "Python interpreter", "[python]");
    bool spins = host_spins(name, module);
    uint32_t leaf;
    if (!strcmp(module, "[anon]") || !strcmp(module, "[jit]"))
        leaf = host_leaf_named(path, COST_FUNCTION, "[unknown]", "[jit]");
    else if (names_is_nameless(name))
        leaf = host_leaf_named(path, COST_FUNCTION, host_nameless(path, number), module);
    else
        leaf = host_leaf_named(path, COST_FUNCTION, name, module);
    if (spins)
        path->leaves[leaf].flags |= HOST_LEAF_SPIN;
    return leaf;
}

// Its pieces of the interpreter have no names of their own in most builds.
uint32_t host_leaf_collector(struct host_path *path)
{
    uint32_t leaf = host_leaf_named(path, COST_FUNCTION, "garbage collection", "[python]");
    path->leaves[leaf].flags |= HOST_LEAF_GC;
    return leaf;
}

uint32_t host_leaf_of_stacks(struct host_path *path, uint32_t kernel, uint32_t user)
{
    const struct trace *host = path->host;
    kernel = kernel < host->stack_count ? kernel : 0;
    user = user < host->stack_count ? user : 0;
    if (marks_has(host->stacks[user].marks, MARK_GC))
        return host_leaf_collector(path);
    uint64_t key = (uint64_t)kernel << 32 | user;
    uint32_t leaf = map_get(&path->leaf_of_stack, key);
    if (leaf != HOST_NONE)
        return leaf;
    leaf = kernel && host->stacks[kernel].count ? host_leaf_kernel(path, &host->stacks[kernel])
                                                : host_leaf_user(path, user);
    *map_put(&path->leaf_of_stack, key) = leaf;
    return leaf;
}

// A late stack is of another function as likely as not; that the interpreter collects it may still
// say.
uint32_t host_leaf_of_sample(struct host_path *path, const struct trace_sample *sample)
{
    uint32_t leaf = host_leaf_of_stacks(path, sample->kernel, sample->user);
    if (path->leaves[leaf].flags & HOST_LEAF_GC ||
            !marks_has(trace_marks(path->host, sample->python), MARK_GC))
        return leaf;
    return leaf == host_leaf_named(path, COST_FUNCTION, "Python interpreter", "[python]")
            ? host_leaf_collector(path)
            : leaf;
}

// ---- Python functions ----

// From the package directory on, or from the program's directory on, or the file's name.
char *host_python_module(const char *script, const char *file)
{
    static const char *const roots[] = {"/site-packages/", "/dist-packages/"};
    const char *from = NULL;
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++)
        for (const char *at = file; (at = strstr(at, roots[i])); at++)
            if (!from || at + strlen(roots[i]) > from)
                from = at + strlen(roots[i]);
    if (from)
        return xstrdup(from);
    if (strstr(file, "torchinductor_"))
        return xstrdup(HOST_COMPILED);
    if (file[0] != '/')
        return xstrdup(file);
    for (const char *at = file; (at = strstr(at, "/lib/python")); at++) { // the standard library
        const char *end = at + strlen("/lib/python");
        while (isdigit((unsigned char)*end) || *end == '.')
            end++;
        if (*end == '/')
            return xstrdup(end + 1);
    }
    if (script && host_begins(file, script))
        return xstrdup(file + strlen(script));
    return xstrdup(strrchr(file, '/') + 1);
}

const char *host_path_import(struct arena *arena, const char *module, bool package)
{
    static const char *const ends[] = {"/__init__.py", ".py"};
    size_t length = strlen(module), cut = 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && !cut; i++)
        if (length > strlen(ends[i]) && !strcmp(module + length - strlen(ends[i]), ends[i]))
            cut = strlen(ends[i]);
    if (!cut)
        return NULL;
    length -= cut;
    if (package && strcspn(module, "/") < length)
        length = strcspn(module, "/");
    char *name = arena_print(arena, "import of %.*s", (int)length, module);
    for (char *at = name; *at; at++)
        *at = *at == '/' ? '.' : *at;
    return name;
}

// What nn.Module, decorators and the like put between two functions; other versions have other
// ones.
bool host_is_plumbing(const char *name, const char *module)
{
    static const struct {
        const char *module, *name;
    } rows[] = {
            {"torch/nn/modules/module.py", "Module._call_impl"},
            {"torch/nn/modules/module.py", "Module._wrapped_call_impl"},
            {"torch/nn/modules/module.py", "_call_impl"},
            {"torch/nn/modules/module.py", "_wrapped_call_impl"},
            {"torch/utils/_contextlib.py", NULL},
            {"torch/autograd/grad_mode.py", NULL},
            {"torch/optim/optimizer.py", "profile_hook_step"},
            {"torch/optim/optimizer.py", "_use_grad"},
            {"torch/optim/optimizer.py", "_disable_dynamo"},
            {"torch/optim/optimizer.py", "maybe_fallback"},
            {"torch/optim/lr_scheduler.py", "with_counter"},
            {"torch/_compile.py", NULL},
            {"torch/_dynamo/eval_frame.py", "DisableContext.__call__"},
            {"contextlib.py", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!strcmp(module, rows[i].module) && (!rows[i].name || strstr(name, rows[i].name)))
            return true;
    return false;
}

bool host_is_dropped(const char *name, const char *module)
{
    static const char *const files[] = {"<frozen importlib", "<frozen zipimport",
            "importlib/__init__.py", "<frozen runpy>", "runpy.py", "multiprocessing/process.py",
            "multiprocessing/popen_", "zipimport.py", "multiprocessing/context.py",
            "multiprocessing/spawn.py", "multiprocessing/forkserver.py", NULL};
    if (words_begin(module, files))
        return true;
    return !strcmp(module, "threading.py") &&
            (strstr(name, "_bootstrap") || !strcmp(name, "Thread.run") || !strcmp(name, "run"));
}

static const struct host_frame *host_frame(struct host_path *path, uint32_t index)
{
    struct host_frame *frame = &path->frames[index];
    if (frame->flags)
        return frame;
    const struct trace_frame *row = &path->host->frames[index];
    const char *name = row->name ? row->name : "[unknown]";
    char *module = row->module ? host_python_module(path->script, row->module) : NULL;
    frame->flags = HOST_FRAME_SEEN;
    if (!strcmp(name, "[gc]"))
        frame->flags |= HOST_FRAME_GC | HOST_FRAME_DROP;
    else if (name[0] == '[' && !module)
        frame->flags |= HOST_FRAME_DROP;
    else if (!strcmp(name, "[gil]") || host_is_dropped(name, module ? module : ""))
        frame->flags |= HOST_FRAME_DROP;
    else if (!strcmp(name, "<module>"))
        frame->flags |= HOST_FRAME_SCRIPT;
    else if (module && host_is_plumbing(name, module)) {
        frame->flags |= HOST_FRAME_INNER;
        if (strstr(name, "_call_impl"))
            name = "Module.__call__";
    }
    frame->name = cost_tree_text(path->tree, name);
    frame->module = cost_tree_text(path->tree, module);
    free(module);
    return frame;
}

// The functions of a stack that make a place, outermost first. Returns the number.
static int host_functions(
        struct host_path *path, uint32_t python, const struct host_frame **ret, bool *ret_collects)
{
    const struct trace_stack *stack = &path->host->stacks[python];
    int count = 0;
    *ret_collects = false;
    for (uint32_t i = 0; i < stack->count && count < HOST_FRAMES_MAX; i++) { // innermost first
        const struct host_frame *frame =
                host_frame(path, path->host->stack_frames[stack->first + i]);
        *ret_collects |= i == 0 && frame->flags & HOST_FRAME_GC;
        if (frame->flags & HOST_FRAME_DROP || (frame->flags & HOST_FRAME_INNER && count))
            continue;
        ret[count++] = frame;
    }
    if (count && ret[count - 1]->flags & HOST_FRAME_SCRIPT)
        count--;
    for (int i = 0; i < count / 2; i++) {
        const struct host_frame *other = ret[i];
        ret[i] = ret[count - 1 - i];
        ret[count - 1 - i] = other;
    }
    return count;
}

// Whose allocation set the collector off is chance: it stands right below the phase, so that its
// time is one sum.
uint32_t host_place_collector(struct host_path *path, uint32_t chain)
{
    return cost_tree_child(path->tree, host_chain_node(path, chain),
            &(struct cost_key){.kind = COST_PYTHON, .name = "[gc]", .module = "[python]"});
}

uint32_t host_place(struct host_path *path, uint32_t chain, uint32_t python)
{
    uint32_t node = host_chain_node(path, chain);
    if (!python || !path->host || python >= path->host->stack_count)
        return node;
    uint64_t key = (uint64_t)chain << 32 | python;
    uint32_t found = map_get(&path->place_of, key);
    if (found != HOST_NONE)
        return found;
    const struct host_frame *functions[HOST_FRAMES_MAX];
    bool collects;
    int count = host_functions(path, python, functions, &collects);
    if (collects)
        return host_place_collector(path, chain);
    for (int i = 0; i < count; i++)
        node = cost_tree_child(path->tree, node,
                &(struct cost_key){.kind = COST_PYTHON,
                        .name = functions[i]->name,
                        .module = functions[i]->module});
    *map_put(&path->place_of, key) = node;
    return node;
}

void host_path_callers(struct host_path *path, uint32_t python, uint32_t leaf)
{
    const struct host_frame *functions[HOST_FRAMES_MAX];
    bool collects;
    if (!python || !path->host || python >= path->host->stack_count)
        return;
    int count = host_functions(path, python, functions, &collects);
    for (int i = 0; i < count; i++)
        cost_tree_caller(path->tree,
                &(struct cost_caller){.node = leaf,
                        .depth = (uint16_t)i,
                        .name = functions[i]->name,
                        .module = functions[i]->module});
}

// ---- what is done outside of the windows ----

static bool host_is_elsewhere(const struct host_path *path, uint32_t rank, int64_t at)
{
    if (rank == HOST_NONE)
        return true;
    const struct launch_rank *row = &path->trace->ranks[rank];
    for (uint32_t i = 0; i < row->window_count; i++) {
        const struct launch_window *window = &path->trace->windows[row->window_first + i];
        if (at >= window->begin && at < window->end)
            return false;
    }
    return row->window_count > 0;
}

static void host_stack_elsewhere(struct host_path *path, uint32_t python, int64_t ticks)
{
    const struct host_frame *functions[HOST_FRAMES_MAX];
    bool collects;
    int count = host_functions(path, python, functions, &collects);
    for (int i = 0; i < count && !collects; i++) {
        int before = 0; // texts of the tree: equal ones are one
        while (before < i &&
                (functions[before]->name != functions[i]->name ||
                        functions[before]->module != functions[i]->module))
            before++;
        if (before == i) // else it called itself
            cost_tree_elsewhere(
                    path->tree, COST_PYTHON, functions[i]->name, functions[i]->module, ticks);
    }
}

void host_path_elsewhere(struct host_path *path)
{
    const struct trace *host = path->host;
    if (!host)
        return;
    // ticks: of Python stacks; of path->leaves
    int64_t *stacks = xcalloc(host->stack_count + 1, sizeof *stacks), *leaves = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < host->sample_count + host->outside_count; i++) {
        const struct trace_sample *sample =
                i < host->sample_count ? &host->samples[i] : &host->outside[i - host->sample_count];
        if (!trace_is_target(host, sample->thread) || !host_is_tick(sample) ||
                !host_is_elsewhere(
                        path, path->rank_of[host->threads[sample->thread].process], sample->at))
            continue;
        uint32_t leaf = host_leaf_of_sample(path, sample);
        leaves = vector_reserve_zero(leaves, &capacity, (size_t)leaf + 1, sizeof *leaves);
        leaves[leaf]++;
        if (!(sample->why & UG_SAMPLE_LATE) && sample->python < host->stack_count)
            stacks[sample->python]++;
    }
    for (uint32_t i = 1; i < host->stack_count; i++)
        if (stacks[i])
            host_stack_elsewhere(path, i, stacks[i]);
    for (size_t i = 0; i < capacity; i++)
        if (leaves[i] && path->leaves[i].kind == COST_FUNCTION)
            cost_tree_elsewhere(path->tree, COST_FUNCTION, path->leaves[i].name,
                    path->leaves[i].module, leaves[i]);
    free(leaves);
    free(stacks);
}

bool host_stack_useful(struct host_path *path, uint32_t python)
{
    if (!python || python >= path->host->stack_count)
        return false;
    uint8_t *flags = &path->stacks[python];
    if (!(*flags & HOST_STACK_READ)) {
        const struct host_frame *functions[HOST_FRAMES_MAX];
        bool collects;
        int count = host_functions(path, python, functions, &collects);
        *flags |= HOST_STACK_READ | (count > 0 && !collects ? HOST_STACK_USEFUL : 0);
    }
    return *flags & HOST_STACK_USEFUL;
}

uint32_t host_node(struct host_path *path, uint32_t place, uint32_t leaf, enum cost_class class)
{
    uint64_t key = (uint64_t)place << 32 | (uint64_t)leaf << 4 | class;
    uint32_t found = map_get(&path->node_of, key);
    if (found != HOST_NONE)
        return found;
    const struct host_leaf *row = &path->leaves[leaf];
    uint32_t node = cost_tree_child(path->tree, place,
            &(struct cost_key){.kind = row->kind,
                    .class = class,
                    .name = row->name,
                    .module = row->module,
                    .collective = &row->collective});
    *map_put(&path->node_of, key) = node;
    return node;
}

// Does this wait belong to a collective of several ranks? Then it waits for a rank, also where
// nobody says for which.
bool host_is_collective(struct host_path *path, uint32_t user, uint32_t python)
{
    const struct trace *host = path->host;
    if (user < host->stack_count && marks_has(host->stacks[user].marks, MARK_NCCL))
        return true;
    if (!python || python >= host->stack_count)
        return false;
    uint8_t *flags = &path->stacks[python];
    if (!(*flags & HOST_STACK_SEEN)) {
        *flags |= HOST_STACK_SEEN;
        const struct trace_stack *stack = &host->stacks[python];
        // the call itself, not a wrapper around the whole step
        for (uint32_t i = 0; i < stack->count && i < 4; i++) {
            const char *module = host_frame_at(host, stack, i)->module;
            if (module && strstr(module, "torch/distributed/distributed_c10d"))
                *flags |= HOST_STACK_COLLECTIVE;
        }
    }
    return *flags & HOST_STACK_COLLECTIVE;
}
