// What the next round of archiving would do, and what holds it.

import { h, link, path } from "./dom.js";
import { get } from "./api.js";
import { bytes, count, plural, sum } from "./format.js";
import { code, empty, figure, head, number, panel, table } from "./parts.js";
import { meter } from "./charts.js";

export default {
  title: () => "Archive",
  live: true,
  load: () => get("/archive/plan"),
  view: ({ data }) => {
    if (!data) return [head("Archive"), empty("The leader plans archiving. If this node does not lead, look at its console.")];
    const { copies } = data;
    return [head("Archive"),
      h("div", { class: "figures" },
        figure("would go next", bytes(sum(data.planned.map((each) => each.size_bytes))), plural(sum(data.planned.map((each) => each.files)), "segment")),
        figure("held by groups", count(data.held.length), data.held.length ? "partitions" : "nothing is held"),
        figure("copied", count(copies.copied), copies.target || "no copies are made"),
        figure("wait for a copy", count(copies.waiting), copies.file ? "one is being copied" : "\u00a0", copies.file ? meter(copies.done_bytes / (copies.total_bytes || 1), `${bytes(copies.done_bytes)} of ${bytes(copies.total_bytes)}`) : null)),
      copies.problem ? h("p", { class: "banner warn" }, copies.problem) : null,
      data.problem ? h("p", { class: "banner warn" }, data.problem) : null,
      panel("What the next round would archive", table("What the next round would archive", ["Topic", "Partition#", "First#", "Up to#", "Segments#", "Size#", "Why"], data.planned.map((each) => ({
        key: `${each.topic}/${each.partition}`,
        cells: [link(path("topic", each.topic), each.topic), number(count(each.partition)), number(count(each.first_offset)), number(count(each.next_offset)), number(count(each.files)), number(bytes(each.size_bytes)), each.reason],
      })), "Nothing: the policy keeps all there is.")),
      data.held.length ? panel("Held: a consumer group has not read it", h("ul", { class: "plain" }, data.held.map((each) => h("li", {}, code(each))))) : null,
      panel("Policy in force", data.policy ? h("pre", { tabindex: "0" }, data.policy) : empty("There is no policy: only topics' own settings archive.")),
      data.differing.length ? h("p", { class: "banner warn" }, `These nodes have another policy: ${data.differing.join(", ")}.`) : null,
    ];
  },
};
