// The scene: where each lane stands, and how what is seen of it is drawn on a canvas. Only what is in view is
// drawn, and what would fall on the same pixel once.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const BOLD = FONT.replace("12px", "600 12px");
const SMALL = FONT.replace("12px", "11px");
const SECTIONS = [
  ["worker", "Processes"],
  ["register", "What they write to"],
  ["node", "The store"],
];
const COLOURS = [
  "page", "panel", "stripe", "line", "text", "quiet", "hold", "hold-text", "hold-hatch", "stale", "stale-text", "wait", "pause",
  "fault", "fault-text", "good", "refused", "bad", "bad-ring", "overlap", "focus", "told",
];

function readColours(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

class Scene {
  constructor(model) {
    this.model = model;
    this.rows = [];
    this.height = 0;
  }

  // Places the lanes for a canvas of this width. Names stand beside the lanes, or above them where it is narrow.
  place(width) {
    this.width = width;
    this.axis = this.model.overlaps.length ? 44 : 28;
    this.narrow = width < 600;
    this.gutter = this.narrow ? 0 : Math.min(190, Math.max(130, width * 0.14));
    this.left = this.gutter + (this.narrow ? 8 : 12);
    this.right = width - 16;
    const dense = this.model.lanes.length > 40;
    const name = this.narrow ? 15 : 0;
    const heights = { worker: (dense ? 22 : 38) + name, register: 36 + name, node: (dense ? 20 : 28) + name };
    const known = new Set(SECTIONS.map(([kind]) => kind));
    const sections = dense ? [SECTIONS[1], SECTIONS[2], SECTIONS[0]] : SECTIONS;
    this.rows = [];
    this.rowOf = new Map();
    let y = 0;
    for (const [kind, title] of sections) {
      const lanes = this.model.lanes.filter((lane) => lane.kind === kind || (kind === "worker" && !known.has(lane.kind)));
      if (!lanes.length) continue;
      this.rows.push({ y, height: 24, title });
      y += 24;
      for (const lane of lanes) {
        const row = { y, height: heights[kind], lane, kind, top: name, odd: this.rows.length % 2 };
        this.rows.push(row);
        this.rowOf.set(lane, row);
        y += row.height;
      }
    }
    this.height = y + 8;
  }

  x(time, view) {
    return this.left + ((time - view.from) / (view.to - view.from)) * (this.right - this.left);
  }

  time(x, view) {
    return view.from + ((x - this.left) / (this.right - this.left)) * (view.to - view.from);
  }

  // The rows that can be seen when the lanes are scrolled to `scroll` in a window of `height`.
  seen(scroll, height) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].y + this.rows[middle].height <= scroll) low = middle + 1;
      else high = middle;
    }
    const rows = [];
    for (let i = low; i < this.rows.length && this.rows[i].y < scroll + height; i++) rows.push(this.rows[i]);
    return rows;
  }

  draw(canvas, view, { scroll = 0, ratio = 1, height, colours, selection = null, drag = null }) {
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const pen = new LanePen(context, this, view, colours, ratio);
    pen.background(height);
    const rows = this.seen(scroll, height - this.axis);
    context.save();
    context.beginPath();
    context.rect(0, this.axis, this.width, height - this.axis);
    context.clip();
    context.translate(0, this.axis - scroll);
    for (const row of rows) pen.ground(row);
    context.save();
    context.beginPath();
    context.rect(this.gutter, 0, this.width - this.gutter, this.height + height);
    context.clip();
    pen.grid(scroll, height);
    pen.bands(scroll, height);
    for (const row of rows) if (row.lane) pen.lane(row, selection);
    pen.threads(selection);
    context.restore();
    for (const row of rows) pen.name(row);
    context.restore();
    pen.axis();
    if (drag) pen.drag(drag, height);
  }

  // What stands at a place of the canvas: a grant, a write, a fault or a failure.
  at(x, y, view, scroll) {
    if (y < this.axis || x < this.gutter) return null;
    const row = this.seen(y - this.axis + scroll, 1)[0];
    if (!row || !row.lane) return null;
    const lane = row.lane;
    const time = this.time(x, view);
    const near = this.time(x + 6, view) - time;
    const write = nearest(lane.writes, time, near);
    if (write) return { write, grant: write.grant, row };
    const grant = spanAt(lane.grants, time, near, lane.longest.grants, this.model.end);
    if (grant) return { grant, row };
    const fail = nearest(lane.fails, time, near);
    if (fail) return { fail, row };
    const fault = spanAt(lane.faults, time, near, lane.longest.faults, this.model.end);
    return fault ? { fault, row } : null;
  }
}

// The item at a time; of several within reach the worst, then the nearest.
function nearest(list, time, near) {
  const ranks = { bad: 0, refused: 1 };
  let best = null;
  let bestRank = NEVER;
  for (let i = placeOf(list, time - near); i < list.length && list[i].at <= time + near; i++) {
    const rank = (ranks[list[i].look] ?? 2) + Math.abs(list[i].at - time) / (near * 2 || 1);
    if (rank < bestRank) [best, bestRank] = [list[i], rank];
  }
  return best;
}

function spanAt(list, time, near, longest, end) {
  let best = null;
  let bestFar = NEVER;
  for (let i = placeOf(list, time - near - longest); i < list.length && list[i].at <= time + near; i++) {
    const span = list[i];
    const far = Math.max(0, span.at - time, time - Math.min(span.until, end));
    if (far <= near && far <= bestFar) [best, bestFar] = [span, far];
  }
  return best;
}
