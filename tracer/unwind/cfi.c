// SPDX-License-Identifier: Apache-2.0
// The interpreter of call frame instructions (DWARF 5, 6.4.2, and the x86-64 ABI's .eh_frame). Of
// the registers it follows rbp and the return address; of expressions it knows those that
// compilers, linkers and glibc write.
#include "tracer/unwind/cfi.h"

#include <string.h>

enum {
    REG_RBP = 6,
    REG_RSP = 7,
    REG_RA = 16,
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

// --- CIE -----------------------------------------------------------------------------------------

static void cie_read(struct eh_file *file, uint64_t address, struct cfi_cie *cie)
{
    size_t size;
    const uint8_t *record = eh_file_record(file, address, &size);
    *cie = (struct cfi_cie){.address = address};
    if (!record)
        return;
    struct eh_bytes bytes = {record, record + size, false};
    if (!eh_cie_read(&bytes, &cie->head) || cie->head.return_register != REG_RA)
        return;
    cie->bytes = (size_t)(bytes.end - bytes.at);
    cie->usable = cie->bytes <= sizeof cie->code;
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

// --- instructions --------------------------------------------------------------------------------

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
    struct ug_unwind_rule rule = {.cfa = (uint8_t)state->cfa,
            .rbp = (uint8_t)state->rbp,
            .cfa_at = (int32_t)state->cfa_at,
            .rbp_at = (int16_t)state->rbp_at};
    if (state->ra == RA_UNDEFINED)
        return (struct ug_unwind_rule){.cfa = UG_UNWIND_END};
    if (state->cfa == UG_UNWIND_SIGNAL && signal && state->ra == RA_SIGNAL && state->rbp_signal)
        return (struct ug_unwind_rule){.cfa = UG_UNWIND_SIGNAL};
    if (state->cfa == UG_UNWIND_SIGNAL || state->ra != RA_BELOW_CFA || state->rbp_unknown ||
            rule.cfa_at != state->cfa_at || rule.rbp_at != state->rbp_at)
        return (struct ug_unwind_rule){.cfa = UG_UNWIND_NONE};
    return rule;
}

static void run_emit(struct cfi_run *run)
{
    if (run->emit && run->address < run->end)
        run->emit(run->context, run->address, state_rule(&run->state, run->cie->head.signal));
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
    run->state.cfa = reg == REG_RSP ? UG_UNWIND_RSP
            : reg == REG_RBP        ? UG_UNWIND_RBP
                                    : UG_UNWIND_NONE;
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
static bool expr_register(
        struct eh_bytes expr, uint64_t *ret_reg, int64_t *ret_at, uint8_t *ret_then)
{
    uint64_t op = eh_bytes_fixed(&expr, 1);
    *ret_reg = op - EXPR_BREG0;
    *ret_at = eh_bytes_sleb(&expr);
    *ret_then = expr.at < expr.end ? *expr.at++ : 0;
    return !expr.bad && op >= EXPR_BREG0 && op < EXPR_BREG0 + 16 && expr.at == expr.end;
}

// Of procedure linkage tables, as linkers write it: rsp + 8 + ((rip & 15) >= N) * 8.
static bool expr_plt(struct eh_bytes expr, int64_t *ret_at)
{
    static const uint8_t begin[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a},
                         end[] = {0x2a, 0x33, 0x24, 0x22};
    size_t size = (size_t)(expr.end - expr.at);
    if (size != sizeof begin + 1 + sizeof end || memcmp(expr.at, begin, sizeof begin) ||
            memcmp(expr.at + sizeof begin + 1, end, sizeof end))
        return false;
    *ret_at = expr.at[sizeof begin] - 0x30; // DW_OP_litN
    return *ret_at >= 0 && *ret_at < 32;
}

// from rsp: registers of the interrupted code
enum { SIGNAL_RBP = 120, SIGNAL_RSP = 160, SIGNAL_RIP = 168 };

static void run_cfa_expr(struct cfi_run *run, struct eh_bytes expr)
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

static void run_expr(struct cfi_run *run, uint64_t reg, struct eh_bytes expr)
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
    return (int64_t)(value * (uint64_t)run->cie->head.data_unit);
}

// One instruction that is not one of the three with an argument within.
static bool run_extended(struct cfi_run *run, uint8_t op, struct eh_bytes *bytes)
{
    uint64_t reg;
    switch (op) {
    case OP_NOP:
        return true;
    case OP_ADVANCE1:
        run_advance(run, eh_bytes_fixed(bytes, 1) * run->cie->head.code_unit);
        return true;
    case OP_ADVANCE2:
        run_advance(run, eh_bytes_fixed(bytes, 2) * run->cie->head.code_unit);
        return true;
    case OP_ADVANCE4:
        run_advance(run, eh_bytes_fixed(bytes, 4) * run->cie->head.code_unit);
        return true;
    case OP_REMEMBER:
        return run_remember(run);
    case OP_RESTORE_STATE:
        return run_back(run);
    case OP_DEF_CFA:
        reg = eh_bytes_uleb(bytes);
        run_cfa(run, reg, (int64_t)eh_bytes_uleb(bytes));
        return true;
    case OP_DEF_CFA_SF:
        reg = eh_bytes_uleb(bytes);
        run_cfa(run, reg, scaled(run, (uint64_t)eh_bytes_sleb(bytes)));
        return true;
    case OP_DEF_CFA_REGISTER:
        run_cfa(run, eh_bytes_uleb(bytes), run->state.cfa_at);
        return true;
    case OP_DEF_CFA_OFFSET:
        run->state.cfa_at = (int64_t)eh_bytes_uleb(bytes);
        return true;
    case OP_DEF_CFA_OFFSET_SF:
        run->state.cfa_at = scaled(run, (uint64_t)eh_bytes_sleb(bytes));
        return true;
    case OP_DEF_CFA_EXPR:
        run_cfa_expr(run, eh_bytes_block(bytes));
        return true;
    case OP_OFFSET_EXT:
        reg = eh_bytes_uleb(bytes);
        run_offset(run, reg, scaled(run, eh_bytes_uleb(bytes)));
        return true;
    case OP_OFFSET_EXT_SF:
        reg = eh_bytes_uleb(bytes);
        run_offset(run, reg, scaled(run, (uint64_t)eh_bytes_sleb(bytes)));
        return true;
    case OP_NEGATIVE_OFFSET:
        reg = eh_bytes_uleb(bytes);
        run_offset(run, reg, -scaled(run, eh_bytes_uleb(bytes)));
        return true;
    case OP_RESTORE_EXT:
        run_restore(run, eh_bytes_uleb(bytes));
        return true;
    case OP_UNDEFINED: // of the return address: the outermost; of rbp: nobody above needs it
        reg = eh_bytes_uleb(bytes);
        run_same(run, reg, true);
        if (reg == REG_RA)
            run->state.ra = RA_UNDEFINED;
        return true;
    case OP_SAME:
        run_same(run, eh_bytes_uleb(bytes), true);
        return true;
    case OP_REGISTER:
        reg = eh_bytes_uleb(bytes);
        eh_bytes_uleb(bytes);
        run_same(run, reg, false);
        return true;
    case OP_VAL_OFFSET:
    case OP_VAL_OFFSET_SF: // the same bytes, signed or not
        reg = eh_bytes_uleb(bytes);
        eh_bytes_uleb(bytes);
        run_same(run, reg, false);
        return true;
    case OP_EXPR:
        reg = eh_bytes_uleb(bytes);
        run_expr(run, reg, eh_bytes_block(bytes));
        return true;
    case OP_VAL_EXPR:
        reg = eh_bytes_uleb(bytes);
        eh_bytes_block(bytes);
        run_same(run, reg, false);
        return true;
    case OP_ARGS_SIZE:
        eh_bytes_uleb(bytes);
        return true;
    default: // OP_SET_LOC too: nobody writes it
        return false;
    }
}

static bool run_code(struct cfi_run *run, const uint8_t *code, size_t size)
{
    struct eh_bytes bytes = {code, code + size, false};
    while (bytes.at < bytes.end) {
        uint8_t op = *bytes.at++, low = op & 0x3f;
        if (++run->steps > CFI_STEPS_MAX)
            return false;
        if ((op & 0xc0) == OP_ADVANCE)
            run_advance(run, low * run->cie->head.code_unit);
        else if ((op & 0xc0) == OP_OFFSET)
            run_offset(run, low, scaled(run, eh_bytes_uleb(&bytes)));
        else if ((op & 0xc0) == OP_RESTORE)
            run_restore(run, low);
        else if (!run_extended(run, op, &bytes))
            return false;
        if (bytes.bad)
            return false;
    }
    return true;
}

// --- FDE -----------------------------------------------------------------------------------------

bool cfi_function(struct cfi *cfi, struct eh_file *file, uint64_t frame, uint64_t *ret_begin,
        uint64_t *ret_end, cfi_emit emit, void *context)
{
    size_t size;
    const uint8_t *record = eh_file_record(file, frame, &size);
    if (!record)
        return false;
    struct eh_bytes bytes = {record, record + size, false};
    uint64_t begin, end, cie_address = eh_fde_cie(&bytes, frame);
    if (!cie_address)
        return false;
    const struct cfi_cie *cie = cfi_cie_at(cfi, file, cie_address);
    record = eh_file_record(file, frame, &size); // reading the CIE may have moved the window
    if (!record || !cie->usable)
        return false;
    bytes = (struct eh_bytes){record, record + size, false};
    if (!eh_fde_cie(&bytes, frame) || !eh_fde_read(&bytes, frame, &cie->head, &begin, &end))
        return false;
    struct cfi_run run = {.cie = cie, .address = begin, .end = end, .context = context};
    if (!run_code(&run, cie->code, cie->bytes))
        return false;
    run.initial = run.state;
    run.address = begin;
    run.emit = emit;
    *ret_begin = begin;
    *ret_end = end;
    if (!run_code(&run, bytes.at, (size_t)(bytes.end - bytes.at)))
        return false;
    run_emit(&run);
    return true;
}
