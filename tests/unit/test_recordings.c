// SPDX-License-Identifier: Apache-2.0
// Two recordings compared: what is told apart, what is noise, what cannot be compared.
#include "reports/analyse/diff/recordings/recordings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/render/diff/recordings_view.h"
#include "tests/unit/stall_job.h"

enum { WORLD_HZ = 100 };

struct world {
    struct store *stores[2];
    char paths[2][64];
    uint64_t seed;
};

static void world_sql(struct store *store, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(store_db(store), sql, NULL, NULL, &message) != SQLITE_OK)
        runner_fail(__FILE__, __LINE__, "%s: %s", sql, message ? message : "");
    sqlite3_free(message);
}

static unsigned world_draw(struct world *world, unsigned below)
{
    world->seed = world->seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(world->seed >> 33) % below;
}

static struct store *world_side(struct world *world, int side, int seconds, const char *end)
{
    struct error err = {0};
    strcpy(world->paths[side], "/tmp/upgate-recordings-XXXXXX");
    int fd = mkstemp(world->paths[side]);
    CHECK(fd >= 0);
    close(fd);
    CHECK_INT(store_open(world->paths[side], STORE_CREATE, &world->stores[side], &err), 0);
    char *sql = xasprintf(
            "INSERT INTO recording VALUES (1, NULL, 5000000000, %s, 1000000, %d, 0, '{}', '[]');"
            "INSERT INTO counter VALUES (1, %lld, 'vmstat', 'x', 1);"
            "INSERT INTO process VALUES (1, 1, 77, 1, 1, 'server', 'server', 'target', NULL, NULL, NULL);"
            "INSERT INTO thread VALUES (1, 1, 77, 'server', NULL, NULL);"
            "INSERT INTO frame VALUES (1, 'gemm', 'libblas.so', NULL, NULL, NULL), (2, 'dumps', 'libjson.so', NULL, NULL, NULL), (3, 'send', '[kernel]', NULL, NULL, NULL);"
            "INSERT INTO stack VALUES (1, 'user', 1, '[1]'), (2, 'user', 1, '[2]'), (3, 'kernel', 1, '[3]')",
            end, WORLD_HZ, 5000000000LL + seconds * 1000000000LL);
    world_sql(world->stores[side], sql);
    free(sql);
    return world->stores[side];
}

// About `count` samples of a stack in each second; a kernel's where stack is 3.
static void world_samples(struct world *world, int side, int seconds, int stack, unsigned count)
{
    struct error err = {0};
    CHECK_INT(store_begin(world->stores[side], &err), 0);
    for (int second = 0; second < seconds; second++)
        for (unsigned i = world_draw(world, 3); i < count; i++) {
            const int64_t id = stack, *kernel = stack == 3 ? &id : NULL,
                          *user = stack == 3 ? NULL : &id;
            CHECK_INT(store_exec(world->stores[side], &err,
                              "INSERT INTO sample VALUES (1, ?, 0, 1, ?, ?, NULL)", "iII",
                              INT64_C(5000000000) + second * INT64_C(1000000000) +
                                      (int64_t)world_draw(world, 1000) * 1000000,
                              kernel, user),
                    0);
        }
    CHECK_INT(store_commit(world->stores[side], &err), 0);
}

static const struct recordings_row *world_row(const struct recordings_diff *diff, const char *name)
{
    for (size_t i = 0; i < diff->row_count; i++)
        if (strcmp(diff->rows[i].name, name) == 0)
            return &diff->rows[i];
    runner_fail(__FILE__, __LINE__, "no row '%s'", name);
    return NULL;
}

static void world_end(struct world *world)
{
    for (int side = 0; side < 2; side++) {
        store_close(world->stores[side]);
        unlink(world->paths[side]);
    }
}

