// Nodes: state, role, lag, elections; and what operators do with them.

import { h, s } from "./dom.js";
import { now, one, rows, series } from "./live.js";
import { ago, bytes, count, seconds, short, time } from "./format.js";
import { chip, code, figure, head, legend, number, panel, state, table, text } from "./parts.js";
import { chart, meter, tones } from "./charts.js";
import { ask, button } from "./actions.js";

const lead = (name) => ask({
  title: `Let ${name} lead`,
  text: "Leadership moves at once. Merging pauses for a moment.",
  confirm: "Move leadership",
  request: () => ["/leadership", { to: name }],
});

const maintain = (name) => ask({
  title: `Maintenance of ${name}`,
  text: "Alerts on this node are quiet for so long. It goes on working.",
  confirm: "Begin maintenance",
  fields: [{ name: "minutes", label: "Minutes", type: "number", min: 1, value: 60, required: true }],
  request: (given) => ["/maintenance", { node: name, seconds: 60 * Number(given.minutes) }],
});

const resume = (name) => ask({
  title: `End maintenance of ${name}`,
  confirm: "End maintenance",
  request: () => ["/maintenance", { node: name, seconds: 0 }],
});

function actions(each, leader) {
  const busy = each.maintenance_until_ms > now();
  const mayLead = each.voter && each.name !== leader && each.state === "live";
  return h("span", { class: "buttons" },
    mayLead ? button("Lead", () => lead(each.name)) : null,
    busy ? button("End maintenance", () => resume(each.name)) : button("Maintenance", () => maintain(each.name)));
}

function figures() {
  const [cluster, disk] = [one("cluster"), one("disk")];
  const used = disk.used_bytes / (disk.free_bytes + disk.used_bytes);
  return h("div", { class: "figures" },
    figure("leader", cluster.leader ?? "none", `term ${count(cluster.term)}`),
    figure("committed", count(cluster.commit_index), `applied here ${count(cluster.applied_index)}`),
    figure("Raft's log here", short(cluster.last_index - cluster.first_index + 1),
      `entries from ${count(cluster.first_index)}`),
    figure(`disk of ${cluster.node}`, bytes(disk.free_bytes), "free",
      meter(used, `${Math.round(100 * used)} % used`)),
    figure("feature level", count(cluster.level), `samelog ${cluster.version}`));
}

function said(each) {
  const told = [each.not_ready, each.detail].filter(Boolean).join("; ");
  return told ? text(told) : "–";
}

// Members of a host beside each other, hosts in the order of their first members.
function grouped(found) {
  const hosts = [...new Set(found.map((each) => each.host))];
  return hosts.flatMap((host) => found.filter((each) => each.host === host));
}

function members() {
  const found = grouped(rows("nodes"));
  const shared = found.some((each) => each.host !== each.name);
  const columns = ["Node", "State", "Role", "Address", "Lag#", "Applied#", "Heard", "Said", ""];
  return table("Members", shared ? ["Host", ...columns] : columns,
    found.map((each) => memberRow(each, shared)));
}

function memberRow(each, shared) {
  const { leader, node } = one("cluster");
  return {
    key: each.name,
    cells: [
      ...(shared ? [each.host] : []),
      each.name,
      state(each.state),
      each.name === leader ? chip("leader", "accent") : each.role || "–",
      code(each.address),
      number(each.lag_records === null ? "–" : short(each.lag_records)),
      number(count(each.applied_index)),
      each.name === node ? "this node" : ago(now(), now() - 1000 * each.age_s),
      said(each),
      actions(each, leader),
    ],
  };
}

// Who led from when to when, as far as this node saw it.
function reigns(found) {
  if (!found.length) return null;
  const [from, to] = [found[0].at_ms, Math.max(now(), found[0].at_ms + 1)];
  const colour = tones(new Set(found.map((each) => each.leader)));
  const place = (at) => ((at - from) / (to - from)) * 1000;
  const bar = (each, index) => {
    const [start, end] = [place(each.at_ms), place(found[index + 1]?.at_ms ?? to)];
    const width = Math.max(1.5, end - start - 1.5).toFixed(1);
    return s("rect", { class: `block ${colour.get(each.leader)}`, x: start.toFixed(1), y: 0, width, height: 22 },
      s("title", {}, `${each.leader}, term ${each.term}, from ${time(each.at_ms)}`));
  };
  const told = `leaders since ${time(from)}: ${found.map((each) => each.leader).join(", ")}`;
  return h("figure", { class: "chart reigns" },
    legend([...colour].map(([name, tone]) => [tone, name])),
    s("svg", { viewBox: "0 0 1000 22", preserveAspectRatio: "none", role: "img", "aria-label": told }, found.map(bar)),
    h("figcaption", {}, h("span", {}, time(from)), h("span", {}, "now")));
}

const electionRow = (each) => ({
  key: `${each.term} ${each.leader}`,
  cells: [time(each.at_ms), each.leader, number(count(each.term)), text(each.why)],
});

// --- sites ----------------------------------------------------------------------------------------

function waited(lagMs) {
  if (lagMs < 0) return state("says nothing", "warn");
  return lagMs ? `waits for ${seconds(lagMs / 1000)}` : "none";
}

const siteRows = (site) => site.members.map((each) => ({
  key: each.node,
  cells: [
    each.node,
    site.name,
    each.voter ? "votes" : site.votes ? "learns" : "reads only",
    number(each.records < 0 ? "–" : short(each.records)),
    waited(each.lag_ms),
  ],
}));

function sites() {
  const found = rows("sites");
  if (!found.length) return null;
  return panel("Sites", table("Sites", ["Node", "Site", "Role", "Lacks#", "Oldest record that it lacks"],
    found.flatMap(siteRows), "No node is in a site yet: a node says with [node] site where it is."));
}

export default {
  title: () => "Nodes",
  view: () => {
    const elections = [...rows("elections")].sort((a, b) => a.at_ms - b.at_ms);
    const names = rows("nodes").map((each) => each.name);
    const colour = tones(new Set(names));
    const lines = names.map((name) => ({ name, tone: colour.get(name), points: series(`node ${name}`) }));
    return [
      head("Nodes"),
      figures(),
      panel("Members", members()),
      sites(),
      panel("Leaders over time", reigns(elections), table("Elections",
        ["Elected", "Leader", "Term#", "Why"], [...elections].reverse().map(electionRow),
        "This node has seen no election since its start.")),
      panel("Records that nodes lack", legend(names.map((name) => [colour.get(name), name])),
        chart(lines, "Committed records that are not merged durably")),
    ];
  },
};
