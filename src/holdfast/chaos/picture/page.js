// The page around the timeline: verdicts, tables, the story of what is chosen. All text is set as text.

const $ = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const ROWS = 100;
const MOMENTS = 8;

class Page {
  constructor(report) {
    this.report = report;
    this.runs = Array.isArray(report.runs) ? report.runs : [];
    this.models = new Map();
    const parts = { box: $("lanes"), stage: $("stage"), spacer: $("spacer"), overview: $("overview") };
    this.timeline = new Timeline(parts, {
      onSelect: (found) => this.tell(found),
      onHover: (found, event) => this.hover(found, event),
      onKey: (steps) => this.visit(this.momentIndex + steps),
    });
    this.listen();
    this.head();
    this.matrix();
    this.tiers();
    this.choose(this.wanted());
  }

  listen() {
    $("zoom-in").onclick = () => this.timeline.zoom(1.6);
    $("zoom-out").onclick = () => this.timeline.zoom(1 / 1.6);
    $("whole").onclick = () => this.timeline.all();
    $("previous").onclick = () => this.visit(this.momentIndex - 1);
    $("next").onclick = () => this.visit(this.momentIndex + 1);
    $("run-choice").onchange = (event) => this.choose(Number(event.target.value));
    $("more-grants").onclick = () => this.moreGrants();
    $("only-trouble").onchange = () => this.listGrants();
    $("grants").addEventListener("toggle", () => this.listGrants());
    $("copy").onclick = () => this.copy();
    addEventListener("hashchange", () => {
      const wanted = this.wanted();
      if (wanted >= 0 && wanted !== this.chosen) this.choose(wanted);
    });
  }

  // The place of the run that the address names behind its #; -1 if it names none.
  wanted() {
    const named = location.hash.slice(1);
    return this.runs.findIndex((run) => named && addressOf(run) === named);
  }

  // The run to show first: one that failed, else one in which something happened.
  first() {
    const ranks = { failed: 0, weak: 1, passed: 2, control: 3, open: 4 };
    const rank = (run) => ranks[outcomeOfRun(run).look] - (run.figures && run.figures.stale_tried ? 0.5 : 0);
    const order = this.runs.map((run, i) => [rank(run), i]).sort(([a, i], [b, j]) => a - b || i - j);
    return order.length ? order[0][1] : -1;
  }

  head() {
    const { report, runs } = this;
    const facts = [
      report.holdfast && `Holdfast ${report.holdfast}`,
      isTime(report.duration) && `${seconds(report.duration)} per run`,
      report.seed != null && `seed ${report.seed}`,
      typeof report.machine === "string" ? report.machine : report.machine && Object.values(report.machine).join(", "),
    ];
    $("facts").textContent = facts.filter(Boolean).join(" · ");
    $("command").textContent = String(report.command || "holdfast chaos");
    $("several").hidden = runs.length < 2;
    $("run-title").hidden = runs.length < 2;
    if (runs.length === 1) return;
    const controls = runs.filter((run) => run.control);
    const ours = runs.filter((run) => !run.control);
    const failed = ours.filter((run) => run.passed === false).length;
    const open = ours.filter((run) => run.passed == null).length;
    const caught = controls.filter((run) => run.passed).length;
    const stores = new Set(ours.map((run) => run.store)).size;
    const kept = ours.some(foreign) ? `${ours.find(foreign).library} promises nothing` : "every promise was kept";
    const verdict = failed ? `${failed} of them failed` : open ? `${open} of them not judged` : kept;
    const control = controls.length ? `, and ${caught} of ${plural(controls.length, "lock")} known to be bad ${caught === 1 ? "was" : "were"} caught` : "";
    this.title(runs.length ? `${plural(ours.length, "run")} on ${plural(stores, "store")}: ${verdict}${control}` : "This report has no runs", $("title"));
    if (!runs.length) for (const id of ["run", "reading"]) $(id).hidden = true;
  }

  title(text, heading) {
    heading.textContent = text.replace(/(\d) (s|ms)\b/g, "$1\u00a0$2");
    if (heading === $("title")) document.title = `${text} · holdfast chaos`;
  }

  model(place) {
    if (!this.models.has(place)) this.models.set(place, new Model(this.runs[place]));
    return this.models.get(place);
  }

