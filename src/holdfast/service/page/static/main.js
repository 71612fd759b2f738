/** The page: reads the address bar, shows the view that it names, and keeps it up to date. */

import { ask } from "./api.js";
import { Doctor } from "./doctor.js";
import { h, setText } from "./dom.js";
import { Live } from "./live.js";
import { ListView } from "./list.js";
import { LockView } from "./lock.js";
import { login } from "./login.js";
import { StoreView } from "./store.js";
import { briefly, plural } from "./words.js";

const main = document.querySelector("main");
const part = (name) => document.querySelector(`[data-${name}]`);
const UNSEEN = 10000;  // milliseconds for which a page that nobody sees keeps its stream
const WORST = { wrong: ["bad", "thing is wrong", "things are wrong"], warning: ["warn", "warning", "warnings"], ok: ["good"] };

/** The state of the page, which the address bar holds, so that a link can be sent. */
const place = {
  get(key) {
    return new URLSearchParams(location.search).get(key) ?? "";
  },
  link(changes) {
    const query = new URLSearchParams(location.search);
    for (const [key, value] of Object.entries(changes)) value ? query.set(key, value) : query.delete(key);
    return `?${query}`;
  },
  set(key, value) {
    history.replaceState(null, "", this.link({ [key]: value }));
    head();
  },
};

let me = {};
let view = null;   // null as long as nothing is known of oneself
let live = null;
let doctor = null;

/** Has the links in the head lead where they should, however they are opened. */
function head() {
  part("home").setAttribute("href", place.link({ lock: "", view: "", prefix: "" }));
  part("store-link").setAttribute("href", place.link({ lock: "", view: "store" }));
}

function show() {
  head();
  view?.close();
  const was = view;
  if (place.get("lock")) view = new LockView(live, place, me);
  else if (place.get("view") === "store") view = new StoreView(live, place, me, doctor);
  else view = new ListView(live, place);
  main.replaceChildren(view.element);
  document.title = view.title;
  view.update();
  if (was) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function update() {
  if (live.state === "refused") return enter();
  status();
  view?.update();
}

function status() {
  const line = part("live");
  const age = live.age();
  const { state } = live;
  const late = state === "live" ? live.late() : age !== null;
  const ago = age === null ? "nothing seen yet" : `last update ${briefly(age)} ago`;
  line.hidden = false;
  line.className = `live ${state === "cut" ? "cut" : late ? "late" : state === "live" ? "good" : ""}`;
  setText(line, state === "cut" ? `disconnected, ${ago}` : state === "live" ? (late ? ago : "live") : late ? `connecting, ${ago}` : "connecting");
  const notice = part("notice");
  notice.hidden = !live.storeAway;
  if (live.storeAway) setText(notice, `The store cannot be reached: ${live.storeAway.replace(/[.!?]?$/, ".")} What is shown is as it was before.`);
  doctor?.look(view instanceof StoreView ? 10 : 60);
}

function health() {
  const chip = part("health");
  const { findings } = doctor;
  if (!findings) {
    chip.className = live.storeAway ? "chip bad" : "chip";
    chip.title = "";
    return setText(chip, live.storeAway ? "unreachable" : "health unknown");
  }
  const worst = ["wrong", "warning"].find((level) => findings.some((one) => one.level === level)) ?? "ok";
  const number = findings.filter((one) => one.level === worst).length;
  chip.className = `chip ${WORST[worst][0]}`;
  setText(chip, worst === "ok" ? "healthy" : plural(number, WORST[worst][1], WORST[worst][2]));
  chip.title = findings.find((one) => one.level === worst)?.what ?? "";
}

/** Shows the log-in, and nothing of what was seen before it; begins anew once it has succeeded. */
function enter() {
  live?.stop();
  live = doctor = null;
  view?.close();
  view = null;
  head();
  for (const name of ["store", "health", "live"]) setText(part(name), "");
  part("health").className = "chip";
  part("live").hidden = true;
  part("logout").hidden = true;
  part("notice").hidden = true;
  document.title = "Holdfast";
  main.replaceChildren(login(begin));
}

/** Asks who we are, and opens the stream without waiting for that: the locks are on their way meanwhile. */
async function begin() {
  const asked = ask("v1/me");
  const ours = (live = new Live(update));
  live.start();
  sight();
  try {
    me = await asked;
  } catch (problem) {
    if (live !== ours) return;  // the stream was refused before
    if (problem.status === 401) return enter();
    live.stop();
    live = null;
    setText(part("live"), "disconnected");
    setTimeout(begin, 2000);
    return main.replaceChildren(h("div.empty", {}, problem.message, " Trying again."));
  }
  if (live !== ours) return;
  setText(part("store"), [me.store, me.namespace].filter(Boolean).join(" · "));
  part("logout").hidden = !me.session;
  doctor = new Doctor(live, me, () => {
    if (live !== ours) return;
    health();
    view?.update();
  });
  show();
  status();
}

let unseen;

/** Lets the stream rest while the page is out of sight, and wakes it when it is seen again. */
function sight() {
  clearTimeout(unseen);
  if (document.hidden) {
    unseen = setTimeout(() => live?.rest(), UNSEEN);
  } else if (live) {
    live.wake();
    update();
  }
}

document.addEventListener("visibilitychange", sight);
addEventListener("pagehide", () => live?.rest());  // a browser may keep the page for its Back button, and all it has open
addEventListener("pageshow", sight);
addEventListener("popstate", () => view && show());
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || !view) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  show();
});
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key === "/" && !typing && view?.focusSearch) {
    event.preventDefault();
    view.focusSearch();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open]") && view && !view.focusSearch) {
    history.pushState(null, "", place.link({ lock: "", view: "" }));
    show();
  }
});
part("logout").addEventListener("click", () => ask("v1/session", { method: "DELETE" }).then(enter, (problem) => {
  if (problem.status === 401) return enter();
  setText(part("logout"), "Not logged out: try again");
}));
setInterval(() => {
  if (!live || document.hidden) return;
  live.check();
  status();
  view?.tick();
}, 1000);
setInterval(() => live && !document.hidden && live.look(), 3000);
begin();
