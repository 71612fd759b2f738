/**
 * Making elements. Text only ever becomes a text node, so no name or label can become markup; and characters
 * that cannot be seen, or turn the direction of writing, are written as their codes, so no name can look like another.
 */

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "rect", "path", "text", "line", "title", "defs", "marker", "polyline"]);

const SAID = new Set(["title", "aria-label"]);  // attributes that people read or hear
// What takes no room, or looks like a space and is none; but not what makes one picture of several characters.
const UNSEEN = /((?<=(?!\p{Emoji_Presentation})\p{Extended_Pictographic})\ufe0f|(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])\u200d(?=\p{Extended_Pictographic}))|[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u2800\ufff9-\ufffb]|(?! )\p{Zs}/gu;
const letters = new Intl.Segmenter("en");
const pen = document.createElement("canvas").getContext("2d");

/** Returns a text in which each character can be seen. */
export function legible(text) {
  return text.replace(UNSEEN, (char, joins) => {
    const code = char.codePointAt(0).toString(16);
    return joins ?? (code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`);
  });
}

/** Returns the beginning of a text that fits into so many pixels of a drawing, with no character cut in two. */
export function clip(said, room) {
  const text = legible(said);
  pen.font = "12px system-ui, sans-serif";  // that of the drawings
  if (pen.measureText(text).width <= room) return text;
  const parts = [...letters.segment(text)].map((one) => one.segment);
  let [fits, most] = [0, parts.length];
  while (most - fits > 1) {
    const middle = (fits + most) >> 1;
    if (pen.measureText(`${parts.slice(0, middle).join("")}…`).width <= room) fits = middle;
    else most = middle;
  }
  return `${parts.slice(0, fits).join("")}…`;
}

/** Makes an element: `h("p.soft", {id: "x"}, "text", another)`. Keys that begin with `on` are listeners. */
export function h(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : SAID.has(key) ? legible(value) : String(value));
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
export function setAttribute(node, key, said) {
  const value = SAID.has(key) ? legible(said) : said;
  if (node.getAttribute(key) !== value) node.setAttribute(key, value);
}

/**
 * Makes the children of an element like those given. What is alike stays the same node, so it keeps focus and selection:
 * children with a `data-key` are found by it, others by their order.
 */
export function renew(element, ...children) {
  const given = children.flat().filter((child) => child !== null && child !== undefined);
  const known = new Map();
  const name = (node) => (node.dataset?.key ? `key ${node.dataset.key}` : node.nodeName);
  for (const node of element.childNodes) (known.get(name(node)) ?? known.set(name(node), []).get(name(node))).push(node);
  const wanted = given.map((child) => {
    const fresh = typeof child === "string" ? document.createTextNode(legible(child)) : child;
    const own = known.get(name(fresh))?.shift();
    if (own?.nodeName !== fresh.nodeName) return fresh;
    if (own === fresh) return own;
    if (own instanceof Text) setText(own, fresh.data);
    else resemble(own, fresh);
    return own;
  });
  const kept = new Set(wanted);
  for (const node of [...element.childNodes]) if (!kept.has(node)) node.remove();
  let next = element.firstChild;
  for (const node of wanted) {
    if (node === next) next = next.nextSibling;
    else element.insertBefore(node, next);
  }
}

/** Makes an element like another one, inside and out. */
function resemble(own, fresh) {
  for (const key of own.getAttributeNames()) if (key !== "style" && !fresh.hasAttribute(key)) own.removeAttribute(key);
  for (const key of fresh.getAttributeNames()) if (key !== "style") setAttribute(own, key, fresh.getAttribute(key));
  if (own.style.cssText !== fresh.style.cssText) own.style.cssText = fresh.style.cssText;  // as an attribute it would be refused
  renew(own, ...fresh.childNodes);
}

/** Moves or scales an element, if it is not so already; `transform` is written as the browser would write it. */
export function setTransform(element, transform) {
  if (element.style.transform !== transform) element.style.transform = transform;
}
