// SPDX-License-Identifier: Apache-2.0
// The ranking of differences as data: which path of a fingerprint moves performance how likely, and
// why.
#ifndef UPGATE_FINGERPRINT_RULES_H
#define UPGATE_FINGERPRINT_RULES_H

enum diff_form {
    DIFF_FORM_VALUE, // show both values
    DIFF_FORM_WORDS  // show only the words that one side has and the other has not
};

struct diff_rule {
    const char *pattern; // fnmatch() pattern of the dotted path; the first that matches counts
    const char *what;    // shown; "%s" stands for the last part of the path
    int changed;         // suspicion 0..100 when both sides have a value; 0: noise, not shown
    int one_sided;       // the same when only one side has it
    enum diff_form form;
    const char *why;
};

// Never NULL: the last rule matches everything. *ret_order gets the rule's place in the table.
const struct diff_rule *diff_rule_for(const char *path, int *ret_order);

#endif
