// SPDX-License-Identifier: Apache-2.0
// upgate._core, steps of a program that makes no step calls: training by the optimizer, inference
// by the outermost call of a model. The hooks are in _find.py and below; the step protocol is
// spoken as if the program did, so the harness sees no difference but the rule, which it is told in
// words.
//
// A step of training goes from where the last optimizer of a round has returned to where it returns
// the next time; the first begins with the first forward pass that wants gradients. A step of
// inference is a round of calls. While a CUDA graph is captured nothing of it runs: what of a step
// lies in the graph is done by each of its replays. Where the program makes a step call, or does
// what the rule does not fit, nothing is found any more.
//
// Runs with the GIL, which guards all that is here.

#include "_find.h"

#include "_capture.h"
#include "_trace.h"

#define ROOTS_MAX 16
#define DEPTH_MAX 16
// Shorter steps go without phases: five records for each would be most of what is written.
#define PHASES_STEP_NS_MIN 500000u
#define PHASES_LEARN_STEPS 32u
// Calls of a model before its optimizer is made (a look at its shapes) are steps of the warm-up.
#define TRIALS_MAX 4
#define NAMES_BYTES 160

enum rule { RULE_NONE, RULE_OPTIMIZER, RULE_MODULE, RULE_JIT, RULE_FUNCTION };

static const char *const rule_names[] = {"", "optimizer", "module", "jit", "function"};
static const char *const rule_words[] = {
        "", "Optimizer.step of ", "the call of ", "the jitted ", ""};
static const char several_differ[] =
        "!CUDA graphs with several steps, and steps without, or with another number";

static struct {
    bool is_on;
    bool gave_way; // for good
    bool trains;   // an optimizer has been made
    bool is_open;  // a step of ours has been begun
    enum rule rule;
    struct cycle cycle;
    uint64_t steps, learn_ns;
    bool no_phases;
    // Where the time goes now: a phase and its begin; the name is NULL where nobody knows.
    const char *phase;
    uint64_t phase_ns;
    // Optimizers that are under way, the outermost first: some call others.
    PyObject *optimizers[DEPTH_MAX];
    unsigned depth;
    PyObject *scaled;             // the optimizer whose step a gradient scaler makes, or not
    const void *roots[ROOTS_MAX]; // models that have trained; or (inference) that have parameters
    unsigned root_count;
    bool evaluates;   // since the last step a model that trains was only evaluated
    bool is_inside;   // a thread is inside an outermost call
    bool replays;     // a graph has made a part of a step
    unsigned several; // steps of the program that each replay makes, where they are more than one;
                      // then a replay is a step
    char names[NAMES_BYTES];
} find;

static PyTypeObject *module_type;
static ternaryfunc original;    // what every class of modules had in the slot
static __thread bool is_nested; // this thread is inside an outermost call

// ---- what is told ----

static void tell(const char *name, const char *text)
{
    ug_step_text(UG_BYTES_TEXT, name, text, strlen(text));
}

// Where a replay makes several steps at once both sides must do so, and as many, behind as many
// that were made one by one: the words differ else, and nobody compares the steps.
static void tell_rule(void)
{
    char text[NAMES_BYTES];

    if (find.several > 0) {
        snprintf(text, sizeof(text), "%s, %u in a graph, %llu before", rule_names[find.rule],
                find.several, (unsigned long long)find.steps);
    } else {
        snprintf(text, sizeof(text), "%s", rule_names[find.rule]);
    }
    tell("steps_from", text);
}

// The program does what the rule is not made for: its steps are none, and the harness must know.
// why begins with '!', which no rule does.
static void give_up(const char *why)
{
    struct ug_step_state *s = &ug_step_state_v2;

    find.is_on = false;
    if (find.is_open && __atomic_load_n(&s->owner, __ATOMIC_RELAXED) == ug_impl_self()) {
        ug_impl_abandon(s);
    }
    find.is_open = false;
    if (find.rule != RULE_NONE) {
        tell("steps_from", why);
    }
}

