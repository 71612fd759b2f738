"""What is counted of each event, and how it is shown."""

from __future__ import annotations

import ast
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

import holdfast
import promtool
from holdfast import Call, Event
from holdfast.events import refusals
from holdfast.fences import FileFence, MemoryFence
from holdfast.metrics import Metrics
from holdfast.metrics.exposition import OPENMETRICS, PLAIN
from holdfast.metrics.losses import REASONS, reason_of

ENGINE = Path(holdfast.__file__).parent / "_async"


def event(kind: str, name: str = "x", duration: float = 0.2, detail: str = "") -> Event:
    return Event(kind, name, "owner", 7, duration, 1_700_000_000.0, detail)


def values(metrics: Metrics) -> dict[str, float]:
    """Returns each sample by its name and labels, as Prometheus' own parser reads it."""
    return {
        " ".join([sample.name, *(f"{key}={value}" for key, value in sample.labels.items())]): (
            sample.value
        )
        for family in plain_families(metrics.text())
        for sample in family.samples
    }


def busy_metrics() -> Metrics:
    """Returns metrics in which every family has something."""
    metrics = Metrics(group=":")
    for kind, detail in (
        ("acquired", ""),
        ("acquired", "waited"),
        ("waited", "granted"),
        ("timed_out", "busy"),
        ("timed_out", "gave up"),
        ("failed", "the store did not answer"),
        ("interrupted", "CancelledError"),
        ("renewed", ""),
        ("renewed", "late"),
        ("uncertain", "no answer"),
        ("lost", "its max_hold is over"),
        ("released", ""),
        ("release_failed", "no answer"),
        ("forced", "by host:1"),
        ("unheard of", ""),
    ):
        metrics(event(kind, 'in"voice\\:\n1', detail=detail))
    metrics.called(Call("acquire", 0.004, 0.0))
    metrics.called(Call("renew", 0.004, 0.0, holdfast.BackendUnavailable("no answer")))
    metrics.called(Call("renew", 0.004, 0.0, holdfast.ConfigError("no")))
    metrics.called(Call("renew", 0.004, 0.0, KeyboardInterrupt()))
    return metrics


def test_each_event_is_counted_where_it_belongs() -> None:
    shown = values(busy_metrics())
    group = 'group=in"voice\\'
    for outcome in ("at_once", "after_waiting", "timed_out", "busy", "failed", "interrupted"):
        assert shown[f"holdfast_attempts_total outcome={outcome} {group}"] == 1
    for outcome in ("in_time", "late", "unanswered"):
        assert shown[f"holdfast_renewals_total outcome={outcome} {group}"] == 1
    assert shown[f"holdfast_wait_seconds_count outcome=granted {group}"] == 2
    assert shown[f"holdfast_wait_seconds_count outcome=timed_out {group}"] == 1
    assert shown[f"holdfast_hold_seconds_count {group}"] == 2
    assert shown[f"holdfast_leases_lost_total reason=max_hold {group}"] == 1
    assert shown[f"holdfast_leases_lost_total reason=expired {group}"] == 0
    assert shown[f"holdfast_releases_failed_total {group}"] == 1
    assert shown[f"holdfast_forced_releases_total {group}"] == 1
    assert shown["holdfast_store_call_seconds_count verb=acquire"] == 1
    assert shown["holdfast_store_errors_total verb=acquire error=unavailable"] == 0
    assert shown["holdfast_store_errors_total verb=renew error=unavailable"] == 1
    assert shown["holdfast_store_errors_total verb=renew error=refused"] == 1


def test_a_histogram_counts_up_to_each_bound() -> None:
    metrics = Metrics()
    for seconds in (0.0, 0.001, 0.0011, 0.3, 1000.0):
        metrics(event("acquired", duration=seconds))
    shown = values(metrics)

    def below(bound: str) -> float:
        return shown[f"holdfast_wait_seconds_bucket outcome=granted le={bound}"]

    assert (below("0.001"), below("0.0025"), below("0.25"), below("0.5")) == (2, 3, 3, 4)
    assert (below("300.0"), below("+Inf")) == (4, 5)
    assert shown["holdfast_wait_seconds_sum outcome=granted"] == pytest.approx(1000.3021)


def test_counters_are_there_before_anything_has_happened() -> None:
    shown = values(Metrics())
    assert shown["holdfast_leases_lost_total reason=expired"] == 0
    assert shown["holdfast_forced_releases_total"] == 0
    assert shown["holdfast_stale_writes_refused_total reason=stale"] == 0
    assert shown["holdfast_attempts_total outcome=failed"] == 0


@promtool.needed
def test_promtool_finds_no_fault() -> None:
    promtool.check_metrics(Metrics().text())
    promtool.check_metrics(busy_metrics().text())


def test_a_client_may_have_openmetrics() -> None:
    metrics = busy_metrics()
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    assert metrics.content_type(accept) == OPENMETRICS
    assert metrics.content_type("text/plain") == metrics.content_type("") == PLAIN
    parse: Any = open_families
    families = {family.name: family for family in parse(metrics.text(accept))}
    assert families["holdfast_attempts"].type == "counter"
    assert families["holdfast_hold_seconds"].type == "histogram"


def test_a_registry_of_prometheus_client_collects_the_same() -> None:
    metrics = busy_metrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    theirs = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in plain_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    ours = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in plain_families(metrics.text())
        for sample in family.samples
    }
    assert theirs == ours


