// SPDX-License-Identifier: Apache-2.0
// The only file that calls MPI.
#include "harness/mpi/team.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

enum { TEAM_TAG_SIZE = 1, TEAM_TAG_BYTES };

void team_join(struct team *ret)
{
    int provided;
    // other threads reduce shards, and call nothing of MPI
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    *ret = (struct team){0};
    MPI_Comm_rank(MPI_COMM_WORLD, &ret->number);
    MPI_Comm_size(MPI_COMM_WORLD, &ret->count);
    gethostname(ret->host, sizeof ret->host - 1);
    string_make_plain(ret->host, strlen(ret->host));
}

void team_leave(void)
{
    MPI_Finalize();
}

int team_agree(const struct team *team, enum team_whose whose, int rc, struct error *err)
{
    int own = rc ? team->number : INT_MAX, first = INT_MAX;
    MPI_Allreduce(&own, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == INT_MAX)
        return 0;
    if (first == team->number && whose == TEAM_OF_PROCESS && team->count > 1)
        error_prefix(err, "process %d of %d, on '%s'", team->number, team->count, team->host);
    if (first == team->number)
        err->code = rc;
    MPI_Bcast(err, (int)sizeof *err, MPI_BYTE, first, MPI_COMM_WORLD);
    err->text[sizeof err->text - 1] = '\0';
    err->code = err->code < 0 ? err->code : -EIO;
    return err->code;
}

int team_tell_number(int number)
{
    MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return number;
}

// --- messages ------------------------------------------------------------------------------------

// Room for what another process says that it will send. NULL: none.
static char *team_room(uint64_t size, struct error *err, int *ret_rc)
{
    char *room = size <= TEAM_BYTES_MAX ? malloc((size_t)size + 1) : NULL;
    *ret_rc = 0;
    if (size > TEAM_BYTES_MAX)
        *ret_rc = error_set(err, -EBADMSG,
                "another process would send %llu bytes, and a message has %d at most",
                (unsigned long long)size, (int)TEAM_BYTES_MAX);
    else if (!room)
        *ret_rc =
                error_set(err, -ENOMEM, "out of memory: %llu bytes of another process have no room",
                        (unsigned long long)size);
    return room;
}

static int team_fits(const struct strbuf *bytes, struct error *err)
{
    return bytes->len <= TEAM_BYTES_MAX
            ? 0
            : error_set(err, -E2BIG,
                      "%zu bytes would be sent to another process, and a message has %d at most",
                      bytes->len, (int)TEAM_BYTES_MAX);
}

int team_tell(const struct team *team, struct strbuf *bytes, struct error *err)
{
    uint64_t size = bytes->len;
    char *room = NULL;
    bool tells = team->number == 0;
    int rc = team_agree(team, TEAM_OF_PROCESS, tells ? team_fits(bytes, err) : 0, err);
    if (rc)
        return rc;
    MPI_Bcast(&size, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (!tells)
        room = team_room(size, err, &rc);
    rc = team_agree(team, TEAM_OF_PROCESS, rc, err);
    if (rc == 0)
        MPI_Bcast(tells ? bytes->text : room, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rc == 0 && !tells) {
        strbuf_free(bytes);
        strbuf_add_bytes(bytes, room, (size_t)size);
    }
    free(room);
    return rc;
}

// --- the tree ------------------------------------------------------------------------------------

struct team_step {
    int to, from;      // -1: nobody
    struct strbuf out; // for to
    uint64_t size;
    char *in; // of from
};

// The size goes first: where it has no room, nobody sends the rest.
static int team_step_size(const struct team *team, const struct team_sum *sum,
        struct team_step *step, struct error *err)
{
    int rc = step->to >= 0 ? sum->give(sum->arg, &step->out, err) : 0;
    if (rc == 0 && step->to >= 0)
        rc = team_fits(&step->out, err);
    rc = team_agree(team, TEAM_OF_PROCESS, rc, err);
    if (rc)
        return rc;
    if (step->to >= 0) {
        step->size = step->out.len;
        MPI_Send(&step->size, 1, MPI_UINT64_T, step->to, TEAM_TAG_SIZE, MPI_COMM_WORLD);
    } else if (step->from >= 0) {
        MPI_Recv(&step->size, 1, MPI_UINT64_T, step->from, TEAM_TAG_SIZE, MPI_COMM_WORLD,
                MPI_STATUS_IGNORE);
        step->in = team_room(step->size, err, &rc);
    }
    return team_agree(team, TEAM_OF_PROCESS, rc, err);
}

static int team_step_bytes(const struct team *team, const struct team_sum *sum,
        struct team_step *step, struct error *err)
{
    int rc = 0;
    if (step->to >= 0) {
        MPI_Send(step->out.text, (int)step->size, MPI_BYTE, step->to, TEAM_TAG_BYTES,
                MPI_COMM_WORLD);
    } else if (step->from >= 0) {
        MPI_Status status;
        int received = 0;
        MPI_Recv(step->in, (int)step->size, MPI_BYTE, step->from, TEAM_TAG_BYTES, MPI_COMM_WORLD,
                &status);
        MPI_Get_count(&status, MPI_BYTE, &received);
        if (received < 0 || (uint64_t)received != step->size)
            rc = error_set(err, -EBADMSG, "process %d sent %d bytes instead of %llu", step->from,
                    received, (unsigned long long)step->size);
        else
            rc = sum->take(sum->arg, step->in, (size_t)step->size, step->from, err);
    }
    return team_agree(team, TEAM_OF_PROCESS, rc, err);
}

int team_add(const struct team *team, const struct team_sum *sum, struct error *err)
{
    int rc = 0;
    for (int width = 1; width < team->count && rc == 0;
            width = width > INT_MAX / 2 ? INT_MAX : 2 * width) {
        struct team_step step = {.to = -1, .from = -1};
        if (team->number / width % 2 && team->number % width == 0)
            step.to = team->number - width;
        else if (team->number / width % 2 == 0 && team->number % width == 0 &&
                width < team->count - team->number)
            step.from = team->number + width;
        rc = team_step_size(team, sum, &step, err);
        if (rc == 0)
            rc = team_step_bytes(team, sum, &step, err);
        strbuf_free(&step.out);
        free(step.in);
    }
    return rc;
}
