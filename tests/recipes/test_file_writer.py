"""One writer to a file: no change is lost, and a writer that comes late is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recipes.players import TTL, Cast, cast, waited_for


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Cast]:
    with cast(tmp_path, "file_writer") as made:
        yield made


def test_each_change_counts_though_a_writer_was_killed(writers: Cast) -> None:
    doomed = writers.player(stop_at="compute")
    doomed.stopped()
    others = [writers.player() for _ in range(4)]
    waited_for(writers.url, "counter.txt", 4)
    doomed.kill()
    said = sorted(line for other in others for line in other.succeeded())
    assert said == ["wrote 1", "wrote 2", "wrote 3", "wrote 4"]
    assert (writers.folder / "counter.txt").read_text() == "4\n"


def test_one_that_was_paused_does_not_undo_the_change_of_the_next(writers: Cast) -> None:
    first = writers.player("--ttl", str(TTL), stop_at="compute")
    first.stopped()
    first.freeze()
    assert writers.player().succeeded() == ["wrote 1"]
    assert writers.player().succeeded() == ["wrote 2"]
    first.thaw()
    first.go()
    status, _ = first.ended()
    assert status == 1
    assert "nothing written" in first.complaints()
    assert (writers.folder / "counter.txt").read_text() == "2\n"