# Groups.


def test_the_name_of_a_lock_is_no_label() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics(event("acquired", f"invoice:{number}"))
    assert "invoice" not in metrics.text()
    assert values(metrics)["holdfast_attempts_total outcome=at_once"] == 100


def test_only_so_many_groups_are_told_apart() -> None:
    metrics = Metrics(group=":", groups=3)
    for number in range(10):
        metrics(event("acquired", f"g{number}:x"))
    metrics(event("acquired", "no separator"))
    shown = values(metrics)
    assert shown["holdfast_attempts_total outcome=at_once group=g2"] == 1
    assert shown["holdfast_attempts_total outcome=at_once group=other"] == 8
    assert "g3" not in metrics.text()


def test_a_group_may_be_any_function_of_the_name() -> None:
    metrics = Metrics(group=lambda name: name[-3:])
    metrics(event("acquired", "invoice.pdf"))
    assert values(metrics)["holdfast_attempts_total outcome=at_once group=pdf"] == 1


def test_a_group_function_that_fails_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(group=lambda name: 1)  # type: ignore[arg-type]
    metrics(event("acquired", "a"))
    metrics(event("acquired", "b"))
    assert values(metrics)["holdfast_attempts_total outcome=at_once group=other"] == 2
    assert len(caplog.records) == 1
    assert "'a'" in caplog.text


@pytest.mark.parametrize(
    "options", [{"group": ""}, {"group": 1}, {"groups": 0}, {"groups": 1001}, {"groups": True}]
)
def test_a_rule_that_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(holdfast.ConfigError):
        Metrics(**options)  # type: ignore[arg-type]


# Losses.


def test_each_reason_of_the_engine_for_a_loss_has_a_word() -> None:
    said: set[str] = set()
    for path in ENGINE.glob("*.py"):
        tree = ast.parse(path.read_text())
        names = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("_end", "_recall") and node.args:
                text: ast.expr | None = node.args[0]
                if isinstance(text, ast.Name):
                    text = names.get(text.id)
                if isinstance(text, ast.Constant):
                    said.add(str(text.value))
                elif isinstance(text, ast.JoinedStr):
                    parts = [part.value for part in text.values if isinstance(part, ast.Constant)]
                    assert reason_of("".join(map(str, parts))) == "with_another"
    assert said == set(REASONS)
    assert reason_of("something new") == "other"


# Fences.


def test_a_fence_tells_of_each_token_that_it_refuses(tmp_path: Path) -> None:
    metrics = Metrics()
    memory, single, file = MemoryFence(), MemoryFence(single_use=True), FileFence()
    memory.guard("x", token=5)
    single.guard("x", token=5)
    file.write(tmp_path / "x", b"new", token=5)
    late: list[Callable[[], object]] = [
        lambda: memory.guard("x", token=4),
        lambda: single.guard("x", token=5),
        lambda: file.write(tmp_path / "x", b"old", token=4),
    ]
    for refused in late:
        with pytest.raises(holdfast.StaleToken):
            refused()
    shown = values(metrics)
    assert shown["holdfast_stale_writes_refused_total reason=stale"] == 2
    assert shown["holdfast_stale_writes_refused_total reason=used"] == 1


def test_a_fence_that_is_verified_tells_of_nothing(tmp_path: Path) -> None:
    metrics = Metrics()
    MemoryFence().verify()
    FileFence().verify(tmp_path)
    assert values(metrics)["holdfast_stale_writes_refused_total reason=stale"] == 0


def test_metrics_that_nobody_has_any_more_are_told_nothing() -> None:
    gc.collect()
    before = len(refusals)
    metrics = Metrics()
    assert len(refusals) == before + 1
    del metrics
    gc.collect()
    assert len(refusals) == before


# Threads and processes.


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2000):
            metrics(event("acquired"))
            metrics.called(Call("acquire", 0.001, 0.0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.text()
    for thread in threads:
        thread.join()
    shown = values(metrics)
    assert shown["holdfast_attempts_total outcome=at_once"] == 8000
    assert shown["holdfast_store_call_seconds_count verb=acquire"] == 8000


def test_an_event_may_come_while_another_is_counted() -> None:
    # As from the handler of a signal, which releases a lease.
    def group(name: str) -> str:
        if name == "x":
            metrics(event("released", "y"))
        return "g"

    metrics = Metrics(group=group)
    metrics(event("acquired", "x"))
    assert values(metrics)["holdfast_hold_seconds_count group=g"] == 1


def test_a_forked_child_begins_at_zero() -> None:
    metrics = Metrics()
    metrics(event("acquired"))
    reading, writing = os.pipe()
    inside = threading.Event()
    leave = threading.Event()

    def count() -> None:
        with metrics._mutex:
            inside.set()
            leave.wait(20)

    busy = threading.Thread(target=count)
    busy.start()
    inside.wait(20)
    child = os.fork()  # while another thread is inside
    if child == 0:
        metrics(event("acquired"))
        metrics(event("acquired"))
        shown = 'at_once"} 2\n' in metrics.text()
        os.write(writing, b"2" if shown else b"?")
        os._exit(0)
    leave.set()
    busy.join()
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"2"
    os.waitpid(child, 0)
    assert values(metrics)["holdfast_attempts_total outcome=at_once"] == 1
