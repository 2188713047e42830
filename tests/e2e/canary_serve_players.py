# SPDX-License-Identifier: Apache-2.0
"""Argo Rollouts and Flagger as far as they ask `upgate canary serve`: the requests, time-outs, limits and consequences as their code
has them (Argo Rollouts 1.9: web metric, evaluation, assessment; Flagger 1.44: webhooks, scheduler, Prometheus provider). Time is
counted, not waited for. Run the tests, not this file."""
import json
import re
import socket
import urllib.error
import urllib.parse
import urllib.request

ERROR_RETRY_S, ERROR_LIMIT = 10, 4  # Argo's defaults


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def fetch(method, url, headers=None, body=None, timeout=10):
    """(status, text); raises OSError where there is no answer in time. As Go's client, user and password of the URL become a header."""
    parts = urllib.parse.urlsplit(url)
    headers = dict(headers or {})
    if parts.password is not None:
        import base64
        headers.setdefault("Authorization", "Basic " + base64.b64encode(("%s:%s" % (parts.username, parts.password)).encode()).decode())
        url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, socket.timeout, ConnectionError) as error:
        raise OSError(str(error)) from error


class Value(dict):
    """An object of JSON whose members are asked for with a dot, as expr does; one that is not there is nil."""

    def __getattr__(self, name):
        value = self.get(name)
        return Value(value) if isinstance(value, dict) else value


def evaluate(condition, result):
    """An expression of the language `expr`, the part that the conditions here use. Not a bool, or nil compared by size: an error."""
    text = condition.replace("&&", " and ").replace("||", " or ").replace("true", "True").replace("false", "False").replace("nil", "None")
    value = eval(text, {"__builtins__": {}}, {"result": Value(result) if isinstance(result, dict) else result, "asFloat": float, "asInt": int})
    if not isinstance(value, bool):
        raise TypeError("expected bool, but got %r" % value)
    return value


def json_path(text, document):
    """{$} or {$.a.b}: the first match. No match is an error."""
    match = re.match(r"^\{\$((?:\.[A-Za-z_]+)*)\}$", text)
    for name in filter(None, match.group(1).split(".")):
        document = document[name]
    return document


class ArgoMetric:
    """One metric of an AnalysisTemplate, arguments filled in; measured at its interval until it is over."""

    def __init__(self, metric, arguments):
        text = json.dumps(metric)
        for name, value in arguments.items():
            text = text.replace("{{args.%s}}" % name, value)
        self.metric = json.loads(text)
        self.web = self.metric["provider"]["web"]
        self.counts = {"Successful": 0, "Failed": 0, "Inconclusive": 0, "Error": 0}
        self.consecutive_errors = self.consecutive_successes = 0
        self.now_s, self.phase, self.message, self.value = 0, "Running", "", None

    def measure(self):
        try:
            headers = {one["key"]: one["value"] for one in self.web.get("headers", [])}
            status, text = fetch("GET", self.web["url"], headers, timeout=self.web.get("timeoutSeconds") or 10)
            if status < 200 or status >= 300:
                raise ValueError("received non 2xx response code: %d" % status)
            try:
                self.value = json_path(self.web.get("jsonPath") or "{$}", json.loads(text))
            except json.JSONDecodeError:
                self.value = text  # what is no JSON is the result itself
            return self.judge(self.value)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.message = str(error)
            return "Error"

    def judge(self, result):
        success, failure = self.metric.get("successCondition"), self.metric.get("failureCondition")
        succeeded = evaluate(success, result) if success else False
        failed = evaluate(failure, result) if failure else False
        if not success and not failure:
            return "Successful"
        if success and not failure:
            failed = not succeeded
        if failure and not success:
            succeeded = not failed
        return "Failed" if failed else "Successful" if succeeded else "Inconclusive"

    def step(self):
        """One measurement, and what becomes of the metric. The time until the next one passes."""
        phase = self.measure()
        self.counts[phase] += 1
        self.consecutive_errors = self.consecutive_errors + 1 if phase == "Error" else 0
        self.consecutive_successes = self.consecutive_successes + 1 if phase == "Successful" else 0
        self.phase = self.assess()
        interval = self.metric.get("interval", "0s")
        self.now_s += ERROR_RETRY_S if phase == "Error" else int(re.match(r"\d+", interval).group()) * (60 if interval.endswith("m") else 1)
        return phase

    def assess(self):
        metric, counts = self.metric, self.counts
        phase = "Running"
        if 0 <= metric.get("failureLimit", 0) < counts["Failed"]:
            phase = "Failed"
        if counts["Inconclusive"] > metric.get("inconclusiveLimit", 0):
            phase = "Inconclusive"
        if self.consecutive_errors > metric.get("consecutiveErrorLimit", ERROR_LIMIT):
            phase = "Error"
        if phase != "Running":
            return phase
        enough = metric.get("consecutiveSuccessLimit", 0)
        if enough and self.consecutive_successes >= enough:
            return "Successful"
        most = metric.get("count") or (None if metric.get("interval") else 1)
        if most and counts["Successful"] + counts["Failed"] + counts["Inconclusive"] >= most:
            return "Inconclusive" if enough else "Successful"
        return "Running"

    def run(self, between=None, most=200):
        """Until it is over. between(step): what happens before each measurement."""
        for number in range(most):
            if between:
                between(number)
            self.step()
            if self.phase != "Running":
                break
        return self.phase