TEST(told_apart)
{
    struct world world = {.seed = 5};
    const double requests[2] = {10000, 2500};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++)
        world_side(&world, side, 10, "15000000000");
    world_samples(&world, 0, 10, 1, 40); // the same of a request: four times the requests
    world_samples(&world, 1, 10, 1, 11);
    world_samples(&world, 0, 10, 3, 8);
    world_samples(&world, 1, 10, 2, 30); // new
    CHECK_INT(recordings_diff(world.stores, requests, &diff, &err), 0);
    CHECK_STR(diff->unit, "request");
    CHECK_INT(diff->slices[0], 10);
    const struct recordings_row *gemm = world_row(diff, "gemm"), *dumps = world_row(diff, "dumps"),
                                *sent = world_row(diff, "send");
    CHECK(dumps->told && dumps->lo_ns > 0 && dumps->a_ns == 0);
    CHECK_DBL(dumps->b_ns, 29 * 10.0 / WORLD_HZ * 1e9 / 2500, 1e5); // 0.116 ms a request
    CHECK(!gemm->told);
    CHECK(sent->told && sent->hi_ns < 0 && sent->b_ns == 0);
    CHECK_STR(sent->where, "[kernel]");
    CHECK(diff->rows[0].told && diff->rows[0].kind == RECORDINGS_CPU);
    CHECK_DBL(diff->totals[RECORDINGS_CPU].b_ns, gemm->b_ns + dumps->b_ns, 1e-6);
    CHECK(diff->totals[RECORDINGS_GPU].name == NULL); // nothing of it was recorded
    char *answer = recordings_view_answer(diff);
    CHECK_CONTAINS(answer, "of CPU time more");
    free(answer);
    json_t *json = recordings_view_json(diff),
           *rows = json_object_get(
                   json_array_get(json_object_get(json, "workloads"), 0), "contributions");
    CHECK_STR(json_string_value(json_object_get(json_array_get(rows, 0), "kind")),
            "cpu_function_added");
    CHECK(json_is_null(json_object_get(json_array_get(rows, 0), "name_a")));
    json_decref(json);
    recordings_diff_free(diff);
    world_end(&world);
}

// `--sample-hz 0`, `--no-python`, no permission: nothing of it was recorded, which is not that the
// program does nothing.
TEST(what_one_side_alone_recorded_is_not_compared)
{
    for (int side = 0; side < 2; side++) {
        struct world world = {.seed = 7};
        struct recordings_diff *diff = NULL;
        struct error err = {0};
        for (int of = 0; of < 2; of++)
            world_side(&world, of, 10, "15000000000");
        world_samples(&world, !side, 10, 1, 40);
        world_sql(world.stores[!side],
                "INSERT INTO stack VALUES (9, 'python', 1, '[2]'); UPDATE sample SET python_stack = 9");
        world_sql(world.stores[side], "UPDATE recording SET sample_hz = 0");
        CHECK_INT(recordings_diff(world.stores, (const double[]){100, 100}, &diff, &err), 0);
        CHECK_INT(diff->row_count, 0);
        CHECK(!diff->totals[RECORDINGS_CPU].name && !diff->totals[RECORDINGS_PYTHON].name);
        CHECK_INT(diff->note_count, 1);
        CHECK_INT(diff->notes[0].kind, RECORDINGS_NOTE_NO_SAMPLES);
        CHECK_INT(diff->notes[0].side, side);
        char *answer = recordings_view_answer(diff);
        CHECK_CONTAINS(answer, "Neither CPU samples nor GPU work were recorded of both sides.");
        free(answer);
        recordings_diff_free(diff);
        world_sql(world.stores[side], "UPDATE recording SET sample_hz = 100"); // and without Python
        world_samples(&world, side, 10, 1, 40);
        CHECK_INT(recordings_diff(world.stores, (const double[]){100, 100}, &diff, &err), 0);
        CHECK_INT(diff->row_count, 1);
        CHECK_INT(world_row(diff, "gemm")->kind, RECORDINGS_CPU);
        CHECK(diff->totals[RECORDINGS_CPU].name && !diff->totals[RECORDINGS_PYTHON].name);
        CHECK_INT(diff->note_count, 1);
        CHECK_INT(diff->notes[0].kind, RECORDINGS_NOTE_NOT_RECORDED);
        CHECK_INT(diff->notes[0].side, side);
        CHECK_STR(diff->notes[0].name, "CPU time in Python");
        recordings_diff_free(diff);
        world_end(&world);
    }
}

