/** The store's page: what it promises, what the doctor found, its nodes, and its elections. */

import { address, ask } from "./api.js";
import { h, setText } from "./dom.js";
import { both, briefly } from "./words.js";

const PROMISES = [
  ["consistency", "Agreement behind a grant"], ["survives", "Survives"], ["auto_release", "Lock of a holder that died"], ["clock_dependence", "Clocks that must behave"],
  ["token_source", "Fencing tokens"], ["fair", "First come, first served"], ["wakeup", "A waiter learns its turn"], ["safe_for", "Safe for"],
];
const AGAINST_VOTES = ["reachable", "votes"];  // the doctor's checks that tell of a node without a vote
const LOOKS = { ok: "good", note: "good", warning: "warn", wrong: "bad" };

export class StoreView {
  constructor(live, place, me, doctor) {
    this.live = live;
    this._place = place;
    this._doctor = doctor;
    this._version = -1;
    this._answer = -1;
    this._promises = h("section.panel.wide", {}, h("p.soft", {}, "Loading…"));
    this._age = h("p.soft");
    this._found = h("div");
    this._examined = h("section.panel.wide", {}, h("h2", {}, "Doctor"), this._age, this._found);
    this._nodes = h("section.panel", { hidden: true });
    this._elections = h("section.panel.wide");
    this._chaos = h("section.panel.wide", {}, h("h2", {}, "A chaos report"), me.chaos_report
      ? h("p", {}, h("a", { href: address("v1/chaos-report"), target: "_blank", rel: "noopener" }, "Open the report"), ": what happened when the store was broken on purpose.")
      : h("p.soft", {}, "holdfast chaos breaks a store on purpose, and draws what happened. This command makes a report; a service that is started with --chaos-report report.html shows it here:"),
      me.chaos_report ? null : h("div.copy", {}, h("code", { tabindex: "0" }, "holdfast chaos --html report.html")));
    this.element = h("div", {}, h("p", {}, h("a", { href: place.link({ view: "" }) }, "← All locks")), h("h1", {}, me.store ?? "Store"),
      h("div.panels", {}, this._examined, this._nodes, this._elections, this._promises, this._chaos));
    this._load();
  }

  get title() {
    return "Store · Holdfast";
  }

  close() {}

  /** Asks what the store promises; again if nobody could tell. */
  async _load() {
    if (this._asked) return;
    this._asked = true;
    try {
      this._promised(await ask("v1/guarantees"));
    } catch (problem) {
      this._promises.replaceChildren(h("h2", {}, "What it promises"), h("p", {}, problem.message));
      this._asked = false;
    }
  }

  _promised(found) {
    const word = (value) => (value === true ? "yes" : value === false ? "no" : Array.isArray(value) ? value.join(", ") : String(value));
    this._promises.replaceChildren(h("h2", {}, "What it promises"),
      h("dl.facts", {}, PROMISES.filter(([key]) => key in found).flatMap(([key, title]) => [h("dt", {}, title), h("dd", {}, word(found[key]))])));
  }

  /** Shows what the doctor found, if that is new. */
  _examine() {
    const { findings, problem, version } = this._doctor;
    setText(this._age, findings ? `Examined ${briefly(this._doctor.age())} ago.` : problem || "Examining the store…");
    if (this._answer === version) return;
    this._answer = version;
    if (version) this._load();
    const out = (findings ?? []).filter((one) => one.server && LOOKS[one.level] !== "good" && AGAINST_VOTES.includes(one.check));
    this._nodes.hidden = !out.length;
    this._nodes.replaceChildren(h("h2", {}, "Nodes that do not vote"), h("ul", {}, out.map((one) => h("li", {}, `${one.server}: ${one.what}`))));
    this._found.replaceChildren(...(findings ?? []).map((one) => h(`div.finding.${LOOKS[one.level] ?? "warn"}`, {},
      h("p", {}, h("span", { class: `chip ${LOOKS[one.level] ?? "warn"}` }, one.level), " ", one.server ? `${one.server}: ${one.what}` : one.what), one.why ? h("p.soft", {}, one.why) : null, one.mend ? h("p", {}, `Mend: ${one.mend}`) : null)));
  }

  update() {
    this._examine();
    if (this._version === this.live.version) return;
    this._version = this.live.version;
    const elections = [...this.live.locks.values()].filter((lock) => lock.kind === "election").sort((a, b) => (a.name < b.name ? -1 : 1)).slice(0, 200);
    const shown = JSON.stringify(elections.map(({ name, holders: [leader] }) => [name, leader?.owner, leader?.token]));
    if (shown === this._shown) return;  // a new link is not where the keyboard was
    this._shown = shown;
    this._times = [];
    this._elections.replaceChildren(h("h2", {}, "Elections"), elections.length
      ? h("ul.plain", {}, elections.map((lock) => {
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
