// SPDX-License-Identifier: Apache-2.0
// Every threshold that decides what `upgate diff` tells, each beside what needs it: a statistic, a
// measurement, a plant of docs/PLANTS.md, and in brackets a unit test (tests/unit/test_diff_*) that
// fails without it. What has no brackets is held by no unit test. Limits that only bound memory,
// time or the width of a line stand where they are used. docs/DIFF.md says what each rule is for.
#ifndef UPGATE_DIFF_THRESHOLDS_H
#define UPGATE_DIFF_THRESHOLDS_H

#include <stddef.h>
#include <stdint.h>

// Samples of what one side alone shows. Where the other side ran it as often, none of 12 is seen by
// chance in 6 of 10^6 (e^-12).
enum { DIFF_TICKS_MIN = 12 };
// Of a change: a place or a kind that holds so much of it is what all of it is told by. A backward
// pass of which 55 % were functions with other names was told as added; by four fifths it is
// slower, as it was (PyTorch 1.13 against 2.13).
static const double diff_most = 0.8;

// ---- diff.c, diff_side.c: what weakens the answer, in notes ----

static const double diff_traced_far =
        0.1; // of the untraced step: beyond it a note says what tracing cost (docs/OVERHEAD.md)
// That tracing costs one side more: as large as the smallest plants that are told (gemm-3, compute)
static const double diff_traced_apart = 0.03;
// Of the time aligned: PyTorch 1.13 against 2.13 had 78 % while its BLAS found no partner, 91 %
// since it does.
static const double diff_coverage_low = 0.9;
static const double diff_unaccounted_high =
        0.05; // of a step: what is not known could hold a plant of 5 % (gemm)
static const double diff_blind =
        0.9; // of a step on both sides: events were lost, and nothing is told
static const double side_foreign_told =
        0.01; // of a step, taken by other programs: as large as the smallest plant (compute-1)

// ---- estimate: statistics ----

// From here on the tail of the steps tells another story than their middle, and the middle alone
// would explain too little (torch-gc: a collection every 25 steps). far: where only the intervals
// say so. [measure: the_mean_step_is_of_both_sides_pairs]
static const double measure_tail = 0.015, measure_tail_far = 0.05;
// A side's error: of a run that was not judged, 1 % for its interval; 5 % for a tail, which only
// picks what is explained.
static const double measure_alpha = 0.005, measure_tail_alpha = 0.025;
// Of the error of 1 %: 0.8 % to contributions (Bonferroni), half of it to places; 0.2 % to the step
// that all is scaled to. A/A stores: docs/DIFF.md, 8. [contributions:
// sums_close_and_the_planted_one_is_first]
static const double prior_alpha = 0.008, units_step_alpha = 0.002;
static const double prior_quantile = 2.326; // of the normal distribution, 99 % one-sided
                                            // [contributions: few_launches_tell_little]
// contributions that tell of each other's spread: a variance of 7 degrees of freedom
enum { PRIOR_THINGS_MIN = 8 };
// Chance that launches of two kinds fall so by themselves: half of the error of 1 % (docs/DIFF.md,
// launches of two kinds) [contributions: launches_of_two_kinds_fall_so_by_chance]
static const double prior_modes = 0.005;
// Of the mean over pairs: so much the pair that says least has to say, with the same sign.
// [contributions: executions_tell_a_sign]
static const double units_agree = 0.2;
static const double units_apart_quantile =
        0.975; // of Student's t, 95 % two-sided: tracing that costs both sides alike
// A window is far, and left out, by a multiple of the median and by deviations (of the MAD) beyond
// that; so large a share of far ones is no exception. [contributions:
// a_far_window_is_left_out_and_moves_nothing_else]
static const double units_far = 1.5, units_far_errors = 4, units_left_out_max = 0.2;

// ---- align: what became of what ----

