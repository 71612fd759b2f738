"""Verdicts: what was seen in a run, held against what the store promises.

What the store promises under the fault *must hold*; the rest is *reported*. A store that breaks a
promise fails, and so does one that has a weakness which its guarantees do not declare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..guarantees import Guarantees
from .judge import Findings
from .promises import Promise
from .registers import FENCED, UNFENCED

MUST, REPORTED = "must hold", "reported"
EXCLUSION = "exclusion"
FENCE = "stale writes accepted (fenced)"
NO_FENCE = "stale writes accepted (unfenced)"
ORDER = "token order"
TOLD = "told before its rival"
RECOVERY = "recovery"
GHOSTS = "ghosts"
DECLARED = "weakness declared"
RULES = (EXCLUSION, FENCE, NO_FENCE, ORDER, TOLD, RECOVERY, GHOSTS, DECLARED)


class Verdict(NamedTuple):
    rule: str
    demand: str
    """`must hold` or `reported`."""
    claim: str
    """The words of the store's guarantees about the rule."""
    held: bool
    times: int
    """How often it was broken, or what was counted."""
    seconds: float
    """The longest time that it was broken for, or what was measured."""
    text: str

    def as_json(self) -> dict[str, object]:
        """Returns it as the report has it."""
        fields = self._asdict()
        return {("count" if name == "times" else name): value for name, value in fields.items()}

    @property
    def failed(self) -> bool:
        return self.demand == MUST and not self.held


class Ending(NamedTuple):
    """The state that a conductor saw after the last fault."""

    stuck: Sequence[str] = ()
    """The workers that were not granted the lock any more."""
    ghosts: Sequence[str] = ()
    """The things left on the store when it should have been empty."""
    starved: Sequence[str] = ()
    """The workers that got no lock while others did, on a store that promises no order."""
    limit: float = 0.0
    """The seconds that a worker was given."""


def verdicts_of(
    seen: Findings, ending: Ending, guarantees: Guarantees | None, promise: Promise
) -> list[Verdict]:
    """Returns a verdict for each rule. Without guarantees, as for other libraries, all is reported."""
    ours = guarantees is not None
    says = guarantees._asdict() if guarantees is not None else {}
    declared = promise.declared
    kept = MUST if ours and promise.exclusion else REPORTED
    ordered = MUST if ours and promise.tokens else REPORTED
    always = MUST if ours else REPORTED
    found = [
        _exclusion(seen, kept, declared or says.get("consistency", "")),
        _writes(seen, FENCED, always if promise.tokens else ordered),
        _writes(seen, UNFENCED, REPORTED),
        _order(seen, ordered, says.get("token_source", "")),
        _told(seen, kept, declared),
        _recovery(seen, ending, always, says.get("auto_release", "")),
        _ghosts(seen, ending, always, says.get("auto_release", "")),
    ]
    if ours:
        found.append(_declared(found, promise))
    return found


def _exclusion(seen: Findings, demand: str, claim: str) -> Verdict:
    breaks = seen.overlaps
    longest = max((seconds for _, seconds in breaks), default=0.0)
    asleep = max((one.seconds for one in seen.sleepers), default=0.0)
    if breaks:
        text = f"{times(len(breaks))} two holders at once, each sure of it: {breaks[0][0]}"
    elif seen.sleepers:
        text = (
            f"kept by all that holders could know; {times(len(seen.sleepers))} one slept on after a "
            f"rival's grant, for up to {asleep:.2f} s"
        )
    else:
        text = "never two holders at once"
    return Verdict(EXCLUSION, demand, claim, not breaks, len(breaks), longest, text)


def _writes(seen: Findings, register: str, demand: str) -> Verdict:
    writes = seen.writes[register]
    rule = FENCE if register == FENCED else NO_FENCE
    if register == FENCED and not writes.total:
        return Verdict(rule, REPORTED, "", True, 0, 0.0, "no tokens, so no fence can be used")
    text = f"{writes.tried} came too late"
    if writes.tried:
        text += f": {writes.refused} refused, {writes.accepted or 'none'} "
        text += "ACCEPTED" if writes.accepted else "accepted"
    claim = "a fence refuses every token that is lower than one it has seen"
    claim = (
        claim
        if register == FENCED
        else "no lock can stop a late write; this is why there are fences"
    )
    return Verdict(rule, demand, claim, not writes.accepted, writes.accepted, 0.0, text)


