// SPDX-License-Identifier: Apache-2.0
// Composing fingerprints and ranking what differs: what comes first, what is implied, what is
// noise, and which documents are refused.
#include "harness/fingerprint/fingerprint.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/fingerprint/rules.h"
#include "harness/fingerprint/table.h"
#include "tests/unit/runner.h"

static json_t *parse(const char *text)
{
    json_error_t problem;
    json_t *json = json_loads(text, 0, &problem);
    if (!json)
        runner_fail(__FILE__, __LINE__, "test document: %s at %d", problem.text, problem.position);
    return json;
}

// A side from two texts in JSON: a list of [path, version, build-id], and what Python said.
static json_t *side(const char *libraries, const char *python)
{
    json_t *list = parse(libraries), *said = python ? parse(python) : NULL, *array = json_array(),
           *item;
    size_t index;
    json_array_foreach(list, index, item)
    {
        const char *path = json_string_value(json_array_get(item, 0)), *slash = strrchr(path, '/');
        static const char *const roles[][2] = {{"openblas", "blas"}, {"libmkl", "blas"},
                {"dnnl", "onednn"}, {"gomp", "openmp"}, {"libtorch", "framework"}};
        const char *role = "other";
        for (size_t i = 0; i < 5; i++)
            if (strstr(path, roles[i][0]))
                role = roles[i][1];
        char *key = xasprintf("%.*s", (int)strcspn(slash + 1, "."), slash + 1);
        json_array_append_new(array,
                json_pack("{s:s,s:s,s:s?,s:s,s:O,s:O,s:s}", "key", key, "role", role, "name",
                        !strcmp(role, "blas")             ? "OpenBLAS"
                                : !strcmp(role, "onednn") ? "oneDNN"
                                : !strcmp(role, "openmp") ? "GNU OpenMP"
                                                          : NULL,
                        "path", path, "version", json_array_get(item, 1), "build_id",
                        json_array_get(item, 2), "version_source", "file name"));
        free(key);
    }
    json_t *process = json_pack("{s:{s:o,s:{s:s},s:i},s:{s:{s:i}},s:{}}", "process", "libraries",
            array, "environment", "OMP_NUM_THREADS", "1", "pid", 4711, "host", "memory",
            "swappiness", 60, "missing");
    json_t *document = fingerprint_merge(process, said);
    json_decref(process);
    json_decref(list);
    json_decref(said);
    return document;
}

static const char libraries_a[] = "[[\"/usr/lib/libopenblas.so.0\",\"0.3.21\",\"aa01\"],[\"/usr/"
                                  "lib/libdnnl.so.2.6\",\"2.6\",\"aa02\"],"
                                  " [\"/usr/lib/libtorch_cpu.so.1.13.0\",\"1.13.0\",\"aa03\"],[\"/"
                                  "usr/lib/libz.so.1.2.13\",\"1.2.13\",\"aa04\"],"
                                  " [\"/usr/lib/libonly_a.so.1\",null,\"aa05\"]]";
static const char libraries_b[] =
        "[[\"/v/site-packages/torch/lib/libtorch_cpu.so\",null,\"bb03\"],[\"/usr/lib/"
        "libz.so.1.2.13\",\"1.2.13\",\"bb04\"],"
        " [\"/v/site-packages/numpy.libs/libscipy_openblas64_-32a4b2a6.so\",\"0.3.31\",null]]";
static const char python_a[] =
        "{\"interpreter\":{\"implementation\":\"CPython\",\"version\":\"3.11.2\",\"executable\":\"/usr/"
        "bin/python3\"},"
        " \"torch\":{\"version\":\"1.13.0\",\"threads\":1,\"attention\":\"composed\",\"git\":\"aaa\","
        "   \"build\":{\"onednn\":\"2.6.3\",\"cxx_flags\":\"-O2 -g -Wall\"}, \"mha_fastpath\":null},"
        " \"packages\":{\"torch\":\"1.13.0\",\"sympy\":\"1.11\",\"pip\":\"22\"},"
        " \"missing\":{\"torch.mha_fastpath\":\"not in this version: no mha\"}}";