// Another virtual environment, another Python, another version of a library: the functions in them
// are the same ones.
TEST(the_same_function_of_two_installations)
{
    struct world world = {.seed = 3};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        world_side(&world, side, 10, "15000000000");
        char *sql = xasprintf(
                "INSERT INTO frame VALUES (4, 'malloc', '%s', NULL, NULL, NULL), (5, 'forward', '/opt/%s/site-packages/torch/nn/linear.py', NULL, NULL, NULL);"
                "INSERT INTO stack VALUES (4, 'user', 1, '[4]'), (5, 'python', 1, '[5]')",
                side ? "libc.so.6" : "libc-2.31.so",
                side ? "new/lib/python3.12" : "old/lib/python3.11");
        world_sql(world.stores[side], sql);
        free(sql);
        world_samples(&world, side, 10, 4, 20);
        world_sql(world.stores[side], "UPDATE sample SET python_stack = 5");
    }
    CHECK_INT(recordings_diff(world.stores, (const double[]){100, 100}, &diff, &err), 0);
    CHECK_INT(diff->row_count, 2);
    const struct recordings_row *native = world_row(diff, "malloc"),
                                *python = world_row(diff, "forward");
    CHECK(!native->told && native->a_ns > 0 && native->b_ns > 0);
    CHECK_STR(native->where, "libc.so");
    CHECK_INT(python->kind, RECORDINGS_PYTHON);
    CHECK(!python->told && python->a_ns > 0 && python->b_ns > 0);
    CHECK_STR(python->where, "torch/nn/linear.py");
    recordings_diff_free(diff);
    world_end(&world);
}

// Versions write the type of an array otherwise; what a template is of tells functions apart.
TEST(the_same_function_of_two_versions)
{
    static const char *const fills[] = {
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int)",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"};
    struct world world = {.seed = 3};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        world_side(&world, side, 10, "15000000000");
        char *sql = xasprintf(
                "INSERT INTO frame VALUES (4, '%s', 'libt.so', NULL, NULL, NULL), (5, 'void at::native::vectorized_elementwise_kernel<4, "
                "at::native::AddFunctor<float> >(int)', 'libt.so', NULL, NULL, NULL);"
                "INSERT INTO stack VALUES (4, 'user', 1, '[4]'), (5, 'user', 1, '[5]')",
                fills[side]);
        world_sql(world.stores[side], sql);
        free(sql);
        world_samples(&world, side, 10, 4, 20);
        world_samples(&world, side, 10, 5, side ? 40 : 10);
    }
    CHECK_INT(recordings_diff(world.stores, (const double[]){100, 100}, &diff, &err), 0);
    CHECK_INT(diff->row_count, 2);
    const struct recordings_row *fill = world_row(diff, fills[0]);
    CHECK(!fill->told && fill->a_ns > 0 && fill->b_ns > 0);
    CHECK(diff->rows[0].told && diff->rows[0].b_ns > 2 * diff->rows[0].a_ns);
    CHECK_CONTAINS(diff->rows[0].name, "AddFunctor");
    recordings_diff_free(diff);
    world_end(&world);
}

// Kernels by name, copies together, graphs together; what other recordings ran, and what lies
// outside of this one, is none of it.
TEST(work_on_a_gpu)
{
    struct world world = {.seed = 9};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        struct store *store = world_side(&world, side, 10, "15000000000");
        world_sql(store,
                "PRAGMA foreign_keys = OFF; INSERT INTO string VALUES (1, 'k');"
                "INSERT INTO recording VALUES (2, NULL, 5000000000, 15000000000, 1000000, 100, 0, '{}', '[]');"
                "INSERT INTO process VALUES (2, 2, 78, 1, 1, 'other', 'other', 'target', NULL, NULL, NULL);"
                "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (1, 1, 0, 1, 7), (2, 2, 0, 1, 7);"
                "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, static_shared_bytes, "
                "dynamic_shared_bytes, local_bytes) VALUES (1, 1, 'gemm', 1, 1, 1, 1, 1, 1, 1, 0, 0, 0), (2, 1, 'gemm', 2, 1, 1, 1, 1, 1, 1, 0, 0, 0);"
                "INSERT INTO gpu_work (id, kind, stream_id, kernel_id) VALUES (1, 0, 1, 1), (2, 0, 1, 2), (3, 17, 1, NULL), (4, 80, 1, NULL), (5, 1, 1, NULL), "
                "(6, 0, 2, 1), (7, 0, 1, NULL);"
                "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (4999999999, 900000000, 1, 1), (15000000000, 900000000, 1, 1), "
                "(9000000000, 900000000, 6, 1)");
        for (int second = 0; second < 10; second++)
            // 10 ms each, and 20 more of the candidate's copies
            for (int work = 1; work <= 5; work++) {
                int64_t ns = 10000000 + (int64_t)world_draw(&world, 1000) +
                        (side && work == 3 ? 20000000 : 0);
                CHECK_INT(
                        store_exec(store, &err,
                                "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (?, ?, ?, 1)",
                                "iii", INT64_C(5000000000) + second * INT64_C(1000000000), ns,
                                (int64_t)work),
                        0);
            }
    }
    CHECK_INT(recordings_diff(world.stores, (const double[]){100, 100}, &diff, &err), 0);
    const struct recordings_row *gemm = world_row(diff, "gemm"),
                                *copies = world_row(diff, "copies and sets"),
                                *graphs = world_row(diff, "CUDA graph");
    CHECK_INT(gemm->kind, RECORDINGS_GPU);
    CHECK(!gemm->told && !graphs->told);
    CHECK_DBL(gemm->a_ns, 20e6 / 10, 200); // two shapes, of a request: ten are answered in a second
    CHECK_DBL(gemm->b_ns, 20e6 / 10, 200);
    CHECK_DBL(graphs->a_ns, 10e6 / 10, 200);
    CHECK(copies->told);
    CHECK_DBL(copies->delta_ns, 20e6 / 10, 200);
    const struct recordings_row *total = &diff->totals[RECORDINGS_GPU];
    CHECK_DBL(total->a_ns, gemm->a_ns + copies->a_ns + graphs->a_ns, 1e-3);
    CHECK(total->told && total->delta_ns > 0);
    CHECK(!diff->totals[RECORDINGS_CPU].name);
    for (size_t i = 0; i < diff->row_count; i++)
        CHECK(strcmp(diff->rows[i].name, "[unknown]") != 0); // it never ran
    recordings_diff_free(diff);
    world_end(&world);
}

