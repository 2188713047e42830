// SPDX-License-Identifier: Apache-2.0
// DWARF 5, 6.4.1 and 7.6, and the Linux Standard Base's .eh_frame.
#include "tracer/symbols/eh_record.h"

#include <string.h>

enum {
    ENC_OMIT = 0xff,
    ENC_ABSPTR = 0x00,
    ENC_ULEB = 0x01,
    ENC_UDATA2 = 0x02,
    ENC_UDATA4 = 0x03,
    ENC_UDATA8 = 0x04,
    ENC_SLEB = 0x09,
    ENC_SDATA2 = 0x0a,
    ENC_SDATA4 = 0x0b,
    ENC_SDATA8 = 0x0c,
    ENC_PCREL = 0x10,
};

uint64_t eh_bytes_fixed(struct eh_bytes *bytes, size_t size)
{
    uint64_t value = 0;
    if (bytes->bad || (size_t)(bytes->end - bytes->at) < size) {
        bytes->bad = true;
        bytes->at = bytes->end;
        return 0;
    }
    memcpy(&value, bytes->at, size);
    bytes->at += size;
    return value;
}

uint64_t eh_bytes_uleb(struct eh_bytes *bytes)
{
    uint64_t value = 0;
    for (unsigned shift = 0; bytes->at < bytes->end; shift += 7) {
        uint8_t byte = *bytes->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    bytes->bad = true;
    return 0;
}

int64_t eh_bytes_sleb(struct eh_bytes *bytes)
{
    uint64_t value = 0;
    for (unsigned shift = 0; bytes->at < bytes->end;) {
        uint8_t byte = *bytes->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (byte & 0x80)
            continue;
        if (shift < 64 && byte & 0x40)
            value |= ~(uint64_t)0 << shift;
        return (int64_t)value;
    }
    bytes->bad = true;
    return 0;
}

struct eh_bytes eh_bytes_block(struct eh_bytes *bytes)
{
    uint64_t size = eh_bytes_uleb(bytes);
    if (bytes->bad || size > (uint64_t)(bytes->end - bytes->at)) {
        bytes->bad = true;
        bytes->at = bytes->end;
        return (struct eh_bytes){bytes->end, bytes->end, true};
    }
    struct eh_bytes block = {bytes->at, bytes->at + size, false};
    bytes->at += size;
    return block;
}

static uint64_t eh_sign_extended(uint64_t value, unsigned bits)
{
    uint64_t sign = (uint64_t)1 << (bits - 1);
    return (value ^ sign) - sign;
}

// An address as `encoding` writes it, without what it is relative to.
static uint64_t eh_bytes_pointer(struct eh_bytes *bytes, uint8_t encoding)
{
    switch (encoding & 0x0f) {
    case ENC_ABSPTR:
    case ENC_UDATA8:
    case ENC_SDATA8:
        return eh_bytes_fixed(bytes, 8);
    case ENC_UDATA2:
        return eh_bytes_fixed(bytes, 2);
    case ENC_UDATA4:
        return eh_bytes_fixed(bytes, 4);
    case ENC_SDATA2:
        return eh_sign_extended(eh_bytes_fixed(bytes, 2), 16);
    case ENC_SDATA4:
        return eh_sign_extended(eh_bytes_fixed(bytes, 4), 32);
    case ENC_ULEB:
        return eh_bytes_uleb(bytes);
    case ENC_SLEB:
        return (uint64_t)eh_bytes_sleb(bytes);
    default:
        bytes->bad = true;
        return 0;
    }
}

// False: of a letter that is not known nobody knows how much belongs to it.
static bool eh_cie_augmentation(struct eh_cie *cie, const char *letters, struct eh_bytes data)
{
    bool known = true;
    for (; *letters; letters++) {
        uint8_t encoding;
        switch (*letters) {
        case 'R':
            cie->pointer = (uint8_t)eh_bytes_fixed(&data, 1);
            break;
        case 'P':
            encoding = (uint8_t)eh_bytes_fixed(&data, 1);
            if (encoding != ENC_OMIT)
                eh_bytes_pointer(&data, encoding);
            break;
        case 'L':
            eh_bytes_fixed(&data, 1);
            break;
        case 'S':
            cie->signal = true;
            break;
        case 'B':  // arm64: return addresses are signed with the B key (or, with 0x2d among the
                   // instructions, with the A key)
        case 'G':  // arm64: the stack is tagged
            break; // nothing belongs to them, and the kernel, which walks such stacks, takes the
                   // signature off
        default:
            known = false;
        }
    }
    uint8_t relative = cie->pointer & 0xf0;
    return known && !data.bad && (relative == 0 || relative == ENC_PCREL);
}

bool eh_cie_read(struct eh_bytes *bytes, struct eh_cie *ret)
{
    *ret = (struct eh_cie){0};
    uint64_t id = eh_bytes_fixed(bytes, 4), version = eh_bytes_fixed(bytes, 1);
    if (bytes->bad || id || (version != 1 && version != 3))
        return false;
    const char *letters = (const char *)bytes->at;
    size_t left = (size_t)(bytes->end - bytes->at), length = strnlen(letters, left);
    if (length == left)
        return false;
    bytes->at += length + 1;
    ret->code_unit = eh_bytes_uleb(bytes);
    ret->data_unit = eh_bytes_sleb(bytes);
    ret->return_register = version == 1 ? eh_bytes_fixed(bytes, 1) : eh_bytes_uleb(bytes);
    ret->has_augmentation = *letters == 'z';
    bool known = ret->has_augmentation || !*letters;
    if (ret->has_augmentation)
        known = eh_cie_augmentation(ret, letters + 1, eh_bytes_block(bytes));
    return known && !bytes->bad;
}

uint64_t eh_fde_cie(struct eh_bytes *bytes, uint64_t frame)
{
    uint64_t back = eh_bytes_fixed(bytes, 4);
    return bytes->bad || !back ? 0 : frame + 4 - back; // 0 stands in a CIE
}

bool eh_fde_read(struct eh_bytes *bytes, uint64_t frame, const struct eh_cie *cie,
        uint64_t *ret_begin, uint64_t *ret_end)
{
    uint64_t begin = eh_bytes_pointer(bytes, cie->pointer),
             length = eh_bytes_pointer(bytes, cie->pointer & 0x0f);
    if ((cie->pointer & 0xf0) == ENC_PCREL)
        begin += frame + 8;
    if (cie->has_augmentation)
        eh_bytes_block(bytes);
    if (bytes->bad || !length || length > UINT64_MAX - begin)
        return false;
    *ret_begin = begin;
    *ret_end = begin + length;
    return true;
}
