/** A lock's own page: who holds it, who waits, what happened, and a way to force it free. */

import { ask, base, lockPath } from "./api.js";
import { h, legible, renew, setText } from "./dom.js";
import { graph } from "./graph.js";
import { timeline } from "./timeline.js";
import { both, briefly, called, clockTime, figure, place, plural, quoted, sharing, steps } from "./words.js";

const MOST = 50;  // holders or waiters that are shown
const AGAIN = 5000;  // milliseconds after which a history that could not be had is asked for again
const PADDING = 16;  // of a panel, at each side

export class LockView {
  constructor(live, place_, me) {
    this.live = live;
    this._place = place_;
    this._me = me;
    this.name = place_.get("lock");
    this._version = -1;
    this.element = this._build();
    this._onResize = () => this.update();
    addEventListener("resize", this._onResize);
  }

  get title() {
    return `${legible(this.name)} · Holdfast`;
  }

  close() {
    removeEventListener("resize", this._onResize);
    clearTimeout(this._again);
    this._dialog?.close();
    this._dialog?.remove();
  }

  _build() {
    this._kind = h("span.chip");
    this._line = h("p.soft");
    this._force = h("button.danger", { type: "button", hidden: true, onclick: () => this._ask() }, "Force release…");
    this._holders = h("section.panel");
    this._waiters = h("section.panel");
    this._graph = h("section.panel.wide");
    this._history = h("section.panel.wide");
    this._circle = h("section.panel.wide.deadlock", { hidden: true });
    const { namespace } = this._me;
    const where = `--url ${quoted(base.href.replace(/\/$/, ""))}${namespace === "holdfast" ? "" : ` --namespace ${quoted(namespace)}`}`;
    const command = `holdfast show ${where} -- ${quoted(this.name)}`;
    const copy = h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(command).then(() => setText(copy, "Copied")) }, "Copy");
    return h("div", {},
      h("p", {}, h("a", { href: this._place.link({ lock: "" }) }, "← All locks")),
      h("div.titled", {}, h("h1", {}, this.name), this._kind, this._force),
      this._line,
      h("div.panels", {}, this._circle, this._holders, this._waiters, this._history, this._graph,
        h("section.panel.wide", {}, h("h2", {}, "The same in a terminal"), h("div.copy", {}, h("code", { tabindex: "0" }, command), copy))));
  }

  /** Asks the service for what it remembers of the lock. */
  async _recall() {
    try {
      const { events, since } = await ask(`${lockPath(this.name)}/history`);
      this.live.remember(this.name, events.map((event) => ({ kind: event.event, at: event.at, participant: event })));
      this._since = since;
      this._problem = "";
    } catch (problem) {
      this._covered = problem.status !== 403;
      this._problem = problem.message;
      clearTimeout(this._again);
      if (this._covered && this.element.isConnected) this._again = setTimeout(() => this._recall(), AGAIN);
    }
    this._recalled = true;
    this.update();
  }

  update() {
    if (this._begun !== this.live.begun && this.live.begun) {
      this._begun = this.live.begun;
      this._since = undefined;
      this._recall();
    }
    const { live } = this;
    const lock = live.locks.get(this.name);
    const holders = lock?.holders ?? [];
    const waiters = lock?.waiters ?? [];
    const known = lock || (live.loaded && this._recalled && this._covered !== false);
    setText(this._kind, { rwlock: "read/write lock", undefined: "lock" }[lock?.kind] ?? lock?.kind ?? "lock");
    const focused = document.activeElement === this._force;
    this._force.hidden = !(this._me.role === "admin" && holders.length);
    if (focused && this._force.hidden) document.querySelector("main").focus({ preventScroll: true });
    const shared = lock ? sharing(lock) : "";
    setText(this._line, holders.length
      ? `Held${shared ? ` (${shared})` : ""} as token ${lock.token}; ${waiters.length ? plural(waiters.length, "waits", "wait") : "nobody waits"}.`
      : this._covered === false ? "Your token does not cover this lock, so nothing of it is shown."
      : known ? "Free: nobody holds it." : "Loading…");
    for (const panel of [this._holders, this._waiters, this._graph]) panel.hidden = !known;
    this._history.hidden = !known || !this._recalled;
    if (known) this._fill(lock, holders, waiters);
  }

  /** Draws what is known of the lock, and how time has passed. */
  _fill(lock, holders, waiters) {
    const { live } = this;
    const more = (all) => (all.length > MOST ? h("p.soft", {}, `and ${figure(all.length - MOST)} more`) : null);
    renew(this._holders, h("h2", {}, holders.length > 1 ? `Holders (${figure(holders.length)})` : "Holder"), holders.length
      ? h("ul.plain", {}, holders.slice(0, MOST).map((one) => this._holder(one))) : h("p.soft", {}, "Nobody."), more(holders));
    renew(this._waiters, h("h2", {}, waiters.length ? `Waiting (${figure(waiters.length)}), in this order` : "Waiting"), waiters.length
      ? h("ul.plain", {}, waiters.slice(0, MOST).map((one, index) => this._waiter(one, index))) : h("p.soft", {}, "Nobody."), more(waiters));
    const stuck = live.deadlocks.filter((one) => one.names.includes(this.name));
    this._circle.hidden = !stuck.length;
    renew(this._circle, stuck.map((one) => h("div", {},
      h("h2", {}, `Deadlock, for ${briefly(live.now() - one.since)}: nobody in this circle can go on`),
      h("ol", {}, steps(one.cycle).map((step) => h("li", {}, step))), h("p", {}, "One of them has to give up: stop it, or force one of the locks free."))));
    if (this._version !== live.version) renew(this._graph, h("h2", {}, "Who waits for whom"), graph(live.locks, this.name, stuck));
    this._version = live.version;
    if (!this._recalled) return;
    const since = this._since ?? live.since;
    renew(this._history, h("h2", {}, "History"), timeline(live.histories.get(this.name) ?? [], lock, live.now(), this._history.clientWidth - 2 * PADDING),
      this._problem ? h("p.soft", {}, `What was before this page was opened could not be asked for: ${this._problem}`)
      : since ? h("p.soft", {}, `Watched since ${clockTime(since)}. What came and went between two looks, about a second apart, is not in it.`) : null);
  }

  _holder(one) {
    const share = this.live.share(one);
    const bar = h("b");
    bar.style.transform = `scaleX(${share.toFixed(3)})`;
    const facts = [one.label.text && place(one), `token ${one.token}`, one.slot !== undefined && one.slot !== null && `slot ${one.slot}`, `for ${briefly(this.live.now() - one.since)}`];
    return h("li", { "data-key": one.owner }, h("div", {}, h("strong", {}, called(one)), h("span.small", {}, facts.filter(Boolean).join(" · "))),
      h(share < 0.34 ? "div.drain.low" : "div.drain", {}, h("i", { "aria-hidden": "true" }, bar), h("span", {}, briefly(this.live.remaining(one)))));
  }

  _waiter(one, index) {
    return h("li", { "data-key": one.owner }, h("div.queued", {}, h("span.order", {}, `${index + 1}. `), called(one), one.label.text ? h("span.small", {}, place(one)) : null),
      h("span.right.soft", {}, `for ${briefly(this.live.now() - one.since)}`));
  }

  tick() {
    this.update();
  }

  _ask() {
    const lock = this.live.locks.get(this.name);
    if (!lock?.holders.length) return;
    const asked = [...lock.holders];
    const one = asked.length === 1;
    const more = asked.length > 5 ? ` and ${figure(asked.length - 5)} more` : "";
    const told = asked.slice(0, 5).map(both).join(", ") + more;
    const next = lock.waiters[0];
    const problem = h("p.chip.bad", { hidden: true, role: "alert" });
    const cancel = h("button", { type: "button", autofocus: true, onclick: () => this._dialog.close() }, "Cancel");
    const go = h("button.danger", { type: "button", onclick: () => this._release(go, cancel, problem, asked) }, "Force release");
    this._dialog?.remove();
    this._dialog = h("dialog", { "aria-labelledby": "force-title" },
      h("h2", { id: "force-title" }, `Force “${this.name}” free?`),
      h("p", {}, `${told} ${one ? "is" : "are"} told ${this._me.recall ? "at once" : "at the next renewal"}, and ${one ? "counts" : "count"} as having lost the lock, but may still be at work.`),
      h("p", {}, `The token is raised above ${lock.token}: a fence refuses what is written with ${lock.token} from the next holder's first write on. Without a fence nothing stops it.`),
      h("p", {}, next ? `Next in the queue: ${both(next)}.` : "Nobody waits for it."),
      h("p.soft", {}, "This is written to the audit log."), problem,
      h("div.answer", {}, cancel, go));
    this._dialog.addEventListener("close", () => (this._force.hidden ? document.querySelector("main") : this._force).focus());
    document.body.append(this._dialog);
    this._dialog.showModal();
  }

  /** Forces the lock free, if those hold it of whom the question was, and unless it is cancelled before. */
  async _release(button, cancel, problem, asked) {
    button.disabled = true;
    const dialog = this._dialog;
    const owners = (holders) => holders.map((one) => one.owner).sort().join();
    const known = owners(asked);
    const tell = (text) => {
      problem.hidden = false;
      setText(problem, text);
    };
    try {
      const { holders } = await ask(lockPath(this.name));
      if (!dialog.open) return;
      if (owners(holders) !== known) return tell(holders.length ? "It has changed hands meanwhile, and was left as it is. Look again." : "It was released meanwhile.");
      setText(cancel, "Close");  // what was sent cannot be taken back
      await ask(lockPath(this.name), { method: "DELETE" });
      dialog.close();
    } catch (error) {
      tell(error.message);
      setText(cancel, "Cancel");
      button.disabled = false;
    }
  }
}
