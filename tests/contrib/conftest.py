"""What the tests of the extras share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as numbers
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from celery import Celery

names = numbers()


@pytest.fixture
def app() -> Iterator[Celery]:
    """An application of Celery's that runs its tasks in this process, eagerly."""
    from celery import Celery

    from holdfast.contrib.celery import locks_of

    one = Celery("eager", broker="memory://", set_as_current=False)
    one.conf.update(
        holdfast_url=f"memory://celery-{next(names)}",
        task_always_eager=True,
        task_eager_propagates=True,
    )
    yield one
    locks_of(one).close()
    one.close()
