"""Families as text, in the format of Prometheus or of OpenMetrics; and for `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .families import Family, Sample, number

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Shown = tuple[Family[Any], list[Sample]]
"""A family, and its samples at one moment."""

_IN_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def text_of(shown: Iterable[Shown], openmetrics: bool = False) -> str:
    """Returns the families as text."""
    lines: list[str] = []
    for family, samples in shown:
        if not samples:
            continue
        name = family.name
        # OpenMetrics calls the family of a counter by its name without `_total`.
        title = name.removesuffix("_total") if openmetrics else name
        lines.append(f"# HELP {title} {family.help.translate(_IN_HELP)}")
        lines.append(f"# TYPE {title} {family.kind}")
        for ending, labels, value in samples:
            pairs = ",".join(f'{label}="{text.translate(_IN_LABEL)}"' for label, text in labels)
            lines.append(
                f"{name}{ending}{{{pairs}}} {number(value)}"
                if pairs
                else f"{name}{ending} {number(value)}"
            )
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def content_type(accept: str) -> str:
    """Returns the format for a client that sends this `Accept` header."""
    return OPENMETRICS if "application/openmetrics-text" in accept.lower() else PLAIN


def client_families(shown: Iterable[Shown]) -> Iterator[Any]:
    """Yields the families as those of `prometheus_client`, whose registry collects them."""
    from prometheus_client.core import Metric

    for family, samples in shown:
        metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
        for ending, labels, value in samples:
            metric.add_sample(family.name + ending, dict(labels), value)
        yield metric
