"""The picture of a chaos run, in a real browser: what is seen, pointed at, typed and printed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Browser
from chaos import reports
from chaos.pictures import Picture
from holdfast.chaos.picture import draw

AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
HOSTILE = (
    '<img src=x onerror="window.hurt = 1">',
    "</script><script>window.hurt = 2</script>",
    "<!--<script>",
    "{{script}}",
    "\ud800 \u2028 \x00 \u202e",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def several(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Picture]:
    picture = Picture(browser, tmp_path_factory.mktemp("several"), reports.several())
    yield picture
    picture.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    shown: list[Picture] = []

    def show(report: dict[str, Any], **size: Any) -> Picture:
        shown.append(Picture(browser, tmp_path, report, **size))
        return shown[-1]

    yield show
    for picture in shown:
        picture.close()


def test_the_verdict_stands_above_it_in_a_sentence(show: Any) -> None:
    page = show(reports.report(reports.redis_pause())).page
    assert page.text("h1") == (
        "Redis, process pause: two holders once, for up to 0.50 s; "
        "the fence refused 3 stale writes, without it 3 were accepted"
    )
    assert "Every promise was kept" in page.text("#outcome")
    assert "--faults pause --seed 42" in page.text("#command")
    assert page.run("document.getElementById('several').hidden")
    assert page.text("#must").count("kept") == 4
    assert page.text("#reported").count("happened") == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_happened_is_drawn_in_both_schemes(show: Any, scheme: str) -> None:
    picture = show(reports.report(reports.redis_pause()))
    picture.page.prefer(color_scheme=scheme, reduced_motion="reduce")
    for name in ("hold", "hold-text", "stale", "wait", "good", "refused", "bad", "told", "overlap"):
        assert picture.has(name), name
    assert not picture.has("fault")
    background = picture.page.run("getComputedStyle(document.body).backgroundColor")
    darkness = sum(map(int, re.findall(r"\d+", background)))
    assert darkness < 200 if scheme == "dark" else darkness > 600


def test_a_run_is_chosen_in_the_table_and_in_the_list(several: Picture) -> None:
    page = several.page
    assert page.text("h1") == (
        "3 runs on 3 stores: every promise was kept, and 1 of 1 lock known to be bad was caught"
    )
    page.click("#matrix tr:nth-child(2) button")
    assert page.text("#run-title").startswith("etcd, network partition: never two holders")
    assert several.has("fault")
    assert page.run("location.hash") == "#etcd-partition"
    assert page.run("document.activeElement.id") == "run-title"
    page.run(
        "(s => { s.value = '3'; s.dispatchEvent(new Event('change')) })"
        "(document.getElementById('run-choice'))"
    )
    assert page.text("#run-title").startswith("redis-py on Redis, process pause")
    assert "its defect (exclusion) was found" in page.text("#outcome")
    current = page.run("document.querySelector('[aria-current]').textContent")
    assert "redis-py on Redis (control), process pause: caught" in current


def test_a_library_that_promises_nothing_is_not_praised(show: Any) -> None:
    other = {**reports.control(), "control": None}
    page = show(reports.report(other, reports.control())).page
    assert page.text("h1").startswith(
        "1 run on 1 store: redis-py promises nothing, and 1 of 1 lock"
    )
    assert page.text("#outcome").endswith("redis-py promises nothing: this is what was seen.")
    assert "process pause: seen " in " ".join(page.text("#matrix button").split())
    assert "1 stale accepted" in page.text("#matrix button")


def test_it_zooms_and_pans_by_wheel_mouse_keys_and_buttons(show: Any) -> None:
    picture = show(reports.report(reports.redis_pause()))
    page = picture.page
    x, y = picture.corner()
    seen = {"whole": picture.dots()}

    def looks_new(name: str) -> None:
        dots = picture.dots()
        assert dots not in seen.values(), name
        seen[name] = dots

    page.mouse("mouseWheel", x + 700, y + 150, deltaX=0, deltaY=-200, modifiers=2)
    looks_new("ctrl and wheel")
    page.mouse("mouseWheel", x + 700, y + 150, deltaX=120, deltaY=0)
    looks_new("wheel sideways")
    page.click("#whole")
    assert picture.dots() == seen["whole"]
    x, y = picture.corner()
    page.mouse("mousePressed", x + 400, y + 150, button="left", buttons=1)
    page.mouse("mouseMoved", x + 600, y + 150, button="left", buttons=1)
    page.mouse("mouseReleased", x + 600, y + 150, button="left")
    page.mouse("mouseMoved", x + 600, y + 5)
    looks_new("a range")
    picture.focus()
    page.press("-")
    looks_new("minus")
    page.press("ArrowRight", shift=True)
    looks_new("shift and arrow")
    page.press("0")
    assert picture.dots() == seen["whole"]
    page.click("#zoom-in")
    looks_new("a button")
    page.click("#zoom-out")
    assert picture.dots() == seen["whole"]


def test_fingers_pinch_and_swipe(show: Any) -> None:
    picture = show(reports.report(reports.redis_pause()), width=390, height=800)
    page = picture.page
    page.resize(390, 800, touch=True)
    x, y = picture.corner()
    whole = picture.dots()

    def touch(kind: str, *places: float) -> None:
        points = [{"x": x + place, "y": y + 100, "id": i} for i, place in enumerate(places)]
        page.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    touch("touchStart", 150, 200)
    for step in range(10, 101, 10):
        touch("touchMove", 150 - step, 200 + step)
    touch("touchEnd")
    near = picture.dots()
    assert near != whole
    touch("touchStart", 300)
    for step in range(10, 151, 10):
        touch("touchMove", 300 - step)
    touch("touchEnd")
    assert picture.dots() not in (near, whole)


def test_pointing_at_a_grant_tells_its_story(show: Any) -> None:
    picture = show(reports.report(reports.redis_pause()))
    page = picture.page
    page.click(".moment")
    story = picture.story()
    for words in (
        "The story of worker-2, token 41",
        "was granted it with token 41",
        "pause began: SIGSTOP",
        "meanwhile worker-1 was granted the lock with token 42",
        "refused by the fence, and accepted without a fence",
        "learned that its lease was lost, 1.3",
    ):
        assert words in story, words
    x, y = picture.corner()
    assert page.run("document.getElementById('tip').hidden")
    page.mouse("mouseMoved", x + 700, y + 125)
    assert "token 41" in page.text("#tip")
    page.mouse("mouseMoved", x + 700, y + 5)
    assert page.run("document.getElementById('tip').hidden")


def test_the_keyboard_alone_is_enough(show: Any) -> None:
    picture = show(reports.report(reports.redis_pause()))
    page = picture.page
    reached = []
    for _ in range(30):
        page.press("Tab")
        reached.append(page.run("document.activeElement.id || document.activeElement.className"))
        if reached[-1] == "lanes":
            break
    assert "moment" in reached
    assert "next" in reached
    assert reached[-1] == "lanes"
    page.press("ArrowRight")
    first = picture.story()
    page.press("ArrowRight")
    second = picture.story()
    page.press("ArrowDown")
    third = picture.story()
    assert len({first, second, third}) == 3
    assert "The story of worker-" in first
    page.press("n")
    assert page.text("#place") == "1 of 5"
    page.press("Escape")
    assert "Choose a bar" in picture.story()


def test_texts_are_texts_whatever_is_in_them(show: Any) -> None:
    report = reports.several()
    text = " ".join(HOSTILE)

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        plain = {"kind", "demand", "at", "id", "lane", "from"}
        return f"{value} {text}" if isinstance(value, str) and key not in plain else value

    report = spoil(report)
    for run in report["runs"]:
        run["id"] += text
    picture = show(report)
    page = picture.page
    page.click("#matrix tr:nth-child(1) button")
    page.click("#next")
    page.click("summary")
    assert "onerror" in page.text("h1") + page.text("#run-title")
    assert "onerror" in page.text("#command")
    assert "onerror" in picture.story()
    assert page.run("window.hurt") is None
    assert page.run("document.querySelectorAll('img, main script').length") == 0


def test_the_file_allows_nothing_but_itself() -> None:
    text = draw(reports.several())
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)
    assert "http://" not in text
    assert "https://" not in text
    data = text.split('id="report">')[1].split("</script>")[0]
    assert json.loads(data) == reports.several()


def test_numbers_that_json_lacks_are_left_out() -> None:
    report = reports.report(reports.redis_pause())
    report["runs"][0]["figures"]["told_before"] = float("inf")
    data = draw(report).split('id="report">')[1].split("</script>")[0]
    assert json.loads(data)["runs"][0]["figures"]["told_before"] is None


@pytest.mark.parametrize("width", [1440, 768, 390, 320])
def test_no_width_makes_the_page_scroll_sideways(several: Picture, width: int) -> None:
    several.page.resize(width, 800)
    several.page.frames()
    assert several.page.run("document.documentElement.scrollWidth") == width
    several.page.resize(1440, 900)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_core_finds_nothing(several: Picture, scheme: str) -> None:
    page = several.page
    page.prefer(color_scheme=scheme, reduced_motion="reduce")
    page.run("document.getElementById('grants').open = true")
    page.click("#next")
    page.frames()
    assert page.violations(AXE.read_text()) == []


def test_it_prints_on_white_in_whole(several: Picture) -> None:
    page = several.page
    page.prefer(color_scheme="dark", reduced_motion="reduce")
    before = several.dots()
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    assert several.dots() == before
    size = page.run(
        "(c => { dispatchEvent(new Event('beforeprint')); const s = [c.width, c.height];"
        " dispatchEvent(new Event('afterprint')); return s })(document.getElementById('stage'))"
    )
    assert size[0] == 2000


@pytest.mark.parametrize(
    "report",
    [
        {},
        reports.report(),
        reports.report({"id": "none", "passed": None}),
        reports.report({"id": "not made", "error": "no Redis here", "passed": False}),
        reports.report({"lanes": [], "events": [], "verdicts": [], "passed": True}),
        reports.report({"events": [{"at": 0, "lane": "w", "kind": "ask"}], "passed": True}),
        reports.report({"events": [{"at": 1, "kind": "new"}, {"kind": "ask"}], "passed": False}),
    ],
)
def test_a_report_with_little_in_it_is_drawn(show: Any, report: dict[str, Any]) -> None:
    page = show(report).page
    assert page.text("h1")
    page.run("document.getElementById('lanes').focus()")
    for key in ("ArrowRight", "ArrowDown", "Enter", "n", "+", "0"):
        page.press(key)
    page.frames()


def test_a_run_that_was_interrupted_is_drawn_as_far_as_it_went(show: Any) -> None:
    run = reports.redis_pause()
    run["events"] = [event for event in run["events"] if event["at"] < 5.0]
    for event in run["events"]:
        if event["kind"] == "fault":
            event["until"] = None
    page = show(reports.report(run | {"stopped": True, "figures": {}})).page
    assert "interrupted" in page.text("#outcome")
    page.click("#next")
    assert "until the run ended" in page.text(".card")


def test_a_run_without_any_fault_says_so(show: Any) -> None:
    idle = {"passed": None, "not_judged": "no fault could be done: strace may not attach"}
    page = show(reports.report(reports.redis_pause() | idle, reports.etcd_partition())).page
    assert "2 runs on 2 stores: 1 of them not judged" in page.text("h1")
    page.click("#matrix tr:nth-child(1) button")
    assert "Not judged: no fault could be done" in page.text("#outcome")


def test_many_events_stay_smooth(show: Any) -> None:
    """A frame costs about 30 ms of a processor, whatever else the machine does."""
    page = show(reports.large()).page
    before = page.busy()
    page.run(
        "(async () => { const c = document.getElementById('stage');"
        " for (let i = 0; i < 20; i++) {"
        " c.dispatchEvent(new WheelEvent('wheel', {deltaY: i < 10 ? -60 : 60, ctrlKey: true,"
        " clientX: 700, bubbles: true, cancelable: true}));"
        " await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))) } })()"
    )
    assert (page.busy() - before) / 20 < 0.15


def test_many_lanes_are_drawn_where_they_are_in_view(show: Any) -> None:
    events = [
        {"at": i / 100, "lane": f"w{i}", "kind": kind, "token": i, "lock": "x"}
        for i in range(10_000)
        for kind in ("ask", "grant", "release")
    ]
    picture = show(reports.report({"id": "wide", "events": events, "passed": True}))
    before = picture.dots()
    picture.page.run("document.getElementById('lanes').scrollTop = 1e9")
    assert picture.dots() != before
    height = picture.page.run("document.getElementById('stage').height")
    assert height < 1000
