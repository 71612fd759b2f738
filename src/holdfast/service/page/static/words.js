/** Figures and names in words. */

const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

/** Returns a duration in one or two units: `4 min 12 s`, `0.8 s`. */
export function briefly(seconds) {
  if (!(seconds > 0)) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  for (const [index, [unit, size]] of UNITS.entries()) {
    if (seconds < size) continue;
    const rest = seconds % size;
    const [smaller, part] = UNITS[index + 1] ?? ["s", 1];
    const more = Math.floor(rest / part);
    return more ? `${Math.floor(seconds / size)} ${unit} ${more} ${smaller}` : `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

/** Returns the name that people gave a holder or waiter, else where it runs. */
export function called(participant) {
  return participant.label.text || place(participant);
}

export function place(participant) {
  const { host, pid } = participant.label;
  return host ? `${host}:${pid}` : participant.owner;
}

export function both(participant) {
  const { text } = participant.label;
  return text ? `${text} (${place(participant)})` : place(participant);
}

/** Returns a whole number with a comma before each thousand. The browser's own way was slow at its first use. */
export function figure(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function plural(number, one, many) {
  return `${figure(number)} ${number === 1 ? one : many}`;
}

/** Returns a word as a shell takes it. */
export function quoted(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Returns a time of the day, with the date if that is not today's. */
export function clockTime(at) {
  const time = new Date(at * 1000);
  const [day, today] = [time, new Date()].map((one) => one.toDateString());  // Tue Nov 17 2026
  const date = day === today ? "" : day.slice(-4) === today.slice(-4) ? `${day.slice(4, 10)}, ` : `${day.slice(4)}, `;
  return date + [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** Returns how a semaphore or a read/write lock is held; nothing for a plain lock. */
export function sharing(lock) {
  if (lock.kind === "semaphore") return `${figure(lock.holders.reduce((sum, one) => sum + (one.weight ?? 1), 0))} of ${figure(lock.capacity)} permits`;
  if (lock.kind === "rwlock" && lock.holders.length) {
    return lock.holders[0].weight >= lock.capacity ? "writer" : plural(lock.holders.length, "reader", "readers");
  }
  return "";
}

/** Returns the session of a holder or waiter, and those that it runs inside of, the nearest first; only of an owner id of our making. */
export function sessionOf({ owner }) {
  const [, session, around] = /^([0-9a-f]{10})((?:[0-9a-f]{10}){0,3})[0-9a-f]{14}(?:~|$)/.exec(owner) ?? [];
  return { session, around: around?.match(/.{10}/g) ?? [] };
}

/** Returns a key for a session with its label: what the same manager holds and waits for belongs together. */
export function party(participant) {
  const { session } = sessionOf(participant);
  return session ? `session ${session} ${participant.label.text}` : `stranger ${both(participant)}`;
}

/** Returns the steps of a circle in words: who waits for which lock, and who keeps it, or runs whoever waits next. */
export function steps(cycle) {
  return cycle.map(({ name, waiter, blocker, runs }) => `${both(waiter)} waits for “${name}”, which `
    + `${blocker.token ? "is held by" : "is waited for, before it, by"} ${both(blocker)}${runs ? `, which runs ${both(runs)}` : ""}`);
}