// --max-size deletes the oldest seconds: the program did not rest in them.
TEST(what_was_deleted_is_no_time_without_work)
{
    struct world world = {.seed = 5};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        world_side(&world, side, 20, "25000000000");
        world_samples(&world, side, 20, 1, 40);
    }
    // Whole seconds of the clock go; the first count that is left may come nearly a second later,
    // and what is before it is in no second of ours.
    world_sql(world.stores[0], "DELETE FROM sample WHERE at_ns < 14000000000");
    for (int second = 15; second < 25; second++)
        CHECK_INT(store_exec(world.stores[0], &err,
                          "INSERT INTO counter VALUES (1, ?, 'vmstat', 'x', 1)", "i",
                          second * INT64_C(1000000000)),
                0);
    CHECK_INT(store_ledger(world.stores[0], NULL, "retention", "sample", -1, -1, 400, 0,
                      "the first 10 s", &err),
            0);
    CHECK_INT(recordings_diff(world.stores, (const double[]){10000, 10000}, &diff, &err), 0);
    CHECK_INT(diff->slices[0], 10);
    CHECK_INT(diff->window_ns[0], INT64_C(10000000000));
    CHECK_INT(diff->slices[1], 20);
    const struct recordings_row *gemm = world_row(diff, "gemm");
    CHECK(!gemm->told);
    CHECK_DBL(gemm->a_ns, 39 * 1e9 / WORLD_HZ * 20 / 10000, 5e4); // of a request
    CHECK_DBL(gemm->b_ns, gemm->a_ns, 5e4);
    CHECK_DBL(diff->units[0], 5000, 1e-6);
    CHECK_INT(diff->note_count, 1);
    CHECK_INT(diff->notes[0].kind, RECORDINGS_NOTE_DELETED);
    CHECK_INT(diff->notes[0].side, 0);
    CHECK_DBL(diff->notes[0].seconds, 10, 0.5);
    recordings_diff_free(diff);
    world_sql(world.stores[0], "DELETE FROM counter"); // damaged: nothing says what is left
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), 0);
    CHECK_INT(diff->slices[0], 20);
    recordings_diff_free(diff);
    world_end(&world);
}

