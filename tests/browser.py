"""A real browser without a window: Chromium, spoken to over a pipe by the DevTools protocol."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

PATIENCE = 60.0
"""Seconds that the browser is given to answer, or a page to become what a test waits for."""
_NOT_YET = ("Cannot read properties of null", "Inspected target navigated")
"""What is said of an element that is not there yet, and of a page that is being left."""
# 3 and 4 are the numbers at which Chromium reads and writes; the shell puts the pipes there.
WITH_PIPES = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # for root, in a container
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
    # Names resolve to nothing: a page that asks somebody outside fails, and says so.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


def _out_of_the_way(descriptor: int) -> int:
    """Returns the same pipe at a number that is not one of those at which Chromium wants its own."""
    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return other


class BrowserError(Exception):
    """Raised when the browser refuses a command, or when a script in the page fails."""


class Browser:
    """One Chromium with one profile, which is thrown away at the end."""

    def __init__(self) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        assert program, "the tests need Chromium: run tools/need chromium:chromium"
        self._folder = TemporaryDirectory(prefix="holdfast-chromium-", ignore_cleanup_errors=True)
        theirs, self._out = map(_out_of_the_way, os.pipe())
        self._in, theirs_too = map(_out_of_the_way, os.pipe())
        command = [
            "bash",
            "-c",
            WITH_PIPES,
            "bash",
            str(theirs),
            str(theirs_too),
            program,
            *OPTIONS,
        ]
        command += [f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "HOME": self._folder.name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs, theirs_too),
            start_new_session=True,
        )
        os.close(theirs)
        os.close(theirs_too)
        self._read = b""
        self._sent = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser with all its processes, and removes its profile."""
        os.close(self._out)
        os.close(self._in)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()

    def page(self, url: str = "about:blank", *, width: int = 1440, height: int = 900) -> Page:
        """Returns a new page of that size, which has loaded `url`."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        if url != "about:blank":
            page.open(url)
        return page

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Sends a command, and returns its result."""
        self._sent += 1
        number = self._sent
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + PATIENCE
        while number not in self._answers:
            self.listen(deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise BrowserError(f"{method}: no answer in {PATIENCE:.0f} s")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def listen(self, timeout: float) -> None:
        """Reads what the browser says within `timeout`: answers, and events of the pages."""
        ready, _, _ = select.select([self._in], [], [], max(0.0, timeout))
        if not ready:
            return
        data = os.read(self._in, 1 << 20)
        if not data:
            raise BrowserError("the browser has ended")
        *messages, self._read = (self._read + data).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self._pages:
                self._pages[message["sessionId"]].note(message["method"], message["params"])


class Page:
    """One page of the browser."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self._loads = 0
        self.errors: list[str] = []
        """What the page complained of: exceptions, messages of the level error, refused requests."""
        self.requests: list[str] = []
        """The addresses that the page asked for."""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def close(self) -> None:
        self._browser.send("Target.closeTarget", targetId=self._target)

    def note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(item.get("value")) for item in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.errors.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loads += 1

    def open(self, url: str) -> None:
        """Goes to `url`, and waits until it has loaded."""
        before = self._loads
        answer = self.send("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        deadline = time.monotonic() + PATIENCE
        while self._loads == before and answer.get("loaderId"):
            self._browser.listen(deadline - time.monotonic())
            assert time.monotonic() < deadline, f"{url} did not load"

    def resize(self, width: int, height: int, *, scale: float = 1, touch: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.send("Emulation.setDeviceMetricsOverride", mobile=touch, **size)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)

    def prefer(self, **features: str) -> None:
        """Sets what the user prefers: `prefer(color_scheme="dark", reduced_motion="reduce")`."""
        wanted = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value}
            for name, value in features.items()
        ]
        self.send("Emulation.setEmulatedMedia", features=wanted)

    def run(self, script: str) -> Any:
        """Runs an expression in the page, waits for it if it is a promise, and returns its value."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            told = details.get("exception", {}).get("description") or details["text"]
            raise BrowserError(f"{script[:100]}: {told}")
        return answer["result"].get("value")

    def busy(self) -> float:
        """Returns the seconds of a processor that the page's own thread has used so far."""
        self.send("Performance.enable", timeDomain="threadTicks")
        found = self.send("Performance.getMetrics")["metrics"]
        return float(next(item["value"] for item in found if item["name"] == "TaskDuration"))

    def text(self, selector: str) -> str:
        """Returns the text of the first element that `selector` finds, as it is shown."""
        shown = str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))
        return shown.replace("\xa0", " ")

    def wait(self, script: str) -> Any:
        """Waits until an expression is true in the page, and returns its value.

        It may ask something of an element, or of a page, that is not there yet.
        """
        deadline = time.monotonic() + PATIENCE
        while not (value := self._run_or_none(script)):
            assert time.monotonic() < deadline, f"never true: {script}"
            self._browser.listen(0.02)
        return value

    def _run_or_none(self, script: str) -> Any:
        try:
            return self.run(script)
        except BrowserError as error:
            if not any(text in str(error) for text in _NOT_YET):
                raise
            return None

    def frames(self) -> None:
        """Waits until what is under way has been drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        """Clicks into the middle of the first element that `selector` finds."""
        x, y = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2] })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        self.click_at(x, y)

    def click_at(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def press(self, key: str, *, code: str = "", shift: bool = False) -> None:
        """Presses a key: a character, or a name such as `ArrowLeft`, `Enter`, `Tab`."""
        numbers = {"Tab": 9, "Enter": 13, "Escape": 27, "Home": 36}
        numbers |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        event: dict[str, Any] = {"key": key, "modifiers": 8 if shift else 0, "code": code or key}
        event["windowsVirtualKeyCode"] = numbers.get(key, ord(key[0].upper()))
        typed = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.send("Input.dispatchKeyEvent", type="keyDown", text=typed, **event)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def shot(self, path: Path | None = None, *, whole: bool = False, **clip: float) -> bytes:
        """Returns a picture of the page as PNG, of the whole of it or of a part of it."""
        more: dict[str, Any] = {"captureBeyondViewport": whole}
        if clip:
            more["clip"] = {"scale": 1, **clip}
        elif whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {**size, "scale": 1}
        data = b64decode(self.send("Page.captureScreenshot", format="png", **more)["data"])
        if path:
            path.write_bytes(data)
        return data

    def pdf(self) -> bytes:
        """Returns the page as it is printed."""
        return b64decode(self.send("Page.printToPDF", printBackground=False)["data"])

    def violations(self, axe: str) -> list[str]:
        """Returns what axe-core finds wrong for people with disabilities; `axe` is its source."""
        self.run(f"{axe}; 0")
        found = self.run("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{item['id']}: {item['help']}: {[node['html'][:120] for node in item['nodes'][:3]]}"
            for item in found["violations"]
        ]
