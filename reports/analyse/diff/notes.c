// SPDX-License-Identifier: Apache-2.0
// Notes of what weakens an answer: the only thing that all stages may add to. Pure.
#include <string.h>

#include "reports/analyse/diff/diff_input.h"

static bool note_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool note_same_doubt(const struct launch_doubt *a, const struct launch_doubt *b)
{
    return a->kind == b->kind && a->pid == b->pid && a->count == b->count && a->of == b->of &&
            note_same_text(a->producer, b->producer) && note_same_text(a->what, b->what) &&
            note_same_text(a->detail, b->detail);
}

static bool note_same(const struct diff_note *a, const struct diff_note *b)
{
    return a->kind == b->kind && a->side == b->side && a->pair == b->pair && a->count == b->count &&
            a->of == b->of && note_same_text(a->text, b->text) &&
            note_same_doubt(&a->doubt, &b->doubt);
}

void diff_note(struct diff_notes *notes, struct diff_note note)
{
    note.text = arena_copy_utf8(notes->arena, note.text);
    note.doubt.producer = arena_copy_utf8(notes->arena, note.doubt.producer);
    note.doubt.what = arena_copy_utf8(notes->arena, note.doubt.what);
    note.doubt.detail = arena_copy_utf8(notes->arena, note.doubt.detail);
    for (size_t i = 0; i < notes->count; i++)
        if (note_same(&notes->all[i], &note))
            return;
    if (notes->count < DIFF_NOTES_MAX)
        notes->all[notes->count++] = note;
}

const char *diff_text(struct arena *arena, struct strbuf *text)
{
    const char *copy = arena_copy(arena, text->text ? text->text : "");
    strbuf_free(text);
    return copy;
}
