// Small charts, as pictures with a sentence that says what they show.

import { h, s } from "./dom.js";
import { short } from "./format.js";

const HEIGHT = 28;
const WIDTH = 120;
const HEADROOM = 1.25;

function line(points, width, height, top) {
  const from = points[0].at;
  const length = Math.max(1, points.at(-1).at - from);
  const place = (each) => [
    ((each.at - from) / length) * width,
    height - 1 - (each.value / (top || 1)) * (height - 2),
  ].map((value) => value.toFixed(1)).join(" ");
  return `M${points.map(place).join("L")}`;
}

export function spark(points, label) {
  if (points.length < 2) return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  const top = Math.max(...points.map((each) => each.value));
  const drawn = line(points, WIDTH, HEIGHT, top * HEADROOM);
  return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${label}: ${short(points.at(-1).value)}, at most ${short(top)}` },
  s("path", { class: "area", d: `${drawn}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z` }),
  s("path", { class: "line", d: drawn }));
}

// The next number that people count by, so that half of it is one, too.
function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 10].map((each) => each * unit).find((each) => each >= value);
}

const tick = (value) => short(value).replace(/\.0(?=\D)/, "");
const back = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s ago` : `${+(seconds / 60).toFixed(1)} min ago`);

// Lines over the same time, each with a name and a class.
export function chart(lines, label) {
  const drawn = lines.filter((each) => each.points.length > 1);
  if (!drawn.length) return h("p", { class: "none" }, "Nothing was seen for long enough yet: stay on this page.");
  const [width, height] = [720, 150];
  const top = roundUp(Math.max(2, ...drawn.flatMap((each) => each.points.map((point) => point.value))));
  const spanMs = Math.max(...drawn.map((each) => each.points.at(-1).at - each.points[0].at));
  return h("figure", { class: "chart" },
    h("div", { class: "axis", "aria-hidden": "true" },
      h("span", {}, tick(top)), h("span", {}, tick(top / 2)), h("span", {}, "0")),
    s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${label}: ${drawn.map((each) => `${each.name} ${short(each.points.at(-1).value)}`).join(", ")}` },
    [0, 0.5, 1].map((share) => s("path", { class: "grid", d: `M0 ${1 + share * (height - 2)}H${width}` })),
    drawn.map((each) => s("path", { class: `line ${each.tone ?? ""}`, d: line(each.points, width, height, top) }))),
    h("figcaption", {}, [1000, 2000].map((each) => h("span", {}, back(spanMs / each))), h("span", {}, "now")));
}

const TONES = 8;

// Name -> colour's class: in the order of names, and from the first colour on again once all are used.
export function tones(names) {
  const taken = new Map();
  for (const name of [...names].sort()) taken.set(name, `tone-${taken.size % TONES}`);
  return taken;
}

export function meter(share, label, tone = "") {
  const width = Math.max(0, Math.min(1, share)) * 100;
  const shape = { viewBox: "0 0 100 6", preserveAspectRatio: "none" };
  return s("svg", { class: `meter ${tone}`, ...shape, role: "img", "aria-label": label },
    s("rect", { class: "rail", width: 100, height: 6 }),
    s("rect", { class: "fill", width: width.toFixed(2), height: 6 }));
}
