# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium, driven over the DevTools protocol through a pipe (file descriptors 3 and 4, messages end with a NUL
byte): the standard library is enough. Collects console errors, exceptions and every address the page asks for."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    return os.environ.get("UPGATE_CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, program, deadline=60):
        self.folder = tempfile.mkdtemp(prefix="upgate-browser-")
        to_browser, ours_out = os.pipe()
        ours_in, from_browser = os.pipe()
        self.write_fd, self.read_fd = ours_out, ours_in
        # Descriptors 3 and 4 of the child; both ends are first moved out of the way of each other.
        high_in, high_out = os.dup(to_browser), os.dup(from_browser)
        while high_in < 10 or high_out < 10:
            high_in, high_out = os.dup(high_in), os.dup(high_out)

        def descriptors():
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)
        command = [program, "--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-extensions", "--disable-dev-shm-usage",
                   "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
                   "--user-data-dir=" + self.folder, "about:blank"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # its sandbox does not work for root; the pages are our own
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
                                        preexec_fn=descriptors, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        self.errors, self.requests, self.answers = [], [], {}
        self.deadline = deadline
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def receive(self, until):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_fd], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.read_fd, 1 << 16)
            if not piece:
                raise EOFError("the browser ended")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        if "id" in message:
            self.answers[message["id"]] = message
            return
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append("exception: " + details.get("exception", {}).get("description", details.get("text", "")))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert", "warning"):
            self.errors.append("console: " + " ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append("log: " + params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"][:200])

    def call(self, method, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_fd, data):]
        until = time.monotonic() + self.deadline
        while number not in self.answers:
            self.receive(until)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError("%s: %s" % (method, answer["error"]))
        return answer["result"]

    def eval(self, expression):
        """Value of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise RuntimeError("%s: %s" % (expression, answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def wait(self, expression, what=None, seconds=60):
        until = time.monotonic() + seconds
        while True:
            if self.eval("Boolean(%s)" % expression):
                return
            if time.monotonic() > until:
                raise AssertionError("not reached in %g s: %s" % (seconds, what or expression))
            time.sleep(0.02)

    def size(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 500)

    def media(self, **features):
        self.call("Emulation.setEmulatedMedia", features=[{"name": k.replace("_", "-"), "value": v} for k, v in features.items()])

    def open(self, path, query=""):
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + query)
        self.wait("document.documentElement && document.documentElement.dataset.ready === '1' && location.protocol === 'file:'", "the page is drawn", 40)

    def place(self, selector):
        """Middle of an element, scrolled into view, when it has come to rest: two frames at the same place."""
        return self.eval("(async () => { const node = document.querySelector(%s); let last = '', same = 0, box;"
                         "for (let i = 0; i < 200 && same < 2; i++) { node.scrollIntoView({block: 'center', behavior: 'instant'});"
                         "await new Promise(done => requestAnimationFrame(done)); box = node.getBoundingClientRect();"
                         "const now = [box.x, box.y, box.width, box.height].join(); same = now === last ? same + 1 : 0; last = now; }"
                         "return [box.x + box.width / 2, box.y + box.height / 2, box.width, box.height]; })()" % json.dumps(selector))

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click_at(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def click(self, selector):
        x, y, _, _ = self.place(selector)
        self.click_at(x, y)

    def key(self, key, text=None, code=None, **more):
        number = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        text = text if text is not None else "\r" if key == "Enter" else key if len(key) == 1 else None
        extra = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key, windowsVirtualKeyCode=number, **extra, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key, windowsVirtualKeyCode=number, **more)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path, clip=None):
        more = {"clip": dict(zip(("x", "y", "width", "height"), clip), scale=1), "captureBeyondViewport": True} if clip else {}
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"])
        with open(path, "wb") as file:
            file.write(data)
        return data

    def pdf(self, path):
        data = base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
        with open(path, "wb") as file:
            file.write(data)
        return data

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, EOFError, TimeoutError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for descriptor in (self.write_fd, self.read_fd):
            os.close(descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
