// SPDX-License-Identifier: Apache-2.0
// Instructions of x86-64 by their length, as far as compilers make them; what is not known ends the
// walk, and so does whatever writes the stack pointer or goes elsewhere.
#include "tracer/calls/place.h"

#if defined(__x86_64__)

enum { PLACE_INSTRUCTIONS = 12 };

struct place_code {
    const uint8_t *bytes;
    size_t len;
    bool word, wide; // 0x66, REX.W
    uint8_t rex;
    bool prefixed; // by anything but REX
};

enum place_kind { PLACE_UNKNOWN, PLACE_PLAIN, PLACE_PUSH, PLACE_BRANCH };

// Bytes of an address behind ModRM, with it; 0: cut off.
static size_t place_address(const uint8_t *at, size_t left)
{
    if (!left)
        return 0;
    unsigned mod = at[0] >> 6, rm = at[0] & 7;
    size_t len = 1 + (mod == 1) + (mod == 2 ? 4 : 0);
    if (mod == 3)
        return 1;
    if (rm == 4) {
        if (left < 2)
            return 0;
        len += 1 + (mod == 0 && (at[1] & 7) == 5 ? 4 : 0);
    } else if (mod == 0 && rm == 5) {
        len += 4;
    }
    return len;
}

// Does ModRM name the stack pointer as a register that is written?
static bool place_is_stack(const struct place_code *code, uint8_t opcode, uint8_t modrm)
{
    bool rm = modrm >> 6 == 3 && (modrm & 7) == 4 && !(code->rex & 1),
         reg = (modrm >> 3 & 7) == 4 && !(code->rex & 4);
    bool group = opcode == 0x80 || opcode == 0x81 || opcode == 0x83 || opcode == 0xc6 ||
            opcode == 0xc7 || opcode >= 0xf6 || opcode == 0x8f;
    if (group)
        return rm;
    return opcode & 2 || opcode == 0x8d || opcode == 0x63 ? reg : rm;
}

static size_t place_with_modrm(const struct place_code *code, size_t at, size_t immediate)
{
    size_t address = at < code->len ? place_address(code->bytes + at, code->len - at) : 0;
    return address ? at + address + immediate : 0;
}

// 0F xx, 0F 38 xx, 0F 3A xx; at: behind 0F.
static size_t place_two(const struct place_code *code, size_t at, enum place_kind *kind)
{
    if (at >= code->len)
        return 0;
    uint8_t opcode = code->bytes[at++];
    *kind = PLACE_PLAIN;
    if ((opcode & 0xf0) == 0x80) {
        *kind = code->prefixed ? PLACE_UNKNOWN : PLACE_BRANCH;
        return at + 4;
    }
    if (opcode == 0x38 || opcode == 0x3a)
        return place_with_modrm(code, at + 1, opcode == 0x3a);
    if (opcode < 0x0d || (opcode >= 0x20 && opcode < 0x28) || (opcode >= 0x30 && opcode < 0x40) ||
            opcode == 0x77 || opcode == 0xa0 || opcode == 0xa1 || opcode == 0xa2 ||
            (opcode >= 0xa8 && opcode <= 0xaa) || opcode == 0xb9 || opcode == 0xff)
        return 0; // system calls, control registers, and others that nobody expects here
    if ((opcode & 0xf8) == 0xc8) // bswap
        return at;
    bool immediate = (opcode >= 0x70 && opcode <= 0x73) || opcode == 0xa4 || opcode == 0xac ||
            opcode == 0xba || opcode == 0xc2 || (opcode >= 0xc4 && opcode <= 0xc6);
    return place_with_modrm(code, at, immediate);
}

// VEX and EVEX: a map, an opcode, ModRM.
static size_t place_vector(const struct place_code *code, size_t at)
{
    uint8_t first = code->bytes[at];
    size_t opcode = at + (first == 0xc5 ? 2 : first == 0xc4 ? 3 : 4);
    if (opcode >= code->len)
        return 0;
    unsigned map = first == 0xc5 ? 1 : code->bytes[at + 1] & (first == 0xc4 ? 31 : 7);
    uint8_t op = code->bytes[opcode];
    if (map == 1 && op == 0x77) // vzeroupper
        return opcode + 1;
    bool immediate = map == 3 ||
            (map == 1 && ((op >= 0x70 && op <= 0x73) || op == 0xc2 || (op >= 0xc4 && op <= 0xc6)));
    return place_with_modrm(code, opcode + 1, immediate);
}

