// SPDX-License-Identifier: Apache-2.0
// aotinductor-native: serves a package of AOTInductor by the side's own libtorch, without Python.
// aoti_native.py compiles this file against that torch (2.6 on), prepares the directory, and
// becomes this program in the same process.
//
//     aotinductor-native DIRECTORY
//
// The directory holds model.pt2, the package; launch.txt, what is to be done; data.bin, the values
// of the tensors that launch.txt names, each at a multiple of 64 bytes; result.json, the line for
// stdout as far as it is known. The scores of the first request are held against those of the eager
// model, then requests are served and marked by the step protocol. One thread marks them. The
// directory is removed at the end, whatever the end is.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "contracts/upgate_step.h"

// libtorch of some versions unpacks a package into a directory of its own in /tmp, whatever TMPDIR
// says, and a killed process leaves it there. Here it is below the working directory, which the
// next launch removes: the path is written where that of the caller stands, and so has the same
// length.
extern "C" char *mkdtemp(char *pattern) noexcept
{
    using function = char *(*)(char *);
    static const function next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "mkdtemp"));
    if (strncmp(pattern, "/tmp/", 5) == 0 && !strchr(pattern + 5, '/') && access(".tmp", F_OK) == 0)
        pattern[0] = '.';
    if (!next) {
        errno = ENOSYS;
        return nullptr;
    }
    return next(pattern);
}

namespace
{

constexpr uint64_t recorded_outputs = 8; // as common.py has it
constexpr size_t align_bytes = 64;       // as aoti_native.py has it

[[noreturn]] void fail(const std::string &what)
{
    throw std::runtime_error(what);
}

// Removes a directory that is one of ours, with whatever is in it.
class Directory
{
  public:
    explicit Directory(const char *path) : path_(std::filesystem::absolute(path).string())
    {
    }
    Directory(const Directory &) = delete;
    Directory &operator=(const Directory &) = delete;
    ~Directory()
    {
        std::error_code ignored;
        if (ours_)
            std::filesystem::remove_all(path_, ignored);
    }
    const std::string &path() const
    {
        return path_;
    }
    void take()
    {
        ours_ = true;
    }

  private:
    std::string path_;
    bool ours_ = false;
};

// launch.txt: words in a fixed order, a key before each value.
class Words
{
  public:
    explicit Words(const char *path) : path_(path), file_(path)
    {
        if (!file_)
            fail("failed to open '" + path_ + "'");
    }

    void expect(const char *key)
    {
        const std::string word = next<std::string>();
        if (word != key)
            fail("'" + path_ + "': '" + key + "' expected, not '" + word + "'");
    }

    template <typename T> T next()
    {
        T value{};
        if (!(file_ >> value))
            fail("'" + path_ + "' is cut off, or a number in it is none");
        return value;
    }

    template <typename T> T value(const char *key)
    {
        expect(key);
        return next<T>();
    }

  private:
    std::string path_;
    std::ifstream file_;
};

std::vector<char> read_file(const char *path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file)
        fail(std::string("failed to open '") + path + "'");
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (file.bad())
        fail(std::string("failed to read '") + path + "'");
    return bytes;
}

at::ScalarType dtype_of(const std::string &name)
{
    if (name == "float32")
        return at::kFloat;
    if (name == "float64")
        return at::kDouble;
    if (name == "int64")
        return at::kLong;
    if (name == "int32")
        return at::kInt;
    if (name == "bool")
        return at::kBool;
    fail("inputs of type " + name + " are not served");
}

// The values of data.bin, in the order in which launch.txt names them.
class Values
{
  public:
    explicit Values(const char *path) : bytes_(read_file(path))
    {
    }

    // The next tensor, with memory of its own on the host.
    at::Tensor take(Words &words)
    {
        const at::ScalarType dtype = dtype_of(words.value<std::string>("tensor"));
        std::vector<int64_t> sizes(words.next<size_t>());
        size_t length = c10::elementSize(dtype);
        for (int64_t &size : sizes) {
            size = words.next<int64_t>();
            length *= static_cast<size_t>(size);
        }
        if (length > bytes_.size() || offset_ > bytes_.size() - length)
            fail("'data.bin' is cut off");
        at::Tensor value =
                at::from_blob(bytes_.data() + offset_, sizes, at::TensorOptions().dtype(dtype))
                        .clone();
        offset_ += (length + align_bytes - 1) / align_bytes * align_bytes;
        return value;
    }

