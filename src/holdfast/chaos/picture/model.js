// The model: the events of a run, read into holds, waits, writes and faults, lane by lane. A run that was
// interrupted lacks ends, and a lock of others' may lack tokens; both are read as far as they go.

const LONG = 6;
const NEVER = Number.POSITIVE_INFINITY;

function isTime(value) {
  return typeof value === "number" && Number.isFinite(value);
}

class Lane {
  constructor(id, kind, name) {
    this.id = id;
    this.kind = kind;
    this.name = name;
    this.grants = [];
    this.waits = [];
    this.writes = [];
    this.faults = [];
    this.fails = [];
    this.lives = [];
  }
}

class Model {
  constructor(run) {
    this.run = run;
    this.lanes = [];
    this.grants = [];
    this.writes = [];
    this.faults = [];
    this.overlaps = [];
    this.begin = 0;
    this.end = 0;
    this._byId = new Map();
    this._open = new Map(); // by lane: its grants, by token, the latest of each
    this._asks = new Map();
    this._sends = new Map();
    this._faults = new Map();
    for (const lane of run.lanes || []) this._lane(String(lane.id), lane.kind, lane.name);
    const events = (run.events || []).filter((event) => event && isTime(event.at));
    this.count = events.length;
    events.sort((one, other) => one.at - other.at);
    this.begin = events.length ? events[0].at : 0;
    for (const event of events) this._read(event);
    this._close();
    this._compare();
    this._number();
    this._sort();
  }

  lane(id) {
    return this._byId.get(id);
  }

  _lane(id, kind, name) {
    let lane = this._byId.get(id);
    if (!lane) {
      lane = new Lane(id, kind, String(name ?? id));
      this._byId.set(id, lane);
      this.lanes.push(lane);
    }
    return lane;
  }

  _read(event) {
    const kinds = { write: "register", fault: "node" };
    const id = String(event.lane ?? event.register ?? "unknown");
    const lane = this._lane(id, kinds[event.kind] || "worker");
    this.end = Math.max(this.end, event.at, isTime(event.until) ? event.until : 0);
    const reader = READERS[event.kind];
    if (reader) reader(this, lane, event);
  }

  // The grant that an event of a worker is about: that of its owner, or the latest of its token.
  _grant(id, event) {
    const grants = this._open.get(id);
    return grants && (grants.get(`owner ${event.owner}`) || grants.get(`token ${event.token ?? null}`));
  }

  _end(grant, at, how, text) {
    if (!grant || grant.until !== NEVER) return;
    grant.until = at;
    grant.how = how;
    grant.text = text || "";
  }

  _close() {
    for (const fault of this.faults) if (fault.until === null) fault.until = NEVER;
    for (const [id, ask] of this._asks) {
      if (ask) this._byId.get(id).waits.push({ at: ask.at, until: NEVER });
    }
  }

  // Marks the grants that outlived a rival's, and the times for which two counted on the same lock.
  _compare() {
    const held = new Map();
    for (const grant of this.grants) {
      const rivals = (held.get(grant.lock) || []).filter((other) => other.until > grant.at);
      for (const other of rivals) {
        if (!other.rival) other.rival = grant;
        const until = Math.min(other.seen, grant.seen);
        if (until > grant.at) this.overlaps.push({ at: grant.at, until, grants: [other, grant] });
      }
      rivals.push(grant);
      held.set(grant.lock, rivals);
    }
  }

  // The longest span of a list: how far before a time a span that reaches it may begin.
  _longest(spans) {
    return spans.reduce((longest, span) => Math.max(longest, Math.min(span.until, this.end) - span.at), 0);
  }

  // Gives each grant a short number to be shown: its token, or the place of the token where tokens are long.
  _number() {
    const tokens = [...new Set(this.grants.map((grant) => grant.token))].filter((token) => token !== null);
    this.long = tokens.some((token) => String(token).length > LONG);
    tokens.sort((one, other) => one - other);
    const places = new Map(tokens.map((token, i) => [token, this.long ? i + 1 : token]));
    for (const grant of this.grants) grant.short = places.get(grant.token) ?? null;
  }

  _sort() {
    for (const lane of this.lanes) {
      lane.waits.sort((one, other) => one.at - other.at);
      lane.longest = { grants: this._longest(lane.grants), waits: this._longest(lane.waits), faults: this._longest(lane.faults) };
    }
  }
}

