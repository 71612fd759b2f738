// The pen for what is in the lanes. What must be told apart differs in shape, and not in colour alone.

const THREADS = 120;

class LanePen extends Pen {
  lane(row, selection) {
    if (row.kind === "worker") this.worker(row, selection);
    else if (row.kind === "node") this.node(row);
    if (row.lane.writes.length) this.register(row, selection);
  }

  // Calls `show` for each span in view, with its place; spans on one pixel are shown once.
  each(list, longest, show) {
    let last = -NEVER;
    for (let i = placeOf(list, this.view.from - longest); i < list.length && list[i].at <= this.view.to; i++) {
      const until = Math.min(list[i].until, this.end);
      if (until < this.view.from) continue;
      const x = this.x(list[i].at);
      const width = this.x(until) - x;
      if (x + width < last + 0.7 && !list[i].rival) continue;
      last = Math.max(last, x + width);
      show(list[i], x, width);
    }
  }

  worker(row, selection) {
    const { context, colours } = this;
    const { lane } = row;
    const top = row.y + row.top + 6;
    const height = row.height - row.top - 12;
    const middle = top + height / 2;
    context.fillStyle = colours.wait;
    this.each(lane.waits, lane.longest.waits, (wait, x, width) => {
      context.fillRect(x, middle - 1.5, Math.max(1, width), 3);
    });
    this.each(lane.faults, lane.longest.faults, (fault, x, width) => this.span(fault, x, row, width));
    this.each(lane.grants, lane.longest.grants, (grant, x, width) => this.hold(grant, x, top, width, height, selection));
    this.tokens(lane, top, height);
    this.marks(lane, top, height);
  }

  // The shade of a fault on its own lane.
  span(fault, x, row, width) {
    const { context, colours } = this;
    context.globalAlpha = 0.3;
    context.fillStyle = fault.pause ? colours.pause : colours.fault;
    context.fillRect(x, row.y + row.top, Math.max(2, width), row.height - row.top);
    context.globalAlpha = 1;
    if (!fault.pause) return;
    context.fillStyle = this.hatch(colours.pause);
    context.fillRect(x, row.y + row.top, Math.max(2, width), row.height - row.top);
  }

  // Hatches the part of a bar for which its process was paused.
  pauses(lane, from, until, top, height, colour) {
    const { context } = this;
    for (const fault of lane.faults) {
      if (!fault.pause || fault.at > this.view.to || fault.until < this.view.from) continue;
      const x = Math.max(from, this.x(fault.at));
      const end = Math.min(until, this.x(fault.until));
      if (end - x < 2) continue;
      context.fillStyle = this.hatch(colour);
      context.fillRect(x, top, end - x, height);
    }
  }

  hold(grant, x, top, width, height, selection) {
    const { context, colours } = this;
    const chosen = selection && selection.grant === grant;
    const wide = Math.max(1, width);
    const round = Math.min(4, wide / 2);
    context.fillStyle = colours.hold;
    if (wide > 6) {
      context.beginPath();
      context.roundRect(x, top, wide, height, round);
      context.fill();
    } else {
      context.fillRect(x, top, wide, height);
    }
    if (wide > 3) this.pauses(grant.lane, x, x + wide, top, height, colours["hold-hatch"]);
    if (grant.rival) {
      const from = this.x(grant.rival.at);
      const rest = Math.max(2, x + wide - from);
      context.fillStyle = colours.stale;
      context.beginPath();
      context.roundRect(from, top, rest, height, [0, round, round, 0]);
      context.fill();
      context.strokeStyle = colours.overlap;
      context.lineWidth = 1.5;
      context.setLineDash([4, 3]);
      context.stroke();
      context.setLineDash([]);
      this.pauses(grant.lane, from, x + wide, top, height, colours.pause);
    }
    if (chosen) {
      context.strokeStyle = colours.focus;
      context.lineWidth = 2.5;
      context.beginPath();
      context.roundRect(x - 2.5, top - 2.5, wide + 5, height + 5, 6);
      context.stroke();
    }
  }

