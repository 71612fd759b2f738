/** The store's page: what it promises, what the doctor found, its nodes, and its elections. */

import { address, ask } from "./api.js";
import { h, setText } from "./dom.js";
import { both, briefly } from "./words.js";

const PROMISES = [
  ["consistency", "Agreement behind a grant"], ["survives", "Survives"], ["auto_release", "Lock of a holder that died"], ["clock_dependence", "Clocks that must behave"],
  ["token_source", "Fencing tokens"], ["fair", "First come, first served"], ["wakeup", "A waiter learns its turn"], ["safe_for", "Safe for"],
];
const LOOKS = { ok: "good", note: "good", warning: "warn", wrong: "bad" };

export class StoreView {
  constructor(live, place, me) {
    this.live = live;
    this._place = place;
    this._me = me;
    this._version = -1;
    this._promises = h("section.panel.wide", {}, h("p.soft", {}, "Loading…"));
    this._doctor = h("section.panel.wide", {}, h("h2", {}, "Doctor"), h("p.soft", {}, "Examining the store…"));
    this._nodes = h("section.panel", { hidden: true });
    this._elections = h("section.panel.wide");
    this._chaos = h("section.panel.wide", {}, h("h2", {}, "A chaos report"), me.chaos_report
      ? h("p", {}, h("a", { href: address("v1/chaos-report"), target: "_blank", rel: "noopener" }, "Open the report"), ": what happened when the store was broken on purpose.")
      : h("p.soft", {}, "holdfast chaos breaks a store on purpose, and draws what happened. This command makes a report; a service that is started with --chaos-report report.html shows it here:"),
      me.chaos_report ? null : h("div.copy", {}, h("code", { tabindex: "0" }, "holdfast chaos --html report.html")));
    this.element = h("div", {}, h("p", {}, h("a", { href: place.link({ view: "" }) }, "← All locks")), h("h1", {}, me.store ?? "Store"),
      h("div.panels", {}, this._doctor, this._nodes, this._elections, this._promises, this._chaos));
    this._load();
  }

  get title() {
    return "Store · Holdfast";
  }

  close() {}

  async _load() {
    const failed = (element, title) => (problem) => element.replaceChildren(h("h2", {}, title), h("p", {}, problem.message));
    ask("v1/guarantees").then((found) => this._promised(found), failed(this._promises, "What it promises"));
    ask("v1/doctor").then((found) => this._examined(found.findings), failed(this._doctor, "Doctor"));
  }

  _promised(found) {
    const word = (value) => (value === true ? "yes" : value === false ? "no" : Array.isArray(value) ? value.join(", ") : String(value));
    this._promises.replaceChildren(h("h2", {}, "What it promises"),
      h("dl.facts", {}, PROMISES.filter(([key]) => key in found).flatMap(([key, title]) => [h("dt", {}, title), h("dd", {}, word(found[key]))])));
  }

  _examined(findings) {
    this._doctor.replaceChildren(h("h2", {}, "Doctor"), ...findings.map((one) => h(`div.finding.${LOOKS[one.level] ?? "warn"}`, {},
      h("p", {}, h("span", { class: `chip ${LOOKS[one.level] ?? "warn"}` }, one.level), " ", one.server ? `${one.server}: ${one.what}` : one.what), one.why ? h("p.soft", {}, one.why) : null, one.mend ? h("p", {}, "Mend: ", h("code", {}, one.mend)) : null)));
  }

  update() {
    if (this._version === this.live.version) return;
    this._version = this.live.version;
    const { live } = this;
    const out = new Set();
    const elections = [];
    for (const lock of live.locks.values()) {
      for (const node of lock.out ?? []) out.add(node);
      if (lock.kind === "election") elections.push(lock);
    }
    this._times = [];
    this._nodes.hidden = !out.size;
    this._nodes.replaceChildren(h("h2", {}, "Nodes that do not vote"), h("ul", {}, [...out].map((text) => h("li", {}, text))));
    this._elections.replaceChildren(h("h2", {}, "Elections"), elections.length
      ? h("ul.plain", {}, elections.sort((a, b) => (a.name < b.name ? -1 : 1)).slice(0, 200).map((lock) => {
        const [leader] = lock.holders;
        return h("li", {}, h("div", {}, h("a", { href: this._place.link({ lock: lock.name, view: "" }) }, lock.name), h("span.small", {}, leader ? `led by ${both(leader)}` : "nobody leads")),
          leader ? this._term(leader) : h("span.right.soft.term"));
      })) : h("p.soft", {}, "None is under way."));
  }

  _term(leader) {
    const text = h("span.right.soft.term");
    const tell = () => setText(text, `term ${leader.token}, for ${briefly(this.live.now() - leader.since)}`);
    this._times.push(tell);
    tell();
    return text;
  }

  tick() {
    this.update();
    for (const tell of this._times ?? []) tell();
  }
}
