// Sessions of publishers, and connections that read from this node.

import { link, path } from "./dom.js";
import { now, one, rows } from "./live.js";
import { ago, bytes, bytesPerSecond, count, sum } from "./format.js";
import { filtered, head, list, number, panel, state, table } from "./parts.js";
import { ask, button } from "./actions.js";

const retire = (name) => ask({
  title: `Retire ${name}`,
  text: "Its directory is fenced: whoever writes into it is refused from then on, and another directory may use "
    + "the name.",
  confirm: "Retire",
  danger: true,
  fields: [{ name: "confirmed", label: "Write the session's name to confirm", required: true,
    pattern: name.replace(/[.]/g, "[.]") }],
  request: ({ confirmed }) => [`/${path("sessions", name, "retire")}`, { confirm: confirmed }],
});

const said = (each) => {
  if (each.connected) return state("connected", "good");
  return each.is_open ? state("open, not here", "warn") : state("closed", "");
};

const sessionRow = (each) => ({
  key: each.session,
  cells: [
    each.session,
    said(each),
    number(count(each.run)),
    list(each.topics.map((name) => link(path("topic", name), name))),
    number(bytesPerSecond(each.bytes_per_s)),
    number(bytes(each.received_bytes)),
    number(bytes(each.unmerged_bytes)),
    ago(now(), each.last_record_ms),
    each.identity.replace("samelog://", ""),
    each.dedup_id || "–",
    button("Retire", () => retire(each.session)),
  ],
});

const readerRow = (each) => ({
  key: `${each.identity} ${each.peer}`,
  cells: [
    each.identity.replace("samelog://", ""),
    each.peer,
    number(count(each.partitions.length)),
    number(bytesPerSecond(each.bytes_per_s)),
    number(bytes(each.sent_bytes)),
    number(bytes(sum(each.partitions.map((part) => part.lag_bytes)))),
    ago(now(), each.connected_ms),
  ],
});

export default {
  title: () => "Sessions",
  view: ({ redraw }) => {
    const sorted = [...rows("sessions")].sort((a, b) => (
      b.bytes_per_s - a.bytes_per_s || (a.session < b.session ? -1 : 1)));
    const text = (each) => `${each.session} ${each.identity} ${each.dedup_id}`;
    const [input, found] = filtered("sessions", sorted, text, redraw);
    const readers = `Who reads from ${one("cluster").node}`;
    return [
      head("Sessions", input),
      table("Sessions of publishers",
        ["Session", "State", "Run#", "Topics", "Rate#", "Received#", "Not merged#", "Last bytes", "Identity",
          "Dedup id", ""], found.map(sessionRow), "No publisher has opened a session yet."),
      panel(readers, table(readers,
        ["Identity", "From", "Partitions#", "Rate#", "Sent#", "Behind#", "Connected"],
        rows("subscribers").map(readerRow), "Nobody reads from this node now.")),
    ];
  },
};