def _order(seen: Findings, demand: str, claim: str) -> Verdict:
    if not seen.checker.order_promised:
        return Verdict(ORDER, REPORTED, "", True, 0, 0.0, "it has no tokens")
    breaks = seen.disorder
    text = f"{times(len(breaks))}: {breaks[0][0]}" if breaks else "every grant had a higher one"
    return Verdict(ORDER, demand, claim, not breaks, len(breaks), 0.0, text)


def _told(seen: Findings, demand: str, declared: str) -> Verdict:
    claim = declared or "a holder learns that its lease is over before a rival is granted the lock"
    late = seen.told_late
    in_time = [one.margin for one in seen.told if one.margin >= 0]
    asleep = len(seen.told) - len(in_time) - len(late)
    least = min(in_time, default=0.0)
    parts = []
    if in_time:
        parts.append(f"{times(len(in_time))}, by {least:.2f} s or more")
    if asleep:
        parts.append(f"{times(asleep)} it stood still and could not be told")
    if late:
        worst = max(-one.margin for one in late)
        parts.append(f"{times(len(late))} TOO LATE, by up to {worst:.2f} s")
    text = "; ".join(parts) or "no lease was lost"
    return Verdict(TOLD, demand, claim, not late, len(late), least, text)


def _recovery(seen: Findings, ending: Ending, demand: str, claim: str) -> Verdict:
    times = [seconds for seconds in seen.recoveries if seconds is not None]
    longest = max(times, default=0.0)
    held = not ending.stuck
    text = f"granted again {longest:.2f} s after the fault, at most" if times else "not disturbed"
    if ending.starved:
        text += f"; others were always first, for {ending.limit:g} s: {', '.join(ending.starved)}"
    if ending.stuck:
        text = f"not granted again in {ending.limit:g} s: {', '.join(ending.stuck)}"
    return Verdict(RECOVERY, demand, claim, held, len(ending.stuck), longest, text)


def _ghosts(seen: Findings, ending: Ending, demand: str, claim: str) -> Verdict:
    left = list(ending.ghosts)
    if demand == REPORTED:  # another library: what it leaves behind is in others' way
        longest = max(seen.gaps, default=0.0)
        count = len(seen.gaps) + len(left)
        text = f"{times(count)} a lock stood closed that nobody had, for up to {longest:.2f} s"
        return Verdict(
            GHOSTS, demand, "", not count, count, longest, text if count else "nothing was left"
        )
    text = (
        f"left on the store: {'; '.join(left)[:300]}" if left else "nothing was left on the store"
    )
    return Verdict(GHOSTS, demand, claim, not left, len(left), 0.0, text)


def _declared(found: Sequence[Verdict], promise: Promise) -> Verdict:
    """Returns whether each weakness that was seen is one that the guarantees declare."""
    rules = (EXCLUSION, ORDER, TOLD)
    broken = [one for one in found if one.rule in rules and not one.held]
    secret = [one for one in broken if one.demand == MUST]
    if secret:
        text = "not declared: " + ", ".join(one.rule for one in secret)
    elif broken:
        text = "as declared: " + ", ".join(one.rule for one in broken)
    else:
        text = "no weakness was seen"
    return Verdict(DECLARED, MUST, promise.declared, not secret, len(secret), 0.0, text)


def times(count: int) -> str:
    """Returns how often something happened, in words."""
    return "once" if count == 1 else f"{count} times"


def figures_of(seen: Findings, ending: Ending) -> dict[str, float | int | None]:
    """Returns the figures of a run."""
    unfenced, fenced = seen.writes[UNFENCED], seen.writes[FENCED]
    margins = [one.margin for one in seen.told if one.margin >= 0]
    recoveries = [seconds for seconds in seen.recoveries if seconds is not None]
    return {
        "grants": len(seen.holds),
        "faults": len(seen.faults),
        "missed": len(seen.misses),
        "writes": unfenced.total,
        "stale_tried": unfenced.tried,
        "stale_refused": fenced.refused,
        "stale_accepted": fenced.accepted,
        "stale_accepted_unfenced": unfenced.accepted,
        "overlaps": len(seen.overlaps),
        "overlap_seconds": round(max((s for _, s in seen.overlaps), default=0.0), 6),
        "slept": len(seen.sleepers),
        "slept_seconds": round(max((one.seconds for one in seen.sleepers), default=0.0), 6),
        "disorder": len(seen.disorder),
        "told": len(margins),
        "told_before": round(min(margins), 6) if margins else None,
        "told_late": len(seen.told_late),
        "recovery_seconds": round(max(recoveries), 6) if recoveries else None,
        "ghosts": len(ending.ghosts) + (len(seen.gaps) if not seen.checker.order_promised else 0),
    }