// A killed recorder has not come to say so.
TEST(what_was_deleted_of_a_recording_that_was_cut_off)
{
    struct world world = {.seed = 5};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        struct store *store = world_side(&world, side, 20, side ? "25000000000" : "NULL");
        world_samples(&world, side, 20, 1, 40);
        world_sql(store, "DELETE FROM counter");
        for (int second = 5; second <= 25; second++)
            CHECK_INT(store_exec(store, &err, "INSERT INTO counter VALUES (1, ?, 'vmstat', 'x', 1)",
                              "i", second * INT64_C(1000000000)),
                    0);
    }
    CHECK_INT(recordings_diff(world.stores, (const double[]){10000, 10000}, &diff, &err), 0);
    CHECK_INT(diff->slices[0], 20); // nothing was deleted yet
    recordings_diff_free(diff);
    world_sql(world.stores[0],
            "DELETE FROM sample WHERE at_ns < 15000000000; DELETE FROM counter WHERE at_ns < 15000000000");
    CHECK_INT(recordings_diff(world.stores, (const double[]){10000, 10000}, &diff, &err), 0);
    CHECK_INT(diff->slices[0], 10);
    CHECK_INT(diff->slices[1], 20);
    const struct recordings_row *gemm = world_row(diff, "gemm");
    CHECK(!gemm->told);
    CHECK_DBL(gemm->b_ns, gemm->a_ns, 5e4);
    CHECK_INT(diff->note_count, 2);
    CHECK_INT(diff->notes[0].kind, RECORDINGS_NOTE_CUT_OFF);
    CHECK_INT(diff->notes[1].kind, RECORDINGS_NOTE_DELETED);
    CHECK(diff->notes[0].side == 0 && diff->notes[1].side == 0);
    CHECK_DBL(diff->notes[1].seconds, 10, 0.5);
    recordings_diff_free(diff);
    world_end(&world);
}

// A stripped library of two builds: its functions have other addresses, and are told by what they
// are inside of where that is known.
TEST(functions_without_a_name)
{
    struct world world = {.seed = 11};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        world_side(&world, side, 10, "15000000000");
        char *sql = xasprintf(
                "INSERT INTO frame VALUES (4, 'libt.so+0x%d0', 'libt.so', 'b%d', NULL, 4), (5, 'at::_ops::mm::call', 'libt.so', 'b%d', NULL, 9),"
                " (6, 'libu.so+0x50', 'libu.so', 'c', NULL, 4), (7, 'libv.so+0x%d0', 'libv.so', 'd%d', NULL, 4);"
                "INSERT INTO stack VALUES (4, 'user', 2, '[4,5]'), (5, 'user', 1, '[6]'), (6, 'user', 1, '[7]')",
                side + 1, side, side, side + 1, side);
        world_sql(world.stores[side], sql);
        free(sql);
        world_samples(&world, side, 10, 4, side ? 40 : 10);
        world_samples(&world, side, 10, 5, 10);
        world_samples(&world, side, 10, 6, 10);
    }
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), 0);
    const struct recordings_row *mm = world_row(diff, "[inside at::_ops::mm]"),
                                *other = world_row(diff, "libu.so+0x50");
    CHECK(mm->told && mm->a_ns > 0 && mm->b_ns > 2 * mm->a_ns);
    CHECK_STR(mm->where, "libt.so");
    CHECK(!other->told && other->a_ns > 0 && other->b_ns > 0); // one build on both sides
    // Of two builds it is not one function that is gone and another that is new.
    const struct recordings_row *unknown = world_row(diff, "[unknown]");
    CHECK(!unknown->told && unknown->a_ns > 0 && unknown->b_ns > 0);
    CHECK_STR(unknown->where, "libv.so");
    for (size_t i = 0; i < diff->row_count; i++)
        CHECK(strncmp(diff->rows[i].name, "libt.so+", 8) != 0 &&
                strncmp(diff->rows[i].name, "libv.so+", 8) != 0);
    recordings_diff_free(diff);
    world_end(&world);
}

// Of equal recordings nothing is told, whatever the seed: 50 comparisons of 3 rows at 1 % for all
// rows of one.
TEST(equal_recordings)
{
    int told = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct world world = {.seed = seed * 7919};
        struct recordings_diff *diff = NULL;
        struct error err = {0};
        for (int side = 0; side < 2; side++) {
            world_side(&world, side, 8, "13000000000");
            world_samples(&world, side, 8, 1, 20);
            world_samples(&world, side, 8, 2, 5);
            world_samples(&world, side, 8, 3, 9);
        }
        CHECK_INT(recordings_diff(world.stores, (const double[]){100, 100}, &diff, &err), 0);
        for (size_t i = 0; i < diff->row_count; i++)
            told += diff->rows[i].told;
        recordings_diff_free(diff);
        world_end(&world);
    }
    CHECK(told <= 3);
}

