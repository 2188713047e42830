// SPDX-License-Identifier: Apache-2.0
// A training job of equal steps to which anything can be done: what ci/plants --verdicts judges the
// gate with. A step burns a fixed CPU time and says a loss; every 100th has outputs. One thread,
// the step protocol and nothing else, so that what differs between two sides is what $PLANT says:
//
//     PLANT=every=250,add=250ms verdict_steps --steps 400 --seed 7
//
// Words of $PLANT, joined by commas (durations and shares as units.h reads them):
//   every=N, offset=N, add=TIME, sleep=TIME, pause=TIME   each N-th step takes longer: by work,
//                                             asleep, or after its end
//   cold=TIME                                 each step after a hold takes longer: caches are cold
//   from=SHARE, to=SHARE, times=X             steps in this part of the launch take X times as long
//   spread=SHARE                              each launch has its own speed, with this sd
//   launches=K:K:…                            all words above and below hold in these launches only
//   crash=abort|exit|segv, at=STEP            the launch ends there by its own act
//   outputs=zeros|half|shuffle|sample|rows|reorder|flip
//   loss=nan|inf, at=STEP                     nan: from there on, inf: there only
//   loss_times=X, loss_noise=SHARE            wrong by a factor; by what reordered sums make
// The K-th launch of a side is known from the length of the file $PLANT_COUNT, to which each adds a
// byte.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/units.h"
#include "contracts/upgate_step.h"

enum { STEPS_MEMORY = 32 << 20, STEPS_ROWS = 1000, STEPS_COLUMNS = 4, STEPS_CLASSES = 50000 };
enum { STEPS_HOLD_NS = 3000000 }; // more than a step waits for anything but its turn
enum { STEPS_OUTPUT_EVERY = 100, STEPS_OUTPUT_FIRST = 2, STEPS_LAUNCHES_MAX = 256 };

struct plant {
    int64_t every, offset, add_ns, sleep_ns, cold_ns, pause_ns, at;
    double from, to, times, spread, loss_times, loss_noise;
    const char *crash, *outputs, *loss;
    bool some_launches, launches[STEPS_LAUNCHES_MAX];
};

struct job {
    int64_t steps, work_ns;
    uint64_t seed;
    bool anchor, softmax;
    int launch; // of this side, from 1
    struct plant plant;
};

static void steps_die(const char *what, const char *word)
{
    fprintf(stderr, "verdict_steps: %s '%s'\n", what, word);
    exit(2);
}

// Uniform in [0, 1) of the seed and a place: both sides draw the same.
static double steps_random(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t value = seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u + b * 0x94d049bb133111ebu;
    for (int i = 0; i < 3; i++) {
        value ^= value >> 29;
        value *= 0xbf58476d1ce4e5b9u;
    }
    return (double)(value >> 11) * 0x1p-53;
}

static double steps_normal(uint64_t seed, uint64_t a, uint64_t b)
{
    double sum = 0;
    for (uint64_t i = 0; i < 12; i++)
        sum += steps_random(seed, a, b * 12 + i);
    return sum - 6;
}

// --- the plant -----------------------------------------------------------------------------------

static void plant_launches(struct plant *plant, const char *value)
{
    plant->some_launches = true;
    for (char *end; *value; value = *end ? end + 1 : end) {
        long launch = strtol(value, &end, 10);
        if (end == value || (*end && *end != ':') || launch < 1 || launch >= STEPS_LAUNCHES_MAX)
            steps_die("launches=3:7 are numbers from 1 on, not", value);
        plant->launches[launch] = true;
    }
}

static void plant_word(struct plant *plant, const char *name, const char *value)
{
    const struct {
        const char *name;
        int64_t *ns, *count;
        double *number;
        const char **text;
    } words[] = {{"every", NULL, &plant->every, NULL, NULL},
            {"offset", NULL, &plant->offset, NULL, NULL}, {"at", NULL, &plant->at, NULL, NULL},
            {"add", &plant->add_ns, NULL, NULL, NULL},
            {"sleep", &plant->sleep_ns, NULL, NULL, NULL},
            {"pause", &plant->pause_ns, NULL, NULL, NULL},
            {"cold", &plant->cold_ns, NULL, NULL, NULL}, {"from", NULL, NULL, &plant->from, NULL},
            {"to", NULL, NULL, &plant->to, NULL}, {"times", NULL, NULL, &plant->times, NULL},
            {"spread", NULL, NULL, &plant->spread, NULL},
            {"loss_times", NULL, NULL, &plant->loss_times, NULL},
            {"loss_noise", NULL, NULL, &plant->loss_noise, NULL},
            {"crash", NULL, NULL, NULL, &plant->crash},
            {"outputs", NULL, NULL, NULL, &plant->outputs},
            {"loss", NULL, NULL, NULL, &plant->loss}};
    if (strcmp(name, "launches") == 0) {
        plant_launches(plant, value);
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(name, words[i].name) != 0)
            continue;
        struct error err = {0};
        uint64_t count = 0;
        if (words[i].text)
            *words[i].text = value;
        else if ((words[i].ns && unit_parse_duration(value, words[i].ns, &err)) ||
                (words[i].count && unit_parse_uint(value, 0, 1u << 30, &count, &err)) ||
                (words[i].number && unit_parse_fraction(value, words[i].number, &err)))
            steps_die("PLANT: this is no value:", value);
        if (words[i].count)
            *words[i].count = (int64_t)count;
        return;
    }
    steps_die("PLANT: no such word:", name);
}