void find_gives_way(void)
{
    find.gave_way = true;
    if (find.is_on) {
        give_up("!step calls of the program after steps that were found");
    }
}

// named: the class of an optimizer or a model, or a jitted function.
static void add_name(PyObject *named)
{
    PyObject *name = PyObject_GetAttrString(named, "__name__"), *bytes = NULL;
    size_t length;

    if (find.cycle.count == 1) {
        find.names[0] = '\0'; // of one that does not take part, after all
    }
    length = strlen(find.names);
    if (name != NULL && PyUnicode_Check(name)) {
        bytes = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    }
    if (bytes != NULL && strstr(find.names, PyBytes_AsString(bytes)) == NULL) {
        snprintf(find.names + length, sizeof(find.names) - length, "%s%s",
                length > 0 ? ", " : rule_words[find.rule], PyBytes_AsString(bytes));
        tell("steps_found", find.names);
    }
    PyErr_Clear();
    Py_XDECREF(bytes);
    Py_XDECREF(name);
}

// torch.distributed knows the ranks of a job whose launcher has not said them.
static long ask_distributed(PyObject *distributed, const char *function)
{
    PyObject *value = PyObject_CallMethod(distributed, function, NULL);
    long number = value == NULL ? -1 : PyLong_AsLong(value);

    Py_XDECREF(value);
    PyErr_Clear();
    return number;
}

static void tell_ranks(void)
{
    PyObject *distributed = trace_module("torch.distributed");
    struct ug_step_slot *slot = ug_step_state_v2.slot;
    const char *local = getenv("LOCAL_WORLD_SIZE");
    uint64_t count = ug_impl_number(local, '\0');
    long rank, size;

    if (__atomic_load_n(&ug_step_state_v2.status, __ATOMIC_ACQUIRE) != UG_IMPL_ATTACHED) {
        return;
    }
    if (distributed != NULL && ask_distributed(distributed, "is_available") == 1 &&
            ask_distributed(distributed, "is_initialized") == 1) {
        rank = ask_distributed(distributed, "get_rank");
        size = ask_distributed(distributed, "get_world_size");
        // What the launcher around the job has said, a batch script's SLURM_PROCID, is the same in
        // all that the job spawns.
        if (rank >= 0 && size > 0 &&
                (slot->rank_source == UG_RANK_CLAIM_ORDER || getenv("RANK") == NULL)) {
            slot->rank = (uint32_t)rank;
            slot->rank_source = UG_RANK_ENVIRONMENT;
        }
        count = count < UG_STEP_SLOTS_MAX ? count : (uint64_t)size;
    }
    if (count <= UG_STEP_SLOTS_MAX) {
        __atomic_store_n(&slot->ranks, (uint32_t)count, __ATOMIC_RELEASE);
    }
}

// ---- steps ----

static void phase_to(const char *name, uint64_t now_ns)
{
    struct ug_step_state *s = &ug_step_state_v2;

    if (find.phase != NULL && find.is_open && !find.no_phases &&
            __atomic_load_n(&s->status, __ATOMIC_ACQUIRE) == UG_IMPL_ATTACHED) {
        ug_impl_put(s, UG_RECORD_PHASE, find.phase_ns, now_ns, 0, find.phase);
        if (trace_on()) {
            trace_mark(UG_MARK_PHASE_BEGIN, trace_string(find.phase), 0, find.phase_ns, 0);
            trace_mark(UG_MARK_PHASE_END, trace_string(find.phase), 0, now_ns, 0);
        }
    }
    find.phase = name;
    find.phase_ns = now_ns;
}

// 0; -1: a signal handler raised while we waited.
static int begin_step(enum rule rule)
{
    if (find.rule == RULE_NONE) {
        find.rule = rule;
        tell_rule();
        tell_ranks();
    }
    if (core_begin() < 0) {
        return -1;
    }
    find.is_open = true;
    find.evaluates = false;
    return 0;
}

