/** The history of one lock as bars over time: who held it, for how long, and how that ended. */

import { clip, h } from "./dom.js";
import { both, briefly, called, clockTime, plural } from "./words.js";

const WIDEST = 1200;
const NARROW = 600;
const ROW = 26;
const MOST = 60;   // holds that are drawn, the latest
const LANES = 12;  // and their holders; more if more hold it now
const LEGEND = [["open", "holds it now"], ["", "released"], ["lost", "lost"], ["forced", "forced free"], ["pause", "renewed late"]];
const ENDS = { released: "released", ended: "ended", expired: "lost: it ran out", forced: "ended by a forced release" };

/** Returns the holds that are in a history: `{participant, from, to, end}`, and the marks beside them. */
export function holdsIn(history, lock) {
  const holds = new Map();
  const done = [];
  for (const { kind, at, participant } of history) {
    if (!participant) continue;
    if (kind === "granted") holds.set(participant.owner, { participant, from: Math.min(participant.since || at, at), to: null, end: "" });
    else if (kind in ENDS) {
      const hold = holds.get(participant.owner) ?? { participant, from: participant.since };
      holds.delete(participant.owner);
      done.push({ ...hold, to: at, end: kind });
    }
  }
  for (const holder of lock?.holders ?? []) {
    done.push({ participant: holder, from: holder.since, to: null, end: "" });
    holds.delete(holder.owner);
  }
  return done.sort((a, b) => a.from - b.from);
}

/** Returns the holds that are drawn: those of now, then those that ended last, of so many holders. */
function latest(holds) {
  const open = (hold) => hold.to === null;
  const last = [...holds].sort((a, b) => open(b) - open(a) || b.to - a.to).slice(0, MOST);
  const names = [...new Set(last.map((hold) => both(hold.participant)))];
  const now = new Set(last.filter(open).map((hold) => both(hold.participant))).size;
  const chosen = new Set(names.slice(0, Math.max(LANES, now)));
  return last.filter((hold) => chosen.has(both(hold.participant))).sort((a, b) => a.from - b.from);
}

/** Draws the latest holds, each holder in a lane of its own, `wide` pixels wide if that is known. */
export function timeline(history, lock, now, wide) {
  const width = wide > 0 ? Math.min(wide, WIDEST) : WIDEST;
  const all = holdsIn(history, lock);
  const holds = latest(all);
  if (!holds.length) return h("p.soft", {}, "Nobody has held it since this is being watched.");
  const names = [...new Set(holds.map((hold) => both(hold.participant)))];
  const begin = Math.min(...holds.map((hold) => hold.from));
  const span = Math.max(1, now - begin);
  const left = width < NARROW ? 96 : 220;
  const room = clockTime(begin).length > 8 ? 130 : 80;  // for a time of the day, and for one with its date
  const parts = Math.max(1, Math.min(4, Math.floor((width - left - 8) / room)));
  const x = (at) => left + ((at - begin) / span) * (width - left - 8);
  const height = names.length * ROW + 28;
  const drawn = [h("line.axis", { x1: left, x2: width - 8, y1: height - 24, y2: height - 24 })];
  for (let part = 0; part <= parts; part += 1) {
    const at = begin + (span * part) / parts;
    drawn.push(h("text", { x: x(at), y: height - 8, "text-anchor": part === parts ? "end" : part ? "middle" : "start" }, clockTime(at)));
  }
  names.forEach((name, index) => drawn.push(h("text", { x: 0, y: index * ROW + 17 }, clip(name, left - 10), h("title", {}, name))));
  for (const hold of holds) {
    const lane = names.indexOf(both(hold.participant));
    if (lane < 0) continue;
    const to = hold.to ?? now;
    const length = Math.max(3, x(to) - x(hold.from));
    const kind = { expired: ".lost", forced: ".forced" }[hold.end] ?? (hold.to === null ? ".open" : "");
    const told = `${called(hold.participant)} held it as ${hold.participant.token} for ${briefly(to - hold.from)}, from ${clockTime(hold.from)}: ${ENDS[hold.end] ?? "holds it now"}`;
    drawn.push(h(`rect.hold${kind}`, { x: x(hold.from), y: lane * ROW + 4, width: length, height: ROW - 9, rx: 3, tabindex: "0", role: "img", "aria-label": told, "data-key": `${hold.participant.owner} ${hold.participant.token}` }, h("title", {}, told)));
    if (kind === ".lost" || kind === ".forced") drawn.push(h("path.mark", { d: `M${x(to) - 4} ${lane * ROW + 2}l8 ${ROW - 5}m0 ${5 - ROW}l-8 ${ROW - 5}` }));
  }
  for (const { at, participant, kind } of history) {
    const lane = kind === "late" ? names.indexOf(both(participant)) : -1;
    if (lane < 0 || at < begin) continue;
    const told = `${called(participant)} was late to renew at ${clockTime(at)}, with ${briefly(participant.left)} left at the most: it was paused, or could not reach the store`;
    drawn.push(h("path.pause", { d: `M${x(at) - 3} ${lane * ROW + 5}v${ROW - 11}m6 0v${11 - ROW}`, tabindex: "0", role: "img", "aria-label": told, "data-key": `${participant.owner} late ${at}` }, h("title", {}, told)));
  }
  const more = all.length - holds.length;
  return h("div", {}, h("svg.timeline", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Who held the lock, and when" }, drawn),
    h("p.legend", {}, LEGEND.map(([kind, text]) => h("span", {}, h(kind ? `i.${kind}` : "i"), text))),
    more ? h("p.soft", {}, `${plural(more, "more hold is", "more holds are")} not drawn: only the latest are, and those of now.`) : null);
}
