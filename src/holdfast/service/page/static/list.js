/** The first screen: counts, and one row per lock, of which only those in sight are elements. */

import { h, setAttribute, setText, setTransform } from "./dom.js";
import { briefly, called, clockTime, figure, place, plural, sharing, steps } from "./words.js";

const ORDERS = {
  waited: ["most waited for", (a, b) => b.waiters.length - a.waiters.length || since(a) - since(b) || compare(a, b)],
  longest: ["held longest", (a, b) => since(a) - since(b) || compare(a, b)],
  name: ["name", compare],
};
const BEYOND = 6;       // rows that are drawn above and below those in sight
const SORT_PAUSE = 1000;
const CIRCLES = 3;      // deadlocks that are spelled out, those that last longest
const STEPS = 6;        // of each; its locks' own pages have all

let left = {};          // where the list was when it was left, to come back to

function since(lock) {
  return lock.holders.length ? lock.holders[0].since : Infinity;
}

function compare(a, b) {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

export class ListView {
  constructor(live, place) {
    this.live = live;
    this._place = place;
    this._rows = [];
    this._shown = [];
    this._sortedAt = -SORT_PAUSE;
    this._version = -1;
    this._current = 0;
    this._top = 0;              // how far the list is scrolled, and how much of it is in sight: to ask
    this._tall = innerHeight;   // the browser at each drawing would cost a layout each time
    this.element = this._build();
    if (left.prefix === this._search.value && left.order === this._order.value) this._comeBack = left;
    this._sight = new ResizeObserver(([one]) => { this._tall = one.contentRect.height; this._draw(); });
    this._sight.observe(this._scroller);
    this._onResize = () => this._arrange();
    addEventListener("resize", this._onResize);
  }

  get title() {
    return "Holdfast";
  }

  close() {
    removeEventListener("resize", this._onResize);
    this._sight.disconnect();
    clearTimeout(this._later);
    left = { prefix: this._search.value, order: this._order.value, top: this._top, lock: this._place.get("lock") };
  }

  _build() {
    const count = (title, key) => h("div", {}, h("dt", {}, title), (this[key] = h("dd", {}, "–")));
    this._search = h("input", {
      type: "search", placeholder: "Prefix of a name", "aria-label": "Show locks whose names begin with", "aria-keyshortcuts": "/",
      value: this._place.get("prefix"), autocomplete: "off", spellcheck: "false",
      oninput: () => { this._place.set("prefix", this._search.value); this._arrange(true); },
      onkeydown: (event) => { if (event.key === "ArrowDown") { event.preventDefault(); this._focus(0); } },
    });
    this._order = h("select", { onchange: () => { this._place.set("sort", this._order.value); this._arrange(true); } },
      Object.entries(ORDERS).map(([key, [text]]) => h("option", { value: key }, text)));
    this._order.value = ORDERS[this._place.get("sort")] ? this._place.get("sort") : "waited";
    this._space = h("div.space", { role: "none" });
    this._scroller = h("div.scroller", { role: "rowgroup", onscroll: () => { this._top = this._scroller.scrollTop; this._draw(); }, tabindex: "-1" }, this._space);
    this._space.addEventListener("keydown", (event) => this._key(event));
    this._empty = h("div.empty", { hidden: true });
    this._number = h("span.shown", { role: "status" });
    this._alarm = h("section.panel.deadlock", { hidden: true, role: "alert" });
    const heading = ["Lock", "Holder", "Token", "Held for", "Remaining", "Waiting"];
    const classes = ["", "", "token", "since", "left", "right"];
    this._table = h("div.grid", { role: "table", "aria-label": "Locks" },
      h("div", { role: "rowgroup" }, h("div.head", { role: "row" },
        heading.map((text, index) => h(["span", classes[index]].filter(Boolean).join("."), { role: "columnheader" }, text)))),
      this._scroller);
    return h("div", {},
      h("h1.unseen", {}, "Locks"),
      h("dl.counts", {}, count("Held", "_held"), count("Waiting", "_waiting"), count("Lost", "_lost"), count("Grants per second", "_rate")),
      this._alarm,
      h("div.tools", {}, this._search, h("label", {}, "Sorted by", this._order), this._number),
      this._table, this._empty);
  }

  /** Draws what has changed. */
  update() {
    const { live } = this;
    if (this._version !== live.version) {
      const wait = this._sortedAt + SORT_PAUSE - performance.now();
      if (wait <= 0 || !this._shown.length || !this._whole) return this._arrange();
      this._later ??= setTimeout(() => this._arrange(), wait);
    }
    this._draw();
  }

  /** Draws what has changed, and how time has passed; once a second. */
  tick() {
    if (this._version !== this.live.version) return this._arrange();
    this._summary();
    this._draw();
  }

  focusSearch() {
    this._search.focus();
    this._search.select();
  }

  _summary() {
    const { live } = this;
    if (!live.loaded && !live.all) return;
    const { held, waiting } = live.counts();
    setText(this._held, figure(held));
    setText(this._waiting, figure(waiting));
    const lost = live.lostInAnHour();
    setText(this._lost, figure(lost));
    this._lost.classList.toggle("bad", lost > 0);
    setText(this._lost.previousSibling, live.knowsAnHour() ? "Lost in the last hour" : `Lost since ${clockTime(live.since)}`);
    setAttribute(this._lost.parentElement, "title", "Leases that ended without a release");
    this._spark();
    this._deadlocks();
  }

  _spark() {
    const line = this.live.grantLine();
    const last = line.slice(-6, -1);
    const rate = last.reduce((a, b) => a + b, 0) / last.length;
    const most = Math.max(1, ...line);
    const points = line.map((number, index) => `${index * 2},${26 - (number / most) * 24}`).join(" ");
    if (!this._line) {
      this._line = h("polyline.spark", {});
      this._figure = h("span", {});
      this._rate.replaceChildren(this._figure, h("svg", { viewBox: "0 0 118 28", preserveAspectRatio: "none", "aria-hidden": "true" }, this._line));
    }
    setText(this._figure, rate >= 10 || rate === 0 ? rate.toFixed(0) : rate.toFixed(1));
    setAttribute(this._line, "points", points);
  }

  _deadlocks() {
    const { deadlocks } = this.live;
    const key = JSON.stringify(deadlocks);
    if (key === this._deadlockKey) return this._deadlockTimes();
    this._deadlockKey = key;
    this._alarm.hidden = !deadlocks.length;
    this._stuck = new Set(deadlocks.flatMap((one) => one.names));
    const shown = deadlocks.slice(0, CIRCLES).map((one) => ({ one, title: h("h2") }));
    this._titles = shown;
    const more = deadlocks.length - shown.length;
    this._alarm.replaceChildren(...shown.map(({ one, title }) => h("div", {}, title,
      h("ol", {}, steps(one.cycle).slice(0, STEPS).map((step, index) => h("li", {}, h("a", { href: this._place.link({ lock: one.cycle[index].name }) }, one.cycle[index].name), ` – ${step}`))),
      one.cycle.length > STEPS ? h("p", {}, `and ${one.cycle.length - STEPS} more in this circle`) : null)),
      more ? h("p", {}, `and ${plural(more, "more deadlock", "more deadlocks")}`) : "");
    this._deadlockTimes();
  }

  _deadlockTimes() {
    for (const { one, title } of this._titles ?? []) {
      setText(title, `Deadlock: ${plural(one.cycle.length, "program waits", "programs wait")} in a circle, for ${briefly(this.live.now() - one.since)}`);
    }
  }

  _arrange(moved = false) {
    clearTimeout(this._later);
    this._later = undefined;
    this._sortedAt = performance.now();
    this._version = this.live.version;
    this._summary();
    const prefix = this._search.value;
    this._whole = this.live.loaded;
    const shown = [];
    // The locks that come first are the top of the list in its first order, and of no other.
    if (this._whole || (!prefix && this._order.value === "waited")) {
      for (const lock of this.live.locks.values()) if (lock.name.startsWith(prefix)) shown.push(lock);
    }
    shown.sort(ORDERS[this._order.value][1]);
    const focused = this._rows.find((row) => row.link === document.activeElement);
    const at = focused && !moved ? shown.findIndex((lock) => lock.name === focused.lock) : -1;
    this._shown = shown;
    if (moved) this._top = this._scroller.scrollTop = 0;
    const total = this.live.number();
    setText(this._number, prefix ? `${figure(shown.length)} of ${plural(total, "lock", "locks")}` : plural(total, "lock", "locks"));
    this._table.hidden = !shown.length;
    this._empty.hidden = !!shown.length;
    if (!shown.length) this._explain(prefix);
    setAttribute(this._table, "aria-rowcount", String(shown.length + 1));
    this._height = matchMedia("(max-width: 600px)").matches ? 68 : 44;
    this._space.style.height = `${shown.length * this._height}px`;
    if (this._comeBack && this._whole) {
      const { top, lock } = this._comeBack;
      this._comeBack = null;
      this._top = this._scroller.scrollTop = top;
      const was = shown.findIndex((one) => one.name === lock);
      // Later, since whoever shows this view focuses the whole of it afterwards.
      if (was >= 0) queueMicrotask(() => document.activeElement?.matches("main, body") && this._focus(was));
    }
    this._draw();
    if (at >= 0 && at !== focused.index) this._focus(at);  // the lock that was chosen, wherever it went
  }

  _explain(prefix) {
    if (!this.live.loaded) this._empty.replaceChildren("Loading…");
    else if (prefix) this._empty.replaceChildren(`No lock that is held or waited for begins with “${prefix}”.`);
    else this._empty.replaceChildren("Nothing is held, and nobody waits.", h("br"), h("code", {}, "holdfast run hello -- sleep 60"));
  }

  _draw() {
    if (!this._shown.length) {
      for (const row of this._rows) row.element.remove();
      this._rows = [];
      return;
    }
    const top = Math.max(0, Math.min(this._top, this._shown.length * this._height - this._tall));
    const first = Math.max(0, Math.floor(top / this._height) - BEYOND);
    const last = Math.min(this._shown.length, Math.ceil((top + this._tall) / this._height) + BEYOND);
    const focused = this._rows.find((row) => row.link === document.activeElement)?.index;
    while (this._rows.length > last - first) this._rows.pop().element.remove();
    while (this._rows.length < last - first) {
      const row = this._row();
      this._rows.push(row);
      this._space.append(row.element);
    }
    // A row that is in sight can be reached by Tab: the one that was chosen, else the first.
    const [highest, lowest] = [Math.ceil(top / this._height), Math.floor((top + this._tall) / this._height) - 1];
    this._reached = this._current >= highest && this._current <= lowest ? this._current : Math.min(highest, this._shown.length - 1);
    for (let index = first; index < last; index += 1) this._fill(this._rows[index - first], this._shown[index], index);
    if (focused !== undefined && focused >= first && focused < last) this._rows[focused - first].link.focus({ preventScroll: true });
  }

  _row() {
    const cell = (name) => h(name ? `span.${name}` : "span", { role: "cell" });
    const row = { name: cell("name"), holder: cell("holder"), token: cell("token"), since: cell("since"), left: cell("left"), waiting: cell("right") };
    row.waiting.classList.add("waiting");
    row.who = h("span");
    row.where = h("small");
    row.holder.append(row.who, row.where);
    row.bar = h("b");
    row.seconds = h("span");
    row.drain = h("div.drain", {}, h("i", { "aria-hidden": "true" }, row.bar), row.seconds);
    row.left.append(row.drain);
    row.link = h("a");
    row.name.append(row.link);
    row.element = h("div.row", { role: "row" }, row.name, row.holder, row.token, row.since, row.left, row.waiting);
    return row;
  }

  _fill(row, lock, index) {
    const { live } = this;
    row.index = index;
    row.lock = lock.name;
    setTransform(row.element, `translateY(${index * this._height}px)`);
    const linked = `${location.search} ${lock.name}`;
    if (row.linked !== linked) setAttribute(row.link, "href", this._place.link({ lock: lock.name }));
    row.linked = linked;
    setAttribute(row.element, "aria-rowindex", String(index + 2));
    setAttribute(row.link, "tabindex", index === this._reached ? "0" : "-1");
    row.element.classList.toggle("stuck", this._stuck?.has(lock.name) ?? false);
    setText(row.link, lock.name);
    setAttribute(row.name, "title", lock.name);
    const [holder] = lock.holders;
    const shared = sharing(lock);
    const next = lock.holders.reduce((soonest, one) => (!soonest || one.endsAt < soonest.endsAt ? one : soonest), null);
    if (holder) {
      setText(row.who, shared ? shared : called(holder));
      setText(row.where, shared ? lock.holders.slice(0, 3).map(called).join(", ") : holder.label.text ? place(holder) : lock.kind === "election" ? "leads" : "");
    } else {
      setText(row.who, "free, being handed over");
      setText(row.where, "");
    }
    setText(row.token, lock.token ? String(lock.token) : "");
    setText(row.since, holder ? briefly(live.now() - holder.since) : "");
    row.drain.hidden = !next;
    if (next) {
      const share = live.share(next);
      setTransform(row.bar, `scaleX(${Number(share.toFixed(3))})`);
      row.drain.classList.toggle("low", share < 0.34);
      setText(row.seconds, briefly(live.remaining(next)));
    }
    setText(row.waiting, lock.waiters.length ? figure(lock.waiters.length) : "–");
    row.waiting.classList.toggle("waits", lock.waiters.length > 0);
  }

  _key(event) {
    const at = this._rows.find((row) => row.link === event.target)?.index;
    if (at === undefined) return;
    const page = Math.max(1, Math.floor(this._scroller.clientHeight / this._height) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -at, End: this._shown.length - 1 - at }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    if (at + step < 0) this._search.focus();
    else this._focus(at + step);
  }

  _focus(index) {
    if (!this._shown.length) return;
    this._current = Math.max(0, Math.min(index, this._shown.length - 1));
    const top = this._current * this._height;
    const { scrollTop, clientHeight } = this._scroller;
    if (top < scrollTop) this._scroller.scrollTop = top;
    else if (top + this._height > scrollTop + clientHeight) this._scroller.scrollTop = top + this._height - clientHeight;
    this._top = this._scroller.scrollTop;
    this._draw();
    this._rows.find((row) => row.index === this._current)?.link.focus({ preventScroll: true });
  }
}
