// SPDX-License-Identifier: Apache-2.0
// What a person calls a process or a thread: the script of an interpreter rather than "python3".
// Pure functions over struct stall_task.
#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_text.h"

// The next word of a command line, whose arguments are joined by blanks; false at its end.
static bool names_word(const char **text, const char **ret_word, size_t *ret_len)
{
    *text += strspn(*text, " ");
    *ret_word = *text;
    *ret_len = strcspn(*text, " ");
    *text += *ret_len;
    return *ret_len > 0;
}

static void names_base(const char **word, size_t *len)
{
    for (size_t i = *len; i > 0; i--) {
        if ((*word)[i - 1] == '/' && i < *len) {
            *word += i;
            *len -= i;
            return;
        }
    }
}

static bool names_is_interpreter(const char *program, size_t len)
{
    static const char *const names[] = {
            "python", "pypy", "bash", "sh", "dash", "zsh", "perl", "ruby", "node", "java", NULL};
    for (const char *const *name = names; *name; name++) {
        size_t name_len = strlen(*name);
        // "python3.11" is one, "shred" is none.
        if (len >= name_len && strncmp(program, *name, name_len) == 0 &&
                strspn(program + name_len, "0123456789.") >= len - name_len)
            return true;
    }
    return false;
}

// What the interpreter runs: "agent.py", "-m torch.distributed.run"; NULL for -c and the like.
static char *names_script(const char *rest, bool *ret_module)
{
    const char *word;
    size_t len;
    *ret_module = false;
    while (names_word(&rest, &word, &len)) {
        if (len == 2 && strncmp(word, "-m", 2) == 0) {
            *ret_module = names_word(&rest, &word, &len);
            return *ret_module ? xasprintf("%.*s", (int)len, word) : NULL;
        }
        if (len == 2 && strncmp(word, "-c", 2) == 0)
            return NULL;
        if (len == 2 && (strncmp(word, "-X", 2) == 0 || strncmp(word, "-W", 2) == 0))
            names_word(&rest, &word, &len); // the value of the option
        else if (word[0] != '-') {
            names_base(&word, &len);
            return xasprintf("%.*s", (int)len, word);
        }
    }
    return NULL;
}

char *stalls_text_name(const struct stall_task *task, enum stalls_name_form form)
{
    const char *rest = task->cmdline, *program;
    size_t len;
    if (!rest || !names_word(&rest, &program, &len))
        return xstrdup(task->comm && *task->comm ? task->comm : "?");
    names_base(&program, &len);
    if (!names_is_interpreter(program, len))
        return xasprintf("%.*s", (int)len, program);
    bool module;
    char *script = names_script(rest, &module), *name;
    if (!script)
        return xasprintf("%.*s", (int)len, program);
    if (form == STALLS_NAME_SHORT)
        return script;
    name = xasprintf("%.*s %s%s", (int)len, program, module ? "-m " : "", script);
    free(script);
    return name;
}

static bool stalls_text_is_python(const struct stall_task *task)
{
    const char *rest = task->cmdline, *program;
    size_t len;
    if (!rest || !names_word(&rest, &program, &len))
        return false;
    names_base(&program, &len);
    return len >= 6 && strncmp(program, "python", 6) == 0;
}

static bool names_is(const struct stall_task *task, const char *kind)
{
    return task->kind && strcmp(task->kind, kind) == 0;
}

const char *stalls_text_blind(const struct stalls_recording *recording)
{
    return !recording->python && stalls_text_is_python(&recording->target)
            ? "Python stacks: they were not walked"
            : NULL;
}

char *stalls_text_task(const struct stall_task *task, enum stalls_name_form form)
{
    if (!task->known)
        return xstrdup("nobody seen");
    if (names_is(task, "idle"))
        return xstrdup("the idle task");
    if (names_is(task, "kernel"))
        return xasprintf("kernel thread %s (pid %d)", task->comm ? task->comm : "?", task->pid);
    char *name = stalls_text_name(task, form);
    char *text = xasprintf("%s (pid %d)", name, task->pid);
    free(name);
    return text;
}

char *stalls_text_thread(const struct stall_task *task)
{
    char *process = stalls_text_task(task, STALLS_NAME_SHORT);
    if (!task->known || task->tid == 0 || names_is(task, "kernel") || names_is(task, "idle"))
        return process;
    char *own = stalls_text_own(task), *text = xasprintf("%s of %s", own, process);
    free(own);
    free(process);
    return text;
}

char *stalls_text_own(const struct stall_task *task)
{
    return xasprintf("%s %d \"%s\"", task->tid == task->pid ? "main thread" : "thread", task->tid,
            task->comm ? task->comm : "?");
}
