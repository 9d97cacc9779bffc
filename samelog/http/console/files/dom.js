// Makes elements, and changes a page into the next one without losing focus, selection or input.
// Nothing here, or anywhere, makes elements of text: the page's policy forbids it.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput"];

const present = (nodes) => nodes.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

export const h = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => make(document.createElementNS(SVG, tag), attributes, children);

// Changes what `place` has into `nodes`. Elements with a data-key are the same ones wherever they are.
export function render(place, nodes) {
  const wanted = present([nodes]).map((each) => (each instanceof Node ? each : document.createTextNode(each)));
  const keyed = new Map([...place.children].filter((each) => each.dataset.key).map((each) => [each.dataset.key, each]));
  let at = place.firstChild;
  for (const node of wanted) {
    const key = node.dataset?.key;
    const known = key ? keyed.get(key) : at;
    if (known && alike(known, node)) {
      if (known === at) at = at.nextSibling;
      else place.insertBefore(known, at);
      update(known, node);
    } else {
      place.insertBefore(node, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    if (!wanted.includes(at)) at.remove();
    at = next;
  }
}

function alike(known, node) {
  return known.nodeType === node.nodeType && known.nodeName === node.nodeName
    && (known.dataset?.key ?? "") === (node.dataset?.key ?? "");
}

function update(known, node) {
  if (known.nodeType === Node.TEXT_NODE) {
    if (known.data !== node.data) known.data = node.data;
    return;
  }
  const isReaders = (name) => name === "open" && known.nodeName === "DETAILS";
  for (const { name } of [...known.attributes]) {
    if (!node.hasAttribute(name) && !isReaders(name)) known.removeAttribute(name);
  }
  for (const { name, value } of node.attributes) {
    if (known.getAttribute(name) !== value && !isReaders(name)) known.setAttribute(name, value);
  }
  for (const name of HANDLERS) known[name] = node[name];
  render(known, [...node.childNodes]);
}

export const link = (hash, ...children) => h("a", { href: `#/${hash}` }, ...children);
export const path = (...parts) => parts.map(encodeURIComponent).join("/");
