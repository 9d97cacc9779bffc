// Publishers, nodes and subscribers, what flows between them, and how far each topic has come.

import { h, link, path, s } from "./dom.js";
import { byTopic, now, one, quantile, rate, rates, rows, series } from "./live.js";
import { ago, bytes, bytesPerSecond, count, perSecond, plural, seconds, short, sum } from "./format.js";
import { chip, empty, figure, head, number, panel, state, table } from "./parts.js";
import { spark } from "./charts.js";

const [CARD, GAP, SHOWN] = [46, 8, 8];

function figures() {
  const [groups, sessions] = [rows("groups"), rows("sessions")];
  const worst = groups.reduce((found, each) => (each.lag > (found?.lag ?? 0) ? each : found), null);
  const unmerged = sum(sessions.map((each) => each.unmerged_bytes));
  const most = (value) => (value === null ? "–" : ["≤ ", seconds(value)]);
  const late = (name) => [quantile(name, 0.5), quantile(name, 0.99)].map(most);
  const [merged, mergedMost] = late("append_to_merged");
  const [read, readMost] = late("append_to_read");
  return h("div", { class: "figures" },
    figure("received", perSecond(rate("received_records")), bytesPerSecond(rate("received_bytes")), spark(rates("received_records"), "records per second received")),
    figure("sent to readers", perSecond(rate("sent_records")), bytesPerSecond(rate("sent_bytes")), spark(rates("sent_records"), "records per second sent")),
    figure("append to merged", merged, ["99 %: ", mergedMost]),
    figure("append to read", read, ["99 %: ", readMost]),
    figure("not merged yet", bytes(unmerged), plural(sessions.filter((each) => each.unmerged_bytes > 0).length, "session"), spark(series("unmerged"), "bytes not merged")),
    figure("largest lag", short(worst?.lag ?? 0), worst ? worst.group : "of consumer groups", spark(series("lag"), "largest lag of a group")));
}

// --- the picture ----------------------------------------------------------------------------------

const busiest = (found, weight) => [...found].sort((a, b) => weight(b) - weight(a));

function publishers() {
  const open = rows("sessions").filter((each) => each.is_open || each.connected);
  return busiest(open, (each) => each.bytes_per_s + (each.connected ? 1 : 0)).map((each) => ({
    key: each.session, name: each.session, where: "sessions", rate: each.connected ? each.bytes_per_s : 0, linked: each.connected,
    tone: each.connected ? "good" : "warn", said: each.connected ? bytesPerSecond(each.bytes_per_s) : `not here, ${ago(now(), each.last_record_ms)}`,
    aside: each.unmerged_bytes ? `${bytes(each.unmerged_bytes)} waits` : (each.topics ?? []).join(", "),
  }));
}

function nodes() {
  const { leader } = one("cluster");
  return rows("nodes").map((each) => ({
    key: each.name, name: each.name, where: "nodes", tone: { live: "good", offline: "bad" }[each.state] ?? "warn",
    said: each.name === leader ? "leader" : each.role, aside: each.lag_records ? `lag ${short(each.lag_records)}` : each.state, linked: each.state !== "offline",
    leads: each.name === leader,
  }));
}

function readers() {
  const lag = (each) => sum(each.partitions.map((part) => part.lag_bytes));
  const subscribers = rows("subscribers").filter((each) => !each.identity.includes("://node/")).map((each) => ({
    key: `${each.identity} ${each.peer}`, name: each.identity.replace("samelog://", ""), where: "sessions", rate: each.bytes_per_s, linked: true,
    tone: "good", said: bytesPerSecond(each.bytes_per_s), aside: lag(each) ? `${bytes(lag(each))} behind` : "at the end", to: one("cluster").node,
  }));
  const groups = rows("groups").map((each) => ({
    key: each.group, name: each.group, where: path("group", each.group), rate: each.members ? 1 : 0, linked: each.members > 0,
    tone: each.members ? "good" : "", said: plural(each.members, "member"), aside: each.lag ? `lag ${short(each.lag)}` : "no lag", to: one("cluster").leader,
  }));
  return [...busiest(subscribers, (each) => each.rate), ...groups];
}

