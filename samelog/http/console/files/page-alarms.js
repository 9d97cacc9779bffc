// What is wrong, what to do about it, and what happened.

import { h } from "./dom.js";
import { rows } from "./live.js";
import { get } from "./api.js";
import { time } from "./format.js";
import { chip, head, none, panel, prose, state, table, text } from "./parts.js";

const spaced = (name) => name.replace("Samelog", "").replace(/([a-z])([A-Z])/g, "$1 $2");

function alarm(each, runbooks) {
  const tone = each.severity === "critical" ? "bad" : "warn";
  return h("details", { class: `alarm ${tone}`, "data-key": `${each.name} ${each.about}`, open: true },
    h("summary", {},
      state(each.severity), h("b", {}, spaced(each.name)), chip(each.about), h("span", { class: "text" }, each.text)),
    h("div", { class: "runbook" }, h("h2", {}, "What to do"), prose(runbooks?.[each.name] ?? "")));
}

const eventRow = (each, index) => ({ key: String(index), cells: [time(each.at_ms), chip(each.kind), text(each.text)] });

export default {
  title: () => "Alarms",
  load: () => get("/ui/runbooks.json"),
  view: ({ data }) => {
    const found = [...rows("alarms")].sort((a, b) => a.severity.localeCompare(b.severity));
    return [
      head("Alarms"),
      found.length ? h("div", { class: "list" }, found.map((each) => alarm(each, data)))
        : none("Nothing is wrong that this node can see now. What an alert concludes from hours, Prometheus knows."),
      panel("What the cluster remembers", table("Events",
        ["When", "Kind", "What"], [...rows("events")].reverse().map(eventRow),
        "Nothing has happened that must not be forgotten.")),
    ];
  },
};