  tokens(lane, top, height) {
    const { context, colours } = this;
    context.font = BOLD;
    context.textAlign = "left";
    context.textBaseline = "middle";
    this.each(lane.grants, lane.longest.grants, (grant, x, width) => {
      if (grant.short === null) return;
      const until = grant.rival ? this.x(grant.rival.at) : x + width;
      const from = Math.max(x, this.scene.left - 8);
      const text = String(grant.short);
      const size = context.measureText(text).width;
      if (until - from < size + 7) return;
      context.fillStyle = colours.hold;
      context.fillRect(from + 2, top + height / 2 - 8, size + 4, 16);
      context.fillStyle = colours["hold-text"];
      context.fillText(text, from + 4, top + height / 2 + 0.5);
    });
  }

  // The moments of a worker: told of its loss, failed, begun and ended.
  marks(lane, top, height) {
    const { context, colours } = this;
    const middle = top + height / 2;
    for (let i = placeOf(lane.grants, this.view.from - lane.longest.grants); i < lane.grants.length && lane.grants[i].at <= this.view.to; i++) {
      if (lane.grants[i].told === null) continue;
      const x = this.x(lane.grants[i].told);
      context.fillStyle = colours.told;
      context.beginPath();
      context.moveTo(x, top - 4);
      context.lineTo(x + 8, top + 1);
      context.lineTo(x, top + 6);
      context.fill();
      context.fillRect(x - 1, top - 4, 2, height + 8);
    }
    let last = -NEVER;
    context.strokeStyle = colours.quiet;
    context.lineWidth = 1.5;
    for (let i = placeOf(lane.fails, this.view.from); i < lane.fails.length && lane.fails[i].at <= this.view.to; i++) {
      const x = this.x(lane.fails[i].at);
      if (x < last + 2) continue;
      last = x;
      context.beginPath();
      context.moveTo(x - 3, middle - 3);
      context.lineTo(x + 3, middle + 3);
      context.moveTo(x + 3, middle - 3);
      context.lineTo(x - 3, middle + 3);
      context.stroke();
    }
    for (const fault of lane.faults) {
      if (!isBrief(fault) || fault.at < this.view.from || fault.at > this.view.to) continue;
      this.strike(this.x(fault.at), top - 6);
    }
    for (const life of lane.lives) {
      if (life.until > this.view.to || life.until < this.view.from) continue;
      const x = this.x(life.until);
      context.fillStyle = colours.text;
      context.fillRect(x - 1.5, top - 3, 3, height + 6);
    }
  }

