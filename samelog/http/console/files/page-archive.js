// What the next round of archiving would do, and what holds it.

import { h, link, path } from "./dom.js";
import { get } from "./api.js";
import { bytes, count, plural, sum } from "./format.js";
import { code, empty, figure, head, none, number, panel, table, text } from "./parts.js";
import { meter } from "./charts.js";

const warning = (text) => (text ? h("p", { class: "banner warn" }, text) : null);

function figures({ planned, held, copies }) {
  const share = copies.done_bytes / (copies.total_bytes || 1);
  const progress = meter(share, `${bytes(copies.done_bytes)} of ${bytes(copies.total_bytes)}`);
  return h("div", { class: "figures" },
    figure("would go next", bytes(sum(planned.map((each) => each.size_bytes))),
      plural(sum(planned.map((each) => each.files)), "segment")),
    figure("held by groups", count(held.length), held.length ? "partitions" : "nothing is held"),
    figure("copied", count(copies.copied), copies.target || "no copies are made"),
    figure("wait for a copy", count(copies.waiting), ...(copies.file ? ["one is being copied", progress] : [])));
}

const plannedRow = (each) => ({
  key: `${each.topic}/${each.partition}`,
  cells: [
    link(path("topic", each.topic), each.topic),
    number(count(each.partition)),
    number(count(each.first_offset)),
    number(count(each.next_offset)),
    number(count(each.files)),
    number(bytes(each.size_bytes)),
    text(each.reason),
  ],
});

// Group 0's plan by its leader, and those of data groups by who leads them.
async function load() {
  const found = await get("/archive/plan");
  if (!found.data_groups) return found;
  const groups = await get("/archive/plan", { data_groups: true });
  return {
    ...found,
    planned: [...found.planned, ...groups.planned],
    held: [...found.held, ...groups.held],
    copies: groups.copies.problem || groups.copies.file ? groups.copies : found.copies,
  };
}

// A node plans for the data groups that it leads; `samelog ui` asks them all.
const whose = (groups) => (groups ? h("p", { class: "note" },
  `Of ${plural(groups, "data group")}, those are planned here that this node leads. `
    + "samelog ui and samelog archive plan ask all nodes.") : null);

export default {
  title: () => "Archive",
  live: true,
  load,
  view: ({ data }) => {
    if (!data) return [head("Archive"), empty("The leader plans archiving: look at the console of that node.")];
    const title = "What the next round would archive";
    const held = data.held.map((each) => h("li", {}, code(each)));
    return [
      head("Archive"),
      figures(data),
      warning(data.copies.problem),
      warning(data.problem),
      whose(data.data_groups),
      panel(title, table(title, ["Topic", "Partition#", "First#", "Up to#", "Segments#", "Size#", "Why"],
        data.planned.map(plannedRow), "Nothing: the policy keeps all there is.")),
      held.length ? panel("Held: a consumer group has not read it", h("ul", { class: "plain" }, held)) : null,
      panel("Policy in force", data.policy
        ? h("pre", { tabindex: "0" }, data.policy) : none("There is no policy: only topics' own settings archive.")),
      warning(data.differing.length ? `These nodes have another policy: ${data.differing.join(", ")}.` : ""),
    ];
  },
};