// Of the time under names that both sides have: below it names say nothing (diff_plants --modes
// scrambled) [align: scrambled_names_that_recur_are_learned]
static const double align_names_share = 0.3;
// Of two names, how much they are alike, and of those at another place (diff_plants, all modes).
// [align_host: functions_move_and_are_replaced]
static const double functions_similar = 0.55, functions_similar_far = 0.6;
// Of the longer one. Whatever they are called, one that takes less is not what became of the other:
// OpenBLAS's sgemm_kernel_HASWELL (397 us of a step) is not MKL's SGEMM (2 us), which only calls
// the kernel. [align_host: a_similar_name_that_takes_next_to_nothing_is_no_partner]
static const double functions_next_to_nothing = 0.05;
// Of its place's time: a group needs such a one on each side, and leaves out what is shorter than
// that: the sampling's. A function of 1 % of a step has 40 ticks a side (docs/DIFF.md, 7).
// [align_host: functions_move_and_are_replaced]
static const double functions_seed = 0.03, functions_share = 0.01;
// Of the time of kernels that both sides have below a place: less of it at the same places there,
// and the places say nothing. A kernel that takes longer, came or went leaves all of it where it is
// (the shorter side counts), so it takes that most moved. Eager against torch.compile: 55 % of the
// time matched before, 98.7 % since. [align: places_that_one_side_lost]
static const double gather_same = 0.5;
// Kernels of each side: of a few that moved (a copy that another module makes now), what is left
// over finds itself by name. [align: places_that_one_side_lost]
static const size_t gather_least = 16;
// Costs of an edit: more than one out and one in; times that differ. [align:
// scrambled_names_pair_by_order_and_shape]
static const float order_never = 3, order_time = 0.2f;
static const double order_similar =
        0.6; // of the names' words [align: operators_part_what_is_fused]
// Of the longer one. Names of templates ("reduce_kernel", "elementwise_kernel") are shared by
// different work: in one sequence of a whole phase a pair of them with another shape and another
// time is none for sure. A library picks the grid of the same product anew, which costs or gains
// some percent. [align: a_shared_name_is_no_border]
static const float order_other_time = 0.25f;
// Without names, of a neighbour's time: by how much its sides must differ for what one of them has
// more beside it to be a part of it. Less is how the kernels of two launches vary. [align:
// what_is_added_beside_a_kernel_that_varies_is_no_part_of_it]
static const double order_unexplained = 0.2;
static const double places_similar =
        0.5; // of what is below two siblings, and of their names' words: renamed ones
// Of positions: two kernels of a step are one apart, and their means drift as the number of kernels
// before them does. [align: shapes_that_vary_from_step_to_step]
static const double variants_apart = 1;
// Of its ticks, on the other side: else it is there [align_host:
// what_a_new_function_does_has_no_partner]
static const double new_elsewhere = 0.02;
// Of its time: functions that only the other side knows, at the same place [align_host:
// what_a_new_function_does_has_no_partner]
static const double new_renamed = 0.25;

// ---- contribute: what is one thing, and how it is called ----

// Of the step: what a line costs, the least that is worth one (docs/DIFF.md) [contributions:
// few_launches_tell_little]
static const double contributions_floor = 0.002;
// Of the change of busy time: of a kernel that is hidden behind others less than that is on the
// path. [contributions: executions_tell_a_sign]
static const double contributions_hidden = 0.05;
static const double contributions_residual =
        0.01; // of the step: a residual is told; the largest of the plants is 0.00 %
static const double contributions_small =
        0.05; // of the step: Python functions none of which is told alone are the interpreter
// Units that show it, of twice as many and more; else one: what stands in fewer is no property of a
// version
enum { CONTRIBUTIONS_HIT_MIN = 5 };
// Executions of every window of one side are more than of any of the other. One pair may differ by
// the launches themselves; of 10 windows a side all are so by chance in 1 of 10^5 (2 / (20 over
// 10)).
enum { EXECUTIONS_PAIRS_MIN = 2, EXECUTIONS_UNITS_MIN = 10 };
// All kernels slower by one factor. TF32 off slows all products and leaves the others: three
// quarters of their number and four fifths of their time have to go along, within a third of the
// change; below 3 % a clock is not told from its kernels. [contributions:
// all_kernels_slower_alike_are_a_clock]
enum { ALIKE_KERNELS_MIN = 5 };
static const double alike_clock_min = 0.03, alike_clock_spread = 0.35, alike_clock_share = 0.8,
                    alike_clock_kernels = 0.75;
