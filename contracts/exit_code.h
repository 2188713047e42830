// SPDX-License-Identifier: Apache-2.0
// Exit codes of every verb (INTERFACES: "Exit codes"). Scripts and CI systems rely on them.
#ifndef UPGATE_CONTRACTS_EXIT_CODE_H
#define UPGATE_CONTRACTS_EXIT_CODE_H

enum exit_code {
    EXIT_CODE_PASS = 0,         // pass, done
    EXIT_CODE_FAIL = 1,         // a regression, a breached gate
    EXIT_CODE_USAGE = 2,        // usage or invalid input
    EXIT_CODE_INCONCLUSIVE = 3, // not enough evidence, or evidence that cannot be trusted
    EXIT_CODE_OPERATIONAL = 4,  // a side could not be started, disk full, no permission
    EXIT_CODE_BISECT_SKIP = 125 // --bisect: 3 and 4 become "cannot test", as git bisect run wants
};

#endif
