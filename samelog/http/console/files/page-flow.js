// Publishers, nodes and subscribers, what flows between them, and how far each topic has come.

import { h, link, path, s } from "./dom.js";
import { byTopic, live, now, one, quantile, rate, rates, rows, series } from "./live.js";
import { ago, bytes, bytesPerSecond, count, perSecond, plural, seconds, short, sum } from "./format.js";
import { figure, head, none, number, panel, partitionsState, table } from "./parts.js";
import { spark } from "./charts.js";

const [CARD, GAP, SHOWN] = [46, 8, 8];
const COLUMNS = ["Topic", "Rate#", "Size#", "Waits#", "Acknowledged#", "Merged here#", "Synced here#",
  "On a majority#", "Subscribers#", "Groups#", "State"];
const NOTE = "Waits: what came from publishers, and has no place in the order yet. Acknowledged: durable on a "
  + "majority, in the one order. The columns behind it say how many records are missing there, of those that are "
  + "acknowledged; subscribers and groups: the lag of the slowest.";

const flowing = (label, name) => figure(label,
  perSecond(rate(`${name}_records`)),
  bytesPerSecond(rate(`${name}_bytes`)),
  spark(rates(`${name}_records`), `records per second ${label}`));

function lateness(label, name) {
  const most = (value) => (value === null ? "–" : ["≤ ", seconds(value)]);
  return figure(label, most(quantile(name, 0.5)), ["99 %: ", most(quantile(name, 0.99))]);
}

function figures() {
  const worst = rows("groups").reduce((found, each) => (each.lag > (found?.lag ?? 0) ? each : found), null);
  const waiting = rows("sessions").filter((each) => each.unmerged_bytes > 0);
  return h("div", { class: "figures" },
    flowing("received", "received"),
    flowing("sent to readers", "sent"),
    lateness("append to merged", "append_to_merged"),
    lateness("append to read", "append_to_read"),
    figure("not merged yet", bytes(sum(waiting.map((each) => each.unmerged_bytes))), plural(waiting.length, "session"),
      spark(series("unmerged"), "bytes not merged")),
    figure("largest lag", short(worst?.lag ?? 0), worst ? worst.group : "of consumer groups",
      spark(series("lag"), "largest lag of a group")));
}

// --- the picture ----------------------------------------------------------------------------------

const busiest = (found) => [...found].sort((a, b) => b.rate - a.rate || b.linked - a.linked);

function publisher(each) {
  const said = each.connected ? bytesPerSecond(each.bytes_per_s) : `not here, ${ago(now(), each.last_record_ms)}`;
  return {
    key: each.session,
    name: each.session,
    where: "sessions",
    rate: each.connected ? each.bytes_per_s : 0,
    linked: each.connected,
    tone: each.connected ? "good" : "warn",
    said,
    aside: each.unmerged_bytes ? `${bytes(each.unmerged_bytes)} waits` : each.topics.join(", "),
  };
}

function node(each) {
  const leads = each.name === one("cluster").leader;
  return {
    key: each.name,
    name: each.name,
    where: "nodes",
    linked: each.state !== "offline",
    tone: { live: "good", offline: "bad" }[each.state] ?? "warn",
    said: leads ? "leader" : each.role,
    aside: each.lag_records ? `lag ${short(each.lag_records)}` : each.state,
    leads,
  };
}

function subscriber(each) {
  const lag = sum(each.partitions.map((part) => part.lag_bytes));
  return {
    key: `${each.identity} ${each.peer}`,
    name: each.identity.replace("samelog://", ""),
    where: "sessions",
    rate: each.bytes_per_s,
    linked: true,
    tone: "good",
    said: bytesPerSecond(each.bytes_per_s),
    aside: lag ? `${bytes(lag)} behind` : "at the end",
    to: one("cluster").node,
  };
}

const group = (each) => ({
  key: each.group,
  name: each.group,
  where: path("group", each.group),
  rate: each.members ? 1 : 0,
  linked: each.members > 0,
  tone: each.members ? "good" : "",
  said: plural(each.members, "member"),
  aside: each.lag ? `lag ${short(each.lag)}` : "no lag",
  to: one("cluster").leader,
});

const card = (each) => h("li", { "data-key": each.key },
  h("a", { class: `card ${each.leads ? "leads" : ""}`, href: `#/${each.where}` },
    h("span", { class: `dot ${each.tone}`, "aria-hidden": "true" }),
    h("span", { class: "name" }, each.name),
    h("span", { class: "said" }, each.said),
    h("span", { class: "more" }, each.aside)));

