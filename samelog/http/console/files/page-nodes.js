// Nodes: state, role, lag, elections; and what operators do with them.

import { h, s } from "./dom.js";
import { now, one, rows, series } from "./live.js";
import { ago, bytes, count, short, time } from "./format.js";
import { chip, code, figure, head, number, panel, state, table } from "./parts.js";
import { chart, meter, tones } from "./charts.js";
import { ask, button } from "./actions.js";

const lead = (name) => ask({
  title: `Let ${name} lead`, text: "Leadership moves at once. Merging pauses for a moment.", confirm: "Move leadership",
  request: () => ["/leadership", { to: name }],
});

const maintain = (name) => ask({
  title: `Maintenance of ${name}`, text: "Alerts on this node are quiet for so long. It goes on working.", confirm: "Begin maintenance",
  fields: [{ name: "minutes", label: "Minutes", type: "number", min: 1, value: 60, required: true }],
  request: (given) => ["/maintenance", { node: name, seconds: 60 * Number(given.minutes) }],
});

const resume = (name) => ask({
  title: `End maintenance of ${name}`, confirm: "End maintenance", request: () => ["/maintenance", { node: name, seconds: 0 }],
});

function actions(each, leader) {
  const busy = each.maintenance_until_ms > now();
  return h("span", { class: "buttons" },
    each.voter && each.name !== leader && each.state === "live" ? button("Lead", () => lead(each.name)) : null,
    busy ? button("End maintenance", () => resume(each.name)) : button("Maintenance", () => maintain(each.name)));
}

// Who led from when to when, as far as this node saw it.
function reigns(found) {
  if (!found.length) return null;
  const [from, to] = [found[0].at_ms, Math.max(now(), found[0].at_ms + 1)];
  const colour = tones(new Set(found.map((each) => each.leader)));
  const place = (at) => ((at - from) / (to - from)) * 1000;
  return h("figure", { class: "chart reigns" },
    h("ul", { class: "legend" }, [...colour].map(([name, tone]) => h("li", {}, h("span", { class: `swatch ${tone}` }), name))),
    s("svg", { viewBox: "0 0 1000 22", preserveAspectRatio: "none", role: "img", "aria-label": `leaders since ${time(from)}: ${found.map((each) => each.leader).join(", ")}` },
      found.map((each, index) => {
        const [start, end] = [place(each.at_ms), place(found[index + 1]?.at_ms ?? to)];
        return s("rect", { class: `block ${colour.get(each.leader)}`, x: start.toFixed(1), y: 0, width: Math.max(1.5, end - start - 1.5).toFixed(1), height: 22 }, s("title", {}, `${each.leader}, term ${each.term}, from ${time(each.at_ms)}`));
      })),
    h("figcaption", {}, h("span", {}, time(from)), h("span", {}, "now")));
}

export default {
  title: () => "Nodes",
  view: () => {
    const cluster = one("cluster");
    const disk = one("disk");
    const elections = [...rows("elections")].sort((a, b) => a.at_ms - b.at_ms);
    const names = rows("nodes").map((each) => each.name);
    const colour = tones(new Set(names));
    const whole = disk.free_bytes + disk.used_bytes;
    return [head("Nodes"),
      h("div", { class: "figures" },
        figure("leader", cluster.leader ?? "none", `term ${count(cluster.term)}`),
        figure("committed", count(cluster.commit_index), `applied here ${count(cluster.applied_index)}`),
        figure("Raft's log here", short(cluster.last_index - cluster.first_index + 1), `entries from ${count(cluster.first_index)}`),
        figure(`disk of ${cluster.node}`, bytes(disk.free_bytes), "free", meter(disk.used_bytes / whole, `${Math.round((100 * disk.used_bytes) / whole)} % used`)),
        figure("feature level", count(cluster.level), `samelog ${cluster.version}`)),
      panel("Members", table("Members", ["Node", "State", "Role", "Address", "Lag#", "Applied#", "Heard", "Said", ""], rows("nodes").map((each) => ({
        key: each.name,
        cells: [each.name, state(each.state), each.name === cluster.leader ? chip("leader", "accent") : each.role || "–", code(each.address), number(each.lag_records === null ? "–" : short(each.lag_records)), number(count(each.applied_index)),
          each.name === cluster.node ? "this node" : ago(now(), now() - 1000 * each.age_s), [each.not_ready, each.detail].filter(Boolean).join("; ") || "–", actions(each, cluster.leader)],
      })))),
      panel("Leaders over time", reigns(elections), table("Elections", ["Elected", "Leader", "Term#", "Why"], [...elections].reverse().map((each) => ({
        key: `${each.term} ${each.leader}`, cells: [time(each.at_ms), each.leader, number(count(each.term)), each.why],
      })), "This node has seen no election since its start.")),
      panel("Records that nodes lack", h("ul", { class: "legend" }, names.map((name) => h("li", {}, h("span", { class: `swatch ${colour.get(name)}` }), name))),
        chart(names.map((name) => ({ name, tone: colour.get(name), points: series(`node ${name}`) })), "Committed records that are not merged durably")),
    ];
  },
};