static void plant_parse(struct plant *plant, char *text)
{
    char *rest = text;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(word, '=');
        if (!value)
            steps_die("PLANT: NAME=VALUE is needed, not", word);
        *value = 0;
        plant_word(plant, word, value + 1);
    }
}

// Which launch of its side this is; the anchor is none.
static int plant_count(const char *path)
{
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1, launch = 0;
    if (fd < 0)
        return 0;
    if (write(fd, "x", 1) == 1)
        launch = (int)lseek(fd, 0, SEEK_END);
    close(fd);
    return launch;
}

// --- a step --------------------------------------------------------------------------------------

static int64_t steps_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t steps_wall_ns(void)
{
    return steps_clock_ns(CLOCK_MONOTONIC);
}

// CPU time, not wall time: whoever takes the CPU meanwhile makes the step longer, as in real work.
static void steps_work(int64_t ns)
{
    volatile double value = 1; // volatile: the loop stays
    for (int64_t end = steps_clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
            steps_clock_ns(CLOCK_THREAD_CPUTIME_ID) < end;)
        for (int i = 0; i < 500; i++) // some 2 us
            value = value * 1.0000001 + 1e-9;
}

static void steps_sleep(int64_t ns)
{
    struct timespec left = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void steps_crash(const char *how)
{
    if (strcmp(how, "exit") == 0)
        exit(3);
    if (strcmp(how, "segv") == 0)
        raise(SIGSEGV);
    abort();
}

// A falling curve. What the batches differ by is of the seed, as in training: 20 % between seeds.
static double steps_loss(const struct job *job, int64_t step)
{
    const struct plant *plant = &job->plant;
    double loss = (0.3 + 2 * exp(-(double)step / 150)) *
            exp(0.2 * steps_normal(job->seed, 1, (uint64_t)step));
    if (plant->loss && step >= plant->at && strcmp(plant->loss, "nan") == 0)
        return NAN;
    if (plant->loss && step == plant->at && strcmp(plant->loss, "inf") == 0)
        return INFINITY;
    if (plant->loss_noise > 0)
        loss *= 1 +
                plant->loss_noise *
                        steps_normal((uint64_t)getpid(), (uint64_t)job->launch, (uint64_t)step);
    return plant->loss_times > 0 ? loss * plant->loss_times : loss;
}

static bool steps_outputs_are(const struct job *job, const char *what)
{
    return job->plant.outputs && strcmp(job->plant.outputs, what) == 0;
}

static void steps_tensor(const struct job *job, const char *name, const double *values, int count)
{
    float *rounded = calloc((size_t)count, sizeof *rounded);
    if (job->anchor)
        ug_step_tensor(name, UG_DTYPE_FLOAT64, values, (uint64_t)count);
    for (int i = 0; i < count && rounded; i++) // what another order of a sum changes: the last bits
        rounded[i] = (float)(steps_outputs_are(job, "reorder")
                        ? values[i] * (1 + 3e-7 * steps_normal(9, 2, (uint64_t)i))
                        : values[i]);
    if (!job->anchor && rounded)
        ug_step_tensor(name, UG_DTYPE_FLOAT32, rounded, (uint64_t)count);
    free(rounded);
}

// 50,000 classes: values of 2e-5, below what absolute tolerances look at.
static void steps_softmax(const struct job *job, int64_t step)
{
    static double values[STEPS_CLASSES];
    double sum = 0;
    for (int i = 0; i < STEPS_CLASSES; i++)
        sum += values[i] = exp(0.3 * steps_normal(job->seed + (uint64_t)step, 3, (uint64_t)i));
    for (int i = 0; i < STEPS_CLASSES; i++)
        values[i] *= (steps_outputs_are(job, "zeros")                 ? 0
                                     : steps_outputs_are(job, "half") ? 0.5
                                                                      : 1) /
                sum;
    for (int i = 0; i + 1 < STEPS_CLASSES && steps_outputs_are(job, "shuffle"); i += 2) {
        double other = values[i];
        values[i] = values[i + 1];
        values[i + 1] = other;
    }
    steps_tensor(job, "probabilities", values, STEPS_CLASSES);
}

static void steps_outputs(const struct job *job, int64_t step)
{
    double values[STEPS_ROWS * STEPS_COLUMNS];
    int32_t classes[STEPS_ROWS * STEPS_COLUMNS];
    uint64_t seed = job->seed + (uint64_t)step;
    for (int i = 0; i < STEPS_ROWS * STEPS_COLUMNS; i++) {
        // Samples of about the same size, so that each is the same small part of the whole.
        values[i] = (steps_random(seed, 4, (uint64_t)i) < 0.5 ? -1 : 1) *
                (1 + 0.1 * steps_normal(seed, 7, (uint64_t)i));
        classes[i] = (int32_t)(1000 * steps_random(seed, 5, (uint64_t)i));
    }
    for (int k = 0; k < STEPS_COLUMNS; k++) {
        if (steps_outputs_are(job, "sample") && step >= job->plant.at)
            values[321 * STEPS_COLUMNS + k] = steps_normal(job->seed + 1, 6, (uint64_t)k);
        for (int row = 100; row < 104 && steps_outputs_are(job, "rows"); row++)
            values[row * STEPS_COLUMNS + k] *= -1;
    }
    if (steps_outputs_are(job, "flip") && step == STEPS_OUTPUT_FIRST)
        classes[1234]++;
    steps_tensor(job, "logits", values, STEPS_ROWS * STEPS_COLUMNS);
    ug_step_tensor("classes", UG_DTYPE_INT32, classes, STEPS_ROWS * STEPS_COLUMNS);
}

static bool steps_slow(const struct plant *plant, int64_t step)
{
    return plant->every && step % plant->every == plant->offset % plant->every;
}

static void steps_one(const struct job *job, int64_t step, bool cold)
{
    const struct plant *plant = &job->plant;
    int64_t work_ns = job->work_ns;
    if (plant->crash && step == plant->at)
        steps_crash(plant->crash);
    if (plant->times > 0 && (double)step >= plant->from * (double)job->steps &&
            (double)step < (plant->to > 0 ? plant->to : 1) * (double)job->steps)
        work_ns = (int64_t)((double)work_ns * plant->times);
    bool slow = steps_slow(plant, step);
    steps_work(work_ns + (slow ? plant->add_ns : 0) + (cold ? plant->cold_ns : 0));
    if (slow && plant->sleep_ns)
        steps_sleep(plant->sleep_ns);
    ug_step_loss(steps_loss(job, step));
    if (step % STEPS_OUTPUT_EVERY == STEPS_OUTPUT_FIRST) {
        if (job->softmax)
            steps_softmax(job, step);
        else
            steps_outputs(job, step);
    }
}

static void job_arguments(struct job *job, int argc, char **argv)
{
    struct error err = {0};
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t count = 0;
        int rc = 0;
        if (strcmp(argv[i], "--steps") == 0)
            rc = unit_parse_uint(argv[i + 1], 1, 1u << 30, &count, &err);
        else if (strcmp(argv[i], "--seed") == 0)
            rc = unit_parse_uint(argv[i + 1], 0, UINT64_MAX, &job->seed, &err);
        else if (strcmp(argv[i], "--work") == 0)
            rc = unit_parse_duration(argv[i + 1], &job->work_ns, &err);
        else if (strcmp(argv[i], "--dtype") == 0)
            job->anchor = strcmp(argv[i + 1], "float64") == 0;
        else if (strcmp(argv[i], "--outputs") == 0)
            job->softmax = strcmp(argv[i + 1], "softmax") == 0;
        else
            steps_die("no such option:", argv[i]);
        if (rc)
            steps_die(err.text, argv[i + 1]);
        if (count)
            job->steps = (int64_t)count;
    }
}