TEST(rows_are_text_and_none_is_left_out_in_silence)
{
    enum { ROWS = 20 };
    struct recordings_row rows[ROWS];
    for (int i = 0; i < ROWS; i++)
        rows[i] = (struct recordings_row){.kind = RECORDINGS_CPU,
                .name = "f\x1b[2J\xc3\xa9|<b>",
                .a_ns = 5e3,
                .b_ns = 5e3,
                .delta_ns = -0.2,
                .lo_ns = -0.3,
                .hi_ns = 1500,
                .told = true};
    const struct recordings_diff diff = {.unit = "second",
            .window_ns = {8000000000, 8000000000},
            .rows = rows,
            .row_count = ROWS};
    char *markdown = recordings_view_markdown(&diff, "### x"), *table = NULL;
    size_t len = 0, shown = 0;
    FILE *stream = open_memstream(&table, &len);
    CHECK(stream != NULL);
    recordings_view_table(&diff, false, stream);
    fclose(stream);
    CHECK(strchr(table, 27) == NULL);
    CHECK_CONTAINS(table, "\nfunction        f?|<b> ");
    CHECK_CONTAINS(table, "        5 us        5 us           0  0 to +1.5 us\n");
    for (const char *at = markdown; (at = strstr(at, "\n| function | ")); at++)
        shown++;
    CHECK_INT(shown, 15);
    CHECK_CONTAINS(markdown, "\n5 more: `upgate diff` of both recordings has all.\n");
    CHECK(strstr(markdown, "<b>") == NULL);
    free(markdown);
    free(table);
}

// Steps of a rank, one each 100 ms: so many us, and up to a ms more as comes.
static void world_steps(struct world *world, int side, int rank, int count, int64_t us)
{
    struct error err = {0};
    CHECK_INT(store_begin(world->stores[side], &err), 0);
    for (int i = 0; i < count; i++)
        CHECK_INT(
                store_exec(world->stores[side], &err,
                        "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, ?, ?, ?, ?)",
                        "iiii", (int64_t)rank, (int64_t)i,
                        INT64_C(5000000000) + i * INT64_C(100000000),
                        (us + world_draw(world, 1000)) * 1000),
                0);
    CHECK_INT(store_commit(world->stores[side], &err), 0);
}

static void check_shown(const struct recordings_diff *diff, const char *sentence, bool shown)
{
    char *markdown = recordings_view_markdown(diff, "### x"), *table = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&table, &len);
    CHECK(stream != NULL);
    recordings_view_table(diff, false, stream);
    fclose(stream);
    CHECK_INT(strstr(markdown, sentence) != NULL, shown);
    CHECK_INT(strstr(table, "\nranks  ") != NULL, shown);
    free(markdown);
    free(table);
}

TEST(the_typical_and_the_slowest_rank)
{
    struct world world = {.seed = 5};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++)
        world_side(&world, side, 10, "15000000000");
    for (int rank = 0; rank < 4; rank++) {
        // 40, 42, 60, 46 ms
        world_steps(&world, 0, rank, 100, rank == 2 ? 60000 : 40000 + 2000 * rank);
        world_steps(&world, 1, rank, 100, 50000); // they wait for each other: none is slower
    }
    world_steps(&world, 0, 4, 4, 90000); // too few to say
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), 0);
    const struct recordings_ranks *a = &diff->ranks[0], *b = &diff->ranks[1];
    CHECK_INT(a->count, 4);
    CHECK_INT(a->typical.rank, 1);
    CHECK_DBL(a->typical.step_ns, 42.5e6, 0.3e6);
    CHECK_INT(a->slowest.rank, 2);
    CHECK_DBL(a->slowest.step_ns, 60.5e6, 0.3e6);
    CHECK(a->told && a->lo_ns < a->more_ns && a->more_ns < a->hi_ns);
    CHECK_DBL(a->more_ns, 18e6, 0.3e6);
    CHECK_INT(b->count, 4);
    CHECK(!b->told && b->lo_ns <= 0);
    CHECK(!a->late && !b->late);
    check_shown(diff,
            "Of the 4 ranks of the baseline that made enough steps rank 1 is the typical one, ",
            true);
    check_shown(diff, "and rank 2 the slowest, ", true);
    check_shown(diff, ", which is not told apart in the same steps.", true);
    check_shown(diff, "A step of the typical rank: ", true);
    json_t *json = recordings_view_json(diff),
           *ranks = json_object_get(json_array_get(json_object_get(json, "workloads"), 0), "ranks");
    CHECK_INT(json_integer_value(json_object_get(
                      json_object_get(json_object_get(ranks, "a"), "slowest"), "rank")),
            2);
    CHECK(json_is_true(json_object_get(json_object_get(ranks, "a"), "told")) &&
            json_is_false(json_object_get(json_object_get(ranks, "b"), "told")));
    CHECK(json_is_null(json_object_get(json_object_get(ranks, "a"), "late")));
    json_decref(json);
    recordings_diff_free(diff);
    world_end(&world);
}

