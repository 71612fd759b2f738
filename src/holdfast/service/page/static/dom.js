/**
 * Making elements. Text only ever becomes a text node, so no name or label can become markup; and characters
 * that turn the direction of writing are written as their codes, so none can look like another.
 */

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "rect", "path", "text", "line", "title", "defs", "marker", "polyline"]);

const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

function legible(text) {
  return text.replace(TURNING, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Makes an element: `h("p.soft", {id: "x"}, "text", another)`. Keys that begin with `on` are listeners. */
export function h(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  const given = children.flat().filter((child) => child !== null && child !== undefined);
  element.append(...given.map((child) => (typeof child === "string" ? legible(child) : child)));
  return element;
}

/** Sets the text of a node, if it is another: an unchanged node costs no layout, a new one more than new text. */
export function setText(node, said) {
  const text = legible(said);
  const only = node.firstChild;
  if (only instanceof Text && !only.nextSibling) {
    if (only.data !== text) only.data = text;
  } else if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute, if it is another. */
export function setAttribute(node, key, value) {
  if (node.getAttribute(key) !== value) node.setAttribute(key, value);
}

/** Moves or scales an element, if it is not so already; `transform` is written as the browser would write it. */
export function setTransform(element, transform) {
  if (element.style.transform !== transform) element.style.transform = transform;
}
