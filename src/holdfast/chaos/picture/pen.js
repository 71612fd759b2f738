// The pen: draws what lies behind and around the lanes: their names, the bands through them, the time axis.

const STEPS = [1, 2, 5];
const PILLS = 6;

class Pen {
  constructor(context, scene, view, colours, ratio) {
    this.context = context;
    this.scene = scene;
    this.view = view;
    this.colours = colours;
    this.ratio = ratio;
    this.end = scene.model.end;
  }

  x(time) {
    const x = this.scene.x(Math.min(time, this.end), this.view);
    return Math.max(-100, Math.min(this.scene.width + 100, x));
  }

  hatch(colour, gap = 6, weight = 1.5) {
    const key = `${colour} ${gap} ${this.ratio}`;
    Pen.hatches ||= new Map();
    if (!Pen.hatches.has(key)) {
      const tile = document.createElement("canvas");
      const size = Math.round(gap * this.ratio);
      tile.width = tile.height = size;
      const context = tile.getContext("2d");
      context.strokeStyle = colour;
      context.lineWidth = weight * this.ratio;
      for (const shift of [-size, 0, size]) {
        context.moveTo(shift - 1, size + 1);
        context.lineTo(shift + size + 1, -1);
      }
      context.stroke();
      const pattern = this.context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / this.ratio));
      Pen.hatches.set(key, pattern);
    }
    return Pen.hatches.get(key);
  }

  background(height) {
    this.context.fillStyle = this.colours.panel;
    this.context.fillRect(0, 0, this.scene.width, height);
  }

  ground(row) {
    const { context, colours, scene } = this;
    if (row.lane) {
      context.fillStyle = row.odd ? colours.stripe : colours.panel;
      context.fillRect(0, row.y, scene.width, row.height);
    }
  }

  name(row) {
    const { context, colours, scene } = this;
    context.textBaseline = "middle";
    context.textAlign = "left";
    if (row.title) {
      context.font = BOLD;
      context.fillStyle = colours.quiet;
      context.fillText(row.title, 8, row.y + 14);
      return;
    }
    context.font = FONT;
    if (scene.narrow) {
      context.fillStyle = colours.text;
      context.fillText(this.fit(row.lane.name, scene.width - 16), 8, row.y + 9);
    } else {
      context.fillStyle = row.odd ? colours.stripe : colours.panel;
      context.fillRect(0, row.y, scene.gutter, row.height);
      context.fillStyle = colours.text;
      context.fillText(this.fit(row.lane.name, scene.gutter - 20), 12, row.y + row.height / 2);
      context.fillStyle = colours.line;
      context.fillRect(scene.gutter, row.y, 1, row.height);
    }
  }

  fit(text, width) {
    const clean = String(text).slice(0, 200);
    if (this.context.measureText(clean).width <= width) return clean;
    let low = 0;
    let high = clean.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.context.measureText(`${clean.slice(0, middle)}…`).width <= width) low = middle;
      else high = middle - 1;
    }
    return `${clean.slice(0, low)}…`;
  }

  // Bands through all lanes: faults of nodes, faintly; the times with two holders, clearly.
  bands(scroll, height) {
    const { context, colours, scene } = this;
    for (const fault of scene.model.faults) {
      if (fault.lane.kind !== "node" || fault.at > this.view.to || fault.until < this.view.from) continue;
      context.globalAlpha = 0.09;
      context.fillStyle = colours.fault;
      const x = this.x(fault.at);
      context.fillRect(x, scroll, Math.max(1, this.x(fault.until) - x), height);
    }
    context.globalAlpha = 1;
    for (const overlap of scene.model.overlaps) {
      if (overlap.at > this.view.to || overlap.until < this.view.from) continue;
      const x = this.x(overlap.at);
      const width = Math.max(1.5, this.x(overlap.until) - x);
      const rows = overlap.grants.map((grant) => scene.rowOf.get(grant.lane));
      context.strokeStyle = colours.overlap;
      context.fillStyle = colours.overlap;
      context.lineWidth = 1.5;
      for (const row of rows) {
        context.globalAlpha = 0.2;
        context.fillRect(x, row.y + row.top, width, row.height - row.top);
        context.globalAlpha = 1;
        if (width > 3) context.strokeRect(x, row.y + row.top + 1, width, row.height - row.top - 2);
      }
      const [upper, lower] = rows.sort((one, other) => one.y - other.y);
      context.globalAlpha = 0.5;
      for (const edge of width > 3 ? [x, x + width] : [x]) {
        context.fillRect(edge - 0.75, upper.y + upper.height, 1.5, Math.max(0, lower.y + lower.top - upper.y - upper.height));
      }
      context.globalAlpha = 1;
    }
  }

  step() {
    const { scene, view } = this;
    return stepOf(view.to - view.from, (scene.right - scene.left) / (scene.narrow ? 64 : 90));
  }

  grid(scroll, height) {
    const { context, view } = this;
    const step = this.step();
    context.fillStyle = this.colours.line;
    context.globalAlpha = 0.6;
    for (let i = Math.ceil(view.from / step - 1e-9); i * step <= view.to + step * 1e-6; i++) {
      context.fillRect(Math.round(this.scene.x(i * step, view)), scroll, 1, height);
    }
    context.globalAlpha = 1;
  }

  axis() {
    const { context, colours, scene, view } = this;
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, scene.width, this.scene.axis);
    const step = this.step();
    context.font = SMALL;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (let i = Math.ceil(view.from / step - 1e-9); i * step <= view.to + step * 1e-6; i++) {
      const x = this.scene.x(i * step, view);
      context.fillStyle = colours.quiet;
      const text = moment(i * step, step);
      const half = context.measureText(text).width / 2;
      if (x + half < scene.width) context.fillText(text, Math.max(x, half + 2), 11);
      context.fillStyle = colours.line;
      context.fillRect(Math.round(x), this.scene.axis - 6, 1, 6);
    }
    this.holders();
    context.fillStyle = colours.line;
    context.fillRect(0, this.scene.axis - 1, scene.width, 1);
  }

  // Above the lanes: when there were two holders, in words where there is room.
  holders() {
    const { context, colours, scene } = this;
    const overlaps = scene.model.overlaps;
    if (!overlaps.length) return;
    context.font = BOLD;
    context.textAlign = "left";
    context.fillStyle = colours.overlap;
    const words = "two holders";
    const size = context.measureText(words).width + 12;
    const groups = [];
    for (const overlap of overlaps) {
      if (overlap.at > this.view.to || overlap.until < this.view.from) continue;
      const from = this.x(overlap.at);
      const to = Math.max(from + 2, this.x(overlap.until));
      context.fillRect(from, this.scene.axis - 5, to - from, 5);
      const last = groups[groups.length - 1];
      if (last && from - last.to < 40) last.to = Math.max(last.to, to);
      else groups.push({ from, to });
    }
    const pills = groups.map(({ from, to }) => {
      const middle = (Math.max(from, scene.left) + Math.min(to, scene.right)) / 2;
      return Math.max(scene.gutter + size / 2 + 2, Math.min(scene.width - size / 2 - 2, middle));
    });
    if (pills.length > PILLS || pills.some((middle, i) => i && middle - pills[i - 1] < size)) {
      if (!scene.narrow) context.fillText(words, 12, this.scene.axis - 14);
      return;
    }
    context.textAlign = "center";
    for (const middle of pills) {
      context.fillStyle = colours.overlap;
      context.beginPath();
      context.roundRect(middle - size / 2, 20, size, 17, 4);
      context.fill();
      context.fillStyle = colours.panel;
      context.fillText(words, middle, 29);
    }
  }

  drag({ from, to }, height) {
    const { context, colours } = this;
    context.globalAlpha = 0.18;
    context.fillStyle = colours.focus;
    context.fillRect(Math.min(from, to), 0, Math.abs(to - from), height);
    context.globalAlpha = 1;
  }
}

// The distance between two marks of an axis with room for `room` of them.
function stepOf(span, room) {
  const rough = span / Math.max(1, room);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = STEPS.find((step) => step * power >= rough) || 10;
  return factor * power;
}