function card(each) {
  return h("li", { "data-key": each.key }, h("a", { class: `card ${each.leads ? "leads" : ""}`, href: `#/${each.where}` },
    h("span", { class: `dot ${each.tone}`, "aria-hidden": "true" }), h("span", { class: "name" }, each.name),
    h("span", { class: "said" }, each.said), h("span", { class: "more" }, each.aside)));
}

function column(title, found, none) {
  const rest = found.length - SHOWN;
  return h("div", { class: "column" }, h("h2", {}, title, " ", h("span", { class: "many" }, count(found.length))),
    found.length ? h("ul", {}, found.slice(0, SHOWN).map(card)) : empty(none), rest > 0 ? h("p", { class: "rest" }, `and ${count(rest)} more`) : null);
}

const middle = (index) => index * (CARD + GAP) + CARD / 2;

function wires(from, to, height, reaches) {
  const drawn = [];
  from.slice(0, SHOWN).forEach((left, i) => to.slice(0, SHOWN).forEach((right, j) => {
    if (!left.linked || !right.linked || !reaches(left, right)) return;
    const [a, b] = [middle(i), middle(j)];
    const flow = left.rate ?? right.rate ?? 0;
    drawn.push(s("path", { class: flow > 0 ? "wire flows" : "wire", d: `M0 ${a}C50 ${a} 50 ${b} 100 ${b}`, "stroke-width": (1 + Math.min(2.5, Math.log10(1 + flow) / 2.5)).toFixed(2) }));
  }));
  return s("svg", { class: "wires", viewBox: `0 0 100 ${height}`, height, preserveAspectRatio: "none", "aria-hidden": "true" }, drawn);
}

function picture() {
  const [left, centre, right] = [publishers(), nodes(), readers()];
  const height = Math.max(left.length, centre.length, right.length, 1);
  const tall = Math.min(height, SHOWN) * (CARD + GAP);
  return h("section", { class: "flow", "aria-label": "From publishers over nodes to readers" },
    column("Publishers", left, "No publisher is open."), wires(left, centre, tall, () => true),
    column("Nodes", centre, "No node."), wires(centre.map((each) => ({ ...each, rate: undefined })), right, tall, (node, reader) => reader.to === node.name),
    column("Subscribers and groups", right, "Nobody reads."));
}

// --- topics ---------------------------------------------------------------------------------------

function topicRow([name, found]) {
  const total = (field) => sum(found.map((each) => each[field]));
  const committed = total("committed_offset");
  const behind = (value) => number(committed - value ? h("span", { class: "behind" }, `−${short(committed - value)}`) : h("span", { class: "done" }, "all"));
  const readers = rows("subscribers").filter((each) => each.partitions.some((part) => part.topic === name));
  const slowest = Math.max(0, ...readers.map((each) => sum(each.partitions.filter((part) => part.topic === name).map((part) => part.lag_bytes))));
  const groups = rows("groups").filter((each) => name in each.lags);
  const lag = Math.max(0, ...groups.map((each) => each.lags[name]));
  const halted = found.filter((each) => each.halted).length;
  return {
    key: name, order: rate(`topic ${name}`) ?? 0,
    cells: [link(path("topic", name), name), number(perSecond(rate(`topic ${name}`))), number(bytes(total("size_bytes"))),
      number(count(committed)), behind(total("end_offset")), behind(total("durable_offset")), behind(total("merged_offset")),
      number(readers.length ? bytes(slowest) : "–"), number(groups.length ? short(lag) : "–"),
      halted ? state(`${halted} halted`, "bad") : state("moves", "good")],
  };
}

export default {
  title: () => "Flow",
  view: () => {
    const found = [...byTopic()].map(topicRow).sort((a, b) => b.order - a.order);
    return [head("Flow"), figures(), picture(),
      panel("How far each topic has come", table("How far each topic has come",
        ["Topic", "Rate#", "Size#", "Acknowledged#", "Merged here#", "Synced here#", "On a majority#", "Subscribers#", "Groups#", "State"], found, "There are no topics."),
      h("p", { class: "note" }, "Acknowledged: durable on a majority, in the one order. The columns behind it say how many records are missing there, of those that are acknowledged; subscribers and groups: the lag of the slowest."))];
  },
};
