"""Celery: tasks that hold a lock, tasks that run once, and one beat of many.

from holdfast.contrib.celery import LockedTask

app = Celery("shop", broker="redis://localhost:6379/0")
app.conf.holdfast_url = "redis://localhost:6379/1"

@app.task(base=LockedTask, bind=True, lock="invoice:{number}")
def pay(self, number):
    write(number, token=self.lease.token)

One beat of many: `celery -A shop beat --scheduler holdfast.contrib.celery.BeatScheduler`.
"""

from ...refusals import lacks

try:
    import celery as _celery
except ImportError as missing:
    raise ImportError(lacks(__name__, "Celery", "celery")) from missing

from .beat import BeatScheduler, OnceForAllBeats
from .managers import locks_of
from .tasks import LockedTask, OnceTask

del _celery, lacks

__all__ = ["BeatScheduler", "LockedTask", "OnceForAllBeats", "OnceTask", "locks_of"]