const READERS = {
  ask(model, lane, event) {
    model._asks.set(lane.id, event);
  },
  grant(model, lane, event) {
    const ask = model._asks.get(lane.id);
    model._asks.delete(lane.id);
    const grant = {
      lane,
      lock: event.lock ?? "",
      token: event.token ?? null,
      short: null,
      ttl: event.ttl,
      asked: ask ? ask.at : null,
      at: event.at,
      until: NEVER,
      ended: null,
      how: "",
      text: "",
      seen: event.at,
      told: null,
      rival: null,
      writes: [],
      lost: new Map(),
      index: model.grants.length,
    };
    if (ask) lane.waits.push({ at: ask.at, until: event.at });
    if (!model._open.has(lane.id)) model._open.set(lane.id, new Map());
    const open = model._open.get(lane.id).set(`token ${grant.token}`, grant);
    if (event.owner != null) open.set(`owner ${event.owner}`, grant);
    lane.grants.push(grant);
    model.grants.push(grant);
  },
  seen(model, lane, event) {
    const grant = model._grant(lane.id, event);
    if (grant) grant.seen = Math.max(grant.seen, event.at);
  },
  told(model, lane, event) {
    const grant = model._grant(lane.id, event);
    if (grant && grant.told === null) grant.told = event.at;
    model._end(grant, event.at, "told", event.text);
  },
  release(model, lane, event) {
    model._end(model._grant(lane.id, event), event.at, "release");
  },
  end(model, lane, event) {
    const grant = model._grant(lane.id, event);
    if (!grant) return;
    model._end(grant, event.at, "end", event.text);
    if (grant.ended === null) grant.ended = { at: event.at, text: event.text || "" };
  },
  fail(model, lane, event) {
    const ask = model._asks.get(lane.id);
    if (ask) lane.waits.push({ at: ask.at, until: event.at });
    model._asks.delete(lane.id);
    lane.fails.push({ at: event.at, text: event.text || "" });
  },
  send(model, lane, event) {
    const grant = model._grant(lane.id, event);
    const send = { at: event.at, number: event.number, grant };
    model._sends.set(`${lane.id} ${event.number}`, send);
    if (grant) grant.lost.set(event.number, send);
  },
  write(model, lane, event) {
    const from = String(event.from ?? "");
    const send = model._sends.get(`${from} ${event.number}`);
    const write = {
      lane,
      at: event.at,
      from,
      number: event.number,
      token: event.token ?? null,
      register: String(event.register ?? lane.name),
      accepted: Boolean(event.accepted),
      stale: Boolean(event.stale),
      sent: send ? send.at : null,
      grant: (send && send.grant) || model._grant(from, event) || null,
    };
    write.look = write.accepted ? (write.stale ? "bad" : "good") : "refused";
    if (write.grant) {
      write.grant.writes.push(write);
      write.grant.lost.delete(write.number);
    }
    lane.writes.push(write);
    model.writes.push(write);
  },
  fault(model, lane, event) {
    const name = String(event.name ?? "fault");
    const key = `${lane.id} ${name} ${event.at}`;
    let fault = model._faults.get(key);
    if (!fault) {
      const title = name === model.run.fault ? faultOf(model.run) : name;
      fault = { lane, name: title, at: event.at, until: null, text: "", pause: /pause|freez|frozen|stop/i.test(name) };
      model._faults.set(key, fault);
      lane.faults.push(fault);
      model.faults.push(fault);
    }
    fault.until = isTime(event.until) ? event.until : fault.until;
    fault.text = event.text || fault.text;
  },
  start(model, lane, event) {
    lane.lives.push({ at: event.at, until: NEVER, text: event.text || "" });
  },
  stop(model, lane, event) {
    const life = lane.lives[lane.lives.length - 1];
    if (life && life.until === NEVER) {
      life.until = event.at;
      life.how = event.text || "";
    } else {
      lane.lives.push({ at: 0, until: event.at, how: event.text || "" });
    }
    model._asks.delete(lane.id);
    const open = model._open.get(lane.id);
    if (open) for (const grant of open.values()) model._end(grant, event.at, "stop", event.text);
  },
};

// The first place in a list that is sorted by `at` whose time is not before `time`.
function placeOf(list, time) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].at < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
