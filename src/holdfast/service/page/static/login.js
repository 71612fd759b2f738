/** Logging in: the token goes in the body of a request, and never into an address. */

import { ask } from "./api.js";
import { h, setText } from "./dom.js";

export function login(onDone) {
  const problem = h("p.chip.bad", { role: "alert", hidden: true });
  const field = h("input", { type: "password", id: "token", name: "token", autocomplete: "current-password", required: true });
  const form = h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      problem.hidden = true;
      try {
        await ask("v1/session", { method: "POST", body: { token: field.value } });
        onDone();
      } catch (error) {
        field.select();
        problem.hidden = false;
        setText(problem, error.status === 401 ? "This token is not known, or has expired." : error.message);
      }
    },
  }, h("label", { for: "token" }, "Token"), field, problem, h("button.main", { type: "submit" }, "Log in"),
  h("p.soft", {}, "Made by ", h("code", {}, "holdfast token create --role read --prefix ''"), " where the service runs."));
  const element = h("section.panel.login", {}, h("h1", {}, "Log in"), form);
  queueMicrotask(() => field.focus());
  return element;
}