// The thread that ends a step need not be the one that began it: autograd has its own.
static int end_step(void)
{
    struct ug_step_state *s = &ug_step_state_v2;
    uint64_t began_ns = s->begin_ns;

    if (__atomic_load_n(&s->status, __ATOMIC_ACQUIRE) == UG_IMPL_ATTACHED) {
        __atomic_store_n(&s->owner, ug_impl_self(), __ATOMIC_RELAXED);
    }
    find.is_open = false;
    if (core_end(1) < 0) {
        return -1;
    }
    find.steps++;
    if (find.steps > 1 && find.steps <= PHASES_LEARN_STEPS) {
        find.learn_ns += ug_impl_now_ns() - began_ns;
        find.no_phases = find.steps == PHASES_LEARN_STEPS &&
                find.learn_ns < (uint64_t)PHASES_STEP_NS_MIN * (PHASES_LEARN_STEPS - 1);
    }
    if (find.steps == CYCLE_STEPS_MAX) {
        ug_step_note("steps_found_max", CYCLE_STEPS_MAX);
        find.is_on = false;
    }
    return 0;
}

// `key` has done its part of a round, whose last one this may be.
static bool part_ended(const void *key, PyObject *named)
{
    bool is_over = cycle_ended(&find.cycle, key);

    if (find.cycle.changed) {
        find.cycle.changed = false;
        add_name(named);
    }
    return is_over;
}

// In a process that was forked: nothing of its parent's steps is its own.
static void forget(void)
{
    bool is_on = find.is_on, gave_way = find.gave_way, trains = find.trains;

    memset(&find, 0, sizeof(find));
    find.is_on = is_on;
    find.gave_way = gave_way;
    find.trains = trains;
    is_nested = false;
    capture_forget();
}

// ---- training ----

// 0; -1: a signal handler raised.
static int optimizer_enter(PyObject *optimizer)
{
    if (capture_is_on()) {
        capture_optimizer_begins();
        return 0;
    }
    if (find.rule != RULE_NONE && find.rule != RULE_OPTIMIZER) {
        return 0;
    }
    for (unsigned i = 0; i < find.depth; i++) {
        if (find.optimizers[i] == optimizer) {
            find.depth = i; // an exception left it here
        }
    }
    if (find.depth < DEPTH_MAX) {
        find.optimizers[find.depth++] = optimizer;
    }
    if (find.depth > 1) {
        return 0;
    }
    if (find.several > 0) {
        give_up(several_differ);
        return 0;
    }
    if (!find.is_open && begin_step(RULE_OPTIMIZER) < 0) {
        find.depth = 0;
        return -1;
    }
    phase_to("optimizer", ug_impl_now_ns());
    return 0;
}

static int round_ends(bool is_over)
{
    phase_to(NULL, ug_impl_now_ns());
    if (!is_over) {
        return 0;
    }
    if (end_step() < 0 || (find.is_on && begin_step(RULE_OPTIMIZER) < 0)) {
        return -1;
    }
    phase_to("data", ug_impl_now_ns());
    return 0;
}

static int optimizer_leave(PyObject *optimizer)
{
    if (capture_is_on()) {
        capture_optimizer_ends(optimizer);
        return 0;
    }
    if (find.depth > 0) {
        find.depth--;
    }
    while (find.depth > 0 && find.optimizers[find.depth] != optimizer) {
        find.depth--; // what an exception left
    }
    if (find.depth > 0 || !find.is_open || find.rule != RULE_OPTIMIZER) {
        return 0;
    }
    return round_ends(part_ended(optimizer, (PyObject *)Py_TYPE(optimizer)));
}

