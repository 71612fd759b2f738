"""Run by `test_greenlets`: two greenlets of one thread want the same resource at the same time."""

import sys

from gevent import monkey

monkey.patch_all()

import gevent  # noqa: E402

from holdfast.fences import FileFence, MemoryFence  # noqa: E402


def main(kind: str, path: str) -> None:
    fence = MemoryFence() if kind == "memory" else FileFence()
    order: list[str] = []

    def work(token: int) -> None:
        with fence.hold(path, token):
            order.append(f"{token} in")
            gevent.sleep(0.1)
            order.append(f"{token} out")

    gevent.joinall([gevent.spawn(work, token) for token in (34, 35)], raise_error=True)
    print(*order, sep=", ")


main(*sys.argv[1:])