  private:
    std::vector<char> bytes_;
    size_t offset_ = 0;
};

using Batch = std::vector<at::Tensor>;

struct Launch {
    std::string model, result;
    bool cuda = false, last = false; // last: the answer is the last place of dimension 1
    bool tf32 = false, benchmark = false;
    int threads = 1;
    uint64_t steps = 0, seed = 0;
    double rate = 0, samples = 0, limit = 0, compile_ns = 0;
    at::Tensor scores; // of the eager model, for the first batch
    std::vector<Batch> batches;
};

Launch read_launch(Directory &directory)
{
    Words words("launch.txt");
    Launch launch;
    words.expect("upgate-aoti");
    if (words.next<int>() != 1)
        fail("'launch.txt' is of another version");
    directory.take();
    launch.model = words.value<std::string>("model");
    launch.cuda = words.value<std::string>("device") == "cuda";
    launch.threads = words.value<int>("threads");
    launch.tf32 = words.value<int>("tf32") != 0;
    launch.benchmark = words.value<int>("benchmark") != 0;
    launch.steps = words.value<uint64_t>("steps");
    launch.seed = words.value<uint64_t>("seed");
    launch.rate = words.value<double>("rate");
    launch.samples = words.value<double>("samples");
    launch.last = words.value<int>("last") != 0;
    launch.limit = words.value<double>("limit");
    launch.compile_ns = words.value<double>("compile_ns");
    Values values("data.bin");
    words.expect("scores");
    launch.scores = values.take(words);
    launch.batches.resize(words.value<size_t>("batches"));
    for (Batch &batch : launch.batches) {
        batch.resize(words.value<size_t>("inputs"));
        for (at::Tensor &input : batch) {
            input = values.take(words);
            if (launch.cuda)
                input = input.pin_memory(); // a GPU fetches from there by itself
        }
    }
    words.expect("end");
    if (launch.batches.empty())
        fail("'launch.txt' has no requests");
    const std::vector<char> result = read_file("result.json");
    launch.result.assign(result.begin(), result.end());
    return launch;
}

// A request's inputs where the model is.
Batch inputs_of(const Launch &launch, uint64_t step)
{
    Batch inputs = launch.batches[step % launch.batches.size()];
    if (launch.cuda)
        for (at::Tensor &input : inputs)
            input = input.to(at::TensorOptions().device(at::kCUDA), /*non_blocking=*/true);
    return inputs;
}

at::Tensor scores_of(torch::inductor::AOTIModelPackageLoader &loader, Batch &inputs)
{
    std::vector<at::Tensor> outputs = loader.run(inputs);
    if (outputs.size() != 1)
        fail("the package gives " + std::to_string(outputs.size()) +
                " tensors, not the scores alone");
    return outputs[0];
}

// What a client gets, in host memory; waits for the device.
at::Tensor answer_of(const Launch &launch, const at::Tensor &scores)
{
    return (launch.last ? scores.select(1, -1) : scores).contiguous().cpu();
}

// How far the package's scores of the first request are off the eager model's, in units of their
// rms; NaN where either has one.
double serve_error(const Launch &launch, torch::inductor::AOTIModelPackageLoader &loader)
{
    Batch inputs = inputs_of(launch, 0);
    const at::Tensor served = scores_of(loader, inputs).cpu().to(at::kDouble).contiguous();
    const at::Tensor eager = launch.scores.to(at::kDouble).contiguous();
    if (served.sizes() != eager.sizes())
        fail("the scores of the package have another shape than those of the eager model");
    const double *a = static_cast<const double *>(served.data_ptr()),
                 *b = static_cast<const double *>(eager.data_ptr());
    double off = 0, sum = 0;
    for (int64_t i = 0; i < eager.numel(); i++) {
        off += (a[i] - b[i]) * (a[i] - b[i]);
        sum += b[i] * b[i];
    }
    return std::sqrt(off / (sum == 0 ? static_cast<double>(eager.numel()) : sum));
}

