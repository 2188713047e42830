// SPDX-License-Identifier: Apache-2.0
// One scanner over demangled names writes both the text that versions have in common and the short
// one for people. It knows no grammar of C++: it keeps identifiers, drops return types, parameters,
// namespaces that say nothing and types that are plumbing, and keeps what stands in template
// arguments, for there is the functor that tells elementwise kernels apart. One pass, no recursion,
// so that 64 KB of brackets cost what 64 KB of letters do.
#include "reports/analyse/names/names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/names/names_words.h"

enum { NAMES_DEPTH_MAX = 24 };

struct names_scan {
    struct names_out out;
    const char *at, *end;
    bool people;    // for eyes: words stay as they are
    int depth;      // of template arguments
    int depth_kept; // deeper ones are not written
    bool comma;     // an argument ended: before the next one comes a comma
    bool lambda;    // the newest component is a lambda
    bool joint;     // a component was written, "::" comes before the next
    bool spelled;   // something of this argument was written
};

// "operator<", "operator()" and the like: its length with the symbols; 0: none. "operator new"
// is 8.
static size_t names_operator(const char *at, const char *end)
{
    static const char word[] = "operator";
    size_t len = sizeof word - 1;
    if ((size_t)(end - at) < len || memcmp(at, word, len) ||
            (at + len < end && names_ident(at[len])))
        return 0;
    if (end - at >= 10 && (!memcmp(at + len, "()", 2) || !memcmp(at + len, "[]", 2)))
        return len + 2;
    while (at + len < end && strchr("<>=!+-*/%^&|~", at[len]))
        len++;
    return len;
}

// Behind the bracket that closes the one at `at`; only brackets of its own kind count. One byte
// where nothing closes it.
static const char *names_skip(const char *at, const char *end, char open, char close)
{
    size_t depth = 0;
    for (const char *p = at; p < end; p++)
        if (*p == open)
            depth++;
        else if (*p == close && !(close == '>' && p > at && p[-1] == '-') && !--depth)
            return p + 1;
    return end;
}

static bool names_begins(const char *at, const char *end, const char *text)
{
    size_t len = strlen(text);
    return (size_t)(end - at) >= len && !memcmp(at, text, len);
}

