// The timeline: which part of a run is in view, and how mouse, wheel, keys and fingers move it.

const SHORTEST = 1e-4;

class Timeline {
  constructor({ box, stage, spacer, overview }, { onSelect, onHover, onKey }) {
    Object.assign(this, { box, stage, spacer, overview, onSelect, onHover, onKey });
    this.view = { from: 0, to: 1 };
    this.selection = null;
    this.pointers = new Map();
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.ratio = 0;
    new ResizeObserver(() => this.resize()).observe(box.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    addEventListener("resize", () => this.resize());
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
    box.addEventListener("scroll", () => this.redraw());
    this.listen();
  }

  show(model) {
    this.model = model;
    this.scene = new Scene(model);
    const span = model.end - model.begin || 1;
    this.limits = { from: model.begin - span * 0.015, to: model.begin + span * 1.015 };
    this.view = { ...this.limits };
    this.selection = null;
    this.box.scrollTop = 0;
    this.recolour();
    this.resize();
  }

  recolour() {
    this.colours = readColours(this.box);
    this.sketch = null;
    this.redraw();
  }

  resize() {
    if (!this.scene || this.printing) return;
    const width = this.box.clientWidth;
    if (!width) return;
    this.scene.place(width);
    const whole = this.scene.height + this.scene.axis;
    const most = Math.max(320, Math.min(900, innerHeight * 0.78));
    this.height = Math.min(whole, most);
    this.box.style.height = `${this.height}px`;
    this.spacer.style.height = `${whole - this.height}px`;
    // A scroll bar may have come or gone with the height.
    if (this.box.clientWidth !== width) this.scene.place(this.box.clientWidth);
    this.ratio = 0;
    this.sketch = null;
    this.redraw();
  }

  redraw() {
    if (this.frame || !this.scene) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.printing) this.paint();
    });
  }

  paint() {
    const ratio = Math.min(3, devicePixelRatio || 1);
    if (this.ratio !== ratio) {
      this.ratio = ratio;
      this.fit(this.stage, this.scene.width, this.height, ratio);
    }
    const scroll = this.box.scrollTop;
    const { colours, selection, drag, height } = this;
    this.scene.draw(this.stage, this.view, { scroll, ratio, height, colours, selection, drag });
    this.paintOverview(ratio);
  }

  fit(canvas, width, height, ratio) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }

  // On paper: all lanes if they fit on a page, the part of them that was in view otherwise; dark on white.
  print(begins) {
    if (!this.scene) return;
    this.printing = begins;
    document.documentElement.classList.toggle("printing", begins);
    if (!begins) {
      this.recolour();
      this.resize();
      return;
    }
    this.scene.place(1000);
    const height = Math.min(this.scene.height + this.scene.axis, 1250);
    this.fit(this.stage, 1000, height, 2);
    this.stage.style.width = this.stage.style.height = "";
    this.box.style.height = "";
    this.spacer.style.height = "0";
    const colours = readColours(this.box);
    const scroll = this.scene.height + this.scene.axis > height ? this.box.scrollTop : 0;
    this.scene.draw(this.stage, this.view, { scroll, ratio: 2, height, colours });
  }

  // The whole run in a strip: faults, stale writes and double holds, and the part that is in view.
  paintOverview(ratio) {
    const width = this.scene.width;
    const height = 30;
    const { left, right } = this.scene;
    const x = (time) => left + ((time - this.limits.from) / (this.limits.to - this.limits.from)) * (right - left);
    if (!this.sketch) {
      this.sketch = document.createElement("canvas");
      this.fit(this.sketch, width, height, ratio);
      this.fit(this.overview, width, height, ratio);
      const context = this.sketch.getContext("2d");
      context.scale(ratio, ratio);
      const bar = (at, until, colour, y, tall, least = 1) => {
        context.fillStyle = colour;
        context.fillRect(x(at), y, Math.max(least, x(Math.min(until, this.model.end)) - x(at)), tall);
      };
      let last = -1;
      for (const grant of this.model.grants) {
        if (x(grant.at) < last) continue;
        bar(grant.at, grant.until, this.colours.hold, 12, 6);
        last = x(Math.min(grant.until, this.model.end));
      }
      for (const fault of this.model.faults) bar(fault.at, fault.until, this.colours.fault, 21, 5, 2);
      for (const overlap of this.model.overlaps) bar(overlap.at, overlap.until, this.colours.overlap, 3, 6, 2);
      for (const write of this.model.writes) {
        if (write.look !== "good") bar(write.at, write.at, this.colours[write.look === "bad" ? "text" : "refused"], 3, 15, 2);
      }
    }
    const context = this.overview.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.overview.width, this.overview.height);
    context.drawImage(this.sketch, 0, 0);
    context.scale(ratio, ratio);
    const [from, to] = [x(this.view.from), x(this.view.to)];
    context.fillStyle = this.colours.page;
    context.globalAlpha = 0.72;
    context.fillRect(0, 0, from, height);
    context.fillRect(to, 0, width - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = this.colours.focus;
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(4, to - from - 2), height - 2);
  }

  look(from, to, at_once = false) {
    const whole = this.limits.to - this.limits.from;
    const span = Math.min(whole, Math.max(SHORTEST, to - from));
    const start = Math.max(this.limits.from, Math.min(this.limits.to - span, from));
    const goal = { from: start, to: start + span };
    cancelAnimationFrame(this.flight);
    if (at_once || this.still.matches) {
      this.view = goal;
      this.redraw();
      return;
    }
    const begin = this.view;
    const began = performance.now();
    const step = (now) => {
      const part = Math.min(1, Math.max(0, (now - began) / 180));
      const eased = 1 - (1 - part) ** 3;
      const between = (name) => begin[name] + (goal[name] - begin[name]) * eased;
      this.view = part === 1 ? goal : { from: between("from"), to: between("to") };
      this.redraw();
      if (part < 1) this.flight = requestAnimationFrame(step);
    };
    this.flight = requestAnimationFrame(step);
  }

  zoom(factor, at = (this.view.from + this.view.to) / 2, at_once = false) {
    const span = Math.max(SHORTEST, (this.view.to - this.view.from) / factor);
    const part = (at - this.view.from) / (this.view.to - this.view.from);
    this.look(at - span * part, at + span * (1 - part), at_once);
  }

  pan(part, at_once = false) {
    const by = (this.view.to - this.view.from) * part;
    this.look(this.view.from + by, this.view.to + by, at_once);
  }

  all() {
    this.look(this.limits.from, this.limits.to);
  }

  // Brings a time into view, with room around it, and chooses what is there.
  visit(at, until, target) {
    const least = (this.limits.to - this.limits.from) / 400;
    const room = Math.max((until - at) * 0.6, least);
    this.look(at - room, until + room);
    this.choose(target, true);
  }

  choose(selection, in_view = false) {
    this.selection = selection;
    if (selection && in_view) {
      const item = selection.grant || selection.fault;
      const row = item && this.scene.rowOf.get(item.lane);
      if (row && row.y < this.box.scrollTop) this.box.scrollTop = row.y - 24;
      const bottom = row ? row.y + row.height + this.scene.axis : 0;
      if (row && bottom > this.box.scrollTop + this.height) this.box.scrollTop = bottom - this.height + 8;
    }
    this.onSelect(selection);
    this.redraw();
  }

  // Chooses the grant that is `steps` further on the same lane, or the nearest in time on another lane.
  step(steps, lanes) {
    const workers = this.scene.rows.filter((row) => row.lane && row.lane.grants.length).map((row) => row.lane);
    if (!workers.length) return;
    const now = this.selection && this.selection.grant;
    let next;
    if (!now) {
      next = this.model.grants[Math.min(placeOf(this.model.grants, this.view.from), this.model.grants.length - 1)];
    } else if (steps) {
      next = now.lane.grants[now.lane.grants.indexOf(now) + steps];
    } else {
      const lane = workers[workers.indexOf(now.lane) + lanes];
      const place = lane && placeOf(lane.grants, now.at);
      const near = lane && [lane.grants[place - 1], lane.grants[place]].filter(Boolean);
      next = near && near.sort((one, other) => Math.abs(one.at - now.at) - Math.abs(other.at - now.at))[0];
    }
    if (!next) return;
    const span = this.view.to - this.view.from;
    if (next.at < this.view.from || Math.min(next.until, this.model.end) > this.view.to) {
      this.look(next.at - span / 3, next.at + (span * 2) / 3);
    }
    this.choose({ grant: next }, true);
  }

  place(event) {
    const frame = this.stage.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  }

  find(event) {
    const { x, y } = this.place(event);
    return this.scene.at(x, y, this.view, this.box.scrollTop);
  }

  listen() {
    const { stage, box, overview } = this;
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    box.addEventListener("keydown", (event) => this.key(event));
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerup", (event) => this.lift(event, true));
    stage.addEventListener("pointercancel", (event) => this.lift(event, false));
    stage.addEventListener("pointerleave", () => this.onHover(null));
    stage.addEventListener("dblclick", (event) => this.zoom(2.5, this.scene.time(this.place(event).x, this.view)));
    const slide = (event) => {
      if (!(event.buttons & 1)) return;
      const { left, right } = this.scene;
      const part = (event.clientX - overview.getBoundingClientRect().left - left) / (right - left);
      const middle = this.limits.from + part * (this.limits.to - this.limits.from);
      const half = (this.view.to - this.view.from) / 2;
      this.look(middle - half, middle + half, event.type === "pointermove");
    };
    overview.addEventListener("pointerdown", (event) => {
      overview.setPointerCapture(event.pointerId);
      slide(event);
    });
    overview.addEventListener("pointermove", slide);
  }

  // With Ctrl, or fingers on a touch pad, the wheel zooms; sideways, or with Shift, it pans; else the page scrolls.
  wheel(event) {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      const factor = Math.exp(-Math.max(-120, Math.min(120, event.deltaY * lines)) * 0.005);
      this.zoom(factor, this.scene.time(this.place(event).x, this.view), true);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan(sideways / this.scene.width, true);
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const shifted = event.shiftKey;
    const actions = {
      ArrowLeft: () => (shifted ? this.pan(-0.25) : this.step(-1, 0)),
      ArrowRight: () => (shifted ? this.pan(0.25) : this.step(1, 0)),
      ArrowUp: () => this.step(0, -1),
      ArrowDown: () => this.step(0, 1),
      "+": () => this.zoom(1.6),
      "=": () => this.zoom(1.6),
      "-": () => this.zoom(1 / 1.6),
      _: () => this.zoom(1 / 1.6),
      0: () => this.all(),
      Home: () => this.all(),
      Escape: () => this.choose(null),
      Enter: () => {
        const chosen = this.selection && (this.selection.grant || this.selection.fault);
        if (chosen) this.visit(chosen.at, Math.min(chosen.until, this.model.end), this.selection);
      },
      n: () => this.onKey(1),
      p: () => this.onKey(-1),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  press(event) {
    if (event.pointerType === "mouse" && event.button > 1) return;
    this.stage.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { ...this.place(event), start: this.place(event), moved: false });
    const pans = event.pointerType !== "mouse" || event.shiftKey || event.button === 1;
    this.gesture = this.pointers.size > 1 ? "pinch" : pans ? "pan" : "range";
    if (event.button === 1) event.preventDefault();
  }

  move(event) {
    const pointer = this.pointers.get(event.pointerId);
    if (!pointer) {
      this.onHover(event.pointerType === "mouse" ? this.find(event) : null, event);
      return;
    }
    const before = [...this.pointers.values()].map(({ x }) => this.scene.time(x, this.view));
    const { x, y } = this.place(event);
    if (Math.abs(x - pointer.start.x) > 4) pointer.moved = true;
    Object.assign(pointer, { x, y });
    if (!pointer.moved) return;
    this.onHover(null);
    const places = [...this.pointers.values()];
    const width = this.scene.right - this.scene.left;
    if (this.gesture === "pinch" && places.length > 1) {
      const gap = Math.max(8, Math.abs(places[0].x - places[1].x));
      const span = (Math.abs(before[0] - before[1]) / gap) * width || this.view.to - this.view.from;
      const middle = (before[0] + before[1]) / 2;
      const part = ((places[0].x + places[1].x) / 2 - this.scene.left) / width;
      this.look(middle - span * part, middle + span * (1 - part), true);
    } else if (this.gesture === "pan") {
      const by = before[0] - this.scene.time(places[0].x, this.view);
      this.look(this.view.from + by, this.view.to + by, true);
    } else if (this.gesture === "range") {
      this.drag = { from: Math.max(this.scene.gutter, pointer.start.x), to: x };
      this.redraw();
    }
  }

  lift(event, done) {
    const pointer = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!pointer) return;
    const drag = this.drag;
    this.drag = null;
    if (done && drag) {
      const [from, to] = [drag.from, drag.to].sort((one, other) => one - other);
      this.look(this.scene.time(from, this.view), this.scene.time(to, this.view));
    } else if (done && !pointer.moved && this.gesture !== "pinch") {
      const found = this.find(event);
      if (found || this.selection) this.choose(found);
    }
    if (!this.pointers.size) this.gesture = null;
    this.redraw();
  }
}