bool scores_are_right(const Launch &launch, torch::inductor::AOTIModelPackageLoader &loader)
{
    const double error = serve_error(launch, loader);
    ug_step_note(
            "serve_error_ppb", error == error ? std::floor(std::min(error, 1e6) * 1e9) : 0x1p60);
    if (error <= launch.limit)
        return true;
    fprintf(stderr,
            "%s: the scores of the serving graph (aotinductor-native) are %.2g of their rms off those of the training graph; at most %g\n",
            launch.model.c_str(), error, launch.limit);
    return false;
}

enum ug_dtype step_dtype_of(at::ScalarType dtype)
{
    switch (dtype) {
    case at::kFloat:
        return UG_DTYPE_FLOAT32;
    case at::kDouble:
        return UG_DTYPE_FLOAT64;
    case at::kHalf:
        return UG_DTYPE_FLOAT16;
    case at::kBFloat16:
        return UG_DTYPE_BFLOAT16;
    default:
        fail("scores of this type have no place in the step protocol");
    }
}

// Returns how long it took, as a person counts it.
int64_t serve_request(
        const Launch &launch, torch::inductor::AOTIModelPackageLoader &loader, uint64_t step)
{
    if (launch.rate > 0)
        ug_request_begin();
    else
        ug_step_begin();
    const uint64_t begin_ns = ug_impl_now_ns();
    ug_step_phase_begin("data");
    Batch inputs = inputs_of(launch, step);
    ug_step_phase_end();
    ug_step_phase_begin("forward");
    const at::Tensor answer = answer_of(launch, scores_of(loader, inputs));
    ug_step_phase_end();
    if (step < recorded_outputs)
        ug_step_tensor("output", step_dtype_of(answer.scalar_type()), answer.data_ptr(),
                static_cast<uint64_t>(answer.numel()));
    const uint64_t end_ns = ug_impl_now_ns();
    ug_step_end(launch.samples);
    return static_cast<int64_t>(end_ns - begin_ns);
}

// The defaults that the Python program has set.
void set_up(const Launch &launch, const std::string &path)
{
    if (mkdir(".tmp", 0700) != 0)
        fail(std::string("failed to make '.tmp': ") + strerror(errno));
    setenv("TMPDIR", (path + "/.tmp").c_str(), 1);
    at::set_num_threads(launch.threads);
    if (launch.cuda) {
        at::globalContext().setAllowTF32CuBLAS(launch.tf32);
        at::globalContext().setBenchmarkCuDNN(launch.benchmark);
    }
}

int serve(Directory &directory)
{
    if (chdir(directory.path().c_str()) != 0)
        fail("failed to enter '" + directory.path() + "': " + strerror(errno));
    const c10::InferenceMode inference;
    const Launch launch = read_launch(directory);
    set_up(launch, directory.path());
    torch::inductor::AOTIModelPackageLoader loader("model.pt2");
    ug_step_note("compile_time_ns", launch.compile_ns);
    if (!scores_are_right(launch, loader))
        return 1;
    if (launch.rate > 0)
        ug_request_schedule(launch.rate, launch.seed);
    std::vector<int64_t> times;
    times.reserve(launch.steps);
    for (uint64_t step = 0; step < launch.steps; step++)
        times.push_back(serve_request(launch, loader, step));
    const int64_t first_ns = times.at(0);
    std::sort(times.begin(), times.end());
    printf("%s, \"first_step_ns\": %" PRId64 ", \"median_step_ns\": %" PRId64 "}\n",
            launch.result.c_str(), first_ns, times[times.size() / 2]);
    if (fflush(stdout) != 0)
        fail("failed to write the result to stdout");
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: aotinductor-native DIRECTORY, as the variant of this name prepares it\n",
                stderr);
        return 2;
    }
    try {
        Directory directory(argv[1]);
        return serve(directory);
    } catch (const std::exception &error) {
        fprintf(stderr, "aotinductor-native: %s\n", error.what());
    }
    return 1;
}