// Steps of one process, or rows of ranks that are none, are no job.
TEST(a_recording_without_ranks)
{
    struct world world = {.seed = 5};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        world_side(&world, side, 10, "15000000000");
        world_steps(&world, side, 0, 100, 40000);
        world_steps(&world, side, -5, 100, 80000);
    }
    world_sql(world.stores[0],
            "INSERT INTO recorded_step SELECT 1, 1, idx, begin_ns, -dur_ns FROM recorded_step WHERE rank = 0");
    world_sql(world.stores[1],
            "INSERT INTO recorded_step SELECT 1, 1, idx, begin_ns + 20000000000, dur_ns FROM recorded_step WHERE rank = 0");
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), 0);
    CHECK_INT(diff->ranks[0].count, 1);
    CHECK_INT(diff->ranks[1].count, 1);
    check_shown(diff, "typical", false);
    json_t *json = recordings_view_json(diff);
    CHECK(json_object_get(json_array_get(json_object_get(json, "workloads"), 0), "ranks") == NULL);
    json_decref(json);
    recordings_diff_free(diff);
    world_end(&world);
}

TEST(a_late_rank_in_words)
{
    struct recordings_diff diff = {.unit = "second",
            .window_ns = {10000000000, 10000000000},
            .ranks = {{.late = true,
                              .late_rank = 3,
                              .late_share = 0.245,
                              .late_deed = {.kind = STALL_DEED_COMPUTES, .function = "<b> (a.py)"}},
                    {.late = true, .late_rank = -1, .late_share = NAN}}};
    check_shown(&diff,
            "Of the ranks of the baseline rank 3 comes late, for 24.5 % of the time: computing in &lt;b> (a.py).",
            true);
    check_shown(&diff, "Of the ranks of the candidate one rank comes late.", true);
    json_t *json = recordings_view_json(&diff),
           *ranks = json_object_get(json_array_get(json_object_get(json, "workloads"), 0), "ranks");
    CHECK_DBL(json_real_value(json_object_get(
                      json_object_get(json_object_get(ranks, "a"), "late"), "share")),
            0.245, 1e-9);
    CHECK(json_is_null(
            json_object_get(json_object_get(json_object_get(ranks, "b"), "late"), "what")));
    CHECK(json_is_null(json_object_get(json_object_get(ranks, "a"), "typical")));
    json_decref(json);
}

// What is kept of it outlives the stalls that it was found in.
TEST(a_late_rank_of_a_job)
{
    struct job job;
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    job_open(&job, 2, 2);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[] = {10, 14};
        job_step(&job, 2, at, compute);
        job_runs(&job, 0, at, at + 10, "main@/x/ddp.py:30");
        job_runs(&job, 1, at, at + 14, "augment@/x/data.py:3;main@/x/ddp.py:30");
    }
    struct store *const stores[2] = {job.story.store, job.story.store};
    CHECK_INT(recordings_diff(stores, NULL, &diff, &err), 0);
    for (int side = 0; side < 2; side++) {
        const struct recordings_ranks *ranks = &diff->ranks[side];
        CHECK(ranks->late && ranks->late_share > 0.1);
        CHECK_INT(ranks->late_rank, 1);
        CHECK_INT(ranks->late_deed.kind, STALL_DEED_COMPUTES);
        CHECK_STR(ranks->late_deed.function, "augment (data.py)");
        CHECK(!ranks->late_deed.cause);
    }
    recordings_diff_free(diff);
    story_close(&job.story);
}

TEST(notes_in_words)
{
    static const struct {
        struct recordings_note note;
        const char *text;
    } cases[] = {
            {{.kind = RECORDINGS_NOTE_DELETED, .seconds = 10.2},
                    "The first 10 s of the recording of the baseline were deleted (--max-size): what is left is compared."},
            {{.kind = RECORDINGS_NOTE_CUT_OFF, .side = 1},
                    "The recording of the candidate was cut off: it is compared up to its last second."},
            {{.kind = RECORDINGS_NOTE_LONGER, .seconds = 600},
                    "Of the recording of the baseline, which is longer, the first 10 minutes are compared: functions, what ran on GPUs "
                    "and steps are of these, stalls are of all of it."},
            {{.kind = RECORDINGS_NOTE_NO_SAMPLES, .side = 1},
                    "The candidate was recorded without samples: its functions are not compared."},
            {{.kind = RECORDINGS_NOTE_LOST, .count = 7, .name = "bpf.gap", .what = "records"},
                    "The recording of the baseline lost 7 (bpf.gap records)."},
            {{.kind = RECORDINGS_NOTE_NOT_RECORDED, .side = 1, .name = "CPU time in Python"},
                    "No CPU time in Python was recorded of the candidate: it is not compared. `upgate stalls` of its recording says what "
                    "could not be recorded."},
            {{.kind = RECORDINGS_NOTE_NO_REQUESTS},
                    "How many requests each side answered while it was recorded is not known: times are of a second of the recording, and "
                    "a side with more requests spends more."},
            {{.kind = RECORDINGS_NOTE_SHORT, .seconds = 5},
                    "A recording of fewer than 5 s does not measure its noise: nothing is told apart, record for longer."}};
    CHECK_INT(sizeof cases / sizeof *cases, RECORDINGS_NOTE_KINDS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = recordings_view_note(&cases[i].note);
        CHECK_STR(text, cases[i].text);
        free(text);
    }
}

