/** Requests to the service that this page came from. */

/** Where the service is. */
export const base = new URL("./", document.baseURI);

/** Returns the address of `path`, with the namespace that the address bar names. */
export function address(path, query = {}) {
  const url = new URL(path, base);
  const namespace = new URLSearchParams(location.search).get("namespace");
  if (namespace) url.searchParams.set("namespace", namespace);
  for (const [key, value] of Object.entries(query)) if (value) url.searchParams.set(key, value);
  return url;
}

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const PATIENCE = 30000;  // milliseconds after which a request counts as unanswered

/** Sends a request, and returns the answer; throws a `Problem` with the service's own words. */
export async function ask(path, { method = "GET", query = {}, body, patience = PATIENCE } = {}) {
  const headers = { Accept: "application/json", "Holdfast-Request": "page" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path, query), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", signal: AbortSignal.timeout(patience),
    });
  } catch {
    throw new Problem(0, "The service does not answer.");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, answer.detail || answer.title || response.statusText);
  return answer;
}

/** Returns how a lock is named in a path: names that URL software would change are in hexadecimal. */
export function lockPath(name) {
  if (/^~|^\.{1,2}$/.test(name) || name.split("/").some((part) => part === "" || /^\.{1,2}$/.test(part))) {
    const bytes = new TextEncoder().encode(name);
    return `v1/locks/~${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }
  return `v1/locks/${encodeURIComponent(name)}`;
}
