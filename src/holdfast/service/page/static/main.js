/** The page: reads the address bar, shows the view that it names, and keeps it up to date. */

import { ask } from "./api.js";
import { h, setText } from "./dom.js";
import { Live } from "./live.js";
import { ListView } from "./list.js";
import { LockView } from "./lock.js";
import { login } from "./login.js";
import { StoreView } from "./store.js";
import { briefly, plural } from "./words.js";

const main = document.querySelector("main");
const part = (name) => document.querySelector(`[data-${name}]`);
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
  },
};

let me = {};
let view = null;   // null as long as nothing is known of oneself
let live = null;
let away = false;  // whether the store could not be reached when that was told last

function show() {
  view?.close();
  const was = view;
  if (place.get("lock")) view = new LockView(live, place, me);
  else if (place.get("view") === "store") view = new StoreView(live, place, me);
  else view = new ListView(live, place);
  main.replaceChildren(view.element);
  document.title = view.title;
  view.update();
  if (was) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function update() {
  status();
  if (live.state === "refused") return enter();
  view?.update();
}

function status() {
  const line = part("live");
  const silence = live.silence();
  const late = live.state === "live" && silence;
  line.className = `live ${live.state === "cut" ? "cut" : late ? "late" : live.state === "live" ? "good" : ""}`;
  const ago = live.heardAt ? `last update ${briefly((performance.now() - live.heardAt) / 1000)} ago` : "never connected";
  setText(line, live.state === "cut" ? `disconnected, ${ago}` : late ? ago : live.state === "live" ? "live" : "connecting");
  const notice = part("notice");
  notice.hidden = !live.storeAway;
  if (notice.hidden === away) health();
  away = !notice.hidden;
  if (away) setText(notice, `The store cannot be reached: ${live.storeAway.replace(/[.!?]?$/, ".")} What is shown is as it was before.`);
}

async function health() {
  const chip = part("health");
  if (!me.prefixes?.includes("")) return;  // the doctor speaks of the whole store
  if (live?.storeAway) {
    chip.className = "chip bad";
    chip.title = "";
    return setText(chip, "unreachable");
  }
  try {
    const { findings } = await ask("v1/doctor");
    const worst = ["wrong", "warning"].find((level) => findings.some((one) => one.level === level)) ?? "ok";
    const number = findings.filter((one) => one.level === worst).length;
    chip.className = `chip ${WORST[worst][0]}`;
    setText(chip, worst === "ok" ? "healthy" : plural(number, WORST[worst][1], WORST[worst][2]));
    chip.title = findings.find((one) => one.level === worst)?.what ?? "";
  } catch (problem) {
    chip.className = "chip";
    setText(chip, problem.status === 403 ? "" : "health unknown");
  }
}

/** Shows the log-in, and nothing of what was seen before it; begins anew once it has succeeded. */
function enter() {
  live?.stop();
  live = null;
  view?.close();
  view = null;
  for (const name of ["store", "health", "live"]) setText(part(name), "");
  part("health").className = "chip";
  part("live").className = "live";
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
  show();
  health();
}

addEventListener("popstate", () => view && show());
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || !view) return;
  event.preventDefault();
  const target = link.hasAttribute("data-home") ? place.link({ lock: "", view: "", prefix: "" })
    : link.dataset.view ? place.link({ view: link.dataset.view, lock: "" }) : link.getAttribute("href");
  history.pushState(null, "", target);
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
setInterval(() => live && !document.hidden && health(), 60000);
begin();
