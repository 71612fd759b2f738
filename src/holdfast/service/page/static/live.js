/**
 * What the page knows of the store: all locks, kept up to date by the stream of events.
 *
 * A stream that breaks is opened again where it ended, so nothing is missed; if the service does not know
 * that place any more it says `reset`, and everything is loaded again.
 */

import { address, ask } from "./api.js";
import { Lock } from "./waiters.js";

const LATE = 5;        // seconds without a word after which the page says so
const GONE = 30;       // seconds without a word after which the stream, or an attempt to open it, is given up
const REFUSAL = 10000; // milliseconds in which the service may say that we are refused
const LONGEST_PAUSE = 15;
const KEPT = 4000;     // events that are kept of all locks; the service remembers more of each
const BUSY = 100;      // changes in one message that are drawn with the next second, and not by themselves
const SOON = 150;      // milliseconds in which other changes may come, to be drawn together
const ENDS = ["released", "expired", "forced", "left"];
const SECONDS = 60;    // of the line of grants per second

export class Live {
  constructor(onChange) {
    this.locks = new Map();       // name -> lock
    this.all = null;              // what all locks add up to, while only the first of them are here
    this.histories = new Map();   // name -> events, the oldest first
    this.grants = [];             // [second, grants], the latest last
    this.lost = [];               // times at which leases were lost, in the last hour
    this.since = null;            // the time from which on events are known
    this.deadlocks = [];
    this.version = 0;             // counts changes of who holds and waits
    this.state = "connecting";    // connecting, live, cut, refused
    this.storeAway = "";
    this.seenAt = 0;              // the time at which the service saw the store last; 0 if it is not known
    this.offset = 0;
    this.heardAt = 0;
    this.loaded = false;
    this.begun = 0;               // counts the times at which everything was loaded anew
    this._onChange = onChange;
    this._cursor = "";
    this._source = null;          // null while the stream rests
    this._alive = 0;              // when an attempt was begun, or something came of it
    this._pause = 1;
    this._drawing = false;
    this._kept = 0;               // events that were kept so far
    this._names = [];             // of which lock each of the latest was; the oldest is overwritten
    this._stopped = false;
  }

  /** The time for which what is shown is true, in seconds since the epoch: it stands while the store is away. */
  now() {
    return this.storeAway && this.seenAt ? this.seenAt : this._wall();
  }

  _wall() {
    return Date.now() / 1000 + this.offset;
  }

  /** Seconds since what is shown was seen to be so; null if nothing was seen yet. */
  age() {
    if (this.storeAway) return this.seenAt ? this._wall() - this.seenAt : null;
    return this.heardAt ? (performance.now() - this.heardAt) / 1000 : null;
  }

  /** Whether what is shown may be true no longer, though the stream is open. */
  late() {
    return this.storeAway !== "" || this.age() > LATE;
  }

  remaining(participant) {
    return Math.max(0, participant.endsAt - this.now());
  }

  /** The part of a lease that is left, from 0 to 1. */
  share(participant) {
    return Math.min(1, this.remaining(participant) / (participant.whole || 1));
  }

  /** Opens the stream; what it says first decides whether the list has to be loaded. */
  start() {
    const query = { cursor: this._cursor, looks: "true", list: "true", together: "true" };
    const source = new EventSource(address("v1/events", query));
    this._source = source;
    this._alive = performance.now();
    const on = (kind, take) => source.addEventListener(kind, (event) => {
      if (event.lastEventId) this._cursor = event.lastEventId;
      if (this.state !== "live") this._changed();
      this.state = "live";  // and not before: a stream that is open has told nothing yet
      this._heard();
      take(event.data ? JSON.parse(event.data) : {});
    });
    source.addEventListener("open", () => {
      this._pause = 1;
      this._alive = performance.now();
    });
    for (const kind of ["ready", "reset"]) on(kind, (data) => this._begin(data));
    on("more", (data) => this._add(data.locks));
    on("events", (pairs) => {
      for (const [kind, data] of pairs) this._take(kind, data, source);
      this._changed(pairs.length);
    });
    on("look", (data) => {
      this._heard(data.at);
      this.seenAt = data.seen_at ?? 0;
    });
    on("dropped", () => this._broken(source));
    source.addEventListener("error", () => this._broken(source));
  }