static PyObject *optimizer_begins(PyObject *module, PyObject *optimizer)
{
    (void)module;
    if (find.is_on && find.scaled != optimizer && optimizer_enter(optimizer) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *optimizer_ends(PyObject *module, PyObject *optimizer)
{
    (void)module;
    if (find.is_on && find.scaled != optimizer && optimizer_leave(optimizer) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// A gradient scaler skips the step for Inf; for the program it is one all the same.
static PyObject *scaler_begins(PyObject *module, PyObject *optimizer)
{
    (void)module;
    if (find.is_on && find.scaled == NULL) {
        if (optimizer_enter(optimizer) < 0) {
            return NULL;
        }
        find.scaled = optimizer;
    }
    Py_RETURN_NONE;
}

static PyObject *scaler_ends(PyObject *module, PyObject *optimizer)
{
    (void)module;
    if (find.is_on && find.scaled == optimizer) {
        find.scaled = NULL;
        if (optimizer_leave(optimizer) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

// ---- jitted functions, and one that was named ----

// True: the call is an outermost one, and jit_ends() belongs to it.
static PyObject *jit_begins(PyObject *module, PyObject *function)
{
    (void)module;
    (void)function;
    if (!find.is_on || is_nested || find.is_inside ||
            (find.rule != RULE_NONE && find.rule != RULE_JIT)) {
        Py_RETURN_FALSE;
    }
    if (!find.is_open && begin_step(RULE_JIT) < 0) {
        return NULL;
    }
    is_nested = find.is_inside = true;
    Py_RETURN_TRUE;
}

// (function, result): what it computes may be on its way.
static PyObject *jit_ends(PyObject *module, PyObject *args)
{
    PyObject *function, *result;
    bool is_over;
    int rc = 0;

    (void)module;
    is_nested = find.is_inside = false;
    if (!PyArg_ParseTuple(args, "OO:find_jit_ends", &function, &result)) {
        return NULL;
    }
    if (!find.is_on || !find.is_open) {
        Py_RETURN_NONE;
    }
    is_over = part_ended(function, function);
    if (is_over) {
        core_awaits(result);
        rc = end_step();
        core_awaits(NULL);
    }
    if (rc < 0 || (is_over && find.is_on && begin_step(RULE_JIT) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *function_begins(PyObject *module, PyObject *name)
{
    PyObject *bytes;

    (void)module;
    if (!find.is_on || find.is_open) {
        Py_RETURN_FALSE;
    }
    if (begin_step(RULE_FUNCTION) < 0) {
        return NULL;
    }
    bytes = find.steps > 0 ? NULL : PyUnicode_AsEncodedString(name, "utf-8", "replace");
    if (bytes != NULL) {
        tell("steps_found", PyBytes_AsString(bytes));
        Py_DECREF(bytes);
    }
    Py_RETURN_TRUE;
}

static PyObject *function_ends(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    if (find.is_on && find.is_open && end_step() < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *backward(PyObject *module, PyObject *begins)
{
    (void)module;
    if (!find.is_on) {
        Py_RETURN_NONE;
    }
    if (find.rule == RULE_MODULE) {
        give_up("!calls of a model, then gradients without an optimizer of torch");
        Py_RETURN_NONE;
    }
    if (find.is_open) {
        phase_to(begins == Py_True       ? "backward"
                        : find.depth > 0 ? "optimizer"
                                         : NULL,
                ug_impl_now_ns());
    }
    Py_RETURN_NONE;
}

static PyObject *trains(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    find.trains = true;
    if (!find.is_on || find.rule != RULE_MODULE) {
        Py_RETURN_NONE;
    }
    if (find.steps > TRIALS_MAX) {
        give_up("!calls of a model, then an optimizer");
        Py_RETURN_NONE;
    }
    memset(&find.cycle, 0, sizeof(find.cycle));
    find.root_count = 0;
    find.names[0] = '\0';
    find.rule = RULE_OPTIMIZER;
    find.several = 0;
    find.replays = false;
    tell_rule();
    Py_RETURN_NONE;
}

// ---- models ----

static bool is_true(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    bool result = value != NULL && PyObject_IsTrue(value) == 1;

    Py_XDECREF(value);
    PyErr_Clear();
    return result;
}

// Asked at each outermost call: 50 ns where the function is at hand, 400 ns by its name.
static bool wants_gradients(void)
{
    static PyObject *ask; // torch.is_grad_enabled, held
    PyObject *torch = ask == NULL ? trace_module("torch") : NULL, *value;
    bool result;

    if (torch != NULL) {
        ask = PyObject_GetAttrString(torch, "is_grad_enabled");
    }
    value = ask == NULL ? NULL : PyObject_CallObject(ask, NULL);
    result = value == Py_True;
    Py_XDECREF(value);
    PyErr_Clear();
    return result;
}

// A program of its own, with or without parameters: scripted, traced, exported.
static bool is_program(PyObject *model)
{
    static const char *const names[] = {
            "RecursiveScriptModule", "TopLevelTracedModule", "GraphModule"};
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(model), "__name__");
    bool result = false;

    for (size_t i = 0;
            name != NULL && PyUnicode_Check(name) && i < sizeof(names) / sizeof(names[0]); i++) {
        result = result || PyUnicode_CompareWithASCIIString(name, names[i]) == 0;
    }
    Py_XDECREF(name);
    PyErr_Clear();
    return result;
}

// Transforms of images are modules too; they have no parameters, and run in data loaders.
static bool has_parameters(PyObject *model)
{
    PyObject *all = PyObject_CallMethod(model, "parameters", NULL);
    PyObject *first = all == NULL ? NULL : PyIter_Next(all);
    bool result = first != NULL;

    Py_XDECREF(first);
    Py_XDECREF(all);
    PyErr_Clear();
    return result;
}

static bool is_loader(void)
{
    PyObject *worker = trace_module("torch.utils.data._utils.worker");
    PyObject *info = worker == NULL ? NULL : PyObject_GetAttrString(worker, "_worker_info");
    bool result = info != NULL && info != Py_None;

    Py_XDECREF(info);
    PyErr_Clear();
    return result;
}

static bool root_known(const void *model)
{
    for (unsigned i = 0; i < find.root_count; i++) {
        if (find.roots[i] == model) {
            return true;
        }
    }
    return false;
}

static void root_add(const void *model)
{
    if (!root_known(model) && find.root_count < ROOTS_MAX) {
        find.roots[find.root_count++] = model;
    }
}

// What lay between two steps is in neither.
static void evaluation_ends(uint64_t now_ns)
{
    if (find.evaluates) {
        find.evaluates = false;
        ug_step_state_v2.begin_ns = now_ns;
        find.phase = NULL;
    }
}

// An outermost call begins in a program that trains. -1: a signal handler raised.
static int training_begins(PyObject *model)
{
    uint64_t now_ns;

    if (!wants_gradients()) {
        // Of another model (a teacher, a generator) it is a part of the step.
        find.evaluates = find.evaluates ||
                (find.is_open && find.depth == 0 && root_known(model) &&
                        !is_true(model, "training"));
        return 0;
    }
    if (!find.is_open && begin_step(RULE_OPTIMIZER) < 0) {
        return -1;
    }
    if (!find.is_open) {
        return 0;
    }
    root_add(model);
    now_ns = ug_impl_now_ns();
    if (find.evaluates) {
        evaluation_ends(now_ns);
    } else if (find.phase == NULL && find.depth == 0 && find.phase_ns > ug_step_state_v2.begin_ns) {
        find.phase = "data"; // of the next of several backward passes
    }
    phase_to("forward", now_ns);
    return 0;
}

static bool is_root(PyObject *model)
{
    if (!root_known(model)) {
        if ((!has_parameters(model) && !is_program(model)) || is_loader()) {
            return false;
        }
        root_add(model);
    }
    return true;
}

static int inference_begins(PyObject *model)
{
    if (!is_root(model)) {
        return 0;
    }
    if (find.several > 0) {
        give_up(several_differ);
        return 0;
    }
    return find.is_open ? 0 : begin_step(RULE_MODULE);
}

static int inference_ends(PyObject *model)
{
    if (!find.is_open || !root_known(model)) {
        return 0;
    }
    return part_ended(model, (PyObject *)Py_TYPE(model)) ? end_step() : 0;
}

// 0; -1: a signal handler raised.
static int outermost_ends(PyObject *self, bool infers)
{
    if (!find.is_on) {
        return 0;
    }
    if (find.rule == RULE_OPTIMIZER && find.phase != NULL && strcmp(find.phase, "forward") == 0) {
        phase_to(find.depth > 0 ? "optimizer" : NULL, ug_impl_now_ns());
    }
    return infers && find.rule == RULE_MODULE ? inference_ends(self) : 0;
}

static PyObject *call_outermost(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *result, *type, *value, *traceback;
    bool infers = !find.trains;

    if (find.rule == RULE_JIT || find.rule == RULE_FUNCTION) {
        return original(self, args, kwargs);
    }
    if (capture_is_on()) {
        if (infers && is_root(self)) {
            capture_call(self);
        } else if (!infers && wants_gradients()) {
            root_add(self); // so that its evaluation is known as such
            capture_forward();
        }
        return original(self, args, kwargs);
    }
    if ((infers ? inference_begins(self) : training_begins(self)) < 0) {
        return NULL;
    }
    result = original(self, args, kwargs);
    PyErr_Fetch(&type, &value, &traceback);
    if (outermost_ends(self, infers) < 0) {
        Py_XDECREF(result);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return NULL; // what the signal handler raised
    }
    PyErr_Restore(type, value, traceback);
    return result;
}

// In the slot behind `module(...)`. Of calls of several threads at once the first counts.
static PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    bool counts = !find.is_inside;
    PyObject *result;

    if (!find.is_on || is_nested) {
        return original(self, args, kwargs);
    }
    is_nested = true;
    find.is_inside = true;
    result = (counts ? call_outermost : original)(self, args, kwargs);
    is_nested = false;
    find.is_inside = find.is_inside && !counts;
    return result;
}

// ---- CUDA graphs ----

static PyObject *graph_capture_begins(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    capture_begins(find.is_on);
    Py_RETURN_NONE;
}

static PyObject *graph_capture_ends(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return capture_ends();
}

// Do replays that make `times` steps each fit what was replayed before?
static bool times_fit(unsigned times)
{
    bool is_first = find.several == 0 && !find.replays;

    if (times > 1 && is_first) {
        find.several = times;
        if (find.rule != RULE_NONE) {
            tell_rule();
        }
    }
    return find.several == (times > 1 ? times : 0);
}

static void graph_phase_begins(void)
{
    uint64_t now_ns = ug_impl_now_ns();

    evaluation_ends(now_ns);
    phase_to("graph", now_ns);
}

// A replay of a graph that leaves the optimizer to the program: as a forward pass it ends what was
// evaluated before it. Within the call of a model it is a part of that.
static bool pass_begins(void)
{
    if (!find.is_on || !find.is_open || find.rule != RULE_OPTIMIZER || find.depth > 0 ||
            find.is_inside) {
        return false;
    }
    graph_phase_begins();
    return true;
}

// True: graph_ends() belongs to it.
static PyObject *graph_begins(PyObject *module, PyObject *held)
{
    struct capture capture;
    enum rule rule;

    (void)module;
    if (capture_read(held, &capture) < 0) {
        return NULL;
    }
    rule = capture.is_call ? RULE_MODULE : RULE_OPTIMIZER;
    if (capture_is_on()) {
        capture_replay(&capture);
        Py_RETURN_FALSE;
    }
    if (capture.count == 0) {
        return PyBool_FromLong(pass_begins());
    }
    if (!find.is_on || find.depth > 0 || (capture.is_call && (find.is_inside || find.trains)) ||
            (find.rule != RULE_NONE && find.rule != rule)) {
        Py_RETURN_FALSE;
    }
    if (!times_fit(capture.times)) {
        give_up(several_differ);
        Py_RETURN_FALSE;
    }
    if (!find.is_open && begin_step(rule) < 0) {
        return NULL;
    }
    if (!capture.is_call) {
        graph_phase_begins();
    }
    Py_RETURN_TRUE;
}

// What the graph has was done by its replay, as if it had been called.
static PyObject *graph_ends(PyObject *module, PyObject *held)
{
    struct capture capture;
    bool is_over = false;
    int rc;

    (void)module;
    if (capture_read(held, &capture) < 0) {
        return NULL;
    }
    if (!find.is_on || !find.is_open ||
            find.rule != (capture.is_call ? RULE_MODULE : RULE_OPTIMIZER)) {
        Py_RETURN_NONE;
    }
    if (capture.count == 0) {
        phase_to(NULL, ug_impl_now_ns());
        Py_RETURN_NONE;
    }
    for (unsigned i = 0; i < capture.count; i++) {
        is_over = part_ended(capture.keys[i], capture.type) || is_over;
    }
    if (!find.replays) {
        size_t length = strlen(find.names);

        find.replays = true;
        if (find.several > 0) {
            snprintf(find.names + length, sizeof(find.names) - length,
                    ", %u in each CUDA graph behind %llu called", find.several,
                    (unsigned long long)find.steps);
        } else {
            snprintf(find.names + length, sizeof(find.names) - length, " in a CUDA graph");
        }
        tell("steps_found", find.names);
    }
    rc = !capture.is_call ? round_ends(is_over) : is_over ? end_step() : 0;
    if (rc < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// The class torch.nn.Module itself, or one that has just been made from it.
static PyObject *modules(PyObject *module, PyObject *type)
{
    (void)module;
    if (!PyType_Check(type)) {
        Py_RETURN_FALSE;
    }
    if (module_type == NULL) {
        if (!slot_is_known((PyTypeObject *)type)) {
            Py_RETURN_FALSE;
        }
        Py_INCREF(type);
        module_type = (PyTypeObject *)type;
        original = *call_slot(module_type);
    }
    set_slots((PyTypeObject *)type, original, call);
    PyErr_Clear();
    Py_RETURN_TRUE;
}

// ---- the module ----

static PyObject *start(PyObject *module, PyObject *ignored)
{
    static bool is_watched;

    (void)module;
    (void)ignored;
    if (!is_watched) {
        is_watched = pthread_atfork(NULL, NULL, forget) == 0;
        find.is_on = is_watched && !find.gave_way;
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
        {"find_start", start, METH_NOARGS, "find_start(): steps are looked for from here on."},
        {"find_trains", trains, METH_NOARGS, "find_trains(): an optimizer has been made."},
        {"find_optimizer_begins", optimizer_begins, METH_O, "find_optimizer_begins(optimizer)"},
        {"find_optimizer_ends", optimizer_ends, METH_O,
                "find_optimizer_ends(optimizer): here the program may be held."},
        {"find_scaler_begins", scaler_begins, METH_O, "find_scaler_begins(optimizer)"},
        {"find_scaler_ends", scaler_ends, METH_O, "find_scaler_ends(optimizer): here, too."},
        {"find_jit_begins", jit_begins, METH_O,
                "find_jit_begins(function): is it an outermost call?"},
        {"find_jit_ends", jit_ends, METH_VARARGS, "find_jit_ends(function, result)"},
        {"find_function_begins", function_begins, METH_O,
                "find_function_begins(name): a step begins."},
        {"find_function_ends", function_ends, METH_NOARGS, "find_function_ends()"},
        {"find_backward", backward, METH_O, "find_backward(begins)"},
        {"find_capture_begins", graph_capture_begins, METH_NOARGS,
                "find_capture_begins(): what this thread does now is not run."},
        {"find_capture_ends", graph_capture_ends, METH_NOARGS,
                "find_capture_ends(): what of a step the graph has, or None."},
        {"find_graph_begins", graph_begins, METH_O,
                "find_graph_begins(what it has): is its replay a part of a step?"},
        {"find_graph_ends", graph_ends, METH_O,
                "find_graph_ends(what it has): here the program may be held."},
        {"find_modules", modules, METH_O,
                "find_modules(type): calls of its objects are looked at. False: this interpreter's types are not known."},
        {NULL, NULL, 0, NULL},
};

int find_add_functions(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