// Fewer threads at work: times as many on the other side, and of all threads so many more. What
// they shared takes longer by 15 % and more, and at most by the factor that was lost, and 1.4 times
// that (the plant threads-1: one in place of two). [contributions:
// lost_threads_are_one_contribution]
static const double alike_threads_min = 1.25, alike_threads_apart = 0.75,
                    alike_threads_least = 1.15, alike_threads_most = 1.4;
// Of the launches of a run of operations: the samples on the way to them that show the function;
// the names that two runs share; those that both sides have (torch-checkpoint, torch-clip,
// torch-mask) [code: code_of_one_side_is_one_line_with_all_that_it_causes; code:
// code_that_both_sides_have_elsewhere_is_repeated]
static const double run_calls = 0.6, run_alike = 0.5, run_repeats = 0.8;
enum { RUN_VOTES_MIN = 2 }; // samples on the way to a run's launches
// Of the samples below a function: a recomputation runs what both sides have. [code:
// code_of_one_side_is_one_line_with_all_that_it_causes; code:
// code_is_called_after_the_smallest_function_of_its_file]
static const double again_most = 0.6, again_elsewhere = 0.2;
static const double code_elsewhere = 0.02; // of a function's samples, of a part's time: more on the
                                           // other side, and it is on both
static const double code_shared =
        0.1; // on their way to what both sides launch: the other side has it, without a sample
static const double code_below =
        0.5; // of a group: it is below a function [code: the_backward_pass_of_new_code_is_its_own]
// Of the changes of a part's groups: else it is several things [code:
// code_of_one_side_is_one_line_with_all_that_it_causes]
static const double code_in_direction = 0.7;
static const double code_behind =
        2; // times what grew before it: a host that is slower is late everywhere
// Of the part: waiting behind it that grew at one place and shrank at another, with less than that
// left on balance, is not its. [code:
// launches_that_gain_as_much_as_others_lose_are_not_late_for_it]
static const double code_behind_least = 0.02;
// Of a whole: it is this one thing, with what comes with it [code:
// code_of_one_side_is_one_line_with_all_that_it_causes]
static const double code_one = 0.7;
// What moved is sampled there about as often as it is here. The limits are round numbers, wide for
// noise and slower machines; docs/PLANTS.md has what the rule was made with. Of the samples here:
// so many more has the other side elsewhere; far more is other work of the same name. [code:
// code_of_one_side_is_one_line_with_all_that_it_causes; first:
// what_the_other_side_does_outside_of_its_first_step_moved]
static const double moved_least = 0.5, moved_most = 2;
// Of the other side's samples elsewhere: where this side has more, both do it there, and the
// difference may be noise. [first: a_native_function_moved]
static const double moved_stays = 0.5;
// Of the place's native time: by how much more of it has no name on one side. PyTorch 1.13 of a
// distribution has no symbols, 2.13 has. [contributions: code_without_names_is_compared_by_place]
static const double native_unlike = 0.2;
// Of a spread change, where the rest is noise: torch-embedding's embedding_bag held 70 % of
// forward.
static const double places_half = 0.5;
// Of the step: at the borders of a place the nearest sample says where an instant belongs, which
// may be a whole tick (1 ms) off. Hundredths of a step are told there that are none.
// [contributions: executions_tell_a_sign]
static const double places_floor = 0.01;
// Of what one side's kernels of a pair take, the other side's: a fill beside a batch norm is not
// what it replaced, and names nothing. [contributions: kinds_by_match_and_leaf]
static const double groups_next_to_nothing = 0.05;
// Of the executions that stand on one side only: those that are more. A shape that follows the data
// is no kernel more (DLRM's sparse optimizer). [code:
// code_of_one_side_is_one_line_with_all_that_it_causes]
static const double launches_more = 0.5;
// Of all changes, what is left on balance: below it places that gain stand for places that lose.
static const double where_net = 0.3;

