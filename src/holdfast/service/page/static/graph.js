/** Who waits for whom around one lock: parties and locks as boxes, arrows from the one that waits. */

import { clip, h } from "./dom.js";
import { called, party, place, plural, sessionOf } from "./words.js";

const DEEP = 4;         // locks that are followed one after the other
const DEEPEST = 12;     // and in a deadlock, which is drawn whole if it can be
const WIDE = 8;         // boxes of one column that are drawn, beside those of a deadlock
const BOX = [190, 40];
const GAP = [70, 14];
const INSET = 12;       // of the words in a box

/** Returns, by session, one participant of each `holdfast run` around others: they are drawn as one. */
function outermost(locks) {
  const first = new Map();
  const nested = [];
  for (const lock of locks.values()) {
    for (const one of [...lock.holders, ...lock.waiters]) {
      const { session, around } = sessionOf(one);
      if (session && !first.has(session)) first.set(session, one);
      if (around.length) nested.push([session, around]);
    }
  }
  const outer = new Map(nested.map(([session, around]) => [session, around.find((one) => first.has(one))]).filter(([session, one]) => one && one !== session));
  const found = new Map();
  for (const session of outer.keys()) {
    let last = session;
    for (let steps = 0; outer.has(last) && steps < outer.size; steps += 1) last = outer.get(last);
    found.set(session, first.get(last));
  }
  return found;
}

/**
 * Finds the parties and locks that can be reached from `name`, both ways, and the arrows between them, each with the one
 * that it is about: a party may be drawn for what it runs. Those of the deadlocks are there however many there are beside them.
 */
export function surroundings(locks, name, deadlocks = []) {
  const holds = new Map();
  const waits = new Map();
  const people = new Map();
  const around = outermost(locks);
  const drawn = (one) => around.get(sessionOf(one).session) ?? one;
  const add = (map, key, value) => (map.get(key) ?? map.set(key, []).get(key)).push(value);
  for (const lock of locks.values()) {
    for (const holder of lock.holders) {
      people.set(party(drawn(holder)), drawn(holder));
      if (lock.waiters.length) add(holds, party(drawn(holder)), lock.name);  // what nobody waits for stands in nobody's way
    }
    for (const waiter of lock.waiters) { add(waits, party(drawn(waiter)), lock.name); people.set(party(drawn(waiter)), drawn(waiter)); }
  }
  const column = new Map([[`lock ${name}`, 0]]);
  const edges = [];
  const hidden = new Set();
  const counts = new Map();
  const stuck = new Set(deadlocks.flatMap(({ names, cycle }) => [...names.map((one) => `lock ${one}`),
    ...cycle.flatMap(({ waiter, blocker }) => [party(drawn(waiter)), party(drawn(blocker))])]));
  const reach = (key, at) => {
    if (column.has(key)) return true;
    if (!stuck.has(key)) {
      if ((counts.get(at) ?? 0) >= WIDE) { hidden.add(key); return false; }
      counts.set(at, (counts.get(at) ?? 0) + 1);
    }
    hidden.delete(key);
    column.set(key, at);
    return true;
  };
  const seen = new Set();
  let front = [[name, 0]];
  for (let step = 0; step < DEEPEST && front.length; step += 1) {
    const next = [];
    for (const [lockName, at] of front) {
      if (seen.has(lockName) || (step >= DEEP && !stuck.has(`lock ${lockName}`))) continue;
      seen.add(lockName);
      const lock = locks.get(lockName);
      if (!lock) continue;
      for (const holder of lock.holders) {
        const key = party(drawn(holder));
        if (!reach(key, at + 1)) continue;
        edges.push([`lock ${lockName}`, key, "is held by", holder]);
        for (const other of waits.get(key) ?? []) if (reach(`lock ${other}`, at + 2)) next.push([other, at + 2]);
      }
      for (const waiter of lock.waiters) {
        const key = party(drawn(waiter));
        if (!reach(key, at - 1)) continue;
        edges.push([key, `lock ${lockName}`, "waits for", waiter]);
        if (step === 0) for (const other of holds.get(key) ?? []) if (reach(`lock ${other}`, at - 2)) next.push([other, at - 2]);
      }
    }
    front = next;
  }
  return { column, edges, people, hidden };
}

/** Returns what a box stands for beside itself: programs that it runs, and that hold or wait. */
function runs(own, others) {
  const inside = others.filter((one) => sessionOf(one).session !== sessionOf(own).session).map(called);
  return [...new Set(inside)].join(", ");
}

