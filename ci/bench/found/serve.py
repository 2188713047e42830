#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An inference server as users have them (HTTP, a model behind a route), and a client that asks it one request after the other, for
ci/bench/found/judge.py. It knows nothing of upgate, unless CALLS=1 asks for step calls. WORK: as in train.py."""

import argparse
import contextlib
import http.client
import http.server
import json
import os
import threading

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    repeats = int(os.environ.get("WORK", "1000"))
    work = torch.randn(48, 48, device=arguments.device)
    step = contextlib.nullcontext
    if os.environ.get("CALLS") == "1":
        import upgate

        step = upgate.step

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(256, 1)

        def forward(self, x):
            for _ in range(repeats):
                torch.mm(work, work)
            return self.head(x).mean()

    model = Model().to(arguments.device).eval()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            size = float(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["x"])
            with torch.no_grad(), step():
                answer = model(torch.full((64, 256), size, device=arguments.device))
            body = json.dumps({"y": float(answer)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = http.client.HTTPConnection(*server.server_address)
    for i in range(arguments.requests):
        client.request("POST", "/", json.dumps({"x": i / arguments.requests}))
        json.loads(client.getresponse().read())
    print("%d requests" % arguments.requests)


if __name__ == "__main__":
    main()