static size_t names_anonymous(const char *at, const char *end)
{
    static const char *const forms[] = {"(anonymous namespace)", "{anonymous}", "<unnamed>",
            "(anonymous class)", "(anonymous)", "`anonymous namespace'"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (names_begins(at, end, forms[i]))
            return strlen(forms[i]);
    return 0;
}

// What a '(' at depth 0 opened is over: do parameters end the name, or was it part of the return
// type or of a local entity?
static bool names_params_end(const char *at, const char *end)
{
    static const char *const behind[] = {
            "const", "volatile", "[clone", "noexcept", "&", "[with", "requires"};
    if (at >= end || names_begins(at, end, "::"))
        return at >= end;
    if (*at != ' ')
        return true;
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
        if (names_begins(at + 1, end, behind[i]))
            return !strstr(at, "::{") && !strstr(at, "::[") && !strstr(at, "::'");
    return false;
}

// Where the name itself begins, behind the return type.
static const char *names_begin(const char *name, const char *end)
{
    const char *begin = name;
    int depth = 0;
    for (const char *at = name; at < end;) {
        size_t len = names_operator(at, end);
        bool first = at == name || !names_ident(at[-1]);
        if (first && len > 8) {
            at += len;
            continue;
        }
        if (first && len == 8)
            return begin; // "operator new", "operator bool": its space is no end of a type
        if ((len = names_anonymous(at, end)) && !depth) {
            at += len;
            continue;
        }
        if (!depth && (*at == '(' || *at == '{' || *at == '[')) {
            char close = *at == '(' ? ')' : *at == '{' ? '}' : ']';
            bool params = *at == '(';
            at = names_skip(at, end, *at, close);
            if (params && names_params_end(at, end))
                return begin;
            continue;
        }
        depth += *at == '<';
        depth -= *at == '>' && at[-(at > name)] != '-' && depth > 0;
        if (!depth && *at == ' ' && at + 1 < end &&
                (names_ident(at[1]) || at[1] == '(' || at[1] == '{') &&
                !names_begins(at + 1, end, "const"))
            begin = at + 1;
        at++;
    }
    return begin;
}

static void names_write(struct names_scan *scan, const char *text, size_t len)
{
    if (scan->depth <= scan->depth_kept)
        names_put(&scan->out, text, len);
}

static void names_sep(struct names_scan *scan)
{
    if (scan->joint)
        names_write(scan, "::", 2);
    else if (scan->comma && scan->depth)
        names_write(scan, scan->people ? ", " : ",", scan->people ? 2 : 1);
    else if (scan->people && scan->spelled && scan->out.len &&
            isalnum((unsigned char)scan->out.text[scan->out.len - 1]))
        names_write(scan, " ", 1); // "unsigned long"
    scan->joint = scan->comma = false;
    scan->spelled = true;
}

static void names_word(struct names_scan *scan, const char *text, size_t len)
{
    names_sep(scan);
    names_write(scan, text, len);
    scan->lambda = false;
}

// A number in a template argument: widths and flags, which versions change. That of an enum stays.
static void names_number(struct names_scan *scan, const char *cast, size_t cast_len)
{
    const char *from = scan->at;
    while (scan->at < scan->end && (names_ident(*scan->at) || *scan->at == '.'))
        scan->at++;
    size_t len = (size_t)(scan->at - from);
    while (len > 1 && strchr("uUlL", from[len - 1]))
        len--;
    bool basic = !cast || !memmem(cast, cast_len, "::", 2);
    if (!basic && !scan->people) {
        names_word(scan, "e", 1);
        names_write(scan, from, len);
    } else if (scan->people || !scan->depth) {
        names_word(scan, from, len);
    }
}

// "(int)4": a cast in a template argument. Anything else in parentheses is parameters, and goes.
static void names_parens(struct names_scan *scan)
{
    const char *open = scan->at;
    scan->at = names_skip(open, scan->end, '(', ')');
    const char *next = scan->at;
    if (next < scan->end && *next == '-')
        next++;
    if (scan->depth && next < scan->end && isdigit((unsigned char)*next)) {
        scan->at = next;
        names_number(scan, open, (size_t)(next - open));
    }
}

// The types of a lambda's parameters tell the instances for float and for half apart; its number is
// the compiler's.
static void names_lambda(struct names_scan *scan, const char *close)
{
    const char *open = memchr(scan->at, '(', (size_t)(close - scan->at));
    if (!scan->lambda)
        names_word(scan, "lambda", 6);
    scan->lambda = true;
    if (open && names_begins(open, close, "(instance"))
        open = NULL;
    const char *last = open ? names_skip(open, close, '(', ')') : NULL;
    scan->at = close;
    if (!open || last - open <= 2)
        return;
    names_write(scan, "(", 1);
    for (const char *at = open + 1; at < last - 1;) {
        const char *from = at;
        while (at < last && names_ident(*at))
            at++;
        const char *type = at > from ? names_type(from, (size_t)(at - from)) : NULL;
        if (at > from && !names_begins(at, last, "::") && !(type && !*type))
            names_write(scan, type ? type : from, type ? strlen(type) : (size_t)(at - from));
        at += at == from;
    }
    names_write(scan, ")", 1);
}

static bool names_is_lambda(const char *at, const char *end)
{
    return names_begins(at, end, "lambda") &&
            (at + 6 >= end || !names_ident(at[6]) || isdigit((unsigned char)at[6]));
}

static void names_angle(struct names_scan *scan, bool open)
{
    if (open) {
        scan->depth++;
        names_write(scan, "<", 1);
        scan->comma = scan->joint = scan->spelled = scan->lambda = false;
        return;
    }
    if (!scan->depth)
        return;
    bool empty = scan->depth <= scan->depth_kept && !scan->out.cut && scan->out.len &&
            scan->out.text[scan->out.len - 1] == '<';
    if (empty)
        scan->out.len--;
    else
        names_write(scan, ">", 1);
    scan->depth--;
    scan->comma = scan->joint = scan->lambda = false;
    scan->spelled = true;
}

static void names_component(struct names_scan *scan)
{
    const char *from = scan->at;
    size_t len = names_operator(from, scan->end);
    if (len) {
        scan->at += len;
        if (!(scan->lambda && len == 10)) // "lambda::operator()" is the lambda
            names_word(scan, from, len);
        else
            scan->joint = false;
        return;
    }
    while (scan->at < scan->end && names_ident(*scan->at))
        scan->at++;
    len = (size_t)(scan->at - from);
    const char *next = scan->at;
    bool scope = names_begins(next, scan->end, "::"), angle = next < scan->end && *next == '<';
    if (scope && names_namespace_noise(from, len))
        return (void)(scan->at += 2);
    const char *type = names_type(from, len);
    if (angle && names_plumbing(from, len)) {
        scan->at = names_skip(next, scan->end, '<', '>');
        return;
    }
    if (type && !*type)
        return;
    bool string = angle && type && !strcmp(type, "string"); // basic_string<char, ...>
    if (string)
        scan->at = names_skip(next, scan->end, '<', '>');
    if (scan->people) {
        names_word(scan, string ? type : from, string ? strlen(type) : len);
        return;
    }
    if (type && (scan->depth || scope || angle)) {
        names_word(scan, type, strlen(type));
        return;
    }
    char word[NAMES_LENGTH_MAX];
    struct names_out out = {.text = word, .max = sizeof word - 1};
    if (names_identifier(&out, from, len))
        names_word(scan, word, out.len);
    else if (!scope)
        names_word(scan, from, len);
    else
        scan->at += 2; // an architecture's namespace, AVX2::
}

static void names_square(struct names_scan *scan)
{
    const char *close = names_skip(scan->at, scan->end, '[', ']');
    if (names_is_lambda(scan->at + 1, close)) {
        scan->at++;
        names_lambda(scan, close);
        return;
    }
    scan->at = close; // ABI tags, clones, "with T = int"
}

static void names_step(struct names_scan *scan)
{
    const char *at = scan->at;
    size_t anonymous = names_anonymous(at, scan->end);
    if (anonymous) {
        scan->at += anonymous + (names_begins(at + anonymous, scan->end, "::") ? 2 : 0);
    } else if (*at == '{') {
        scan->at++;
        names_lambda(scan, names_skip(at, scan->end, '{', '}'));
    } else if (*at == '\'' || *at == '`') {
        scan->at++;
        if (names_is_lambda(at + 1, scan->end)) {
            const char *quote = memchr(at + 1, '\'', (size_t)(scan->end - at - 1));
            const char *close = quote && quote + 1 < scan->end && quote[1] == '('
                    ? names_skip(quote + 1, scan->end, '(', ')')
                    : quote ? quote + 1
                            : scan->end;
            names_lambda(scan, close);
        }
    } else if (names_is_lambda(at, scan->end) &&
            (scan->joint || names_begins(at + 6, scan->end, "("))) {
        const char *open = at + 6;
        while (open < scan->end && isdigit((unsigned char)*open))
            open++;
        names_lambda(scan,
                open < scan->end && *open == '(' ? names_skip(open, scan->end, '(', ')') : open);
        while (scan->at < scan->end && (*scan->at == '#' || isdigit((unsigned char)*scan->at)))
            scan->at++;
    } else if (isdigit((unsigned char)*at) && scan->depth) {
        names_number(scan, NULL, 0);
    } else if (*at == '$' && names_begins(at, scan->end, "$_")) {
        while (scan->at < scan->end && names_ident(*scan->at))
            scan->at++;
        names_lambda(scan, scan->at);
    } else if (names_ident(*at)) {
        names_component(scan);
    } else if (*at == '<' || *at == '>') {
        scan->at++;
        names_angle(scan, *at == '<');
    } else if (*at == '(') {
        names_parens(scan);
    } else if (*at == '[') {
        names_square(scan);
    } else {
        scan->at += *at == '-' && at + 1 < scan->end && at[1] == '>' ? 2
                : *at == ':' && at + 1 < scan->end && at[1] == ':'   ? 2
                                                                     : 1;
        if (*at == ':' && scan->spelled && scan->out.len &&
                scan->out.text[scan->out.len - 1] != '<' && !scan->comma)
            scan->joint = true;
        if (*at == ',') {
            scan->comma = scan->out.len && scan->out.text[scan->out.len - 1] != '<';
            scan->spelled = scan->joint = false;
        }
        if (*at == '~')
            names_word(scan, "~", 1), scan->spelled = false;
    }
}

// A name without the suffixes of compilers and linkers: ".constprop.0", "@GLIBC_2.34", " [clone
// .cold]".
static size_t names_stem(const char *name)
{
    static const char *const tails[] = {".constprop", ".isra", ".part", ".cold", ".lto_priv",
            ".llvm", ".localalias", ".kd", ".arch_", ".avx", "@GLIBC", "@@GLIBC", "@CXXABI", "@plt",
            " [clone", ".resolver", "+0x"};
    size_t len = strlen(name);
    for (const char *at = strpbrk(name, ".@[+ "); at; at = strpbrk(at + 1, ".@[+ "))
        for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
            if (at > name && names_begins(at, name + len, tails[i]))
                return (size_t)(at - name);
    return len;
}

// "kernel_launch", "Linear.forward", "libtorch_cpu.so.1.13.0+0x4c91287": no C++.
static void names_plain(struct names_out *out, const char *name, size_t len)
{
    // of a library's file
    const char *version = name[len] == '+' ? memmem(name, len, ".so.", 4) : NULL;
    if (version)
        len = (size_t)(version - name) + 3;
    for (size_t at = 0; at < len;) {
        size_t size = 0;
        while (at + size < len && names_ident(name[at + size]))
            size++;
        if (size > NAMES_LENGTH_MAX || (size && !names_identifier(out, name + at, size)))
            names_put(out, name + at, size);
        at += size;
        if (at < len)
            names_put(out, name + at++, 1);
    }
    if (version || name[len] == '+')
        names_put(out, "+", 1);
}

static bool names_is_cpp(const char *name, size_t len)
{
    const char *angle = memchr(name, '<', len);
    if (memmem(name, len, "::", 2) || memchr(name, '(', len))
        return true;
    return angle && angle > name && angle[-1] != '.'; // "<module>", "f.<locals>.g" are Python's
}

static void names_scan_all(struct names_scan *scan, const char *name, size_t len)
{
    scan->end = name + len;
    scan->at = names_begin(name, scan->end);
    while (scan->at < scan->end)
        names_step(scan);
}

static size_t names_keep(const char *name, char *buf, size_t size)
{
    struct names_out out = {.text = buf, .max = size - 1};
    names_put(&out, name, strlen(name));
    names_end(&out, true);
    return out.len;
}

size_t names_normalise(const char *name, char *buf, size_t buf_size)
{
    if (!buf_size)
        return 0;
    size_t size = buf_size < NAMES_LENGTH_MAX ? buf_size : NAMES_LENGTH_MAX, len = names_stem(name);
    struct names_out out = {.text = buf, .max = size - 1};
    if (!names_nccl(&out, name)) {
        if (names_is_cpp(name, len)) {
            struct names_scan scan = {.out = out, .depth_kept = NAMES_DEPTH_MAX};
            names_scan_all(&scan, name, len);
            out = scan.out;
        } else {
            names_plain(&out, name, len);
        }
    }
    if (!out.len && !out.cut)
        return names_keep(name, buf, size);
    names_end(&out, true);
    return out.len;
}

// Cut behind a whole character, with an ellipsis.
static size_t names_cut(char *buf, size_t len, size_t max)
{
    static const char dots[] = "…";
    size_t room = sizeof dots - 1;
    if (len <= max)
        return len;
    size_t keep = max > room ? max - room : max;
    while (keep && ((unsigned char)buf[keep] & 0xc0) == 0x80)
        keep--;
    if (max > room) {
        memcpy(buf + keep, dots, room);
        keep += room;
    }
    buf[keep] = '\0';
    return keep;
}

// Of a wrapper what is wrapped: the dispatcher's adapters are the same for all functions. The rest
// of the name otherwise.
static const char *names_unwrap(const char *name, size_t *len)
{
    static const char *const wrappers[] = {"c10::function_ref<",
            "c10::impl::wrap_kernel_functor_unboxed_<", "std::_Function_handler<",
            "c10::impl::make_boxed_from_unboxed_functor<"};
    bool wraps = false;
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        wraps |= names_begins(name, name + *len, wrappers[i]);
    const char *end = name + *len, *at = wraps ? memmem(name, *len, ", &", 3) : NULL, *last;
    if (at) {
        at += 3;
        last = memchr(at, '>', (size_t)(end - at));
        *len = (size_t)((last ? last : end) - at);
        return at;
    }
    last = wraps ? memmem(name, *len, "::{lambda", 9) : NULL;
    if (!last)
        return name;
    int depth = 0;
    for (at = last; at > name; at--) { // back over the function that holds the lambda
        depth += at[-1] == ')' || at[-1] == '>';
        if (!depth && (at[-1] == '<' || at[-1] == ','))
            break;
        depth -= at[-1] == '(' || at[-1] == '<';
    }
    *len = (size_t)(last - at);
    return at;
}

size_t names_short(const char *name, char *buf, size_t buf_size, size_t max)
{
    if (!buf_size)
        return 0;
    char text[4096];
    size_t len = names_stem(name), room = buf_size - 1 < max ? buf_size - 1 : max;
    bool cpp = names_is_cpp(name, len);
    name = names_unwrap(name, &len);
    struct names_scan scan = {0};
    for (int kept = 3; kept >= 0; kept--) { // fewer levels of template arguments until it fits
        scan = (struct names_scan){
                .out = {.text = text, .max = sizeof text - 1}, .people = true, .depth_kept = kept};
        if (cpp)
            names_scan_all(&scan, name, len);
        if (cpp && scan.out.len <= room && !scan.out.cut)
            break;
    }
    if (!scan.out.len)
        names_put(&scan.out, name, name[len] == '+' ? strlen(name) : len);
    string_make_utf8(text, scan.out.len);
    for (size_t i = 0; i < scan.out.len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = ' ';
    text[scan.out.len] = '\0';
    len = names_cut(text, scan.out.len, room);
    memcpy(buf, text, len);
    buf[len] = '\0';
    return len;
}