static const char python_b[] =
        "{\"interpreter\":{\"implementation\":\"CPython\",\"version\":\"3.11.2\",\"executable\":\"/v/"
        "bin/python\"},"
        " \"torch\":{\"version\":\"2.13.0\",\"threads\":2,\"attention\":\"flash, "
        "math\",\"git\":\"bbb\","
        "   \"build\":{\"onednn\":\"3.12.0\",\"mkl\":\"2024.2\",\"cxx_flags\":\"-O2 -Wextra -DX\"}, "
        "\"mha_fastpath\":true},"
        " \"packages\":{\"torch\":\"2.13.0\",\"sympy\":\"1.14\",\"pip\":\"23\",\"added\":\"1\"}}";

static const json_t *row(const json_t *differences, const char *path)
{
    size_t index;
    json_t *difference;
    json_array_foreach((json_t *)differences, index,
            difference) if (!strcmp(json_string_value(json_object_get(difference, "path")),
                                    path)) return difference;
    return NULL;
}

static long long rank(const json_t *differences, const char *path)
{
    const json_t *found = row(differences, path);
    if (!found)
        runner_fail(__FILE__, __LINE__, "no difference '%s'", path);
    return json_integer_value(json_object_get(found, "rank"));
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static json_t *diff(json_t *a, json_t *b, size_t *noise_count)
{
    json_t *differences = NULL;
    struct error err = {0};
    CHECK_INT(fingerprint_diff(a, b, &differences, noise_count, &err), 0);
    json_decref(a);
    json_decref(b);
    return differences;
}

TEST(components_name_what_is_inside_and_beside_the_framework)
{
    json_t *a = side(libraries_a, python_a), *b = side(libraries_b, python_b);
    const json_t *of_a = json_object_get(a, "components"), *of_b = json_object_get(b, "components");
    CHECK_STR(text_of(a, "schema"), FINGERPRINT_SCHEMA);
    CHECK_STR(text_of(of_a, "torch"), "1.13.0");
    CHECK_STR(text_of(of_a, "blas"), "OpenBLAS 0.3.21");
    CHECK_STR(text_of(of_a, "onednn"), "oneDNN 2.6.3"); // more exact than the file's name
    CHECK_STR(text_of(of_b, "blas"), "MKL 2024.2 (inside torch), OpenBLAS 0.3.31 (numpy's own)");
    CHECK_STR(text_of(of_b, "onednn"), "oneDNN 3.12.0 (inside torch)");
    CHECK_STR(text_of(of_b, "interpreter"), "CPython 3.11.2");
    CHECK(json_is_null(json_object_get(of_b, "nccl")));
    CHECK_STR(text_of(json_object_get(a, "missing"), "python.torch.mha_fastpath"),
            "not in this version: no mha");
    json_decref(a);
    json_decref(b);
}

TEST(ranking)
{
    size_t noise_count = 0;
    json_t *list = diff(side(libraries_a, python_a), side(libraries_b, python_b), &noise_count);
    CHECK_INT(rank(list, "components.torch"), 1);
    CHECK_INT(rank(list, "components.blas"), 2);
    CHECK_INT(rank(list, "components.onednn"), 3);
    CHECK_INT(rank(list, "python.torch.attention"), 4);
    CHECK_INT(rank(list, "python.torch.threads"), 5);
    CHECK(rank(list, "python.torch.mha_fastpath") < rank(list, "libraries.other.libz"));
    CHECK(rank(list, "libraries.other.libz") < rank(list, "python.packages.sympy"));
    CHECK(rank(list, "python.packages.sympy") < rank(list, "python.packages.added"));
    CHECK(rank(list, "python.packages.added") < rank(list, "python.packages.pip"));
    CHECK(rank(list, "python.packages.sympy") < rank(list, "libraries.framework.libtorch_cpu"));
    CHECK(!row(list, "python.torch.git"));
    CHECK(!row(list, "python.interpreter.executable"));
    CHECK(!row(list, "python.packages.torch"));
    CHECK(noise_count >= 3);
    size_t index;
    json_t *difference;
    long long last = 101;
    json_array_foreach(list, index, difference)
    {
        long long suspicion = json_integer_value(json_object_get(difference, "suspicion"));
        CHECK(suspicion >= 1 && suspicion <= last);
        CHECK(strlen(text_of(difference, "why")) > 0);
        CHECK(strlen(text_of(difference, "what")) > 0);
        last = suspicion;
    }
    json_decref(list);
}

TEST(shape_of_a_difference)
{
    json_t *list = diff(side(libraries_a, python_a), side(libraries_b, python_b), NULL);
    const json_t *one = row(list, "python.torch.threads");
    CHECK_STR(text_of(one, "a"), "1");
    CHECK_STR(text_of(one, "b"), "2");
    CHECK_STR(text_of(one, "state"), "changed");
    one = row(list, "python.torch.mha_fastpath");
    CHECK(json_is_null(json_object_get(one, "a")));
    CHECK_STR(text_of(one, "b"), "yes");
    CHECK_STR(text_of(one, "state"), "added");
    CHECK_STR(text_of(one, "reason_a"), "not in this version: no mha");
    one = row(list, "libraries.other.libonly_a");
    CHECK_STR(text_of(one, "state"), "removed");
    CHECK_STR(text_of(row(list, "libraries.other.libz"), "a"), "1.2.13, build aa04");
    one = row(list, "python.torch.build.cxx_flags"); // only the words that differ, without warnings
    CHECK_STR(text_of(one, "a"), "-g");
    CHECK_STR(text_of(one, "b"), "-DX");
    json_decref(list);
}

TEST(libraries_behind_a_named_component_are_implied)
{
    json_t *list = diff(side(libraries_a, python_a), side(libraries_b, python_b), NULL);
    CHECK(json_integer_value(json_object_get(
                  row(list, "libraries.framework.libtorch_cpu"), "suspicion")) < 10);
    CHECK(json_integer_value(
                  json_object_get(row(list, "libraries.blas.libopenblas"), "suspicion")) < 10);
    json_decref(list);
    // The same version, built again: no component differs, and the library itself is the finding.
    static const char rebuilt[] = "[[\"/usr/lib/libopenblas.so.0\",\"0.3.21\",\"ffff\"]]";
    static const char before[] = "[[\"/usr/lib/libopenblas.so.0\",\"0.3.21\",\"aa01\"]]";
    list = diff(side(before, python_a), side(rebuilt, python_a), NULL);
    CHECK_INT(json_array_size(list), 1);
    CHECK_STR(text_of(json_array_get(list, 0), "path"), "libraries.blas.libopenblas");
    CHECK(json_integer_value(json_object_get(json_array_get(list, 0), "suspicion")) > 50);
    json_decref(list);
}

TEST(equal_sides_do_not_differ)
{
    size_t noise_count = 99;
    json_t *list = diff(side(libraries_a, python_a), side(libraries_a, python_a), &noise_count);
    CHECK_INT(json_array_size(list), 0);
    CHECK_INT(noise_count, 0);
    json_decref(list);
}

TEST(pids_and_addresses_are_noise)
{
    json_t *a = side("[]", "{\"torch\":{\"version\":\"2\",\"note\":\"<x at 0x7f12ab>\"}}");
    json_t *b = side("[]", "{\"torch\":{\"version\":\"2\",\"note\":\"<x at 0x7fcc01>\"}}");
    json_object_set_new(json_object_get(b, "process"), "pid", json_integer(1));
    size_t noise_count = 0;
    json_t *list = diff(a, b, &noise_count);
    CHECK_INT(json_array_size(list), 0);
    CHECK_INT(noise_count, 2);
    json_decref(list);
}

// Only what Python prints has addresses: elsewhere 0x begins a value like any other.
TEST(hexadecimal_values_are_no_addresses)
{
    json_t *a = side("[]", NULL), *b = side("[]", NULL);
    json_t *sides[] = {a, b};
    static const char *const microcode[] = {"0x2b000603", "0x2b000620"};
    static const char *const tunables[] = {
            "glibc.malloc.mmap_threshold=0x20000", "glibc.malloc.mmap_threshold=0x2000000"};
    for (int i = 0; i < 2; i++) {
        json_object_set_new(json_object_get(sides[i], "host"), "cpu",
                json_pack("{s:s}", "microcode", microcode[i]));
        json_object_set_new(json_object_get(json_object_get(sides[i], "process"), "environment"),
                "GLIBC_TUNABLES", json_string(tunables[i]));
    }
    json_t *list = diff(a, b, NULL);
    CHECK_INT(json_array_size(list), 2);
    CHECK_STR(text_of(row(list, "host.cpu.microcode"), "b"), "0x2b000620");
    CHECK_STR(text_of(row(list, "process.environment.GLIBC_TUNABLES"), "a"), tunables[0]);
    json_decref(list);
}

// torchrun gives each launch an id and a file for its errors: two launches of one side do not
// differ by them.
TEST(what_torchrun_draws_for_a_launch_is_noise)
{
    json_t *a = side("[]", NULL), *b = side("[]", NULL);
    json_t *sides[] = {a, b};
    for (int i = 0; i < 2; i++) {
        json_t *environment = json_object_get(json_object_get(sides[i], "process"), "environment");
        json_object_set_new(environment, "TORCHELASTIC_RUN_ID", json_string(i ? "5d1b" : "9c02"));
        json_object_set_new(environment, "TORCHELASTIC_ERROR_FILE",
                json_string(i ? "/tmp/x/error.json" : "/tmp/y/error.json"));
    }
    size_t noise_count = 0;
    json_t *list = diff(a, b, &noise_count);
    CHECK_INT(json_array_size(list), 0);
    CHECK_INT(noise_count, 2);
    json_decref(list);
}

TEST(a_side_without_python)
{
    json_t *list = diff(side("[]", NULL), side("[]", python_b), NULL);
    CHECK_INT(rank(list, "components.torch"), 1);
    CHECK(row(list, "components.interpreter") != NULL);
    CHECK(!row(list, "python.torch.threads")); // not every leaf of a part that is not there
    json_decref(list);
}

TEST(settings_of_the_run_outrank_packages)
{
    json_t *a = side("[]", python_a), *b = side("[]", python_a);
    json_object_set_new(json_object_get(json_object_get(b, "process"), "environment"),
            "OMP_NUM_THREADS", json_string("8"));
    json_object_set_new(
            json_object_get(json_object_get(b, "host"), "memory"), "swappiness", json_integer(1));
    json_object_set_new(
            json_object_get(json_object_get(b, "python"), "packages"), "sympy", json_string("2"));
    json_t *list = diff(a, b, NULL);
    CHECK_INT(json_array_size(list), 3);
    CHECK_INT(rank(list, "process.environment.OMP_NUM_THREADS"), 1);
    CHECK_INT(rank(list, "host.memory.swappiness"), 2);
    CHECK_INT(rank(list, "python.packages.sympy"), 3);
    CHECK_STR(text_of(json_array_get(list, 0), "what"), "OMP_NUM_THREADS");
    json_decref(list);
}

TEST(environment_that_the_program_changed)
{
    json_t *b = side("[]",
            "{\"environment_changes\":{\"OMP_NUM_THREADS\":\"4\",\"HOME\":\"/"
            "x\",\"TORCH_TOKEN\":\"abc\","
            "\"MKL_X\":\"1\"}}");
    const json_t *process = json_object_get(b, "process"),
                 *environment = json_object_get(process, "environment");
    CHECK_STR(text_of(environment, "OMP_NUM_THREADS"), "4");
    CHECK_STR(text_of(environment, "MKL_X"), "1");
    CHECK_STR(text_of(environment, "TORCH_TOKEN"), "[redacted]");
    CHECK(!json_object_get(environment, "HOME"));
    CHECK_INT(json_array_size(json_object_get(process, "environment_set_by_program")), 3);
    char *dump = json_dumps(b, 0);
    CHECK(!strstr(dump, "abc"));
    CHECK(!strstr(dump, "environment_changes"));
    free(dump);
    json_decref(b);
    b = side("[]", "{\"environment_changes\":{\"OMP_NUM_THREADS\":null}}");
    CHECK_INT(json_object_size(json_object_get(json_object_get(b, "process"), "environment")), 0);
    json_decref(b);
}

// Python tells a set, in an order of its own in every process.
TEST(the_order_of_what_the_program_set_is_none)
{
    json_t *list = diff(
            side("[]",
                    "{\"environment_changes\":{\"OMP_X\":\"1\",\"MKL_X\":\"2\",\"NCCL_X\":\"3\"}}"),
            side("[]",
                    "{\"environment_changes\":{\"NCCL_X\":\"3\",\"OMP_X\":\"1\",\"MKL_X\":\"2\"}}"),
            NULL);
    CHECK_INT(json_array_size(list), 0);
    json_decref(list);
}

TEST(packages_give_cuda_libraries_their_version)
{
    json_t *b = side("[[\"/v/site-packages/nvidia/cudnn/lib/libcudnn.so.9\",null,\"cc\"]]",
            "{\"packages\":{\"nvidia-cudnn-cu12\":\"9.10.2.21\",\"nvidia-cublas-cu12\":\"12.8\"}}");
    const json_t *library =
            json_array_get(json_object_get(json_object_get(b, "process"), "libraries"), 0);
    CHECK_STR(text_of(library, "version"), "9.10.2.21");
    CHECK_STR(text_of(library, "version_source"), "package");
    json_decref(b);
}

// What lies among the packages of another environment, or in the wheel of torch, has not the
// version of a package beside it.
TEST(a_library_from_elsewhere_has_no_package_here)
{
    json_t *b = side("[[\"/o/site-packages/nvidia/cudnn/lib/libcudnn.so.9\",null,\"cc\"],"
                     " [\"/v/site-packages/torch/lib/libnvrtc.so.12\",null,\"dd\"]]",
            "{\"interpreter\":{\"foreign_libraries\":[\"/o/site-packages/nvidia/cudnn/lib/libcudnn.so.9\"]},"
            " \"packages\":{\"nvidia-cudnn-cu12\":\"9.10.2.21\",\"nvidia-cuda-nvrtc-cu12\":\"12.8\"}}");
    const json_t *libraries = json_object_get(json_object_get(b, "process"), "libraries"),
                 *components = json_object_get(b, "components");
    CHECK(json_is_null(json_object_get(json_array_get(libraries, 0), "version")));
    CHECK(json_is_null(json_object_get(json_array_get(libraries, 1), "version")));
    CHECK_STR(text_of(components, "cudnn"), "cuDNN (of another environment)");
    CHECK_STR(text_of(components, "cuda_other"), "NVRTC (torch's own)");
    json_decref(b);
}

// Where no file and no package tells the version, torch does; and where torch holds it itself.
TEST(cudnn_inside_torch)
{
    static const struct {
        const char *libraries, *number, *want;
    } cases[] = {{"[]", "8907", "cuDNN 8.9.7 (inside torch)"},
            {"[[\"/v/site-packages/torch/lib/libcudnn.so.9\",null,\"cc\"]]", "91002",
                    "cuDNN 9.10.2 (torch's own)"},
            {"[[\"/usr/lib/libcudnn.so.9.1.0\",\"9.1.0\",\"cc\"]]", "90100", "cuDNN 9.1.0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *python = xasprintf(
                "{\"torch\":{\"version\":\"2\",\"cuda\":{\"cudnn_version\":%s}}}", cases[i].number);
        json_t *one = side(cases[i].libraries, python);
        CHECK_STR(text_of(json_object_get(one, "components"), "cudnn"), cases[i].want);
        json_decref(one);
        free(python);
    }
}

// The same version of a package that is worked on, of two commits: not among what rarely matters.
TEST(an_editable_package_is_looked_at)
{
    json_t *list = diff(
            side("[]",
                    "{\"packages\":{\"mine\":\"1.0 (editable, commit 1111)\",\"other\":\"1\",\"gone\":\"1\"}}"),
            side("[]", "{\"packages\":{\"mine\":\"1.0 (editable, commit 2222)\",\"other\":\"2\"}}"),
            NULL);
    CHECK_INT(rank(list, "python.packages.mine"), 1);
    CHECK(json_integer_value(json_object_get(row(list, "python.packages.mine"), "suspicion")) > 50);
    CHECK(json_integer_value(json_object_get(row(list, "python.packages.other"), "suspicion")) <
            20);
    json_decref(list);
}

TEST(other_documents_are_refused)
{
    json_t *a = side("[]", NULL), *newer = parse("{\"schema\":\"upgate.fingerprint/2\"}"),
           *none = json_object();
    json_t *list = NULL;
    struct error err = {0};
    CHECK_INT(fingerprint_diff(a, newer, &list, NULL, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "the candidate is 'upgate.fingerprint/2'");
    CHECK_INT(fingerprint_diff(none, a, &list, NULL, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "the baseline is no fingerprint");
    CHECK_INT(fingerprint_diff(NULL, a, &list, NULL, &err), -EINVAL);
    CHECK(list == NULL);
    json_decref(a);
    json_decref(newer);
    json_decref(none);
}

TEST(merging_nothing_gives_a_document)
{
    json_t *document = fingerprint_merge(NULL, NULL);
    CHECK_STR(text_of(document, "schema"), FINGERPRINT_SCHEMA);
    CHECK(json_is_null(json_object_get(document, "process")));
    CHECK(json_is_null(json_object_get(document, "python")));
    json_decref(document);
}

TEST(the_table_of_rules)
{
    int order = -1, last = -1;
    const struct diff_rule *rule = diff_rule_for("something.nobody.thought.of", &last);
    CHECK_STR(rule->pattern, "*");
    CHECK_STR(diff_rule_for("components.torch", &order)->what, "torch");
    CHECK_INT(order, 0);
    CHECK_INT(diff_rule_for("process.pid", &order)->changed, 0);
    CHECK_INT(diff_rule_for("process.environment.UPGATE_STEPS", &order)->changed, 0);
    CHECK(diff_rule_for("process.environment.OMP_NUM_THREADS", &order)->changed > 85);
    // torch sets it itself
    CHECK(diff_rule_for("process.environment.TRITON_CACHE_DIR", &order)->one_sided < 20);
    CHECK(diff_rule_for("process.environment.TRITON_PTXAS_PATH", &order)->one_sided > 50);
    CHECK(diff_rule_for("libraries.cudnn.libcudnn", &order)->changed > 60);
    CHECK(order < last);
}

// A fingerprint of a store that was edited: printed as far as it goes.
TEST(the_table_of_a_damaged_fingerprint)
{
    json_t *document =
            json_loads("{\"process\":{\"libraries\":[{},{\"role\":\"cublas\"}]}}", 0, NULL);
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    const struct table_opts opts = {0};
    fingerprint_print(file, document, "x", &opts);
    fclose(file);
    CHECK_CONTAINS(text, "cublas");
    CHECK_CONTAINS(text, "and 1 without a known role");
    free(text);
    json_decref(document);
}

// --- one side, read twice ------------------------------------------------------------------------

static char *changes(json_t *before, json_t *now)
{
    char *text = fingerprint_changes(before, now, true);
    json_decref(before);
    json_decref(now);
    return text;
}

TEST(a_side_that_is_what_it_was)
{
    CHECK(!changes(side(libraries_a, python_a), side(libraries_a, python_a)));
    // Read a little earlier or later: libraries that are not there yet, an interpreter that said
    // nothing, what we put into it ourselves.
    CHECK(!changes(side(libraries_a, python_a),
            side("[[\"/usr/lib/libopenblas.so.0\",\"0.3.21\",\"aa01\"]]", python_a)));
    CHECK(!changes(side(libraries_a, python_a), side(libraries_a, NULL)));
    CHECK(!changes(side("[[\"/x/libupgate_inject.so\",null,\"aa\"]]", NULL),
            side("[[\"/x/libupgate_inject.so\",null,\"bb\"]]", NULL)));
    CHECK(!changes(side("[[\"/x/libz.so.1\",\"1.2\",\"aa\"]]", NULL),
            side("[[\"/x/libz.so.1\",null,\"aa\"]]", NULL)));
    json_t *other = json_pack("{s:s}", "schema", "upgate.fingerprint/99");
    CHECK(!changes(side(libraries_a, python_a), other));
}

// Three copies of one library, of which one was not loaded yet.
TEST(copies_that_come_later)
{
    const char *three =
            "[[\"/a/libgomp.so.1\",\"1.0\",\"aa01\"],[\"/b/libgomp.so.1\",\"1.1\",\"bb01\"],[\"/c/libgomp.so.1\",\"1.2\",\"cc01\"]]";
    const char *two =
            "[[\"/a/libgomp.so.1\",\"1.0\",\"aa01\"],[\"/c/libgomp.so.1\",\"1.2\",\"cc01\"]]";
    const char *other =
            "[[\"/a/libgomp.so.1\",\"1.0\",\"aa01\"],[\"/c/libgomp.so.1\",\"1.3\",\"dd01\"]]";
    CHECK(!changes(side(three, NULL), side(two, NULL)));
    CHECK(!changes(side(two, NULL), side(three, NULL)));
    char *text = changes(side(three, NULL), side(other, NULL));
    CHECK_CONTAINS(text, "libgomp");
    free(text);
}

// Another workload of the side has its own libraries; its packages are the side's.
TEST(another_program_of_a_side)
{
    json_t *before = side(libraries_a, python_a), *now = side(libraries_b, python_a);
    char *text = fingerprint_changes(before, now, true);
    CHECK(text);
    free(text);
    CHECK(!fingerprint_changes(before, now, false));
    json_decref(now);
    now = side(libraries_a, python_b);
    text = fingerprint_changes(before, now, false);
    CHECK_CONTAINS(text, "package sympy is 1.14, was 1.11");
    free(text);
    json_decref(now);
    json_decref(before);
}

TEST(a_side_that_was_upgraded_meanwhile)
{
    char *text = changes(side(libraries_a, python_a), side(libraries_b, python_b));
    CHECK_CONTAINS(text, "torch is 2.13.0, was 1.13.0");
    CHECK_CONTAINS(text, "package sympy is 1.14, was 1.11");
    CHECK(!strstr(text, "threads")); // a setting
    free(text);
    text = changes(side("[[\"/x/libz.so.1\",\"1.2\",\"aa\"]]", NULL),
            side("[[\"/x/libz.so.1\",\"1.2\",\"bb\"]]", NULL));
    CHECK_STR(text, "library libz is 1.2, build bb, was 1.2, build aa");
    free(text);
    static const char with[] =
            "{\"interpreter\":{\"implementation\":\"CPython\",\"version\":\"3.11.2\"},\"packages\":{\"a\":\"1\",\"b\":\"1\"}}";
    static const char without[] =
            "{\"interpreter\":{\"implementation\":\"CPython\",\"version\":\"3.12.0\"},\"packages\":{\"a\":\"1\"}}";
    text = changes(side("[]", with), side("[]", without));
    CHECK_CONTAINS(text, "Python is CPython 3.12.0, was CPython 3.11.2");
    CHECK_CONTAINS(text, "package b is not there, was 1");
    free(text);
    json_t *before = side("[]", NULL), *now = side("[]", NULL);
    json_object_set_new(
            json_object_get(before, "host"), "gpu", json_pack("{s:s}", "driver", "535.54"));
    json_object_set_new(
            json_object_get(now, "host"), "gpu", json_pack("{s:s}", "driver", "570.86"));
    text = changes(before, now);
    CHECK_STR(text, "NVIDIA driver is 570.86, was 535.54");
    free(text);
}

TEST(another_build_of_the_program)
{
    static const char *const programs[][2] = {{"dlrm", "aa"}, {"dlrm", "bb"}, {"sh", "cc"}};
    for (int i = 0; i < 3; i++) {
        json_t *before = side("[]", NULL), *now = side("[]", NULL);
        json_object_set_new(json_object_get(before, "process"), "exe",
                json_pack("{s:s,s:s}", "key", "dlrm", "build_id", "aa"));
        json_object_set_new(json_object_get(now, "process"), "exe",
                json_pack("{s:s,s:s}", "key", programs[i][0], "build_id", programs[i][1]));
        char *text = changes(before, now);
        CHECK_INT(text != NULL, i == 1); // a shell has not become the program yet
        if (text)
            CHECK_STR(text, "program is dlrm, build bb, was dlrm, build aa");
        free(text);
    }
}

// Nodes have other machines, and their sides are the same all the same; or not.
TEST(a_side_on_two_nodes)
{
    static const char host[] = "{s:{s:s, s:[{s:s, s:s}]}}";
    json_t *first = side(libraries_a, python_a), *other = side(libraries_a, python_a);
    json_object_set_new(first, "host",
            json_pack(host, "gpu", "driver", "535.1", "devices", "name", "H100", "uuid", "GPU-1"));
    json_object_set_new(other, "host",
            json_pack(host, "gpu", "driver", "550.2", "devices", "name", "H200", "uuid", "GPU-2"));
    CHECK(!fingerprint_apart(first, other, true));
    json_object_set_new(first, "image", json_pack("{s:s}", "id", "sha256:aa"));
    json_object_set_new(other, "image", json_pack("{s:s}", "id", "sha256:aa"));
    CHECK(!fingerprint_apart(first, other, true));
    json_object_set_new(other, "image", json_pack("{s:s}", "id", "sha256:bb"));
    char *text = fingerprint_apart(first, other, true);
    CHECK_STR(text, "its image is sha256:bb, on node 0 sha256:aa");
    free(text);
    json_decref(other);
    other = side(libraries_a, python_b);
    text = fingerprint_apart(first, other, true);
    CHECK_CONTAINS(text, "package sympy is 1.14, on node 0 1.11");
    free(text);
    CHECK(json_object_get(first, "host") && json_object_get(first, "image")); // as they were
    json_decref(first);
    json_decref(other);
}