// ---- explain: why ----

static const double evidence_share = 0.02; // of a contribution: less is no part worth a word
// Of its time: less beside it than a tenth cannot take a tenth of the device away from it.
static const double beside_min = 0.1;
// Of the change of the mean execution: when the executions without company changed by less, most of
// it is the company's. NCCL_PROTO=LL on two H200s: 95 % with company in place of 32 %, and those
// without took 0.2 % less.
static const double beside_own = 0.25;
// of a kind on a side, for their mean to say something: its error is a fifth of their spread then
enum { BESIDE_EXECUTIONS_MIN = 25 };
static const double beside_told = 0.005; // of its time: less beside it is not worth a word
// Late at most collectives, by 3 standard errors more than half: of two ranks that are as fast one
// comes last to about half of them. [late: late_rank_is_the_headline_when_the_difference_is_its]
static const double late_most = 0.5, late_errors = 3;
// Of two ranks one waits for as long as the other is late: the wait is half of the difference, and
// may stand second. What the others wait more for the rank must make at least half of the wait that
// was added: the rest is the collective's own. [late:
// late_rank_is_the_headline_when_the_difference_is_its]
static const double late_half = 0.5;
static const double slow_quantile =
        0.99; // of latency_p99, by its definition [slow: the_slowest_requests_of_a_tail]
// One-sided, 3 standard errors are wrong once in 740 tests. Every rank has two on each side: the 32
// of 8 ranks are wrong in one comparison of 23 at most, less where being late must cost something
// too. [late: straggler_is_told_by_how_often_and_by_what_it_costs]
static const double stragglers_errors = 3;
// Of a step: a wait that costs less is not worth a line, whoever it is for. On two H200s that are
// as fast it was 0.2 of 7.3 ms. [late: straggler_is_told_by_how_often_and_by_what_it_costs]
static const double stragglers_cost = 0.005;
static const double diff_fewer =
        0.8; // of the executions: a fifth fewer kernels that do the same work are fused ones

// ---- memory ----

// of the difference: a smaller part explains none of it [gpu_memory: reserve_and_who_allocated]
static const double memory_share_min = 0.1;
// A GPU's memory is the same to the byte in most launches: its interval leaves out 1 whatever the
// difference. [gpu_memory: told_when_it_fails_is_open_or_differs]
static const double memory_gpu_differs_min = 0.001;
// How far the faults of other ranges reach into a range that has none. Of anonymous memory two huge
// pages; of a file, whose pages come 16 at a fault, what lies between two pages of the smallest
// samples. [touched: neighbours_of_a_file_and_what_is_too_far]
static const uint64_t touched_reach = 4 << 20, touched_reach_file = 64 << 20;
// Of a range's length, resident: where pages were read nearly all. One that was too large to be
// read may be a hole with a few pages at its ends. [touched: what_lies_between_faults_is_divided]
static const double touched_dense_min = 0.5;
// The sides lie apart by so much of their difference: what is sampled differs from launch to
// launch. [touched: noise_is_not_told]
static const double touched_apart_min = 0.5;
// Or, with so many launches a side, so many standard errors: one launch in which the memory is
// another one's must not hide what all others say.
static const size_t touched_launches_min = 3;
static const double touched_errors_min = 4;

// ---- recordings ----

// Welch's interval, of all rows together; fewer seconds than 5 measure no noise.
static const double recordings_alpha = 0.01;
enum { RECORDINGS_SLICES_MIN = 5 };
static const double recordings_least = 1e-3; // of its kind: a thousandth is left out of the list

#endif