function column(title, found, lacking) {
  const rest = found.length - SHOWN;
  return h("div", { class: "column" },
    h("h2", {}, title, " ", h("span", { class: "many" }, count(found.length))),
    found.length ? h("ul", {}, found.slice(0, SHOWN).map(card)) : none(lacking),
    rest > 0 ? h("p", { class: "rest" }, `and ${count(rest)} more`) : null);
}

const middle = (index) => index * (CARD + GAP) + CARD / 2;

// As wide as its flow is, of the widest.
function wire(from, to, flow, most) {
  const [a, b] = [middle(from), middle(to)];
  const width = (0.8 + 2.4 * Math.sqrt(flow / (most || 1))).toFixed(2);
  return s("path", { class: flow > 0 ? "wire flows" : "wire", d: `M0 ${a}C50 ${a} 50 ${b} 100 ${b}`,
    "stroke-width": width });
}

// Wires carry what the publisher or reader at one of their ends does: nodes have no rate.
function wires(from, to, height, reaches) {
  const flow = (left, right) => left.rate ?? right.rate;
  const most = Math.max(...from.map((left) => Math.max(0, ...to.map((right) => flow(left, right)))), 0);
  const drawn = from.slice(0, SHOWN).flatMap((left, i) => to.slice(0, SHOWN).map((right, j) => (
    left.linked && right.linked && reaches(left, right) ? wire(i, j, flow(left, right), most) : null)));
  return s("svg", { class: "wires", viewBox: `0 0 100 ${height}`, height, preserveAspectRatio: "none",
    "aria-hidden": "true" }, drawn);
}

function picture() {
  const left = busiest(rows("sessions").filter((each) => each.is_open || each.connected).map(publisher));
  const centre = rows("nodes").map(node);
  const subscribers = rows("subscribers").filter((each) => !each.identity.includes("://node/"));
  const right = [...busiest(subscribers.map(subscriber)), ...rows("groups").map(group)];
  const tallest = Math.max(left.length, centre.length, right.length, 1);
  const height = Math.min(tallest, SHOWN) * (CARD + GAP);
  return h("section", { class: "flow", "aria-label": "From publishers over nodes to readers" },
    column("Publishers", left, "No publisher is open."),
    wires(left, centre, height, () => true),
    column("Nodes", centre, "No node."),
    wires(centre, right, height, (each, reader) => reader.to === each.name),
    column("Subscribers and groups", right, "Nobody reads."));
}

// --- topics ---------------------------------------------------------------------------------------

function behind(committed, value) {
  const missing = committed - value;
  return number(missing ? h("span", { class: "behind" }, `−${short(missing)}`) : h("span", { class: "done" }, "all"));
}

// Of a topic to which nobody has published yet nothing is told.
const waits = (waiting) => number(waiting ? h("span", { class: "behind" }, bytes(waiting)) : waiting === 0
  ? h("span", { class: "done" }, "nothing") : "–");

// Of the subscriber that is furthest behind in a topic, in bytes; null: nobody reads it from this node.
function subscribersLag(name) {
  const parts = rows("subscribers").map((each) => each.partitions.filter((part) => part.topic === name));
  const lags = parts.filter((found) => found.length).map((found) => sum(found.map((part) => part.lag_bytes)));
  return lags.length ? Math.max(...lags) : null;
}

function groupsLag(name) {
  const lags = rows("groups").filter((each) => name in each.lags).map((each) => each.lags[name]);
  return lags.length ? Math.max(...lags) : null;
}

function topicRow([name, found]) {
  const total = (field) => sum(found.map((each) => each[field]));
  const committed = total("committed_offset");
  return {
    key: name,
    order: rate(`topic ${name}`) ?? 0,
    cells: [
      link(path("topic", name), name),
      number(perSecond(rate(`topic ${name}`))),
      number(bytes(total("size_bytes"))),
      waits(live.document.waiting?.[name]?.bytes),
      number(count(committed)),
      behind(committed, total("end_offset")),
      behind(committed, total("durable_offset")),
      behind(committed, total("merged_offset")),
      number(bytes(subscribersLag(name))),
      number(short(groupsLag(name))),
      partitionsState(found),
    ],
  };
}

export default {
  title: () => "Flow",
  view: () => {
    const found = [...byTopic()].map(topicRow).sort((a, b) => b.order - a.order);
    const title = "How far each topic has come";
    return [
      head("Flow"),
      figures(),
      picture(),
      panel(title, table(title, COLUMNS, found, "There are no topics yet."), h("p", { class: "note" }, NOTE)),
    ];
  },
};