// Bytes of an immediate of one-byte opcodes with ModRM; -1: not one of them.
static int place_immediate(const struct place_code *code, uint8_t opcode, uint8_t modrm)
{
    int word = code->word ? 2 : 4;
    if (opcode < 0x40)
        return (opcode & 7) < 4 ? 0 : -1;
    switch (opcode) {
    case 0x69:
    case 0x81:
    case 0xc7:
        return word;
    case 0x6b:
    case 0x80:
    case 0x83:
    case 0xc0:
    case 0xc1:
    case 0xc6:
        return 1;
    case 0x63:
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
    case 0xfe:
        return 0;
    case 0xf6:
        return (modrm >> 3 & 7) < 2;
    case 0xf7:
        return (modrm >> 3 & 7) < 2 ? word : 0;
    case 0xff: // inc and dec; the others go elsewhere
        return (modrm >> 3 & 7) < 2 ? 0 : -1;
    default:
        return (opcode >= 0x84 && opcode <= 0x8b) || opcode == 0x8d ||
                        (opcode >= 0xd8 && opcode <= 0xdf)
                ? 0
                : -1;
    }
}

static size_t place_one(const struct place_code *code, size_t at, enum place_kind *kind)
{
    uint8_t opcode = code->bytes[at++];
    *kind = PLACE_PLAIN;
    if ((opcode & 0xf8) == 0x50) {
        // REX.B is all that the kernel knows here.
        *kind = code->prefixed || (code->rex && code->rex != 0x41) ? PLACE_UNKNOWN : PLACE_PUSH;
        return at;
    }
    if ((opcode & 0xf0) == 0x70 || opcode == 0xeb || opcode == 0xe8 || opcode == 0xe9 ||
            (opcode == 0x90 && !code->rex)) {
        *kind = code->prefixed || code->rex ? PLACE_UNKNOWN : PLACE_BRANCH;
        return at + (opcode == 0x90 ? 0 : opcode == 0xe8 || opcode == 0xe9 ? 4 : 1);
    }
    if ((opcode & 0xc7) == 0x04 || opcode == 0xa8 || (opcode & 0xf8) == 0xb0)
        return opcode == 0x0f ? 0 : at + 1;
    if ((opcode & 0xc7) == 0x05 || opcode == 0xa9)
        return at + (code->word ? 2 : 4);
    if ((opcode & 0xf8) == 0xb8)
        return opcode == 0xbc && !(code->rex & 1) ? 0 : at + (code->wide ? 8 : code->word ? 2 : 4);
    if (opcode == 0x98 || opcode == 0x99)
        return at;
    uint8_t modrm = at < code->len ? code->bytes[at] : 0;
    int immediate = place_immediate(code, opcode, modrm);
    if (immediate < 0 ||
            (opcode < 0xd8 && opcode != 0x84 && opcode != 0x85 && (opcode & 0xf8) != 0x38 &&
                    place_is_stack(code, opcode, modrm)))
        return 0;
    return place_with_modrm(code, at, (size_t)immediate);
}

// Length of the instruction at the begin of code; 0: not known, or one that ends the walk.
static size_t place_length(struct place_code code, enum place_kind *kind)
{
    size_t at = 0;
    for (; at < code.len; at++) {
        uint8_t byte = code.bytes[at];
        if (byte == 0x66)
            code.word = true;
        else if (byte != 0x2e && byte != 0x3e && byte != 0x64 && byte != 0x65 && byte != 0xf2 &&
                byte != 0xf3)
            break;
        code.prefixed = true;
    }
    if (at < code.len && (code.bytes[at] & 0xf0) == 0x40) {
        code.rex = code.bytes[at++];
        code.wide = code.rex & 8;
    }
    if (at >= code.len)
        return 0;
    *kind = PLACE_PLAIN;
    if (code.bytes[at] == 0x0f)
        return place_two(&code, at + 1, kind);
    if (code.bytes[at] == 0xc5 || code.bytes[at] == 0xc4 || code.bytes[at] == 0x62)
        return code.rex ? 0 : place_vector(&code, at);
    return place_one(&code, at, kind);
}

size_t place_cheap(const uint8_t *code, size_t len, bool entry)
{
    size_t at = 0;
    for (int i = 0; i < PLACE_INSTRUCTIONS && at < len; i++) {
        enum place_kind kind = PLACE_UNKNOWN;
        size_t bytes =
                place_length((struct place_code){.bytes = code + at, .len = len - at}, &kind);
        if (!bytes || bytes > len - at || kind == PLACE_UNKNOWN)
            return 0;
        // At the begin of a function a branch may be that of a loop, which would be met again in
        // the same call.
        if (kind == PLACE_PUSH || (kind == PLACE_BRANCH && !entry))
            return at;
        if (kind == PLACE_BRANCH)
            return 0;
        at += bytes;
    }
    return 0;
}

#else

size_t place_cheap(const uint8_t *code, size_t len, bool entry)
{
    (void)code, (void)len, (void)entry;
    return 0;
}

#endif
