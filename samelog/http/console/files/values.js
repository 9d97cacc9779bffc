// What cells of binary formats are as texts: numbers with all their digits, times as ISO 8601 has them.

const POWERS = { s: 0, ms: 3, us: 6, ns: 9 };
const DAY_MS = 86_400_000;

export const bytesText = (data) => `0x${[...data].map((each) => each.toString(16).padStart(2, "0")).join("")}`;

// An integer with so many digits behind the point.
export function pointText(value, scale) {
  if (scale <= 0) return String(value * 10n ** BigInt(-scale));
  const digits = (value < 0n ? -value : value).toString().padStart(scale + 1, "0");
  return `${value < 0n ? "-" : ""}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

// Years that ISO 8601 writes with four digits; null for others.
function isoText(ms, length) {
  const found = new Date(ms);
  const year = found.getUTCFullYear();
  return year >= 0 && year <= 9999 ? found.toISOString().slice(0, length) : null;
}

export const dateText = (days) => isoText(days * DAY_MS, 10) ?? `${days} days since 1970`;

// A number of units as whole seconds, and the digits behind them.
function split(value, unit) {
  const scale = 10n ** BigInt(POWERS[unit]);
  const rest = ((value % scale) + scale) % scale;
  const digits = POWERS[unit] ? `.${rest.toString().padStart(POWERS[unit], "0")}` : "";
  return [Number((value - rest) / scale), digits];
}

export function timestampText(value, unit, isUtc) {
  const [seconds, digits] = split(value, unit);
  const text = isoText(seconds * 1000, 19);
  return text === null ? `${value} ${unit} since 1970` : `${text}${digits}${isUtc ? "Z" : ""}`;
}

export function clockText(value, unit) {
  const [seconds, digits] = split(value, unit);
  return `${isoText(seconds * 1000, 19)?.slice(11) ?? seconds}${digits}`;
}

// Of a number in two's complement, as long as it is.
export function wholeNumber(data, isLittle) {
  const ordered = isLittle ? [...data].reverse() : [...data];
  const found = ordered.reduce((sum, each) => sum * 256n + BigInt(each), 0n);
  return BigInt.asIntN(8 * data.length, found);
}

// Texts as they are, unless they are to be quoted; all else as JSON, with all digits of its numbers.
export function cellText(cell, { quoted = false } = {}) {
  if (typeof cell === "string" && !quoted) return cell;
  return JSON.stringify(cell, (_, each) => (typeof each === "bigint" ? exactly(each) : each));
}

const exactly = (value) => (JSON.rawJSON ? JSON.rawJSON(String(value)) : String(value));
