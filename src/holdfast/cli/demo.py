"""`holdfast demo`: the pause that breaks every lock, for real, without a fence and with one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import IO, Any

from .. import checks
from . import statuses
from .arguments import STORE_OPTIONS, read
from .drawing import BLUE, BOLD, DIM, GREEN, RED, Pen
from .durations import seconds
from .report import say
from .store import place_of

OPTIONS = {**STORE_OPTIONS, "--ttl": "3s"}
START, DEPOSIT, WITHDRAWAL = 100, 50, 30
PATIENCE = 60.0


def main(words: list[str]) -> int:
    """Answers the exit status: 0 if everything went as it is meant to."""
    given = read(words, OPTIONS)
    ttl = checks.ttl(seconds("--ttl", given.options.get("--ttl", "3s")), "--ttl")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)  # as Ctrl-C does: nothing stays behind
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url, namespace = place_of(given.options)
        url = f"sqlite://{folder}/locks.db" if url is None else url
        namespace = f"demo-{os.getpid()}" if namespace is None else namespace
        try:
            return Demo(folder, url, namespace, ttl, sys.stdout).run()
        except BrokenPipeError:
            return 0
        except Failed as error:
            say(str(error))
            return error.status


def _end(number: int, _: object) -> None:
    raise SystemExit(statuses.ended_by(number))


class Failed(Exception):
    """Raised when a process of the demonstration did not do its part."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Demo:
    def __init__(self, folder: str, url: str, namespace: str, ttl: float, out: IO[str]) -> None:
        self.path = os.path.join(folder, "account")
        self.url = url
        self.namespace = namespace
        self.ttl = ttl
        self.picture = Picture(out)

    def run(self) -> int:
        self.picture.text(
            "An account of 100. A withdraws 30, B deposits 50, each under the lock: read,\n"
            "think, write. Whoever comes first, 120 must be left."
        )
        self.picture.title("Without a fence")
        without = self.round(fenced=False)
        self.picture.title("The same with a fence, which keeps the highest token it has seen")
        fenced = self.round(fenced=True)
        self.picture.text("")
        good = self.picture.verdict(
            without == START - WITHDRAWAL,
            f"without: {without} is left. B's {DEPOSIT} were overwritten, and nobody noticed.",
            bad=True,
        )
        good &= self.picture.verdict(
            fenced == START - WITHDRAWAL + DEPOSIT,
            f"with:    {fenced} is left. No lock store can stop a late write; the fence did.",
        )
        return 0 if good else 1

    def round(self, fenced: bool) -> int:
        """Returns the balance of the account."""
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(str(START))
        write = "write-fenced" if fenced else "write"
        with Actor("A", self) as a, Actor("B", self) as b:
            picture = self.picture
            for actor in (a, b):
                actor.ask("ready")
            picture.begin(a.pid, b.pid, START)
            token = a.ask("acquire", ttl=self.ttl)["token"]
            granted = time.monotonic()
            picture.row(f"A is granted token {short(token)}", a="●")
            balance = a.ask("read", path=self.path)["balance"]
            picture.row(f"A reads {balance}, thinks", a="│")
            self.breathe()
            a.freeze()
            picture.row("A is FROZEN: a pause, a migration, a full swap", a="❄")
            # It will do this the moment it wakes up: the next statement of its program.
            a.send(write, path=self.path, balance=balance - WITHDRAWAL)
            b.send("acquire", ttl=self.ttl)
            picture.row("B asks, and has to wait", a="┊", b="○")
            while not b.ready(self.ttl / 4):
                left = granted + self.ttl - time.monotonic()
                if left < -PATIENCE:
                    raise Failed("B was not granted the lock")
                if left > 0:
                    picture.row(f"  {left:.1f} s are left of A's lease", a="┊", b="○")
            higher = b.answer()["token"]
            picture.row(f"B is granted token {short(higher)}: A's lease is over", a="┊", b="●")
            balance = b.ask("read", path=self.path)["balance"]
            picture.row(f"B reads {balance}, thinks", a="┊", b="│")
            self.breathe()
            b.ask(write, path=self.path, balance=balance + DEPOSIT)
            note = f"B writes {balance + DEPOSIT}"
            if fenced:
                note += f"; the fence has seen {short(higher)}"
            picture.row(note, a="┊", b="◆", account=self.balance())
            b.ask("release")
            picture.row("B releases", a="┊", b="✓")
            self.breathe()
            a.thaw()
            late = a.answer()
            if "refused" in late:
                picture.row(
                    f"A wakes, writes {START - WITHDRAWAL}: REFUSED, "
                    f"{short(late['refused'])} < {short(late['highest'])}",
                    a="✗",
                    good=True,
                )
                self.again(a)
            else:
                picture.row(
                    f"A wakes, writes {START - WITHDRAWAL}: ACCEPTED, B's write is gone",
                    a="✗",
                    account=self.balance(),
                    bad=True,
                )
            return self.balance()

    def again(self, a: Actor) -> None:
        """Refused, A does what the error says: it starts over."""
        token = a.ask("acquire", ttl=self.ttl)["token"]
        self.picture.row(f"A starts over, is granted token {short(token)}", a="●")
        balance = a.ask("read", path=self.path)["balance"]
        a.ask("write-fenced", path=self.path, balance=balance - WITHDRAWAL)
        self.picture.row(
            f"A reads {balance}, writes {balance - WITHDRAWAL}", a="◆", account=self.balance()
        )
        a.ask("release")
        self.picture.row("A releases", a="✓")

    def balance(self) -> int:
        with open(self.path, encoding="utf-8") as file:
            return int(file.read())

    def breathe(self) -> None:
        """For those who watch."""
        time.sleep(self.ttl / 5)


