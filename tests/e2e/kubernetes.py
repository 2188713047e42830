#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ci/kubernetes: every field is one that the API knows, names fit together, and the traps of Argo Rollouts and Flagger are kept out:
conditions on both sides, limits that still collecting does not pass, hooks on their own paths; every command is one that the
program takes, and the plan one that it reads. No cluster is asked. kubernetes_fields.json has the fields
of the custom resources as their definitions list them (Argo Rollouts 1.9, Flagger 1.44): a name with null is not looked into."""
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(SOURCE, "ci/kubernetes")
UPGATE = os.path.join(os.environ.get("UPGATE_BUILD") or os.path.join(SOURCE, "build/release"), "upgate")
failures = []

POD = {"metadata": {"labels": None, "annotations": None},
       "spec": {"automountServiceAccountToken": None, "hostPID": None, "restartPolicy": None, "terminationGracePeriodSeconds": None, "affinity": None,
                "securityContext": {"runAsNonRoot": None, "runAsUser": None, "fsGroup": None, "seccompProfile": {"type": None}},
                "containers": {"name": None, "image": None, "command": None, "args": None, "workingDir": None, "env": {"name": None, "value": None, "valueFrom": {"fieldRef": {"fieldPath": None}}},
                               "ports": {"name": None, "containerPort": None}, "resources": {"requests": None, "limits": None},
                               "readinessProbe": {"httpGet": {"path": None, "port": None}, "periodSeconds": None, "failureThreshold": None},
                               "livenessProbe": {"httpGet": {"path": None, "port": None}, "periodSeconds": None, "failureThreshold": None},
                               "securityContext": {"allowPrivilegeEscalation": None, "readOnlyRootFilesystem": None, "runAsUser": None,
                                                   "seccompProfile": {"type": None}, "capabilities": {"drop": None, "add": None}},
                               "volumeMounts": {"name": None, "mountPath": None, "readOnly": None}},
                "volumes": {"name": None, "configMap": {"name": None}, "secret": {"secretName": None, "items": {"key": None, "path": None}},
                            "persistentVolumeClaim": {"claimName": None}, "hostPath": {"path": None, "type": None},
                            "emptyDir": {"medium": None, "sizeLimit": None}}}}
BUILT_IN = {
    "v1/PersistentVolumeClaim": {"spec": {"accessModes": None, "resources": {"requests": {"storage": None}}}},
    "apps/v1/Deployment": {"spec": {"replicas": None, "strategy": {"type": None}, "selector": {"matchLabels": None}, "template": POD}},
    "apps/v1/DaemonSet": {"spec": {"selector": {"matchLabels": None}, "template": POD}},
    "v1/ConfigMap": {"data": None},
    "batch/v1/Job": {"spec": {"backoffLimit": None, "template": POD}},
    "v1/Service": {"spec": {"selector": None, "ports": {"name": None, "port": None, "targetPort": None}}},
}


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what)


def unknown(value, fields, where):
    """The paths in `value` that `fields` does not have."""
    if fields is None:
        return []
    if isinstance(value, list):
        return [path for item in value for path in unknown(item, fields, where + "[]")]
    if not isinstance(value, dict):
        return []
    found = []
    for key, below in value.items():
        found += unknown(below, fields[key], where + "." + key) if key in fields else [where + "." + key]
    return found


def seconds(text):
    number, unit = re.match(r"^(\d+)(s|m|h)$", text).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def check_argo(documents, service):
    templates = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "AnalysisTemplate"}
    check(len(templates) == 2, "two templates")
    for name, spec in templates.items():
        names = [arg["name"] for arg in spec["args"]]
        for metric in spec["metrics"]:
            web = metric["provider"]["web"]
            # With none of the conditions every measurement is a success; with one of them nothing is inconclusive.
            check(metric["successCondition"] == 'result == "pass"' and metric["failureCondition"] == 'result == "fail"', name + ": conditions")
            check(web["jsonPath"] == "{$.verdict}", name + ": a path whose first match is the verdict")
            check(metric["consecutiveErrorLimit"] * 10 >= 180, name + ": a restart of the server is no abort")
            check(metric["failureLimit"] == 0, name + ": the first fail")
            check("count" not in metric or metric["inconclusiveLimit"] >= metric["count"] - 2, name + ": still collecting pauses it")
            check("count" not in metric or metric["consecutiveSuccessLimit"] == 1, name + ": a pass ends it, the count does not")
            check(web["url"].startswith("http://%s/v1/gate/{{args." % service), name + ": " + web["url"])
            check(web["headers"] == [{"key": "Authorization", "value": "Bearer {{args.token}}"}], name + ": the token")
            text = web["url"] + json.dumps(web["headers"])
            check(set(re.findall(r"{{args\.([a-z-]+)}}", text)) == set(names), name + ": arguments %s" % names)
    for one in documents:
        if one["kind"] != "Rollout":
            continue
        for step in one["spec"]["strategy"]["canary"]["steps"]:
            if "analysis" in step:
                spec = templates[step["analysis"]["templates"][0]["templateName"]]
                given = {arg["name"] for arg in step["analysis"]["args"]}
                wanted = {arg["name"] for arg in spec["args"] if "valueFrom" not in arg and "value" not in arg}
                check(given == wanted, "a step gives %s, not %s" % (sorted(given), sorted(wanted)))


def check_flagger(documents, service):
    canary = [one for one in documents if one["kind"] == "Canary"][0]["spec"]["analysis"]
    template = [one for one in documents if one["kind"] == "MetricTemplate"][0]
    known = {"confirm-rollout", "pre-rollout", "rollout", "confirm-promotion", "post-rollout", "event", "rollback", "confirm-traffic-increase"}
    hooks = {hook["type"]: hook for hook in canary["webhooks"]}
    check({"confirm-traffic-increase", "confirm-promotion", "rollback"} <= set(hooks), "hooks: %s" % sorted(hooks))
    check("rollout" not in hooks, "a rollout hook counts what is still collecting as failed")
    for kind, hook in hooks.items():
        check(kind in known, "no such hook: " + kind)
        # A rollback hook that reaches another path than its own would go back on any 200.
        check(re.match(r"^http://upgate:TOKEN@%s/v1/flagger/[a-z0-9.-]+/%s$" % (re.escape(service), kind), hook["url"]), "%s: %s" % (kind, hook["url"]))
    check(sum(seconds(hook["timeout"]) for hook in hooks.values()) < seconds(canary["interval"]), "the hooks take longer than an interval")
    provider = template["spec"]["provider"]
    check(provider["type"] == "prometheus" and provider["address"] == "http://" + service, "the provider")
    check('metric="all",stage="all"' in template["spec"]["query"], "a query with one result")
    check(canary["metrics"][0]["templateRef"]["name"] == template["metadata"]["name"], "the template's name")
    check(canary["metrics"][0]["thresholdRange"] == {"max": 1}, "still collecting is no failed check")


def check_command(words):
    """A command line of the program's: each option is known, and has a value that it takes."""
    check(words[0] == "upgate", "%s is no command of upgate" % words)
    verbs = subprocess.run([UPGATE, "--help"], stdout=subprocess.PIPE, universal_newlines=True).stdout
    if not re.search(r"^  %s " % words[1], verbs, re.M) and os.path.exists(os.path.join(SOURCE, "harness/verbs/cmd_%s.c" % words[1])):
        return # a verb that this build is without
    done = subprocess.run([UPGATE] + words[1:] + ["--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    check(done.returncode == 0 and "Usage:" in done.stdout, "%s: %s" % (" ".join(words), done.stderr))


def check_plan(documents):
    plans = [one["data"]["plan.yaml"] for one in documents if one["kind"] == "ConfigMap"]
    check(len(plans) == 1, "one plan")
    for plan in plans:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(plan)
            file.flush()
            done = subprocess.run([UPGATE, "ab", file.name, "--dry-run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        check(done.returncode == 0 and json.loads(done.stdout)["schema"] == "upgate.plan/1", "the plan: " + done.stderr)


def check_pods(documents):
    claims = {one["metadata"]["name"] for one in documents if one["kind"] == "PersistentVolumeClaim"}
    for one in documents:
        if one["kind"] not in ("Deployment", "DaemonSet", "Job"):
            continue
        pod = one["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        check({volume["persistentVolumeClaim"]["claimName"] for volume in volumes.values() if "persistentVolumeClaim" in volume} <= claims, "claims")
        for container in pod["containers"]:
            check({mount["name"] for mount in container["volumeMounts"]} == set(volumes), container["name"] + ": mounts")
            args = container.get("args", [])
            check_command(container["command"] + args)
            fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container.get("env", []) if "valueFrom" in one}
            store = args[args.index("-o") + 1] if container["command"][1] == "ab" else None
            check(not store or (store == "/data/$(POD_NAME).db" and fields.get("POD_NAME") == "metadata.name"), "a second job meets the store of the first")
            check(":8080" not in args or "--token-file" in args, "listens everywhere without a token")
    deployment = [one for one in documents if one["kind"] == "Deployment"][0]["spec"]
    notes = deployment["template"]["metadata"]["annotations"]
    check(notes["prometheus.io/scrape"] == "true" and notes["prometheus.io/path"] == "/metrics", "the scrape annotations")
    check(deployment["replicas"] == 1 and deployment["strategy"]["type"] == "Recreate", "one pod at a time has the volume")


def main():
    try:
        import yaml
    except ImportError:
        print("skipped: no PyYAML for this python3")
        return 77
    with open(os.path.join(SOURCE, "tests/e2e/kubernetes_fields.json")) as file:
        fields = json.load(file)
    fields.update(BUILT_IN)
    documents = []
    for name in sorted(name for name in os.listdir(FOLDER) if name.endswith(".yaml")):
        with open(os.path.join(FOLDER, name)) as file:
            documents += list(yaml.safe_load_all(file))
    for one in documents:
        key = one["apiVersion"] + "/" + one["kind"]
        check(key in fields, "unknown kind " + key)
        body = {part: value for part, value in one.items() if part not in ("apiVersion", "kind", "metadata")}
        check(one["metadata"]["name"] and set(one["metadata"]) <= {"name", "labels", "annotations"}, key + ": metadata")
        for path in unknown(body, fields.get(key), key):
            check(False, "unknown field " + path)
    check(unknown({"spec": {"metrics": [{"sucessCondition": ""}]}}, fields["argoproj.io/v1alpha1/AnalysisTemplate"], "x") ==
          ["x.spec.metrics[].sucessCondition"], "the search for unknown fields finds none")
    port = [one for one in documents if one["kind"] == "Service"][0]
    service = "%s:%d" % (port["metadata"]["name"], port["spec"]["ports"][0]["port"])
    check_argo(documents, service)
    check_flagger(documents, service)
    check_pods(documents)
    check_plan(documents)
    print("%d documents, %d failed" % (len(documents), len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