  /** Takes one event. */
  _take(kind, data, source) {
    if (kind === "renewed") return this._renewed(data);
    if (kind === "unreachable") return this._away(data.detail);
    if (kind === "reached") {
      this._away("");
      if (this.loaded) return;
      this._cursor = "";
      return this._broken(source);
    }
    this.version += 1;
    this.seenAt = data.at;
    this._keep(kind, data);
    if (kind !== "late") this._move(kind, data);
  }

  stop() {
    this._stopped = true;
    this._source?.close();
    clearTimeout(this._again);
    clearTimeout(this._soon);
  }

  /** Closes the stream while nobody looks: a browser has six connections to a service, for all of its pages. */
  rest() {
    if (this._stopped || this.state === "refused") return;
    clearTimeout(this._again);
    this._source?.close();
    this._source = null;
    this.state = "connecting";
  }

  /** Opens the stream again after a rest, where it ended. */
  wake() {
    if (this._source || this._stopped || this.state === "refused") return;
    this._pause = 1;
    this.start();
  }

  /** Opens the stream again if it, or an attempt to open it, says nothing: the other end may be gone without a word. */
  check() {
    const quiet = performance.now() - this._alive;
    if (quiet > GONE * 1000 && this._source && this._source.readyState !== EventSource.CLOSED) this._broken(this._source);
  }

  /** Takes what the service remembers, and the first locks as they were seen last. */
  _begin(data) {
    this.begun += 1;
    this.histories = new Map();  // what was between them and now is not known
    this._names = [];
    this._heard(data.at);
    this.seenAt = data.seen_at ?? 0;
    this.storeAway = data.unreachable ?? "";
    this.since = data.since;
    this.lost = data.lost;
    this.grants = data.grants;
    this._coming = new Map();
    this._begun = data;
    if (data.locks === undefined) this.loaded = false;  // the store has not answered yet
    // Locks that are shown already stay until all of the new ones are here.
    if (!this.loaded) {
      this.locks = this._coming;
      this.all = data.locks && { held: data.held, waiting: data.waiting, number: data.number };
    }
    this.version += 1;
    this._draw();
    this._add(data.locks ?? []);
  }

  /** Takes some locks as they were seen last; with the last of them all are known. */
  _add(locks) {
    for (const lock of locks) {
      for (const holder of lock.holders) this._scale(holder, this._begun.seen_at);
      this._coming.set(lock.name, new Lock(lock));
    }
    if (!(this._coming.size >= this._begun.number)) return;  // nor if no number was told
    this.locks = this._coming;
    this.loaded = true;
    this.all = null;
    this.version += 1;
    this._draw();
    this.look();
  }

  _broken(source) {
    source.close();
    if (this._stopped) return;
    // An EventSource does not tell why it was refused.
    ask("v1/me", { patience: REFUSAL }).then(() => this._cut(source), (reason) => this._cut(source, reason));
  }

  _cut(source, problem) {
    if (this._stopped || source !== this._source) return;  // it rests, or has been opened again since
    this.state = problem?.status === 401 ? "refused" : "cut";
    this._changed();
    if (this.state === "refused") return;
    const pause = this._pause * (0.75 + Math.random() / 2);
    this._pause = Math.min(LONGEST_PAUSE, this._pause * 2);
    this._again = setTimeout(() => this.start(), pause * 1000);
  }

  _away(detail) {
    this.storeAway = detail ?? "";
    this._changed();
  }

  /** Notes that a holder or waiter came or went. To note it twice changes nothing. */
  _move(kind, event) {
    const { name, owner } = event;
    let lock = this.locks.get(name);
    if (!lock) {
      if (ENDS.includes(kind)) lock = null;
      else this.locks.set(name, (lock = new Lock({ name, holders: [], waiters: [], token: 0, out: [] })));
    }
    if (kind === "granted") this._count(event.at);
    if (kind === "expired") this.lost.push(event.at);
    if (lock) {
      lock.kind = event.kind ?? lock.kind;
      lock.capacity = event.capacity ?? lock.capacity;
      lock.token = Math.max(lock.token, event.token ?? 0);
      if (kind === "queued") {
        lock.join(event);
      } else {
        lock.leave(owner);
        lock.holders = lock.holders.filter((one) => one.owner !== owner);
        if (kind === "granted" || kind === "changed") {
          this._scale(event, event.at);
          lock.holders.push(event);
        }
      }
      if (!lock.holders.length && !lock.waiters.length) this.locks.delete(name);
    }
  }

