"""The runs that the options of `holdfast chaos` ask for; what cannot be done is refused before any."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from typing import NamedTuple

from ...chaos.campaign import controls, faults_of, stores_for, why_not
from ...chaos.faults import FAULTS
from ...chaos.labs import LABS, lab_class, own_lab
from ...chaos.peers import PEERS, missing_for
from ...chaos.setup import OURS, TTL, Setup
from ...chaos.tiers import stores as startable
from ..arguments import STORE_OPTIONS, UsageError, unknown
from ..durations import seconds
from ..store import place_of

OPTIONS = {
    **{name: value for name, value in STORE_OPTIONS.items() if name != "--namespace"},
    "--backend": "redis,etcd",
    "--faults": "pause,partition",
    "--duration": "8s",
    "--seed": "7",
    "--workers": "4",
    "--library": "redis-py",
    "--without-controls": "",
    "--grants": "1000",
    "--state": "FOLDER",
    "--jobs": "2",
    "--json": "",
    "--html": "FILE",
    "--markdown": "",
    "--list": "",
}
ALL = "all"
USUAL = "redis"
"""The store that is broken unless another one is named."""
KEPT_SEED = 1
"""The seed of a campaign whose runs are kept, unless another one is named."""
PEER_TTL = 2.0
"""Seconds. Some libraries know whole seconds only."""
UNREPEATED = ("--seed", "--json", "--html", "--markdown", "--url")
"""Options that are left out of the command that repeats a campaign, or written otherwise there."""


class Skipped(NamedTuple):
    """A fault that was asked for by name and cannot be done to a store."""

    store: str
    fault: str
    why: str

    @property
    def text(self) -> str:
        return f"{self.store}  {self.fault}: {self.why}"


class Request:
    """The campaign that some options ask for. Raises `UsageError` if it cannot be made here."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        _refuse_pairs(options)
        url = place_of(options)[0]
        if url == "":
            raise UsageError("--url needs a value: --url URL")
        self.url = url or ""
        """The URL of the user's own store; empty: stores are started here."""
        # With the same seed a campaign whose runs are kept goes on.
        self.seed = _number(options, "--seed", KEPT_SEED if "--state" in options else None)
        self.duration = seconds("--duration", options.get("--duration", "8s"))
        if not 1.0 <= self.duration <= 86400:
            raise UsageError("--duration must be between 1s and 1d")
        self.jobs = _number(options, "--jobs", 2, 64, least=1)
        self.grants = _number(options, "--grants", 0, least=1)
        """The grants of a long campaign; 0: each run is made once."""
        self.state = options.get("--state")
        self.html = options.get("--html")
        self.json = "--json" in options
        self.markdown = "--markdown" in options
        self.controlled = "--without-controls" not in options
        """Whether locks that are known to be bad are among the runs."""
        self._workers = _number(options, "--workers", 4, 100, least=2)
        self._library = options.get("--library", OURS)
        _check_writable(self.html)
        self.remarks: list[str] = []
        """Whatever differs from what a user would expect, in words."""
        self.skipped: list[Skipped] = []
        """The faults that were asked for by name, where they cannot be done."""
        self.setups = self._ours() + self._controls()
        _check_folder(self.state)

    @property
    def command(self) -> str:
        """The command that repeats this campaign."""
        words = ["holdfast", "chaos"]
        for name, value in self._options.items():
            if name not in UNREPEATED:
                words += [name, value] if value else [name]
        if "--url" in self._options:
            words += ["--url", "URL"]  # it may have a password in it
        return shlex.join([*words, "--seed", str(self.seed)])

    def _ours(self) -> list[Setup]:
        """Returns the runs that were asked for, without the controls."""
        library = self._library
        if library != OURS and library not in PEERS:
            raise unknown("library", library, [OURS, *PEERS])
        if (why := missing_for(library)) is not None:
            raise UsageError(f"{library} cannot be used here: {why}")
        wanted = self._faults()
        made = []
        for store in self._stores():
            obstacles = _obstacles(store, self.url)
            able = [fault for fault, why in obstacles.items() if why is None]
            for fault in wanted or able:
                why = obstacles[fault]
                if why is None:
                    made.append(self._setup(store, fault))
                else:
                    self.skipped.append(Skipped(store, fault, why))
        if not made:
            reasons = ["none of these faults can be done to these stores here, see --list"]
            raise UsageError("; ".join([*reasons, *(one.text for one in self.skipped)]))
        for fault in wanted:
            if not any(setup.fault == fault for setup in made):
                texts = "; ".join(one.text for one in self.skipped if one.fault == fault)
                raise UsageError(f"{fault} can be done to none of these stores here: {texts}")
        return made

    def _setup(self, store: str, fault: str) -> Setup:
        return Setup(
            store,
            fault,
            self.seed,
            self._library,
            duration=self.duration,
            workers=self._workers,
            ttl=TTL if self._library == OURS else PEER_TTL,
        )

    def _faults(self) -> list[str]:
        """Returns the faults that were named; none if all that are possible are wanted."""
        if "--faults" not in self._options:
            return []
        found = _words(self._options, "--faults", "fault", list(FAULTS))
        return [] if ALL in found else found

    def _stores(self) -> list[str]:
        if self.url:
            return [self.url.partition(":")[0]]
        missing = startable()
        known = [name for name in stores_for(self._library) if name in LABS]
        possible = [name for name in known if missing[name] is None]
        if "--backend" in self._options:
            kind = "store" if self._library == OURS else f"store for {self._library} called"
            named = _words(self._options, "--backend", kind, known)
            found = [name for name in named if name != ALL]
            if ALL in named:
                found += [name for name in possible if name not in found]
        else:
            found = [USUAL] if USUAL in possible else possible[:1]
            if found != [USUAL] and USUAL in known and found:
                text = f"{USUAL} cannot be started here: {missing[USUAL]}"
                self.remarks.append(f"{text}. {found[0]} is broken in its place")
        for name in found:
            if missing[name] is not None:
                raise UsageError(f"{name} cannot be started here: {missing[name]}")
        if not found:
            reasons = "; ".join(f"{name}: {missing[name]}" for name in known)
            raise UsageError(f"no store for {self._library} can be started here: {reasons}")
        return found

    def _controls(self) -> list[Setup]:
        """Returns the controls. All of them are run, or none, if that was asked for."""
        if not self.controlled:
            return []
        made = controls(self.seed)
        reasons = dict.fromkeys(why for one in made if (why := _why_uncontrolled(one)) is not None)
        if reasons:
            raise UsageError(
                "locks that are known to be bad cannot be run here, so nothing would show that the "
                f"checker catches them: {'; '.join(reasons)}. Or leave them out: --without-controls"
            )
        return made


