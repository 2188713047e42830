// SPDX-License-Identifier: Apache-2.0
// Words about the causes of stalls that every report of them needs: what to do about a cause, who
// is late, and what that rank did. Pure; the caller frees what is returned. Texts of the store are
// not cleaned here.
#ifndef UPGATE_REPORTS_CAUSE_TEXT_H
#define UPGATE_REPORTS_CAUSE_TEXT_H

#include "reports/analyse/stalls/reasons.h"

// "stop `python3 agent.py` (pid 4188) from ...": what ends the cause of this identifier, with the
// culprit's name where it matters who that is. NULL: there is no such cause.
char *cause_text_advice(const char *id, const char *who);

// "reads wait for the disk": the title of a cause within a sentence; "TLB flushes" and "CFS quota"
// stay as they are.
char *cause_text_title(const char *title);

// "rank 1", or "process 4121" where the rank is not known: below 0.
char *cause_text_rank(int32_t rank, int32_t pid);

// "computing in prepare_features (ddp.py)"; NULL: it was not seen.
char *cause_text_deed(const struct stall_deed *deed);

#endif