  _renewed(event) {
    const holder = this.locks.get(event.name)?.holders.find((one) => one.owner === event.owner);
    if (holder) {
      holder.remaining = event.remaining;
      this._scale(holder, event.at);
    }
  }

  /** Notes when a lease ends, and the most that was seen to remain of it. */
  _scale(holder, at) {
    holder.endsAt = at + holder.remaining;
    holder.whole = Math.max(holder.whole ?? 0, holder.ttl ?? 0, holder.remaining);
  }

  /** Keeps an event for its lock's history, and forgets the oldest of all that are kept. */
  _keep(kind, event) {
    const place = this._kept++ % KEPT;
    const oldest = this.histories.get(this._names[place]);
    if (oldest) {
      oldest.shift();
      if (!oldest.length) this.histories.delete(this._names[place]);
    }
    this._names[place] = event.name;
    let history = this.histories.get(event.name);
    if (!history) this.histories.set(event.name, (history = []));
    history.push({ kind, at: event.at, participant: event });
  }

  /** Asks who waits for each other in a circle: not at every change, since the store is read for it. */
  async look() {
    if (!this.loaded || this.state !== "live" || this._lookedAt === this.version || this._looking) return;
    const version = this.version;
    let found = [];
    if (this.counts().waiting) {
      this._looking = true;
      try {
        found = (await ask("v1/deadlocks")).deadlocks;
      } catch {
        return;  // it is asked again soon
      } finally {
        this._looking = false;
      }
    }
    const same = version === this.version;
    if (same) this._lookedAt = version;
    const known = JSON.stringify(this.deadlocks);
    found.sort((one, other) => one.since - other.since);
    this.deadlocks = found.map((one) => ({ ...one, names: one.locks }));
    if (JSON.stringify(this.deadlocks) === known) return;
    this.version += 1;
    if (same) this._lookedAt = this.version;
    this._changed();
  }

  /** Puts events that the service remembers before those that the page has seen. */
  remember(name, events) {
    const known = this.histories.get(name) ?? [];
    const first = known[0]?.at ?? Infinity;
    this.histories.set(name, [...events.filter((event) => event.at < first), ...known]);
  }

  _count(at) {
    const second = Math.floor(at);
    const last = this.grants.at(-1);
    if (last && last[0] >= second) last[1] += 1;
    else this.grants.push([second, 1]);
    while (this.grants.length && this.grants[0][0] < second - SECONDS) this.grants.shift();
  }

  /** How many locks are held, and how many waiters there are. */
  counts() {
    if (this.all) return this.all;
    if (this._countedAt !== this.version) {
      this._countedAt = this.version;
      this._counts = { held: 0, waiting: 0 };
      for (const lock of this.locks.values()) {
        if (lock.holders.length) this._counts.held += 1;
        this._counts.waiting += lock.waiters.length;
      }
    }
    return this._counts;
  }

  /** How many locks are held or waited for. */
  number() {
    return this.all?.number ?? this.locks.size;
  }

  /** The grants of each of the last seconds, the latest last. */
  grantLine() {
    const now = Math.floor(this.now());
    const line = new Array(SECONDS).fill(0);
    for (const [second, number] of this.grants) {
      const place = second - now + SECONDS - 1;
      if (place >= 0 && place < SECONDS) line[place] = number;
    }
    return line;
  }

  /** Whether the losses of a whole hour are known. */
  knowsAnHour() {
    return this.since !== null && this.now() - this.since >= 3600;
  }

  lostInAnHour() {
    const then = this.now() - 3600;
    while (this.lost.length && this.lost[0] < then) this.lost.shift();
    return this.lost.length;
  }

  _heard(at) {
    this.heardAt = this._alive = performance.now();
    if (at) this.offset = at - Date.now() / 1000;
  }

  /** Has the page drawn soon, once for all that came meanwhile; if `number` is large, with its next second. */
  _changed(number = 1) {
    if (number > BUSY || this._soon) return;
    this._soon = setTimeout(() => {
      this._soon = undefined;
      this._draw();
    }, SOON);
  }

  /** Has the page drawn with the next frame. */
  _draw() {
    if (this._drawing) return;
    this._drawing = true;
    requestAnimationFrame(() => {
      this._drawing = false;
      if (!this._stopped) this._onChange();
    });
  }
}
