// SPDX-License-Identifier: Apache-2.0
// Sentences about the causes of stalls that every report of them needs: what to do about a cause,
// and what a late rank did. Pure; the caller frees what is returned. Texts of the store are not
// cleaned here.
#ifndef UPGATE_REPORTS_CAUSE_TEXT_H
#define UPGATE_REPORTS_CAUSE_TEXT_H

#include "reports/analyse/stalls/reasons.h"

// "stop `python3 agent.py` (pid 4188) from ...": what ends the cause of this identifier, with the
// culprit's name where it matters who that is. NULL: there is no such cause.
char *cause_text_advice(const char *id, const char *who);

// "computing in prepare_features (ddp.py)"; NULL: it was not seen.
char *cause_text_deed(const struct stall_deed *deed);

#endif