TEST(of_a_long_one_its_first_minutes)
{
    struct world world = {.seed = 9};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    size_t told = 0;
    world_side(&world, 0, 700, "705000000000");
    world_side(&world, 1, 600, "605000000000");
    world_samples(&world, 0, 20, 1, 5);
    world_samples(&world, 1, 20, 1, 5);
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), 0);
    CHECK_INT(diff->slices[0], 600);
    for (size_t i = 0; i < diff->note_count; i++)
        if (diff->notes[i].kind == RECORDINGS_NOTE_LONGER) {
            CHECK_INT(diff->notes[i].side, 0);
            CHECK_DBL(diff->notes[i].seconds, 600, 0);
            told++;
        }
    CHECK_INT(told, 1); // not of the other one, which is no longer than that
    recordings_diff_free(diff);
    world_end(&world);
}

TEST(too_short)
{
    struct world world = {.seed = 5};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++)
        world_side(&world, side, 3, "8000000000");
    world_samples(&world, 0, 3, 1, 40);
    world_samples(&world, 1, 3, 1, 5);
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), 0);
    CHECK_STR(diff->unit, "second");
    CHECK(!world_row(diff, "gemm")->told && isnan(world_row(diff, "gemm")->lo_ns));
    CHECK_INT(diff->note_count, 2);
    CHECK_INT(diff->notes[1].kind, RECORDINGS_NOTE_SHORT);
    CHECK_DBL(diff->notes[1].seconds, 5, 0);
    recordings_diff_free(diff);
    world_end(&world);
}

TEST(killed)
{
    struct world world = {.seed = 5};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    world_side(&world, 0, 10, "15000000000");
    world_side(&world, 1, 7, "NULL");
    world_samples(&world, 1, 7, 1, 5);
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), 0);
    CHECK_INT(diff->slices[1], 7);
    CHECK_INT(diff->notes[0].kind, RECORDINGS_NOTE_CUT_OFF);
    CHECK_INT(diff->notes[0].side, 1);
    recordings_diff_free(diff);
    world_end(&world);
}

TEST(impossible)
{
    struct world world = {.seed = 5};
    struct recordings_diff *diff = NULL;
    struct error err = {0};
    world_side(&world, 0, 10, "15000000000");
    world_side(&world, 1, 10, "15000000000");
    world_sql(world.stores[1],
            "DELETE FROM counter; DELETE FROM thread; DELETE FROM process; DELETE FROM recording");
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), -ENODATA);
    CHECK_CONTAINS(err.text, world.paths[1]);
    CHECK(diff == NULL);
    world_sql(
            world.stores[1], "INSERT INTO recording VALUES (1, NULL, 9, 8, 1, 100, 0, '{}', '[]')");
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), -EBADMSG);
    world_sql(world.stores[1], "UPDATE recording SET end_ns = 500000000");
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), -ENODATA);
    CHECK_CONTAINS(err.text, "shorter than a second");
    // One launch of a run of both sides is none: of which side and which pair it is nobody would
    // know.
    world_sql(world.stores[1],
            "PRAGMA foreign_keys = OFF; UPDATE recording SET launch_id = 7, begin_ns = 5000000000, end_ns = 15000000000");
    CHECK_INT(recordings_diff(world.stores, NULL, &diff, &err), -ENODATA);
    CHECK_CONTAINS(err.text, world.paths[1]);
    CHECK_CONTAINS(err.text, "is a run of `upgate ab` and holds both sides");
    CHECK(diff == NULL);
    world_end(&world);
}