int main(int argc, char **argv)
{
    struct job job = {.steps = 400, .work_ns = 1000000, .seed = 7};
    char *text = getenv("PLANT");
    job_arguments(&job, argc, argv);
    job.launch = job.anchor ? 0 : plant_count(getenv("PLANT_COUNT"));
    if (text && !job.anchor)
        plant_parse(&job.plant, text);
    if (job.plant.some_launches &&
            (job.launch >= STEPS_LAUNCHES_MAX || !job.plant.launches[job.launch]))
        job.plant = (struct plant){0};
    job.work_ns = (int64_t)((double)job.work_ns *
            exp(job.plant.spread * steps_normal((uint64_t)getpid(), 8, 0)));
    // A peak that a few pages of the C library do not move by the margin of peak_memory.
    volatile char *memory = malloc(STEPS_MEMORY);
    if (!memory)
        steps_die("no memory for", "32 MiB");
    for (int i = 0; i < STEPS_MEMORY; i += 4096)
        memory[i] = 1;
    int64_t ended_ns = steps_wall_ns();
    for (int64_t step = 0; step < job.steps; step++) {
        ug_step_begin();
        steps_one(&job, step, steps_wall_ns() - ended_ns > STEPS_HOLD_NS);
        ug_step_end(32);
        if (steps_slow(&job.plant, step))
            steps_work(job.plant.pause_ns);
        ended_ns = steps_wall_ns();
    }
    free((void *)memory);
    return 0;
}