export function graph(locks, name, deadlocks) {
  const { column, edges, people, hidden } = surroundings(locks, name, deadlocks);
  const stuckNames = new Set(deadlocks.flatMap((one) => one.names));
  if (!edges.length) return h("p.soft", {}, "Nobody waits around this lock.");
  const columns = new Map();
  for (const [key, at] of column) (columns.get(at) ?? columns.set(at, []).get(at)).push(key);
  // Arrows back come from below: no box of its column is under the one that such an arrow goes to.
  const back = new Set(edges.filter(([from, to]) => column.get(to) < column.get(from)).map(([, to]) => to));
  for (const keys of columns.values()) keys.sort((a, b) => back.has(a) - back.has(b));
  const order = [...columns.keys()].sort((a, b) => a - b);
  const tall = Math.max(...[...columns.values()].map((keys) => keys.length));
  const width = order.length * (BOX[0] + GAP[0]) - GAP[0] + 8;
  const height = tall * (BOX[1] + GAP[1]) + (back.size ? 24 : 8 - GAP[1]);
  const where = new Map();
  order.forEach((at, place_) => columns.get(at).forEach((key, index) => {
    const inset = ((tall - columns.get(at).length) * (BOX[1] + GAP[1])) / 2;
    where.set(key, [4 + place_ * (BOX[0] + GAP[0]), 4 + inset + index * (BOX[1] + GAP[1])]);
  }));
  const inCircle = (key) => key.startsWith("lock ") && stuckNames.has(key.slice(5));
  const stuckParty = (key) => edges.some(([from, to, kind]) => from === key && kind === "waits for" && inCircle(to)) && edges.some(([from, to, kind]) => to === key && kind === "is held by" && inCircle(from));
  const arrows = edges.map(([from, to]) => {
    const [x1, y1] = where.get(from);
    const [x2, y2] = where.get(to);
    const forward = x2 > x1;
    const stuck = (inCircle(from) && stuckParty(to)) || (stuckParty(from) && inCircle(to));
    const begin = [forward ? x1 + BOX[0] : x1 + BOX[0] / 2, forward ? y1 + BOX[1] / 2 : y1 + BOX[1]];
    const end = [forward ? x2 - 2 : x2 + BOX[0] / 2, forward ? y2 + BOX[1] / 2 : y2 + BOX[1] + 2];
    const bend = forward ? `C${begin[0] + 30} ${begin[1]} ${end[0] - 30} ${end[1]} ${end[0]} ${end[1]}` : `C${begin[0]} ${height} ${end[0]} ${height} ${end[0]} ${end[1]}`;
    return h(stuck ? "path.stuck" : "path", { d: `M${begin[0]} ${begin[1]}${bend}`, "marker-end": stuck ? "url(#arrow-stuck)" : "url(#arrow)" });
  });
  const titled = (key, others) => {
    if (key.startsWith("lock ")) return key.slice(5);
    const inside = runs(people.get(key), others);
    return inside ? `${called(people.get(key))}, which runs ${inside}` : called(people.get(key));
  };
  const boxes = [...where].map(([key, [x, y]]) => {
    const isLock = key.startsWith("lock ");
    const person = people.get(key);
    const others = edges.filter(([from, to]) => from === key || to === key).map(([, , , one]) => one);
    const inside = isLock ? "" : runs(person, others);
    const below = isLock ? "lock" : inside ? `runs ${inside}` : person.label.text ? place(person) : "";
    const title = `${titled(key, others)}${isLock ? " (lock)" : person.label.text ? ` (${place(person)})` : ""}`;
    const classes = [isLock ? "lock" : "party", key === `lock ${name}` && "here", (isLock ? inCircle(key) : stuckParty(key)) && "stuck"].filter(Boolean);
    const line = (kind, text, down) => h(kind, { x: x + INSET, y: y + down }, clip(text, BOX[0] - 2 * INSET));
    return h(`g.${classes.join(".")}`, { "data-key": key }, h("title", {}, title), h("rect", { x, y, width: BOX[0], height: BOX[1], rx: isLock ? 4 : 20 }),
      line("text.word", isLock ? key.slice(5) : called(person), below ? 17 : 25), below ? line("text", below, 32) : null);
  });
  const marker = (id, kind) => h(`marker${kind}`, { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, h("path", { d: "M0 0L8 4L0 8z" }));
  const words = edges.slice(0, 12).map(([from, to, kind, one]) => `${titled(from, [one])}${runs(people.get(from) ?? one, [one]) ? "," : ""} ${kind} ${titled(to, [one])}`).join("; ");
  const unseen = [...hidden];
  const left = unseen.filter((key) => key.startsWith("lock ")).length;
  const more = [unseen.length - left && plural(unseen.length - left, "more program", "more programs"), left && plural(left, "more lock", "more locks")].filter(Boolean).join(" and ");
  return h("div", {}, h("div.drawing", { tabindex: "0", role: "group", "aria-label": "Drawing of who waits for whom" },
    h("svg.graph", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words }, h("defs", {}, marker("arrow", ""), marker("arrow-stuck", ".stuck")), arrows, boxes)),
    more ? h("p.soft", {}, `and ${more} not drawn`) : null);
}