  choose(wanted) {
    const place = wanted >= 0 ? wanted : this.first();
    if (place < 0) return;
    this.chosen = place;
    const run = this.runs[place];
    const model = this.model(place);
    this.title(titleOf(run, model), this.runs.length > 1 ? $("run-title") : $("title"));
    const outcome = outcomeOfRun(run);
    $("outcome").replaceChildren(badge(outcome), ` ${outcome.text}`);
    $("run-choice").value = String(place);
    for (const button of $("matrix").querySelectorAll("button")) {
      if (Number(button.dataset.run) === place) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    this.moments = momentsOf(model);
    this.momentIndex = -1;
    this.listMoments();
    this.verdicts(run);
    this.figures(run, model);
    $("grants").open = false;
    $("lanes").setAttribute("aria-label", `Timeline: ${plural(model.lanes.length, "lane")}, ${plural(model.grants.length, "grant")}, ${plural(model.writes.length, "write")}, ${plural(model.faults.length, "fault")} in ${seconds(model.end)}`);
    const looks = looksOf(model);
    for (const item of document.querySelectorAll(".legend [data-look]")) item.hidden = !looks.has(item.dataset.look);
    $("nothing").hidden = model.count > 0;
    $("nothing").textContent = run.figures && run.figures.grants
      ? "So much happened in this run that the report has its figures and verdicts alone." : "The report has no events of this run.";
    $("long").hidden = !model.long;
    this.timeline.show(model);
    this.tell(null);
  }

  matrix() {
    const { runs } = this;
    if (runs.length < 2) return;
    $("run-choice").replaceChildren(...runs.map((run, i) => {
      const outcome = outcomeOfRun(run);
      return make("option", { value: String(i) }, `${outcome.mark} ${nameOf(run)}${run.control ? " (control)" : ""}`);
    }));
    const faults = [...new Set(runs.map(faultOf))];
    const rows = new Map();
    runs.forEach((run, i) => {
      const name = `${storeOf(run)}${run.control ? " (control)" : ""}`;
      if (!rows.has(name)) rows.set(name, new Map());
      const cells = rows.get(name);
      const fault = faultOf(run);
      cells.set(fault, [...(cells.get(fault) || []), i]);
    });
    const head = make("tr", {}, make("th", { scope: "col" }, "Store"), ...faults.map((fault) => make("th", { scope: "col" }, fault)));
    const body = [...rows].map(([name, cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...faults.map((fault) =>
      make("td", {}, ...(cells.get(fault) || []).map((i) => this.cell(i, name, fault))))));
    $("matrix").replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
  }

  cell(place, name, fault) {
    const run = this.runs[place];
    const outcome = outcomeOfRun(run);
    const figures = run.figures || {};
    const words = [];
    if (figures.overlaps) words.push(`two holders ${times(figures.overlaps)}`);
    else if (figures.slept) words.push(`slept on ${times(figures.slept)}`);
    if (figures.stale_accepted) words.push(`${figures.stale_accepted} stale accepted by the fence`);
    if (figures.stale_refused) words.push(`${figures.stale_refused} stale refused`);
    if (foreign(run) && figures.stale_accepted_unfenced) words.push(`${figures.stale_accepted_unfenced} stale accepted`);
    if (figures.disorder) words.push(`tokens fell ${times(figures.disorder)}`);
    if (figures.told_late) words.push(`told late ${times(figures.told_late)}`);
    if (figures.ghosts) words.push(plural(figures.ghosts, "ghost"));
    const good = foreign(run) ? "seen" : "kept";
    const short = { failed: "failed", weak: good, passed: good, control: "caught", open: "not judged" }[outcome.look];
    const button = make("button", { type: "button", class: "cell", onclick: () => this.open(place) },
      badge(outcome), make("span", {}, make("span", { class: "aloud" }, `${name}, ${fault}: `), make("strong", {}, short), make("span", { class: "small" }, words.join(", ") || "no trouble")));
    button.dataset.run = String(place);
    return button;
  }

  open(place) {
    this.choose(place);
    try {
      history.replaceState(null, "", `#${addressOf(this.runs[place])}`);
    } catch {
      // A page in a frame may not change its address; the run is shown all the same.
    }
    $("run").scrollIntoView({ block: "start", behavior: this.timeline.still.matches ? "auto" : "smooth" });
    $("run-title").focus({ preventScroll: true });
  }

  listMoments() {
    const { moments } = this;
    const shown = moments.filter((moment) => moment.look !== "fault" && moment.look !== "pause");
    const list = (shown.length ? shown : moments).slice(0, MOMENTS);
    $("moments").replaceChildren(...list.map((moment) =>
      make("li", {}, make("button", { type: "button", class: "moment", onclick: () => this.visit(moments.indexOf(moment), true) },
        make("span", { class: `swatch ${moment.look}`, "aria-hidden": "true" }), make("span", { class: "at" }, seconds(moment.at)), make("span", {}, moment.text)))));
    const total = (shown.length ? shown : moments).length;
    const rest = total - list.length;
    $("moments-more").textContent = rest > 0 ? `and ${rest.toLocaleString("en")} more: press “next moment”` : "";
    $("moments-part").hidden = !list.length;
    $("previous").disabled = $("next").disabled = !moments.length;
  }

  visit(index, scrolls = false) {
    const { moments, timeline } = this;
    if (!moments.length) return;
    if (scrolls) $("lanes-title").scrollIntoView({ block: "start", behavior: timeline.still.matches ? "auto" : "smooth" });
    this.momentIndex = (index + moments.length) % moments.length;
    const moment = moments[this.momentIndex];
    const target = moment.target;
    const isFault = "pause" in target;
    const around = isFault ? [moment.at, moment.until] : [Math.min(target.at, moment.at), Math.max(moment.until, Math.min(target.until, timeline.model.end))];
    timeline.visit(around[0], around[1], isFault ? { fault: target } : { grant: target });
    $("place").textContent = `${this.momentIndex + 1} of ${moments.length.toLocaleString("en")}`;
  }

  verdicts(run) {
    const all = run.verdicts || [];
    for (const [demand, id] of [["must hold", "must"], ["reported", "reported"]]) {
      const rows = all.filter((verdict) => (verdict.demand === "must hold") === (demand === "must hold"));
      $(`${id}-part`).hidden = !rows.length;
      $(id).replaceChildren(...rows.map((verdict) => this.verdict(verdict, demand, run.control)));
    }
    $("verdicts-none").hidden = all.length > 0;
  }

  verdict(verdict, demand, control) {
    const fine = verdict.held !== false;
    const bad = control ? "caught" : demand === "must hold" ? "broken" : "happened";
    const mark = verdict.held == null
      ? { look: "open", mark: "…", text: "not judged" }
      : fine ? { look: "passed", mark: "✓", text: "kept" } : { look: bad === "broken" ? "failed" : "weak", mark: bad === "broken" ? "✗" : "!", text: bad };
    const amount = [verdict.count ? times(verdict.count) : "", isTime(verdict.seconds) && verdict.seconds > 0 ? seconds(verdict.seconds) : ""];
    const rule = String(verdict.rule ?? "");
    const claim = verdict.claim == null || verdict.claim === true ? "" : String(verdict.claim === false ? "not promised" : verdict.claim);
    return make("tr", {},
      make("td", {}, badge(mark), ` ${mark.text}`),
      make("th", { scope: "row" }, rule, Object.hasOwn(RULES, rule) ? make("span", { class: "small" }, RULES[rule]) : ""),
      make("td", { class: amount.some(Boolean) ? "number" : "number none" }, amount.filter(Boolean).join(", ") || "–"),
      make("td", {}, String(verdict.text ?? ""), claim ? make("span", { class: "small" }, `The store says: ${claim}`) : ""));
  }

  figures(run, model) {
    const figures = { ...run.figures };
    if (!figures.stale_tried) for (const name of ["stale_refused", "stale_accepted", "stale_accepted_unfenced"]) delete figures[name];
    const known = [
      ["grants", (figures.grants ?? model.grants.length) === 1 ? "grant" : "grants", figures.grants ?? model.grants.length],
      ["stale_tried", "stale writes tried", figures.stale_tried],
      ["stale_refused", "refused by the fence", figures.stale_refused],
      ["stale_accepted", "accepted by the fence", figures.stale_accepted],
      ["stale_accepted_unfenced", "accepted without a fence", figures.stale_accepted_unfenced],
      ["overlaps", "times two holders", figures.overlaps],
      ["overlap_seconds", "with two holders", figures.overlaps && isTime(figures.overlap_seconds) ? seconds(figures.overlap_seconds) : null],
      ["told_before", "told before the rival", isTime(figures.told_before) ? seconds(figures.told_before) : null],
      ["recovery_seconds", "to recover", isTime(figures.recovery_seconds) ? seconds(figures.recovery_seconds) : null],
      ["ghosts", "ghosts left", figures.ghosts],
    ];
    const shown = known.filter(([, , value]) => value !== undefined && value !== null && value !== "");
    $("figures").replaceChildren(...shown.map(([, words, value]) =>
      make("div", {}, make("dt", {}, words), make("dd", {}, typeof value === "number" ? value.toLocaleString("en") : String(value)))));
  }

  tiers() {
    const tiers = this.report.tiers || [];
    $("tiers-part").hidden = !tiers.length;
    $("tiers").replaceChildren(...tiers.map((tier) => make("li", {},
      badge(tier.available ? { look: "passed", mark: "✓" } : { look: "open", mark: "–" }),
      ` ${tier.name}${tier.available ? "" : ": not here"}${tier.why ? ` (${tier.why})` : ""}`)));
  }

  // The parts of what is told about something: a heading, and lines.
  parts(found) {
    if (found && found.grant) {
      const { grant } = found;
      return [`${grant.lane.name}${tokenOf(grant)}`, storyOf(this.timeline.model, grant), found.write];
    }
    if (found && found.fault) return [found.fault.name, [{ at: found.fault.at, text: faultWords(found.fault), look: "fault" }]];
    if (found && found.fail) return [found.row.lane.name, [{ at: found.fail.at, text: `the attempt failed: ${found.fail.text}`, look: "" }]];
    if (found && found.write) {
      const look = found.write.look;
      return [found.write.register, [{ at: found.write.at, text: `${found.write.from} ${writeWords([found.write])}`, look }]];
    }
    return null;
  }

  lines(lines, most) {
    const list = lines.length > most ? [...lines.slice(0, most - 1), null, lines[lines.length - 1]] : lines;
    return make("ol", { class: "story" }, ...list.map((line) => line === null
      ? make("li", {}, make("span", {}), make("span", {}), make("span", {}, `… ${lines.length - most} more: click to read them all`))
      : make("li", {}, make("span", { class: "at" }, seconds(line.at)), make("span", { class: `swatch ${line.look}`, "aria-hidden": "true" }), make("span", {}, line.text))));
  }

  tell(found) {
    const parts = this.parts(found);
    $("story-hint").hidden = Boolean(parts);
    $("story-title").textContent = parts ? (found.grant ? `The story of ${parts[0]}` : parts[0]) : "";
    $("story-title").hidden = !parts;
    $("story").replaceChildren(parts ? this.lines(parts[1], 60) : "");
  }

  hover(found, event) {
    const tip = $("tip");
    const parts = found && this.parts(found);
    tip.hidden = !parts;
    $("stage").classList.toggle("over", Boolean(parts));
    if (!parts) return;
    if (tip.found !== (found.write || found.grant || found.fault || found.fail)) {
      tip.found = found.write || found.grant || found.fault || found.fail;
      tip.replaceChildren(make("strong", {}, parts[0]), this.lines(parts[1], 9));
    }
    const { offsetWidth: width, offsetHeight: height } = tip;
    const x = Math.max(8, Math.min(innerWidth - width - 8, event.clientX + 16));
    const below = event.clientY + 18 + height < innerHeight;
    tip.style.left = `${x}px`;
    tip.style.top = `${Math.max(8, below ? event.clientY + 18 : event.clientY - height - 14)}px`;
  }

  listGrants() {
    if (!$("grants").open) return;
    const { model } = this.timeline;
    const trouble = (grant) => grant.rival || grant.told !== null || grant.writes.some((write) => write.stale);
    this.listed = $("only-trouble").checked ? model.grants.filter(trouble) : model.grants;
    $("grant-rows").replaceChildren();
    this.moreGrants();
  }

  moreGrants() {
    const begin = $("grant-rows").children.length;
    const { model } = this.timeline;
    const rows = this.listed.slice(begin, begin + ROWS).map((grant) => {
      const stale = grant.writes.filter((write) => write.stale);
      const refused = stale.filter((write) => write.look === "refused").length;
      const held = Math.min(grant.until, model.end) - grant.at;
      const ends = { told: "told of its loss", release: "released", end: "ended", stop: "process ended", "": "still held" };
      const show = () => {
        this.timeline.visit(grant.at, Math.min(grant.until, model.end), { grant });
        $("lanes").scrollIntoView({ block: "center" });
      };
      return make("tr", {},
        make("th", { scope: "row" }, make("button", { type: "button", class: "link", onclick: show }, `${grant.lane.name}${tokenOf(grant)}`)),
        make("td", { class: "number" }, seconds(grant.at)),
        make("td", { class: "number" }, seconds(held)),
        make("td", {}, ends[grant.how]),
        make("td", { class: "number" }, String(new Set(grant.writes.map((write) => write.number ?? write)).size)),
        make("td", {}, stale.length ? `${refused} refused, ${stale.length - refused} accepted` : "none"));
    });
    $("grant-rows").append(...rows);
    const left = this.listed.length - begin - rows.length;
    $("more-grants").hidden = left <= 0;
    $("more-grants").textContent = `Show ${Math.min(ROWS, left)} more of ${left.toLocaleString("en")}`;
  }

  async copy() {
    const text = $("command").textContent;
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren($("command"));
      $("copied").textContent = "Selected: press Ctrl+C.";
    }
  }
}

// The name of a run as it stands behind the # of an address.
function addressOf(run) {
  return String(run.id ?? "").replace(/[^\w.+-]/g, "_");
}

function badge({ look, mark }) {
  return make("span", { class: `badge ${look}`, "aria-hidden": "true" }, mark);
}

new Page(JSON.parse($("report").textContent));
