// Keeps what the node says, by server-sent events, and the last minutes of a few figures of it.

import { sum } from "./format.js";

const KEPT = 300;
const AGAIN_MS = 2000;

export const live = { document: null, connected: false, asked: false, node: "", history: new Map() };
const watchers = new Set();

export const watch = (watcher) => watchers.add(watcher);
export const rows = (section) => Object.values(live.document?.[section] ?? {});
export const one = (section) => live.document?.[section]?.[""] ?? {};
export const now = () => one("cluster").now_ms ?? 0;

// What a change does: as samelog.http.console.document says it.
function apply(change) {
  for (const [name, changed] of Object.entries(change)) {
    const section = { ...live.document[name] };
    for (const [key, row] of Object.entries(changed)) {
      if (row === null) delete section[key];
      else section[key] = row;
    }
    live.document[name] = section;
  }
}

export function start() {
  const source = new EventSource("/ui/events");
  const told = (connected) => {
    Object.assign(live, { connected, asked: true });
    watchers.forEach((watcher) => watcher());
  };
  const take = (handle) => (event) => {
    handle(JSON.parse(event.data));
    remember();
    told(true);
  };
  source.addEventListener("document", take((found) => { live.document = found; }));
  source.addEventListener("change", take(apply));
  source.onerror = () => {
    told(false);
    if (source.readyState === EventSource.CLOSED) setTimeout(start, AGAIN_MS);
  };
}

// --- history --------------------------------------------------------------------------------------

function note(name, value) {
  if (value === null || value === undefined) return;
  if (!live.history.has(name)) live.history.set(name, []);
  const points = live.history.get(name);
  const at = now();
  if (points.length && points.at(-1).at >= at) return;
  points.push({ at, value });
  if (points.length > KEPT) points.shift();
}

function remember() {
  const { node } = one("cluster");
  if (live.node !== node) live.history.clear(); // another node counts from elsewhere
  live.node = node;
  const totals = one("totals");
  for (const name of ["received_bytes", "received_records", "sent_bytes", "sent_records"]) note(name, totals[name]);
  for (const name of ["append_to_merged", "append_to_read", "commit"]) note(name, totals[name]);
  for (const [name, found] of byTopic()) {
    note(`topic ${name}`, sum(found.map((each) => each.committed_offset)));
    note(`topic bytes ${name}`, sum(found.map((each) => each.size_bytes)));
  }
  for (const each of rows("groups")) note(`group ${each.group}`, each.lag);
  for (const each of rows("nodes")) note(`node ${each.name}`, each.lag_records);
  note("lag", Math.max(0, ...rows("groups").map((each) => each.lag)));
  note("unmerged", sum(rows("sessions").map((each) => each.unmerged_bytes)));
}

export function byTopic() {
  const found = new Map(rows("topics").map((each) => [each.name, []]));
  for (const each of rows("partitions")) found.get(each.topic)?.push(each);
  return found;
}

export const series = (name) => live.history.get(name) ?? [];

// What a counter grew by per second, over the last `over` seconds; null before there are two values.
export function rate(name, over = 5) {
  const points = series(name).slice(-over - 1);
  return points.length < 2 ? null : Math.max(0, slope(points[0], points.at(-1)));
}

const slope = (from, to) => (to.value - from.value) / ((to.at - from.at) / 1000);

export function rates(name) {
  const points = series(name);
  return points.slice(1).map((each, index) => ({ at: each.at, value: Math.max(0, slope(points[index], each)) }));
}

// The bound below which a share of what came in the last `over` seconds was, or since the start.
export function quantile(name, share, over = 30) {
  const points = series(name);
  if (!points.length) return null;
  const { bounds, counts } = points.at(-1).value;
  const before = points.length > over ? points.at(-over - 1).value.counts : counts.map(() => 0);
  const grown = counts.map((each, index) => each - before[index]);
  let left = share * sum(grown);
  if (left <= 0) return null;
  for (let index = 0; index < grown.length; index += 1) {
    left -= grown[index];
    if (left <= 0) return bounds[Math.min(index, bounds.length - 1)];
  }
  return bounds.at(-1);
}
