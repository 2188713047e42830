# SPDX-License-Identifier: Apache-2.0
"""A torch reference model behind HTTP, on aiohttp: the API, the behaviour, the options and the two lines on stdout of
upgate-serve (server.h, serve_main.c), for a framework side. Messages go to stderr."""
import asyncio
import json
import math
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import args as arguments  # noqa: E402
import faults  # noqa: E402

BODY_MAX, VALUES_MAX, ID_MAX = 64 << 10, 4096, 128
IDLE_S = 75  # of a keep-alive connection
TOLD_MAX = 100  # different errors on stderr, each once
QUIET_LOOKS = 20  # with nothing in flight, 1 ms apart: not a time, which passes without a CPU, too

ARGS = arguments.parse(sys.argv[1:], faults.HELP)
try:
    FAULTS = faults.Faults(os.environ.get("PLANT_SERVE"))
except ValueError as problem:
    sys.stderr.write("serve.py: PLANT_SERVE: %s\n" % problem)
    sys.exit(2)

try:
    from aiohttp import web
except ImportError:
    sys.stderr.write("serve.py: this Python has no aiohttp; ci/setup --envs installs it\n")
    sys.exit(4)
import batcher  # noqa: E402
import scorer  # noqa: E402


class BadRequest(ValueError):
    """The body is not a request."""


def _no_constant(word):
    raise ValueError("%s is not JSON" % word)


def parse(body):
    """(id as it came, numbers)."""
    try:
        words = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise BadRequest("the body is not JSON: %s" % problem) from None
    words = words if isinstance(words, dict) else {}
    name, values = words.get("id"), words.get("features")
    if type(name) not in (str, int):
        raise BadRequest("'id' is missing, or neither a string nor a whole number")
    if len(json.dumps(name)) > ID_MAX:
        raise BadRequest("'id' is longer than %d bytes" % ID_MAX)
    if not isinstance(values, list) or not 1 <= len(values) <= VALUES_MAX:
        raise BadRequest("'features' is missing, or no array of 1 to %d numbers" % VALUES_MAX)
    for i, value in enumerate(values):
        if type(value) not in (int, float):
            raise BadRequest("features[%d] is not a number" % i)
    return name, values


class Server:
    def __init__(self):
        self.scorer = None
        self.draining = self.loading = False
        self.in_flight = self.loads = 0
        self.codes, self.told = {}, set()
        self.batcher = batcher.Batcher(lambda items: self.scorer(items), ARGS.max_batch, ARGS.max_wait, ARGS.queue,
                                       FAULTS.worker)

    async def load(self, choice):
        """Builds and warms a model beside the one that serves, then puts it in its place."""
        def build():
            made = scorer.Scorer(choice, ARGS)
            FAULTS.warm_up()
            return made
        self.scorer = await asyncio.get_running_loop().run_in_executor(None, build)
        self.loads += 1

    def stuck(self):
        return self.batcher.waits_s() > ARGS.stuck

    # --- answers ---

    def reply(self, status, words, wrong=False):
        response = web.json_response(words, status=status, dumps=lambda w: json.dumps(w, separators=(",", ":")))
        if wrong:
            response.headers["x-upgate-wrong"] = "1"
        return response

    def refuse(self, status, text, name=None):
        return self.reply(status, {"id": name, "error": text})

    @web.middleware
    async def around(self, request, handler):
        """The count, the header of the side, errors of aiohttp as JSON, the end of connections while draining; requests
        to score are told by the step protocol."""
        self.in_flight += 1
        arrived_ns = time.monotonic_ns()
        try:
            response = await handler(request)
        except web.HTTPException as problem:
            text = "the body is longer than 64 KiB" if problem.status == 413 else problem.reason
            response = self.refuse(problem.status, text)
        except ConnectionResetError:
            raise
        except Exception as problem:
            text = "%s: %s" % (type(problem).__name__, problem)
            if text not in self.told and len(self.told) < TOLD_MAX:
                self.told.add(text)
                sys.stderr.write("serve.py: %s\n" % text)
            response = self.refuse(500, type(problem).__name__)
        finally:
            self.in_flight -= 1
        self.codes[response.status] = self.codes.get(response.status, 0) + 1
        if request.path == "/score":
            scorer.upgate.request_done(arrived_ns, 0 if response.prepared else response.status, "x-upgate-wrong" in response.headers)
        if not response.prepared:
            response.headers["x-upgate-side"] = ARGS.side
            if self.draining:
                response.force_close()
        return response

    # --- routes ---

    async def score(self, request):
        try:
            name, values = parse(await request.read())
        except BadRequest as problem:
            return self.refuse(400, str(problem))
        if not self.scorer:
            return self.refuse(503, "the model is not loaded yet", name)
        since = time.monotonic()
        number, error = FAULTS.arrived()
        if error:
            return self.refuse(500, error, name)
        try:
            score, model = await self.batcher.put(values)
        except batcher.Full:
            return self.refuse(503, "too many requests wait", name)
        except scorer.Refused as problem:
            return self.refuse(400, str(problem), name)
        score = FAULTS.scored(number, score)
        await FAULTS.hold(since, 2 * len(values) >= self.scorer.least + self.scorer.most)
        wrong = not math.isfinite(score)
        words = {"id": name, "scores": [None if wrong else score], "model": model}
        if FAULTS.cuts(number):
            return await self.cut(request, words)
        return self.reply(200, words, wrong)

    async def cut(self, request, words):
        """Planted: says its whole length and sends half."""
        body = json.dumps(words).encode()
        response = web.StreamResponse(headers={"x-upgate-side": ARGS.side, "Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[:len(body) // 2])
        request.transport.close()
        return response

    async def health(self, _request):
        stuck, model = self.stuck(), self.scorer
        words = {"status": "stuck" if stuck else "ok", "model": model.name if model else None}
        if model:
            words.update(kind=model.kind, features=[model.least, model.most])
        return self.reply(503 if stuck else 200, words)

    async def ready(self, _request):
        why = None
        if self.draining:
            why = "draining"
        elif not self.scorer:
            why = "warming up"
        elif self.stuck():
            why = "stuck"
        if why:
            return self.reply(503, {"ready": False, "why": why})
        return self.reply(200, {"ready": True, "model": self.scorer.name})

    async def stats(self, _request):
        return self.reply(200, {"answers": {str(code): count for code, count in sorted(self.codes.items())},
                                "in_flight": self.in_flight, "scored": self.batcher.scored,
                                "batches": self.batcher.batches, "loads": self.loads})

    async def reload(self, request):
        try:
            words = json.loads(await request.read())
        except (ValueError, RecursionError):
            words = None
        path = words.get("path") if isinstance(words, dict) else None
        if not isinstance(path, str):
            return self.refuse(400, "the body is not {\"path\": \"FILE\"}")
        if self.loading:
            return self.refuse(409, "another model is being loaded")
        self.loading = True
        try:
            await self.load(scorer.choice_in_file(ARGS.models, path))
        except scorer.Refused as problem:
            return self.refuse(400, str(problem))
        finally:
            self.loading = False
        return self.reply(200, {"model": self.scorer.name})


def _say(**words):
    print(json.dumps(words, separators=(",", ":")), flush=True)


def _socket():
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ARGS.host, ARGS.port))
    except OSError as problem:
        sys.stderr.write("serve.py: failed to listen on %s:%d: %s\n" % (ARGS.host, ARGS.port, problem.strerror))
        sys.exit(4)
    return listening


