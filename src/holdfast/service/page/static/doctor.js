/** What the doctor found at the store, for the head of the page and for the store's own page. */

import { ask } from "./api.js";

const LEVELS = ["wrong", "warning", "note", "ok"];

export class Doctor {
  constructor(live, me, onChange) {
    this.findings = null;   // the worst first; null as long as none are known
    this.problem = "";      // why there are none
    this.version = 0;       // counts the answers
    this.allowed = me.prefixes.includes("");  // the doctor speaks of the whole store
    if (!this.allowed) this.problem = "Your token does not cover the whole store, of which the doctor speaks.";
    this._live = live;
    this._onChange = onChange;
    this._madeAt = 0;
    this._askedAt = -Infinity;
  }

  /** Seconds since the store was examined. */
  age() {
    return (performance.now() - this._madeAt) / 1000;
  }

  /** Asks if the latest question is `seconds` old, or if the store went away or came back since. */
  async look(seconds) {
    const away = this._live.storeAway;
    const moved = (away === "") !== (this._away === "");
    if (!this.allowed || this._asking || (!moved && performance.now() - this._askedAt < seconds * 1000)) return;
    this._away = away;
    this._askedAt = performance.now();
    if (away) return this._told(null, `The store cannot be reached, so it cannot be examined: ${away}`);
    this._asking = true;
    try {
      const { findings, age } = await ask("v1/doctor");
      this._madeAt = performance.now() - age * 1000;
      this._told(findings.sort((one, other) => LEVELS.indexOf(one.level) - LEVELS.indexOf(other.level)), "");
    } catch (problem) {
      this._told(null, problem.message);
    } finally {
      this._asking = false;
    }
  }

  _told(findings, problem) {
    this.findings = findings;
    this.problem = problem;
    this.version += 1;
    this._onChange();
  }
}
