"""The dashboard and the alert rules: they read, and use exactly the metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import promtool
from holdfast.metrics import Metrics
from holdfast.service import Settings
from holdfast.service.service import Service

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"
PAGE = ROOT / "docs" / "metrics.md"


@cache
def families() -> dict[str, tuple[str, frozenset[str]]]:
    """Returns the kind and the labels of each family that the service shows."""
    service = Service(Settings(url="memory://names", metric_group=":"))
    return {
        family.name: (family.kind, frozenset(family.labels)) for family in service.metrics.families
    }


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[object]:
    for rule in rules():
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            title = re.sub(r"\W+", "-", panel["title"])
            yield pytest.param(target["expr"], id=f"{title}-{panel['id']}-{target['refId']}")


def names_in(expression: str) -> set[str]:
    """Returns the families that an expression uses, without the endings of histograms."""
    found = set()
    for name in re.findall(r"\bholdfast_\w+", expression):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        histogram = families().get(base, ("", None))[0] == "histogram"
        found.add(base if histogram else name)
    return found


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_uses_metrics_and_labels_that_there_are(expression: str) -> None:
    used = names_in(expression)
    assert used <= set(families()), f"there is no {used - set(families())}"
    scrape = {"job", "instance", "le"}
    for name, matchers in re.findall(r"\b(holdfast_\w+)\{([^}]*)\}", expression):
        (base,) = names_in(name)
        given = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert given <= families()[base][1] | scrape
    labels = set().union(*(families()[name][1] for name in used)) | scrape
    for by in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in by.split(",")} <= labels
    if "_bucket" in expression:
        assert "histogram_quantile" in expression
    for name in used:
        kind = families()[name][0]
        rate = re.search(rf"(rate|increase)\(\s*{name}", expression)
        assert (kind == "gauge") == (rate is None), "a counter has a rate, a gauge has none"


def test_the_dashboard_shows_every_metric() -> None:
    shown = set()
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            shown |= names_in(target["expr"])
    assert shown == set(families())


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken
                assert x < 24
                taken.add((x, y))


def test_every_alert_says_what_it_is_about() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["alert"].startswith("Holdfast")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_page_lists_every_metric_and_no_other() -> None:
    listed = set(re.findall(r"^\| `(holdfast_\w+)`", PAGE.read_text(), re.MULTILINE))
    assert listed == set(families())
    assert {family.name for family in Metrics().families} <= listed


@promtool.needed
def test_promtool_takes_the_rules_and_they_do_what_they_say() -> None:
    promtool.run("check", "rules", str(ALERTS))
    promtool.run("test", "rules", str(ALERTS.with_name("alerts_test.yaml")))
    promtool.run("check", "config", "--syntax-only", str(ALERTS.with_name("prometheus.yaml")))


@promtool.needed
def test_promtool_takes_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    records = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "5m")
            record = f"panel_{panel['id']}_{target['refId']}".lower()
            records.append({"record": record, "expr": expression})
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    promtool.run("check", "rules", "--lint=none", str(file))
