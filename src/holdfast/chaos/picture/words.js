// The words: times, the story of a grant, and what there is to look at in a run.

const UNFENCED = "stale writes accepted (unfenced)";
const RULES = {
  exclusion: "No two processes counted on the same lock at the same time.",
  "stale writes accepted (fenced)": "The register with a fence took no write of a holder that had been replaced.",
  "stale writes accepted (unfenced)": "The same writes, at a register that does not look at the token.",
  "token order": "Each grant had a higher token than every grant before it.",
  "told before its rival": "A holder that lost its lease learned it before the next one was granted the lock.",
  recovery: "Once the fault was over, the lock was granted again.",
  ghosts: "Nothing was left on the store that keeps others out.",
  "weakness declared": "What went wrong is something that the store says can go wrong.",
};

function seconds(value) {
  if (!isTime(value)) return "";
  const size = Math.abs(value);
  if (size > 0 && size < 0.0995) return `${(value * 1000).toFixed(size < 0.00995 ? 1 : 0)} ms`;
  if (size < 9.995) return `${value.toFixed(2)} s`;
  if (size < 600) return `${value.toFixed(1)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

// A moment on the time axis, as exact as `step`, the distance between two marks.
function moment(value, step) {
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  return `${value.toFixed(places)} s`;
}

function times(count) {
  return count === 1 ? "once" : count === 2 ? "twice" : `${count.toLocaleString("en")} times`;
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// The token of a grant: as it is, or by its place among those of the run where tokens are long.
function tokenOf(grant) {
  return grant.token === null ? "" : `, token ${grant.short}`;
}

function tokenWords(grant) {
  if (grant.token === null) return "without a token";
  return grant.short === grant.token ? `with token ${grant.token}` : `with token ${grant.short} (${grant.token})`;
}

// Whether a fault was over at once.
function isBrief(fault) {
  return fault.until - fault.at < 0.005;
}

function faultWords(fault, names = fault.lane.name) {
  const lasted = fault.until === NEVER ? " until the run ended" : isBrief(fault) ? "" : ` for ${seconds(fault.until - fault.at)}`;
  return `${names}: ${fault.name}${lasted}${fault.text ? ` (${fault.text})` : ""}`;
}

function registerWords(write) {
  const words = { fenced: "by the fence", unfenced: "without a fence" };
  return Object.hasOwn(words, write.register) ? words[write.register] : `by ${write.register}`;
}

// One sentence for writes that had the same outcome, one after another.
function writeWords(writes) {
  const registers = new Map();
  for (const write of writes) {
    if (!registers.has(write.register)) registers.set(write.register, write);
  }
  const count = new Set(writes.map((write) => write.number ?? write)).size;
  const looks = new Set([...registers.values()].map((write) => write.look));
  const stale = writes.some((write) => write.stale) ? " after a newer holder had written" : "";
  const wrote = `wrote ${times(count)}${stale}: `;
  const delay = writes.length && writes[0].sent !== null ? writes[0].at - writes[0].sent : 0;
  const late = delay > 0.25 ? ` It had been under way for ${seconds(delay)}.` : "";
  if (looks.size === 1 && looks.has("good")) return `${wrote}accepted.${late}`;
  const parts = [...registers.values()].map((write) => {
    const outcome = { good: "accepted", refused: "refused", bad: "accepted" };
    return `${outcome[write.look]} ${registerWords(write)}`;
  });
  return `${wrote}${parts.join(", and ")}.${late}`;
}

function outcomeOf(writes) {
  return writes.map((write) => `${write.register} ${write.look}`).sort().join();
}

// The lines of a grant's story: [{at, text, look}], in order of time.
function storyOf(model, grant) {
  const lines = [];
  const add = (at, text, look = "") => lines.push({ at, text, look });
  const until = grant.writes.reduce((last, write) => Math.max(last, write.at), Math.min(grant.until, model.end));
  if (grant.asked !== null) add(grant.asked, `asked for ${grant.lock ? `“${grant.lock}”` : "the lock"}.`);
  const waited = grant.asked === null ? "" : `, after ${seconds(grant.at - grant.asked)}`;
  const lease = isTime(grant.ttl) ? `, on a lease of ${seconds(grant.ttl)}` : "";
  add(grant.at, `was granted it ${tokenWords(grant)}${waited}${lease}.`, "hold");
  for (const fault of grant.lane.faults) {
    if (fault.at > until || fault.until < grant.at - 0.001) continue;
    const brief = isBrief(fault);
    add(fault.at, `${fault.name}${brief ? "" : " began"}${fault.text ? `: ${fault.text}` : ""}.`, fault.pause ? "pause" : "fault");
    if (fault.until !== NEVER && !brief) {
      add(fault.until, `${fault.name} was over, after ${seconds(fault.until - fault.at)}.`, "");
    }
  }
  if (grant.rival) {
    const rival = grant.rival;
    const text = `meanwhile ${rival.lane.name} was granted the lock ${tokenWords(rival)}.`;
    add(rival.at, text, "rival");
  }
  for (const write of groupWrites(grant)) add(write.at, writeWords(write.writes), write.look);
  for (const send of grant.lost.values()) add(send.at, "sent a write that did not arrive.", "refused");
  if (grant.told !== null) {
    const rival = grant.rival && grant.rival.at < grant.told ? `, ${seconds(grant.told - grant.rival.at)} after its rival was granted the lock` : "";
    add(grant.told, `learned that its lease was lost${rival}${grant.how === "told" && grant.text ? `: ${grant.text}` : ""}.`, "told");
  }
  if (grant.how === "release") add(grant.until, "began to give the lock back.");
  if (grant.ended && grant.how === "release") add(grant.ended.at, `the release was answered${grant.ended.text ? `: ${grant.ended.text}` : ""}.`);
  if (grant.how === "end") add(grant.until, `ended it${grant.text ? `: ${grant.text}` : ""}.`);
  if (grant.how === "stop") add(grant.until, `the process ended${grant.text ? `: ${grant.text}` : ""}.`, "fault");
  lines.sort((one, other) => one.at - other.at);
  if (grant.until === NEVER) add(model.end, "the run ended before this hold did.");
  return lines;
}

// The writes of a grant by number, then by equal outcome without anything else in between.
function groupWrites(grant) {
  const byNumber = new Map();
  for (const write of grant.writes) {
    const key = write.number ?? byNumber.size;
    if (!byNumber.has(key)) byNumber.set(key, []);
    byNumber.get(key).push(write);
  }
  const breaks = [grant.rival ? grant.rival.at : NEVER, grant.told ?? NEVER];
  for (const fault of grant.lane.faults) breaks.push(fault.at, fault.until);
  const groups = [];
  for (const writes of byNumber.values()) {
    const last = groups[groups.length - 1];
    const at = writes[0].at;
    const outcome = outcomeOf(writes);
    const broken = last && breaks.some((time) => last.last < time && time <= at);
    if (last && !broken && last.outcome === outcome) {
      last.writes.push(...writes);
      last.last = at;
    } else {
      const looks = writes.map((write) => write.look);
      const look = ["bad", "refused", "good"].find((name) => looks.includes(name));
      groups.push({ at, last: at, outcome, writes: [...writes], look });
    }
  }
  return groups;
}

// What there is to look at in a run: [{at, until, text, look, target}], in order of time.
function momentsOf(model) {
  const moments = [];
  const doubles = new Map();
  for (const overlap of model.overlaps) {
    const [first] = overlap.grants;
    doubles.set(first, [...(doubles.get(first) || []), overlap]);
  }
  for (const [first, overlaps] of doubles) {
    const { at } = overlaps[0];
    const until = overlaps.reduce((last, overlap) => Math.max(last, overlap.until), 0);
    const total = overlaps.reduce((sum, overlap) => sum + overlap.until - overlap.at, 0);
    const others = [...new Set(overlaps.map((overlap) => overlap.grants[1].lane.name))];
    const names = others.length > 3 ? `${others.slice(0, 2).join(", ")} and ${others.length - 2} others` : others.join(" and ");
    const text = `Two holders for ${seconds(total)}: ${first.lane.name} still counted on the lock while ${names} held it`;
    moments.push({ at, until, text, look: "overlap", target: first });
  }
  for (const grant of model.grants) {
    const stale = grant.writes.filter((write) => write.stale);
    if (!stale.length) continue;
    const parts = [];
    for (const look of ["refused", "bad"]) {
      const found = stale.filter((write) => write.look === look);
      const registers = [...new Set(found.map((write) => registerWords(write)))].join(" and ");
      const count = new Set(found.map((write) => write.number ?? write)).size;
      if (count) parts.push(`${look === "bad" ? "accepted" : "refused"} ${registers}${count > 1 ? ` ${times(count)}` : ""}`);
    }
    const text = `Stale write of ${grant.lane.name}${tokenOf(grant)}: ${parts.join(", ")}`;
    const look = stale.some((write) => write.look === "bad") ? "bad" : "refused";
    moments.push({ at: stale[0].at, until: stale[stale.length - 1].at, text, look, target: grant });
  }
  const together = new Map(); // faults of several nodes at the same time are one moment
  for (const fault of model.faults) {
    const key = `${fault.name} ${fault.text} ${fault.at.toFixed(2)}`;
    together.set(key, [...(together.get(key) || []), fault]);
  }
  for (const [fault, ...others] of together.values()) {
    const until = Math.min(fault.until, model.end);
    const names = [fault, ...others].map((one) => one.lane.name).join(", ");
    moments.push({ at: fault.at, until, text: `Fault: ${faultWords(fault, names)}`, look: fault.pause ? "pause" : "fault", target: fault });
  }
  moments.sort((one, other) => one.at - other.at);
  return moments;
}

const STORES = {
  etcd: "etcd",
  mariadb: "MariaDB",
  mysql: "MySQL",
  "mysql+replica": "MySQL with a replica",
  postgresql: "PostgreSQL",
  "postgresql+standby": "PostgreSQL with a standby",
  redis: "Redis",
  "redis+replica": "Redis with a replica",
  "redis+sentinel": "Redis with sentinels",
  redlock: "Redlock",
  sqlite: "SQLite",
  zookeeper: "ZooKeeper",
};

// Whether the lock of a run is that of another library, which promises nothing.
function foreign(run) {
  return Boolean(run.library) && run.library !== "holdfast";
}

function storeOf(run) {
  const store = Object.hasOwn(STORES, run.store) ? STORES[run.store] : String(run.store ?? "");
  return foreign(run) ? `${run.library} on ${store}` : store;
}

// The fault of a run: its title says it in words.
function faultOf(run) {
  const title = String(run.title ?? "");
  const place = title.lastIndexOf(": ");
  return place >= 0 ? title.slice(place + 2) : String(run.fault ?? "");
}

function nameOf(run) {
  return [storeOf(run), faultOf(run)].filter(Boolean).join(", ") || String(run.id ?? "run");
}

// What was found in a run, in a sentence.
function titleOf(run, model) {
  const figures = run.figures || {};
  const stale = model.writes.filter((write) => write.stale);
  const count = (name, otherwise) => figures[name] ?? otherwise;
  const fenced = stale.filter((write) => write.register !== "unfenced");
  const refused = count("stale_refused", fenced.filter((write) => !write.accepted).length);
  const passed = count("stale_accepted", fenced.filter((write) => write.accepted).length);
  const harmed = count("stale_accepted_unfenced", stale.filter((write) => write.register === "unfenced" && write.accepted).length);
  const overlaps = count("overlaps", model.overlaps.length);
  const longest = count("overlap_seconds", model.overlaps.reduce((most, overlap) => Math.max(most, overlap.until - overlap.at), 0));
  const parts = [];
  if (overlaps) parts.push(`two holders ${times(overlaps)}, for up to ${seconds(longest)}`);
  else if (figures.slept) parts.push(`${figures.slept === 1 ? "a holder" : `${times(figures.slept)} a holder`} slept on after its rival was granted the lock`);
  else parts.push("never two holders");
  if (passed) parts.push(`the fence ACCEPTED ${plural(passed, "stale write")}`);
  if (refused) parts.push(`the fence refused ${plural(refused, "stale write")}${harmed ? `, without it ${harmed} ${harmed === 1 ? "was" : "were"} accepted` : ""}`);
  else if (harmed) parts.push(`${plural(harmed, "stale write")} ${harmed === 1 ? "was" : "were"} accepted`);
  else if (isTime(figures.recovery_seconds) && figures.recovery_seconds > 0) parts.push(`granted again ${seconds(figures.recovery_seconds)} after the fault`);
  return `${nameOf(run)}: ${parts.join("; ")}`;
}

// How a run ended, as {look, mark, text}.
function outcomeOfRun(run) {
  if (run.error) return { look: "failed", mark: "✗", text: `This run could not be made: ${run.error}` };
  if (run.passed == null) return { look: "open", mark: "…", text: run.not_judged ? `Not judged: ${run.not_judged}` : "Interrupted, and not judged" };
  const early = run.stopped ? " It was interrupted, and judged as far as it went." : "";
  if (run.control) {
    const rule = typeof run.control === "string" ? ` (${run.control})` : "";
    return run.passed
      ? { look: "control", mark: "✓", text: `A lock that is known to be bad: its defect${rule} was found, as it must be.${early}` }
      : { look: "failed", mark: "✗", text: `A lock that is known to be bad, and its defect${rule} was not found: this run proves nothing.${early}` };
  }
  if (!run.passed) return { look: "failed", mark: "✗", text: `A promise was broken.${early}` };
  const other = foreign(run);
  const weak = (run.verdicts || []).some((verdict) => verdict.held === false && (other || verdict.rule !== UNFENCED));
  const look = weak ? { look: "weak", mark: "!" } : { look: "passed", mark: "✓" };
  if (other) return { ...look, text: `${run.library} promises nothing: this is what was seen.${early}` };
  return { ...look, text: weak ? `Every promise was kept; what happened besides is not promised.${early}` : `Every promise was kept.${early}` };
}

// What is drawn of a run, by the names in the legend.
function looksOf(model) {
  const looks = new Set(model.writes.map((write) => write.look));
  const note = (name, seen) => seen && looks.add(name);
  note("hold", model.grants.length);
  note("stale", model.grants.some((grant) => grant.rival));
  note("told", model.grants.some((grant) => grant.told !== null));
  note("wait", model.lanes.some((lane) => lane.waits.length));
  note("fail", model.lanes.some((lane) => lane.fails.length));
  note("stop", model.lanes.some((lane) => lane.kind === "worker" && lane.lives.some((life) => life.until !== NEVER)));
  note("overlap", model.overlaps.length);
  for (const fault of model.faults) looks.add(isBrief(fault) ? "strike" : fault.pause ? "pause" : "fault");
  return looks;
}