def _refuse_pairs(options: Mapping[str, str]) -> None:
    """Refuses options that contradict each other."""
    if "--json" in options and "--markdown" in options:
        raise UsageError("--json and --markdown exclude each other; give one of them")
    if "--state" in options and "--grants" not in options:
        raise UsageError("--state is for long campaigns; give --grants, too")
    named = next((name for name in ("--url", "--store") if name in options), None)
    if named is None:
        return
    if "--grants" in options:
        raise UsageError(f"--grants is for stores that are started here; leave {named} out")
    if "--backend" in options:
        raise UsageError(f"--backend and {named} exclude each other; give one of them")


def _number(
    options: Mapping[str, str], name: str, default: int | None, most: int = 2**31, least: int = 0
) -> int:
    given = options.get(name)
    if given is None:
        return int.from_bytes(os.urandom(3)) if default is None else default
    if not (given.isascii() and given.isdigit()) or not least <= int(given) <= most:
        raise UsageError(f"{name} needs a number from {least} to {most}, not {given!r:.40}")
    return int(given)


def _check_writable(path: str | None) -> None:
    """Refuses a file that cannot be written, before anything is run."""
    if path is None:
        return
    there = os.path.lexists(path)
    if there and not (os.path.isfile(path) or os.path.isdir(path)):
        return  # a pipe or a device: to open it may have effects
    try:
        with open(path, "ab"):
            pass
        if not there:
            os.unlink(path)
    except OSError as error:
        raise UsageError(f"--html {path!r:.80} cannot be written: {error.strerror}") from None


def _check_folder(path: str | None) -> None:
    """Makes the folder, and refuses one in which nothing can be kept, before anything is run."""
    if path is None:
        return
    try:
        os.makedirs(path, exist_ok=True)
        TemporaryFile(dir=path).close()
    except OSError as error:
        raise UsageError(f"--state {path!r:.80} cannot be used: {error.strerror}") from None


def _words(options: Mapping[str, str], name: str, kind: str, known: Sequence[str]) -> list[str]:
    """Returns the words of an option that takes several, `all` among them."""
    found = [word for word in options[name].split(",") if word]
    for word in found:
        if word not in known and word != ALL:
            raise unknown(kind, word, [*known, ALL])
    if not found:
        raise UsageError(f"{name} needs a value: {name} {OPTIONS[name]}")
    return list(dict.fromkeys(found))


def _obstacles(store: str, url: str) -> dict[str, str | None]:
    """Returns, for each fault, why it cannot be done to a store here; None if it can."""
    if not url:
        return {fault: why_not(lab_class(store), fault) for fault in FAULTS}
    lab = own_lab(url)  # opens nothing
    return {fault: lab.why_not(fault) for fault in FAULTS}


def _why_uncontrolled(control: Setup) -> str | None:
    """Returns why a control cannot be run here; None if it can."""
    missing = startable()[control.store] or missing_for(control.library)
    if missing is None and control.fault not in faults_of(control.store):
        return why_not(lab_class(control.store), control.fault)
    return missing