  // The mark of a fault that was over at once.
  strike(x, y) {
    const { context, colours } = this;
    context.fillStyle = colours.fault;
    context.strokeStyle = colours["fault-text"];
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x - 6, y);
    context.lineTo(x + 6, y);
    context.lineTo(x, y + 11);
    context.closePath();
    context.fill();
    context.stroke();
  }

  node(row) {
    const { context, colours, scene } = this;
    const { lane } = row;
    const middle = row.y + row.top + (row.height - row.top) / 2;
    context.fillStyle = colours.wait;
    const from = this.x(0);
    context.fillRect(from, middle - 1, this.x(this.end) - from, 2);
    context.font = SMALL;
    context.textAlign = "left";
    context.textBaseline = "middle";
    this.each(lane.faults, lane.longest.faults, (fault, x, width) => {
      const top = row.y + row.top + 3;
      if (isBrief(fault)) {
        this.strike(x, top);
        return;
      }
      const wide = Math.max(3, width);
      const height = row.height - row.top - 6;
      context.fillStyle = colours.fault;
      context.fillRect(x, top, wide, height);
      if (fault.pause && wide > 6) {
        context.fillStyle = this.hatch(colours.pause);
        context.fillRect(x, top, wide, height);
      }
      const start = Math.max(x, scene.left - 8) + 6;
      const text = this.fit(fault.name, x + wide - start - 4);
      if (x + wide - start > 28 && text.length > 2) {
        context.fillStyle = colours.fault;
        context.fillRect(start - 3, top + 1, context.measureText(text).width + 6, height - 2);
        context.fillStyle = colours["fault-text"];
        context.fillText(text, start, middle + 0.5);
      }
    });
  }

  // The writes at a register: accepted ones hang as ticks, refused ones are crosses, bad ones diamonds.
  register(row, selection) {
    const { context, colours } = this;
    const { lane } = row;
    const middle = row.y + row.top + (row.height - row.top) / 2;
    context.fillStyle = colours.line;
    context.fillRect(this.scene.gutter, middle, this.scene.width, 1);
    const first = placeOf(lane.writes, this.view.from);
    const dense = (placeOf(lane.writes, this.view.to) - first) * 9 > this.scene.right - this.scene.left;
    const worse = [];
    let last = -NEVER;
    context.fillStyle = colours.good;
    for (let i = first; i < lane.writes.length && lane.writes[i].at <= this.view.to; i++) {
      const write = lane.writes[i];
      if (write.look !== "good") {
        worse.push(write);
        continue;
      }
      const x = this.x(write.at);
      if (x < last + 0.7) continue;
      last = x;
      context.fillRect(x - 1, middle - 9, 2, 18);
      if (dense) continue;
      context.beginPath();
      context.arc(x, middle - 9, 3, 0, 7);
      context.fill();
    }
    for (const look of ["refused", "bad"]) {
      last = -NEVER;
      for (const write of worse) {
        if (write.look !== look) continue;
        const x = this.x(write.at);
        if (x < last + 1) continue;
        last = x;
        if (look === "bad") this.diamond(x, middle);
        else this.cross(x, middle);
      }
    }
    if (!selection || !selection.grant) return;
    context.strokeStyle = colours.focus;
    context.lineWidth = 2;
    const chosen = selection.grant.writes.filter((write) => write.lane === lane);
    for (const write of chosen.length < 500 ? chosen : []) {
      if (write.at < this.view.from || write.at > this.view.to) continue;
      context.beginPath();
      context.arc(this.x(write.at), middle, 11, 0, 7);
      context.stroke();
    }
  }

  cross(x, y) {
    const { context, colours } = this;
    for (const [colour, width] of [[colours.panel, 6], [colours.refused, 3]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x - 5, y - 5);
      context.lineTo(x + 5, y + 5);
      context.moveTo(x + 5, y - 5);
      context.lineTo(x - 5, y + 5);
      context.stroke();
    }
  }

  diamond(x, y) {
    const { context, colours } = this;
    context.fillStyle = colours.bad;
    context.strokeStyle = colours["bad-ring"];
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y - 10);
    context.lineTo(x + 7, y);
    context.lineTo(x, y + 10);
    context.lineTo(x - 7, y);
    context.closePath();
    context.fill();
    context.stroke();
  }

  // Threads from a worker to the registers: those of the chosen grant, and of every stale write.
  threads(selection) {
    const { context, colours, scene } = this;
    const shown = [];
    for (const { writes } of scene.model.lanes) {
      for (let i = placeOf(writes, this.view.from); i < writes.length && writes[i].at <= this.view.to; i++) {
        const chosen = selection && selection.grant && writes[i].grant === selection.grant;
        if (chosen || writes[i].stale) shown.push([writes[i], chosen]);
      }
    }
    if (shown.length > THREADS) return;
    for (const [write, chosen] of shown) {
      const worker = scene.rowOf.get(scene.model.lane(write.from));
      const register = scene.rowOf.get(write.lane);
      if (!worker || !register) continue;
      const down = register.y > worker.y;
      const from = worker.y + (down ? worker.height - 6 : worker.top + 6);
      const to = register.y + register.top + (register.height - register.top) / 2 + (down ? -11 : 11);
      context.strokeStyle = chosen ? colours.focus : write.look === "bad" ? colours.text : colours.refused;
      context.lineWidth = chosen ? 1.5 : 1;
      context.setLineDash([3, 3]);
      context.beginPath();
      context.moveTo(this.x(write.sent ?? write.at), from);
      context.lineTo(this.x(write.at), to);
      context.stroke();
    }
    context.setLineDash([]);
  }
}
