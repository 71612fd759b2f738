"""Metrics for Prometheus: what happens to leases, at fences, and on the way to the store.

    metrics = holdfast.metrics.Metrics()
    metrics.watch(locks)
    print(metrics.text())

It needs no other package. Those who use `prometheus_client` register it there:
`REGISTRY.register(metrics)`.
"""

from .metrics import Metrics

__all__ = ["Metrics"]