async def _drain(server, door, signalled):
    """0, or 4 when requests were not finished."""
    server.draining = True
    sys.stderr.write("serve.py: draining\n")
    signalled.clear()
    try:
        await asyncio.wait_for(signalled.wait(), ARGS.drain_delay)
        sys.stderr.write("serve.py: a second signal: ending at once\n")
        return 4
    except asyncio.TimeoutError:
        pass
    door.close()
    limit, quiet = time.monotonic() + ARGS.drain_timeout, 0
    while quiet < QUIET_LOOKS:
        await asyncio.sleep(0.001)
        quiet = 0 if server.in_flight else quiet + 1
        if server.in_flight and time.monotonic() > limit:
            sys.stderr.write("serve.py: %d requests were not finished within the drain timeout\n" % server.in_flight)
            return 4
    return 0


async def main():
    try:
        if ARGS.model_file:
            choice = scorer.choice_in_file(ARGS.models, ARGS.model_file)
        else:
            choice = scorer.choice_of(ARGS.model, ARGS.size, ARGS.seed, ARGS.name)
    except scorer.Refused as problem:
        sys.stderr.write("serve.py: %s\n" % problem)
        return 2
    listening = _socket()
    server, signalled = Server(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    app = web.Application(client_max_size=BODY_MAX, middlewares=[server.around])
    app.add_routes([web.post("/score", server.score), web.get("/health", server.health), web.get("/ready", server.ready),
                    web.get("/stats", server.stats), web.post("/reload", server.reload)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=IDLE_S)
    await runner.setup()
    # Not a site of aiohttp: stopping one ends the connections, too.
    door = await asyncio.get_running_loop().create_server(runner.server, sock=listening, backlog=1024)
    _say(listening="%s:%d" % listening.getsockname(), side=ARGS.side, pid=os.getpid())
    server.batcher.start()
    begin = time.monotonic()
    loading = asyncio.ensure_future(server.load(choice))
    stopping = asyncio.ensure_future(signalled.wait())
    await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
    if loading.done():
        if loading.exception():
            sys.stderr.write("serve.py: %s\n" % loading.exception())
            return 2 if isinstance(loading.exception(), scorer.Refused) else 4
        _say(ready=True, model=choice["name"], warm_s=round(time.monotonic() - begin, 3))
        await stopping
    code = await _drain(server, door, signalled)
    if code == 0 and loading.done():
        await server.batcher.stop()
        await runner.cleanup()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads may hang in a planted fault, or be making a model


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
