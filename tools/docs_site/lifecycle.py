"""python -m docs_site.lifecycle: draw the states of a lease into docs/pictures.

The arrows are those of the table in `holdfast.lifecycle`; only the places of the boxes are chosen here.
"""

from __future__ import annotations

import math
from pathlib import Path

from holdfast.lifecycle import HELD, LOST, RELEASED, TRANSITIONS, UNCERTAIN

TARGET = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH, HEIGHT = 880, 320
BOX = (226, 76)
PLACES = {HELD: (245, 78), UNCERTAIN: (635, 78), RELEASED: (245, 258), LOST: (635, 258)}
"""The middle of the box of each state."""
MEANINGS = {
    HELD: "its end lies ahead",
    UNCERTAIN: "a renewal was not answered",
    RELEASED: "by our own doing",
    LOST: "its end came, or we were told",
}
SCHEMES = {
    "": {"ground": "#f6f8fa", "ink": "#1c2733", "soft": "#57636f", HELD: "#2f62c8"}
    | {UNCERTAIN: "#8a5a00", LOST: "#b3261e", RELEASED: "#4a5560"},
    "-dark": {"ground": "#0d1117", "ink": "#e6edf3", "soft": "#9aa7b4", HELD: "#7aa5ff"}
    | {UNCERTAIN: "#e0a53c", LOST: "#f28b82", RELEASED: "#a9b4bf"},
}
SPREAD = 14
"""How far apart the two arrows between two states are, from the middle."""


def on_edge(place: tuple[float, float], angle: float) -> tuple[float, float]:
    """Returns the point at which a line from the middle of a box, in that direction, leaves it."""
    across, down = math.cos(angle), math.sin(angle)
    reach = min(
        (BOX[0] / 2 + 4) / abs(across) if abs(across) > 1e-9 else math.inf,
        (BOX[1] / 2 + 4) / abs(down) if abs(down) > 1e-9 else math.inf,
    )
    return place[0] + across * reach, place[1] + down * reach


def arrow(before: str, event: str, after: str, soft: str) -> str:
    """Returns the arrow of one transition, with the name of its event."""
    at: tuple[float, float]
    x, y = PLACES[before]
    if before == after:
        side = -1 if x < WIDTH / 2 else 1
        edge = x + side * (BOX[0] / 2 + 4)
        far = edge + side * 46
        path = f"M{edge:.0f} {y - 18}C{far:.0f} {y - 34} {far:.0f} {y + 34} {edge:.0f} {y + 18}"
        at = (edge + side * 40, y - 34)
    else:
        angle = math.atan2(PLACES[after][1] - y, PLACES[after][0] - x)
        both = any(
            (after, other) in TRANSITIONS and TRANSITIONS[after, other] == before
            for other in EVENTS
        )
        shift = SPREAD if both else 0
        dx, dy = math.sin(angle) * shift, -math.cos(angle) * shift
        (x1, y1), (x2, y2) = on_edge((x, y), angle), on_edge(PLACES[after], angle + math.pi)
        path = f"M{x1 + dx:.0f} {y1 + dy:.0f}L{x2 + dx:.0f} {y2 + dy:.0f}"
        part = 0.5 if abs(math.sin(2 * angle)) < 1e-9 else 0.24
        at = (x1 + (x2 - x1) * part + dx * 2, y1 + (y2 - y1) * part + dy * 2)
        if abs(math.cos(angle)) < 1e-9:
            at = (at[0] + (-34 if x < WIDTH / 2 else 34), at[1])
    return (
        f'<path d="{path}" fill="none" stroke="{soft}" stroke-width="1.6" marker-end="url(#end)"/>'
        f'<text x="{at[0]:.0f}" y="{at[1] + 5:.0f}" class="event">{event}</text>'
    )


EVENTS = list(dict.fromkeys(event for _, event in TRANSITIONS))


def draw(scheme: str) -> str:
    """Returns the picture for one colour scheme, as SVG."""
    colours = SCHEMES[scheme]
    width, height = BOX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">',
        "<style>text{font-family:system-ui,sans-serif;text-anchor:middle}"
        f".state{{font-size:18px;font-weight:600}}.about{{font-size:12.5px;fill:{colours['ink']}}}"
        f".event{{font-size:13px;fill:{colours['ink']};paint-order:stroke;stroke:{colours['ground']};"
        "stroke-width:6px}</style>",
        '<defs><marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0L10 5L0 10z" fill="{colours["soft"]}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colours["ground"]}"/>',
    ]
    for (before, event), after in TRANSITIONS.items():
        parts.append(arrow(before, event, after, colours["soft"]))
    for state, (x, y) in PLACES.items():
        final = not any(before == state for before, _ in TRANSITIONS)
        dash = "" if final else ' stroke-dasharray="6 4"' if state == UNCERTAIN else ""
        stroke = 4 if final else 2
        parts.append(
            f'<rect x="{x - width / 2:.0f}" y="{y - height / 2:.0f}" width="{width}" '
            f'height="{height}" rx="8" '
            f'fill="{colours["ground"]}" stroke="{colours[state]}" stroke-width="{stroke}"{dash}/>'
            f'<text x="{x}" y="{y - 4}" class="state" fill="{colours[state]}">{state}</text>'
            f'<text x="{x}" y="{y + 18}" class="about">{MEANINGS[state]}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    for scheme in SCHEMES:
        path = TARGET / f"lifecycle{scheme}.svg"
        path.write_text(draw(scheme))
        print(path)


if __name__ == "__main__":
    main()