def short(token: int) -> str:
    """The digits in which two tokens of one demonstration differ; all of them are too many."""
    text = str(token)
    return text if len(text) <= 11 else f"…{text[-10:]}"


class Actor:
    """A process that is told what to do. Ended, whatever happens, when the `with` is left."""

    def __init__(self, name: str, demo: Demo) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.demo_actor", demo.namespace],
            # Not among the arguments, which everybody sees: it may have a password.
            env={**os.environ, "HOLDFAST_URL": demo.url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we end them
        )
        self.pid = self._process.pid

    def send(self, verb: str, **details: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its answer says why
            self._process.stdin.write(json.dumps({"verb": verb, **details}) + "\n")
            self._process.stdin.flush()

    def ready(self, timeout: float) -> bool:
        """Returns True if the process answers within so many seconds."""
        import select

        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], timeout)[0])

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline() if self.ready(PATIENCE) else ""
        if not line:
            raise Failed(f"process {self.name} did not answer")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"], answer["status"])
        return answer

    def ask(self, verb: str, **details: Any) -> dict[str, Any]:
        self.send(verb, **details)
        return self.answer()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()  # also if it is frozen
        self._process.wait()
        self._process.stdout.close()
        with suppress(BrokenPipeError):
            self._process.stdin.close()


PLAIN = {"●": "O", "│": "|", "❄": "*", "┊": ":", "○": "o", "◆": "W", "✓": ".", "✗": "X", "…": "~"}


class Picture:
    """The timeline: a line per event as it happens, a lane per process, the account at the right."""

    def __init__(self, out: IO[str]) -> None:
        self._pen = Pen(out, PLAIN)
        self._began = 0.0

    def text(self, text: str) -> None:
        self._write(text + "\n")

    def title(self, text: str) -> None:
        self._write(f"\n{self._in(BOLD, text)}\n")

    def begin(self, a: int, b: int, account: int) -> None:
        self._began = time.monotonic()
        head = f"{'seconds':>8}  A  B  {'A is process ' + str(a) + ', B is ' + str(b):<48} account"
        self._write(self._in(DIM, head) + "\n")
        self.row("", account=account)

    def row(
        self,
        note: str,
        a: str = "",
        b: str = "",
        account: int | None = None,
        good: bool = False,
        bad: bool = False,
    ) -> None:
        at = time.monotonic() - self._began
        colour = RED if bad else GREEN if good else ""
        shown = "" if account is None else str(account)
        self._write(
            f"{at:8.2f}  {self._lane(a)}  {self._lane(b)}  "
            f"{self._in(colour, f'{note:<48}')} {self._in(colour or BOLD, f'{shown:>7}')}".rstrip()
            + "\n"
        )

    def verdict(self, right: bool, text: str, bad: bool = False) -> bool:
        if not right:
            text = f"not as it was meant to be: {text}"
        self._write(self._in(RED if bad or not right else GREEN, text) + "\n")
        return right

    def _lane(self, sign: str) -> str:
        if sign in ("❄", "┊"):
            return self._in(BLUE, sign)
        if sign == "✗":
            return self._in(RED, sign)
        return self._in(GREEN, sign) if sign else " "

    def _in(self, colour: str, text: str) -> str:
        return self._pen.paint(text, colour)

    def _write(self, text: str) -> None:
        self._pen.write(text)
