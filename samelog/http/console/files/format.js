// Numbers, sizes and times as people read them; null is a dash.

const THIN = "\u202f";
const SPACE = "\u00a0";
const DASH = "–";

export function count(value) {
  if (value === null || value === undefined) return DASH;
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : 1;
  return [value.toFixed(digits), units[unit]];
}

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  return scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]).join(SPACE);
}

export function short(value) {
  if (value === null || value === undefined) return DASH;
  if (Math.abs(value) < 10_000) return Math.abs(value) < 10 && value % 1 ? value.toFixed(1) : count(value);
  return scaled(value, 1000, ["", "k", "M", "G", "T"]).join("");
}

export const perSecond = (value) => (value === null || value === undefined ? DASH : `${short(value)}/s`);
export const bytesPerSecond = (value) => (value === null || value === undefined ? DASH : `${bytes(value)}/s`);

export function seconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 0.001) return `${Math.round(value * 1e6)}${SPACE}µs`;
  if (value < 1) return `${+(value * 1000).toPrecision(2)}${SPACE}ms`;
  return span(value);
}

function span(value) {
  if (value < 60) return `${Math.floor(value)}${SPACE}s`;
  if (value < 3600) return `${Math.floor(value / 60)}${SPACE}min`;
  if (value < 172_800) return `${Math.floor(value / 3600)}${SPACE}h`;
  return `${Math.floor(value / 86_400)}${SPACE}days`;
}

export const ago = (now, at) => (at < 0 ? "never" : now - at < 1000 ? "now" : `${span((now - at) / 1000)} ago`);

export function time(at) {
  return at < 0 ? DASH : new Date(at).toISOString().replace("T", " ").slice(0, 19);
}

export const hex = (value) => value.toString(16).padStart(8, "0");
export const plural = (value, one, many = `${one}s`) => `${count(value)}${"\u00a0"}${value === 1 ? one : many}`;
export const sum = (values) => values.reduce((total, each) => total + each, 0);
