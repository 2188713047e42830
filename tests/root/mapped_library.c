// SPDX-License-Identifier: Apache-2.0
// A library of one function that computes; built twice with different names and the same layout, so
// that the second comes to lie where the first has been.
__attribute__((visibility("default"))) unsigned long SPIN(unsigned long rounds);

unsigned long SPIN(unsigned long rounds)
{
    volatile unsigned long sum = 0;
    while (rounds--)
        sum += rounds;
    return sum;
}