class Flagger:
    """The scheduler of a Canary that progresses: one advance() an interval."""

    def __init__(self, spec, template, address, token, name="ranker"):
        self.spec, self.template, self.name = spec["analysis"], template["spec"], name
        self.address, self.token = address, token
        self.weights = self.spec["stepWeights"]
        self.weight, self.failed_checks, self.phase = 0, 0, "Progressing"
        self.events = []

    def url(self, text):
        return text.replace("TOKEN", self.token).replace("upgate-gate:8080", self.address)

    def call(self, hook, phase):
        """None, or why it was refused: a status above 202 with the body, or no body where the client's retries have dropped it."""
        payload = {"name": self.name, "namespace": "prod", "phase": phase, "checksum": "5f8b", "metadata": hook.get("metadata", {})}
        try:
            status, text = fetch("POST", self.url(hook["url"]), {"Content-Type": "application/json"}, json.dumps(payload).encode(), 10)
        except OSError as error:
            return "giving up after 1 attempt(s): %s" % error
        if status >= 500 or status == 429:
            return "giving up after 1 attempt(s)"
        return text if status > 202 else None

    def hooks(self, kind, phase="Progressing"):
        """The first refusal of the hooks of this kind; None: all passed (also when there are none)."""
        for hook in self.spec["webhooks"]:
            if hook["type"] == kind:
                refusal = self.call(hook, phase)
                if refusal is not None:
                    return refusal
        return None

    def query(self, query):
        """The last sample's value; raises where there is none. Times out after 5 s."""
        provider = self.template["provider"]
        headers = {"Authorization": "Bearer " + self.token} if provider.get("secretRef") else {}
        url = self.url(provider["address"]) + "/api/v1/query?query=" + urllib.parse.quote_plus(re.sub(r"\s+", " ", query))
        status, text = fetch("GET", url, headers, timeout=5)
        if status >= 400:
            raise ValueError("error response: Status %d: %s" % (status, text))
        value = None
        for sample in json.loads(text)["data"]["result"]:
            if "values" in sample:
                raise ValueError("multiple values")
            value = float(sample["value"][1])
        if value is None or value != value:
            raise ValueError("no values found")
        return value

    def online(self):
        return self.query("vector(1)") == 1

    def checks(self):
        for metric in self.spec["metrics"]:
            try:
                value = self.query(self.template["query"])
            except (OSError, ValueError) as error:
                self.events.append("Halt: %s" % error)
                return False
            limits = metric["thresholdRange"]
            if value > limits.get("max", value) or value < limits.get("min", value):
                self.events.append("Halt advancement: %s %g" % (metric["name"], value))
                return False
        return True

    def rolls_back(self):
        return any(hook["type"] == "rollback" and self.call(hook, self.phase) is None for hook in self.spec["webhooks"])

    def advance(self):
        if self.phase not in ("Progressing", "Waiting", "WaitingPromotion"):
            return self.phase
        if self.rolls_back() or self.failed_checks >= self.spec["threshold"]:
            self.phase, self.weight = "Failed", 0
            return self.phase
        if self.weight and self.hooks("rollout") is not None or (self.weight and not self.checks()):
            self.failed_checks += 1
            return self.phase
        if self.weight == self.weights[-1]:
            refusal = self.hooks("confirm-promotion", "WaitingPromotion")
            self.phase = "WaitingPromotion" if refusal else "Promoting"
        else:
            refusal = self.hooks("confirm-traffic-increase")
            if not refusal:
                self.weight = next(weight for weight in self.weights if weight > self.weight)
        if refusal:
            self.events.append(refusal)
        return self.phase
