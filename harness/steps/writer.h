// SPDX-License-Identifier: Apache-2.0
// The writer's side of the step protocol on behalf of a process that does not speak it: somebody
// sees its steps from outside (tracer/calls), and says them here, in the process that has the
// reader. One thread uses a writer; the reader's may be another.
#ifndef UPGATE_HARNESS_STEPS_WRITER_H
#define UPGATE_HARNESS_STEPS_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/steps/reader.h"

struct step_writer;

// Claims a slot for a process of our pid namespace; its rank is what its environment says, else the
// order of the claims. The reader must live longer. -ENOSPC: no slot or no memory is left, which
// the reader counts.
int step_writer_claim(
        struct reader *reader, pid_t pid, struct step_writer **ret_writer, struct error *err);
// Steps come in order. What finds no room is dropped and counted.
void step_writer_step(
        struct step_writer *writer, uint32_t step, uint64_t begin_ns, uint64_t end_ns);
void step_writer_text(struct step_writer *writer, const char *name, const char *text);
// It stands at the gate since at_ns with so many steps behind it, thread tid; and no longer.
void step_writer_hold(struct step_writer *writer, uint32_t steps, uint64_t at_ns, pid_t tid);
void step_writer_go(struct step_writer *writer);
// What the process did that is none of the above, in all.
void step_writer_counts(
        struct step_writer *writer, uint64_t misplaced, uint64_t dropped, uint64_t control_wait_ns);
void step_writer_close(struct step_writer *writer); // it has ended in good order
void step_writer_free(struct step_writer *writer);  // says nothing; NULL ok

#endif
