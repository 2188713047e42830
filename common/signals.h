// SPDX-License-Identifier: Apache-2.0
// What becomes of signals that we were started with ignored: by nohup, by a service manager. A
// program that we start finds them as we did, whatever we have made of them meanwhile. Functions of
// the main thread.
#ifndef UPGATE_COMMON_SIGNALS_H
#define UPGATE_COMMON_SIGNALS_H

// At the begin of a program, before it changes any.
void signals_remember(void);
// SIGINT, SIGTERM and SIGHUP end a wait and call `handler`; a SIGHUP that is ignored stays so.
void signals_catch_end(void (*handler)(int number));
// In a child before its exec: each as it was remembered, those that nobody remembered as the system
// has them.
void signals_restore(void);

#endif
