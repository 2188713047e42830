// SPDX-License-Identifier: Apache-2.0
// Strips compiler suffixes, demangles C++ through libiberty where it was found at configure. Names
// come from files of the traced process: input is bounded, and output stops where the buffer ends.
#include "tracer/symbols/demangle.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#include "tracer/symbols/rust_name.h"

#ifdef UPGATE_HAVE_LIBIBERTY
#include <libiberty/demangle.h>
#endif

// Marks of clones. A number behind one of them belongs to it.
static const char *const demangle_suffixes[] = {"isra", "constprop", "part", "cold", "llvm",
        "lto_priv", "localalias", "clone", "kcfi", "cfi", "warm", "specialized", "resume",
        "destroy"};

static bool demangle_is_suffix(const char *word, size_t len)
{
    for (size_t i = 0; i < sizeof(demangle_suffixes) / sizeof(*demangle_suffixes); i++)
        if (strlen(demangle_suffixes[i]) == len && !memcmp(demangle_suffixes[i], word, len))
            return true;
    return false;
}

static bool demangle_is_number(const char *word, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isdigit((unsigned char)word[i]))
            return false;
    return len > 0;
}

size_t symbol_name_plain(const char *name, size_t len)
{
    const char *version = memchr(name, '@', len);
    if (version && version > name)
        len = (size_t)(version - name);
    for (size_t end = len;;) {
        const char *dot = memrchr(name, '.', end);
        if (!dot || dot == name)
            return len;
        size_t word = end - (size_t)(dot + 1 - name);
        if (demangle_is_suffix(dot + 1, word))
            len = end = (size_t)(dot - name);
        else if (end == len && demangle_is_number(dot + 1, word))
            end = (size_t)(dot - name); // gone only if a mark stands before it
        else
            return len;
    }
}

static size_t demangle_copy(const char *text, size_t len, char ret[SYMBOL_NAME_MAX])
{
    bool cut = len > SYMBOL_NAME_MAX - 1;
    if (cut)
        len = SYMBOL_NAME_MAX - 1;
    memcpy(ret, text, len);
    ret[len] = '\0';
    if (cut)
        memcpy(ret + len - 3, "...", 3);
    return len;
}

#ifdef UPGATE_HAVE_LIBIBERTY

struct demangle_sink {
    char *text;
    size_t len;
    jmp_buf full;
};

static void demangle_take(const char *text, size_t len, void *opaque)
{
    struct demangle_sink *sink = opaque;
    size_t room = SYMBOL_NAME_MAX - 1 - sink->len;
    if (len) // an empty piece may come as NULL
        memcpy(sink->text + sink->len, text, len < room ? len : room);
    sink->len += len < room ? len : room;
    // A mangled name of 50 characters can stand for gigabytes. libiberty's callback interface holds
    // no heap memory, so it may be left in the middle.
    if (len > room)
        longjmp(sink->full, 1);
}

static size_t demangle_cxx(const char *mangled, char ret[SYMBOL_NAME_MAX])
{
    struct demangle_sink sink = {.text = ret};
    if (setjmp(sink.full)) {
        memcpy(ret + SYMBOL_NAME_MAX - 4, "...", 4);
        return SYMBOL_NAME_MAX - 1;
    }
    if (mangled[1] == 'R' && !rust_name_sane(mangled))
        return 0;
    int options = DMGL_ANSI | DMGL_RET_DROP;
    int good = mangled[1] == 'R'
            ? rust_demangle_callback(mangled, 0, demangle_take, &sink)
            : cplus_demangle_v3_callback(mangled, options, demangle_take, &sink);
    ret[sink.len] = '\0';
    return good ? sink.len : 0;
}

size_t symbol_name_readable(const char *name, size_t len, char ret[SYMBOL_NAME_MAX])
{
    enum { MANGLED_MAX = 4096 };
    char mangled[MANGLED_MAX];
    len = symbol_name_plain(name, len);
    if (len > 2 && len < MANGLED_MAX && name[0] == '_' && (name[1] == 'Z' || name[1] == 'R')) {
        memcpy(mangled, name, len);
        mangled[len] = '\0';
        size_t readable = demangle_cxx(mangled, ret);
        if (readable)
            return readable;
    }
    return demangle_copy(name, len, ret);
}

#else

size_t symbol_name_readable(const char *name, size_t len, char ret[SYMBOL_NAME_MAX])
{
    return demangle_copy(name, symbol_name_plain(name, len), ret);
}

#endif
