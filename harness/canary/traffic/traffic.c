// SPDX-License-Identifier: Apache-2.0
// The plan's way to shift traffic, behind one face.
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/canary/traffic/traffic_internal.h"

int traffic_open(
        const struct rollout *rollout, bool back, struct traffic **ret_traffic, struct error *err)
{
    static const struct traffic_ops *const ops[] = {
            [ROLLOUT_HAPROXY] = &traffic_haproxy_ops,
            [ROLLOUT_HOOKS] = &traffic_hooks_ops,
    };
    struct traffic *traffic = xcalloc(1, sizeof *traffic);
    *traffic = (struct traffic){
            .ops = ops[rollout->traffic.kind], .rollout = rollout, .plan = &rollout->traffic};
    int rc = traffic->ops->open(traffic, back, err);
    if (rc)
        traffic_close(traffic);
    else
        *ret_traffic = traffic;
    return rc;
}

void traffic_close(struct traffic *traffic)
{
    if (!traffic)
        return;
    traffic->ops->close(traffic);
    free(traffic);
}

static int traffic_check(double percent, struct error *err)
{
    return percent >= 0 && percent <= 100
            ? 0
            : error_set(err, -EINVAL, "a share of traffic is 0 to 100 %%, not %g %%", percent);
}

int traffic_set(struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    int rc = traffic_check(percent, err);
    return rc ? rc : traffic->ops->set(traffic, percent, ret_percent, err);
}

int traffic_set_aa(struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    int rc = traffic_check(percent, err);
    return rc ? rc : traffic->ops->set_aa(traffic, percent, ret_percent, err);
}

int traffic_get(struct traffic *traffic, double *ret_percent, struct error *err)
{
    return traffic->ops->get(traffic, ret_percent, err);
}

const char *traffic_began_anew(const struct traffic *traffic)
{
    return traffic->ops->began_anew ? traffic->ops->began_anew(traffic) : NULL;
}

int64_t traffic_age_ns(const struct traffic *traffic)
{
    return traffic->ops->age_ns ? traffic->ops->age_ns(traffic) : -1;
}

int traffic_look(
        struct traffic *traffic, struct traffic_arm ret_arms[CANARY_ARMS], struct error *err)
{
    return traffic->ops->look(traffic, ret_arms, err);
}

int traffic_drain(struct traffic *traffic, enum canary_arm arm, int64_t deadline_ns,
        uint64_t *ret_left, struct error *err)
{
    return traffic->ops->drain(traffic, arm, deadline_ns, ret_left, err);
}
