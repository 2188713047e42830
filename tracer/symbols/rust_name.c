// SPDX-License-Identifier: Apache-2.0
// The grammar of Rust's mangling v0 (https://doc.rust-lang.org/rustc/symbol-mangling/v0.html),
// walked over once: every step takes a character, back references are not followed.
#include "tracer/symbols/rust_name.h"

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RUST_DEPTH_MAX = 256, RUST_BOUND_MAX = 256 };

struct rust_walk {
    const char *at;
    uint64_t bound; // lifetimes of all binders
    int depth;
};

static bool rust_path(struct rust_walk *walk);
static bool rust_type(struct rust_walk *walk);

static bool rust_is(struct rust_walk *walk, char c) // and takes it
{
    bool is = *walk->at == c;
    walk->at += is;
    return is;
}

// "_" is 0, "0_" is 1: [0-9a-zA-Z]* "_". A large one stays large.
static bool rust_number_62(struct rust_walk *walk, uint64_t *ret)
{
    uint64_t value = 0;
    if (rust_is(walk, '_')) {
        *ret = 0;
        return true;
    }
    for (; isalnum((unsigned char)*walk->at); walk->at++) {
        int c = (unsigned char)*walk->at;
        uint64_t digit = (uint64_t)(isdigit(c) ? c - '0'
                        : islower(c)           ? c - 'a' + 10
                                               : c - 'A' + 36);
        value = value < UINT32_MAX ? value * 62 + digit : value;
    }
    *ret = value + 1;
    return rust_is(walk, '_');
}

static bool rust_optional_62(struct rust_walk *walk, char tag, uint64_t *ret)
{
    *ret = 0;
    if (!rust_is(walk, tag))
        return true;
    bool good = rust_number_62(walk, ret);
    ++*ret;
    return good;
}

static bool rust_binder(struct rust_walk *walk)
{
    uint64_t count;
    bool good = rust_optional_62(walk, 'G', &count);
    walk->bound += count;
    return good && walk->bound <= RUST_BOUND_MAX;
}

static bool rust_identifier(struct rust_walk *walk)
{
    size_t len = 0;
    rust_is(walk, 'u');
    if (!isdigit((unsigned char)*walk->at))
        return false;
    if (!rust_is(walk, '0'))
        for (; isdigit((unsigned char)*walk->at) && len < 1 << 20; walk->at++)
            len = len * 10 + (size_t)(*walk->at - '0');
    rust_is(walk, '_');
    if (strnlen(walk->at, len) < len)
        return false;
    walk->at += len;
    return true;
}

static bool rust_named(struct rust_walk *walk) // with what tells it from others of its name
{
    uint64_t number;
    return rust_optional_62(walk, 's', &number) && rust_identifier(walk);
}

static bool rust_const(struct rust_walk *walk)
{
    uint64_t number;
    if (rust_is(walk, 'p'))
        return true;
    if (rust_is(walk, 'B'))
        return rust_number_62(walk, &number);
    if (!islower((unsigned char)*walk->at))
        return false;
    walk->at++;
    rust_is(walk, 'n');
    while (isxdigit((unsigned char)*walk->at) && !isupper((unsigned char)*walk->at))
        walk->at++;
    return rust_is(walk, '_');
}

static bool rust_argument(struct rust_walk *walk)
{
    uint64_t number;
    return rust_is(walk, 'L')    ? rust_number_62(walk, &number)
            : rust_is(walk, 'K') ? rust_const(walk)
                                 : rust_type(walk);
}

static bool rust_until_end(struct rust_walk *walk, bool (*one)(struct rust_walk *))
{
    while (!rust_is(walk, 'E'))
        if (!one(walk))
            return false;
    return true;
}

static bool rust_trait(struct rust_walk *walk) // of dyn
{
    bool good = rust_path(walk);
    while (good && rust_is(walk, 'p'))
        good = rust_identifier(walk) && rust_type(walk);
    return good;
}

static bool rust_function(struct rust_walk *walk)
{
    bool good = rust_binder(walk);
    rust_is(walk, 'U');
    if (good && rust_is(walk, 'K'))
        good = rust_is(walk, 'C') || rust_identifier(walk);
    return good && rust_until_end(walk, rust_type) && rust_type(walk);
}

static bool rust_type_inside(struct rust_walk *walk)
{
    uint64_t number;
    char tag = *walk->at;
    if (islower((unsigned char)tag)) { // a basic type
        walk->at++;
        return true;
    }
    if (!tag || !strchr("ASTRQPOFDB", tag))
        return rust_path(walk);
    walk->at++;
    switch (tag) {
    case 'A':
        return rust_type(walk) && rust_const(walk);
    case 'T':
        return rust_until_end(walk, rust_type);
    case 'R':
    case 'Q':
        return rust_optional_62(walk, 'L', &number) && rust_type(walk);
    case 'F':
        return rust_function(walk);
    case 'D':
        return rust_binder(walk) && rust_until_end(walk, rust_trait) && rust_is(walk, 'L') &&
                rust_number_62(walk, &number);
    case 'B':
        return rust_number_62(walk, &number);
    default:
        return rust_type(walk);
    }
}

static bool rust_path_inside(struct rust_walk *walk)
{
    uint64_t number;
    char tag = *walk->at;
    walk->at += tag != 0;
    switch (tag) {
    case 'C':
        return rust_named(walk);
    case 'N':
        if (!isalpha((unsigned char)*walk->at))
            return false;
        walk->at++;
        return rust_path(walk) && rust_named(walk);
    case 'M':
    case 'X':
        return rust_optional_62(walk, 's', &number) && rust_path(walk) && rust_type(walk) &&
                (tag == 'M' || rust_path(walk));
    case 'Y':
        return rust_type(walk) && rust_path(walk);
    case 'I':
        return rust_path(walk) && rust_until_end(walk, rust_argument);
    case 'B':
        return rust_number_62(walk, &number);
    default:
        return false;
    }
}

static bool rust_inside(struct rust_walk *walk, bool (*part)(struct rust_walk *))
{
    bool good = ++walk->depth <= RUST_DEPTH_MAX && part(walk);
    walk->depth--;
    return good;
}

static bool rust_type(struct rust_walk *walk)
{
    return rust_inside(walk, rust_type_inside);
}

static bool rust_path(struct rust_walk *walk)
{
    return rust_inside(walk, rust_path_inside);
}

bool rust_name_sane(const char *name)
{
    struct rust_walk walk = {.at = name + 2};
    while (isdigit((unsigned char)*walk.at)) // the version of the encoding
        walk.at++;
    return rust_path(&walk) &&
            (!*walk.at || *walk.at == '.' || (rust_path(&walk) && (!*walk.at || *walk.at == '.')));
}
