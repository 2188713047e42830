// SPDX-License-Identifier: Apache-2.0
// The interpreter of call frame instructions (DWARF 5, 6.4.2, and the x86-64 ABI's .eh_frame). Of the registers it follows
// rbp and the return address; of expressions it knows those that compilers, linkers and glibc write.
#include "tracer/unwind/cfi.h"

#include <string.h>

enum {
    REG_RBP = 6,
    REG_RSP = 7,
    REG_RA = 16,
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

enum cfi_op {
    OP_NOP = 0x00,
    OP_SET_LOC = 0x01,
    OP_ADVANCE1 = 0x02,
    OP_ADVANCE2 = 0x03,
    OP_ADVANCE4 = 0x04,
    OP_OFFSET_EXT = 0x05,
    OP_RESTORE_EXT = 0x06,
    OP_UNDEFINED = 0x07,
    OP_SAME = 0x08,
    OP_REGISTER = 0x09,
    OP_REMEMBER = 0x0a,
    OP_RESTORE_STATE = 0x0b,
    OP_DEF_CFA = 0x0c,
    OP_DEF_CFA_REGISTER = 0x0d,
    OP_DEF_CFA_OFFSET = 0x0e,
    OP_DEF_CFA_EXPR = 0x0f,
    OP_EXPR = 0x10,
    OP_OFFSET_EXT_SF = 0x11,
    OP_DEF_CFA_SF = 0x12,
    OP_DEF_CFA_OFFSET_SF = 0x13,
    OP_VAL_OFFSET = 0x14,
    OP_VAL_OFFSET_SF = 0x15,
    OP_VAL_EXPR = 0x16,
    OP_ARGS_SIZE = 0x2e,
    OP_NEGATIVE_OFFSET = 0x2f,
    OP_ADVANCE = 0x40, // these three: the argument is in the lower six bits
    OP_OFFSET = 0x80,
    OP_RESTORE = 0xc0,
};

// Bytes of the file; nothing is read behind the end, and then `bad` says so.
struct cfi_bytes {
    const uint8_t *at, *end;
    bool bad;
};

static uint64_t bytes_fixed(struct cfi_bytes *bytes, size_t size)
{
    uint64_t value = 0;
    if ((size_t)(bytes->end - bytes->at) < size) {
        bytes->bad = true;
        bytes->at = bytes->end;
        return 0;
    }
    memcpy(&value, bytes->at, size); // x86-64: little endian
    bytes->at += size;
    return value;
}

static uint64_t bytes_uleb(struct cfi_bytes *bytes)
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

static int64_t bytes_sleb(struct cfi_bytes *bytes)
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

static struct cfi_bytes bytes_block(struct cfi_bytes *bytes)
{
    uint64_t size = bytes_uleb(bytes);
    if (bytes->bad || size > (uint64_t)(bytes->end - bytes->at)) {
        bytes->bad = true;
        bytes->at = bytes->end;
        return (struct cfi_bytes){bytes->end, bytes->end, true};
    }
    struct cfi_bytes block = {bytes->at, bytes->at + size, false};
    bytes->at += size;
    return block;
}

static uint64_t sign_extended(uint64_t value, unsigned bits)
{
    uint64_t sign = (uint64_t)1 << (bits - 1);
    return (value ^ sign) - sign;
}

// An address as `encoding` writes it, without what it is relative to.
static uint64_t bytes_pointer(struct cfi_bytes *bytes, uint8_t encoding)
{
    switch (encoding & 0x0f) {
    case ENC_ABSPTR:
    case ENC_UDATA8:
    case ENC_SDATA8:
        return bytes_fixed(bytes, 8);
    case ENC_UDATA2:
        return bytes_fixed(bytes, 2);
    case ENC_UDATA4:
        return bytes_fixed(bytes, 4);
    case ENC_SDATA2:
        return sign_extended(bytes_fixed(bytes, 2), 16);
    case ENC_SDATA4:
        return sign_extended(bytes_fixed(bytes, 4), 32);
    case ENC_ULEB:
        return bytes_uleb(bytes);
    case ENC_SLEB:
        return (uint64_t)bytes_sleb(bytes);
    default:
        bytes->bad = true;
        return 0;
    }
}

// --- CIE ------------------------------------------------------------------------------------------

static void cie_augmentation(struct cfi_cie *cie, const char *letters, struct cfi_bytes data)
{
    for (; *letters; letters++) {
        uint8_t encoding;
        switch (*letters) {
        case 'R':
            cie->pointer = (uint8_t)bytes_fixed(&data, 1);
            break;
        case 'P':
            encoding = (uint8_t)bytes_fixed(&data, 1);
            if (encoding != ENC_OMIT)
                bytes_pointer(&data, encoding);
            break;
        case 'L':
            bytes_fixed(&data, 1);
            break;
        case 'S':
            cie->signal = true;
            break;
        case 'B': // arm64's
        default:
            cie->usable = false;
        }
    }
    uint8_t relative = cie->pointer & 0xf0;
    cie->usable = cie->usable && !data.bad && (relative == 0 || relative == ENC_PCREL);
}

static void cie_read(struct eh_file *file, uint64_t address, struct cfi_cie *cie)
{
    size_t size;
    const uint8_t *record = eh_file_record(file, address, &size);
    *cie = (struct cfi_cie){.address = address};
    if (!record)
        return;
    struct cfi_bytes bytes = {record, record + size, false};
    uint64_t id = bytes_fixed(&bytes, 4), version = bytes_fixed(&bytes, 1);
    const char *letters = (const char *)bytes.at;
    size_t length = strnlen(letters, (size_t)(bytes.end - bytes.at));
    if (id || (version != 1 && version != 3) || length == (size_t)(bytes.end - bytes.at))
        return;
    bytes.at += length + 1;
    cie->code_unit = bytes_uleb(&bytes);
    cie->data_unit = bytes_sleb(&bytes);
    uint64_t ra = version == 1 ? bytes_fixed(&bytes, 1) : bytes_uleb(&bytes);
    cie->usable = ra == REG_RA && (*letters == 'z' || !*letters);
    cie->has_augmentation = *letters == 'z';
    if (cie->has_augmentation)
        cie_augmentation(cie, letters + 1, bytes_block(&bytes));
    cie->bytes = (size_t)(bytes.end - bytes.at);
    cie->usable = cie->usable && !bytes.bad && cie->bytes <= sizeof cie->code;
    if (cie->usable)
        memcpy(cie->code, bytes.at, cie->bytes);
}

static const struct cfi_cie *cfi_cie_at(struct cfi *cfi, struct eh_file *file, uint64_t address)
{
    for (uint32_t i = 0; i < CFI_CIES; i++)
        if (cfi->cies[i].address == address)
            return &cfi->cies[i];
    struct cfi_cie *cie = &cfi->cies[cfi->next++ % CFI_CIES];
    cie_read(file, address, cie);
    return cie;
}

// --- instructions ---------------------------------------------------------------------------------

enum ra_rule { RA_BELOW_CFA, RA_UNDEFINED, RA_SIGNAL, RA_OTHER };

struct cfi_state {
    enum ug_unwind_cfa cfa;
    int64_t cfa_at;
    enum ug_unwind_rbp rbp;
    int64_t rbp_at;
    bool rbp_unknown, rbp_signal;
    enum ra_rule ra;
};

struct cfi_run {
    const struct cfi_cie *cie;
    struct cfi_state state, initial, saved[CFI_STATES_MAX];
    uint32_t depth, steps;
    uint64_t address, end;
    cfi_emit emit; // NULL: initial instructions
    void *context;
};

static struct ug_unwind_rule state_rule(const struct cfi_state *state, bool signal)
{
    struct ug_unwind_rule rule = {.cfa = (uint8_t)state->cfa, .rbp = (uint8_t)state->rbp, .cfa_at = (int32_t)state->cfa_at,
                                  .rbp_at = (int16_t)state->rbp_at};
    if (state->ra == RA_UNDEFINED)
        return (struct ug_unwind_rule){.cfa = UG_UNWIND_END};
    if (state->cfa == UG_UNWIND_SIGNAL && signal && state->ra == RA_SIGNAL && state->rbp_signal)
        return (struct ug_unwind_rule){.cfa = UG_UNWIND_SIGNAL};
    if (state->cfa == UG_UNWIND_SIGNAL || state->ra != RA_BELOW_CFA || state->rbp_unknown || rule.cfa_at != state->cfa_at ||
        rule.rbp_at != state->rbp_at)
        return (struct ug_unwind_rule){.cfa = UG_UNWIND_NONE};
    return rule;
}

static void run_emit(struct cfi_run *run)
{
    if (run->emit && run->address < run->end)
        run->emit(run->context, run->address, state_rule(&run->state, run->cie->signal));
}

static void run_advance(struct cfi_run *run, uint64_t by)
{
    if (!by)
        return;
    run_emit(run);
    run->address = by > UINT64_MAX - run->address ? UINT64_MAX : run->address + by;
}

static void run_cfa(struct cfi_run *run, uint64_t reg, int64_t at)
{
    run->state.cfa = reg == REG_RSP ? UG_UNWIND_RSP : reg == REG_RBP ? UG_UNWIND_RBP : UG_UNWIND_NONE;
    run->state.cfa_at = at;
}

// The register's value is at CFA + at.
static void run_offset(struct cfi_run *run, uint64_t reg, int64_t at)
{
    if (reg == REG_RA)
        run->state.ra = at == -8 ? RA_BELOW_CFA : RA_OTHER;
    if (reg != REG_RBP)
        return;
    run->state.rbp = UG_UNWIND_RBP_FROM_CFA;
    run->state.rbp_at = at;
    run->state.rbp_unknown = run->state.rbp_signal = false;
}

// Same value; `known`: else it is where nobody follows it.
static void run_same(struct cfi_run *run, uint64_t reg, bool known)
{
    if (reg == REG_RA)
        run->state.ra = RA_OTHER;
    if (reg != REG_RBP)
        return;
    run->state.rbp = UG_UNWIND_RBP_SAME;
    run->state.rbp_at = 0;
    run->state.rbp_unknown = !known;
    run->state.rbp_signal = false;
}

static void run_restore(struct cfi_run *run, uint64_t reg)
{
    const struct cfi_state *initial = &run->initial;
    if (reg == REG_RA)
        run->state.ra = initial->ra;
    if (reg != REG_RBP)
        return;
    run->state.rbp = initial->rbp;
    run->state.rbp_at = initial->rbp_at;
    run->state.rbp_unknown = initial->rbp_unknown;
    run->state.rbp_signal = initial->rbp_signal;
}

enum { EXPR_DEREF = 0x06, EXPR_BREG0 = 0x70 };

// reg + at, with one more operation behind it or none.
static bool expr_register(struct cfi_bytes expr, uint64_t *ret_reg, int64_t *ret_at, uint8_t *ret_then)
{
    uint64_t op = bytes_fixed(&expr, 1);
    *ret_reg = op - EXPR_BREG0;
    *ret_at = bytes_sleb(&expr);
    *ret_then = expr.at < expr.end ? *expr.at++ : 0;
    return !expr.bad && op >= EXPR_BREG0 && op < EXPR_BREG0 + 16 && expr.at == expr.end;
}

// Of procedure linkage tables, as linkers write it: rsp + 8 + ((rip & 15) >= N) * 8.
static bool expr_plt(struct cfi_bytes expr, int64_t *ret_at)
{
    static const uint8_t begin[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a}, end[] = {0x2a, 0x33, 0x24, 0x22};
    size_t size = (size_t)(expr.end - expr.at);
    if (size != sizeof begin + 1 + sizeof end || memcmp(expr.at, begin, sizeof begin) ||
        memcmp(expr.at + sizeof begin + 1, end, sizeof end))
        return false;
    *ret_at = expr.at[sizeof begin] - 0x30; // DW_OP_litN
    return *ret_at >= 0 && *ret_at < 32;
}

enum { SIGNAL_RBP = 120, SIGNAL_RSP = 160, SIGNAL_RIP = 168 }; // from rsp: registers of the interrupted code

static void run_cfa_expr(struct cfi_run *run, struct cfi_bytes expr)
{
    uint64_t reg;
    int64_t at;
    uint8_t then;
    run->state.cfa = UG_UNWIND_NONE;
    run->state.cfa_at = 0;
    if (expr_plt(expr, &at)) {
        run->state.cfa = UG_UNWIND_PLT;
        run->state.cfa_at = at;
    } else if (expr_register(expr, &reg, &at, &then)) {
        if (!then)
            run_cfa(run, reg, at);
        else if (then == EXPR_DEREF && reg == REG_RBP) {
            run->state.cfa = UG_UNWIND_RBP_AT;
            run->state.cfa_at = at;
        } else if (then == EXPR_DEREF && reg == REG_RSP && at == SIGNAL_RSP) {
            run->state.cfa = UG_UNWIND_SIGNAL;
        }
    }
}

static void run_expr(struct cfi_run *run, uint64_t reg, struct cfi_bytes expr)
{
    uint64_t base;
    int64_t at;
    uint8_t then;
    bool simple = expr_register(expr, &base, &at, &then) && !then;
    if (reg == REG_RA)
        run->state.ra = simple && base == REG_RSP && at == SIGNAL_RIP ? RA_SIGNAL : RA_OTHER;
    if (reg != REG_RBP)
        return;
    run_same(run, reg, false);
    if (simple && base == REG_RBP) {
        run->state.rbp = UG_UNWIND_RBP_FROM_RBP;
        run->state.rbp_at = at;
        run->state.rbp_unknown = false;
    } else if (simple && base == REG_RSP && at == SIGNAL_RBP) {
        run->state.rbp_signal = true;
    }
}

static bool run_remember(struct cfi_run *run)
{
    if (run->depth == CFI_STATES_MAX)
        return false;
    run->saved[run->depth++] = run->state;
    return true;
}

static bool run_back(struct cfi_run *run)
{
    if (!run->depth)
        return false;
    run->state = run->saved[--run->depth];
    return true;
}

static int64_t scaled(const struct cfi_run *run, uint64_t value)
{
    return (int64_t)(value * (uint64_t)run->cie->data_unit);
}

// One instruction that is not one of the three with an argument within.
static bool run_extended(struct cfi_run *run, uint8_t op, struct cfi_bytes *bytes)
{
    uint64_t reg;
    switch (op) {
    case OP_NOP:
        return true;
    case OP_ADVANCE1:
        run_advance(run, bytes_fixed(bytes, 1) * run->cie->code_unit);
        return true;
    case OP_ADVANCE2:
        run_advance(run, bytes_fixed(bytes, 2) * run->cie->code_unit);
        return true;
    case OP_ADVANCE4:
        run_advance(run, bytes_fixed(bytes, 4) * run->cie->code_unit);
        return true;
    case OP_REMEMBER:
        return run_remember(run);
    case OP_RESTORE_STATE:
        return run_back(run);
    case OP_DEF_CFA:
        reg = bytes_uleb(bytes);
        run_cfa(run, reg, (int64_t)bytes_uleb(bytes));
        return true;
    case OP_DEF_CFA_SF:
        reg = bytes_uleb(bytes);
        run_cfa(run, reg, scaled(run, (uint64_t)bytes_sleb(bytes)));
        return true;
    case OP_DEF_CFA_REGISTER:
        run_cfa(run, bytes_uleb(bytes), run->state.cfa_at);
        return true;
    case OP_DEF_CFA_OFFSET:
        run->state.cfa_at = (int64_t)bytes_uleb(bytes);
        return true;
    case OP_DEF_CFA_OFFSET_SF:
        run->state.cfa_at = scaled(run, (uint64_t)bytes_sleb(bytes));
        return true;
    case OP_DEF_CFA_EXPR:
        run_cfa_expr(run, bytes_block(bytes));
        return true;
    case OP_OFFSET_EXT:
        reg = bytes_uleb(bytes);
        run_offset(run, reg, scaled(run, bytes_uleb(bytes)));
        return true;
    case OP_OFFSET_EXT_SF:
        reg = bytes_uleb(bytes);
        run_offset(run, reg, scaled(run, (uint64_t)bytes_sleb(bytes)));
        return true;
    case OP_NEGATIVE_OFFSET:
        reg = bytes_uleb(bytes);
        run_offset(run, reg, -scaled(run, bytes_uleb(bytes)));
        return true;
    case OP_RESTORE_EXT:
        run_restore(run, bytes_uleb(bytes));
        return true;
    case OP_UNDEFINED: // of the return address: the outermost; of rbp: nobody above needs it
        reg = bytes_uleb(bytes);
        run_same(run, reg, true);
        if (reg == REG_RA)
            run->state.ra = RA_UNDEFINED;
        return true;
    case OP_SAME:
        run_same(run, bytes_uleb(bytes), true);
        return true;
    case OP_REGISTER:
        reg = bytes_uleb(bytes);
        bytes_uleb(bytes);
        run_same(run, reg, false);
        return true;
    case OP_VAL_OFFSET:
    case OP_VAL_OFFSET_SF: // the same bytes, signed or not
        reg = bytes_uleb(bytes);
        bytes_uleb(bytes);
        run_same(run, reg, false);
        return true;
    case OP_EXPR:
        reg = bytes_uleb(bytes);
        run_expr(run, reg, bytes_block(bytes));
        return true;
    case OP_VAL_EXPR:
        reg = bytes_uleb(bytes);
        bytes_block(bytes);
        run_same(run, reg, false);
        return true;
    case OP_ARGS_SIZE:
        bytes_uleb(bytes);
        return true;
    default: // OP_SET_LOC too: nobody writes it
        return false;
    }
}

static bool run_code(struct cfi_run *run, const uint8_t *code, size_t size)
{
    struct cfi_bytes bytes = {code, code + size, false};
    while (bytes.at < bytes.end) {
        uint8_t op = *bytes.at++, low = op & 0x3f;
        if (++run->steps > CFI_STEPS_MAX)
            return false;
        if ((op & 0xc0) == OP_ADVANCE)
            run_advance(run, low * run->cie->code_unit);
        else if ((op & 0xc0) == OP_OFFSET)
            run_offset(run, low, scaled(run, bytes_uleb(&bytes)));
        else if ((op & 0xc0) == OP_RESTORE)
            run_restore(run, low);
        else if (!run_extended(run, op, &bytes))
            return false;
        if (bytes.bad)
            return false;
    }
    return true;
}

// --- FDE ------------------------------------------------------------------------------------------

bool cfi_function(struct cfi *cfi, struct eh_file *file, uint64_t frame, uint64_t *ret_begin, uint64_t *ret_end,
                  cfi_emit emit, void *context)
{
    size_t size;
    const uint8_t *record = eh_file_record(file, frame, &size);
    uint32_t back = 0;
    if (!record || size < sizeof back)
        return false;
    memcpy(&back, record, sizeof back);
    if (!back)
        return false; // a CIE
    const struct cfi_cie *cie = cfi_cie_at(cfi, file, frame + 4 - back);
    record = eh_file_record(file, frame, &size); // reading the CIE may have moved the window
    if (!record || !cie->usable)
        return false;
    struct cfi_bytes bytes = {record + sizeof back, record + size, false};
    uint64_t begin = bytes_pointer(&bytes, cie->pointer), length = bytes_pointer(&bytes, cie->pointer & 0x0f);
    if ((cie->pointer & 0xf0) == ENC_PCREL)
        begin += frame + 8;
    if (cie->has_augmentation)
        bytes_block(&bytes);
    if (bytes.bad || !length || length > UINT64_MAX - begin)
        return false;
    struct cfi_run run = {.cie = cie, .address = begin, .end = begin + length, .context = context};
    if (!run_code(&run, cie->code, cie->bytes))
        return false;
    run.initial = run.state;
    run.address = begin;
    run.emit = emit;
    *ret_begin = begin;
    *ret_end = begin + length;
    if (!run_code(&run, bytes.at, (size_t)(bytes.end - bytes.at)))
        return false;
    run_emit(&run);
    return true;
}
