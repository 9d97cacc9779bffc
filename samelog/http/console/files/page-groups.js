// Consumer groups and how far they are behind, over time.

import { h, link, path } from "./dom.js";
import { live, now, rows, series } from "./live.js";
import { get } from "./api.js";
import { ago, count, plural, short } from "./format.js";
import { empty, figure, filtered, head, list, number, panel, state, table } from "./parts.js";
import { chart, meter, spark } from "./charts.js";
import { ask, button } from "./actions.js";

const reset = (name, topics, again) => ask({
  title: `Reset ${name}`,
  text: "The group goes on elsewhere: it reads records again, or leaves some out. It must have no members.",
  confirm: "Reset",
  danger: true,
  fields: [
    { name: "topic", label: "Topic", options: topics, required: true },
    { name: "to", label: "To", options: ["earliest", "latest", "offset", "time", "shift"] },
    { name: "offset", label: "Offset, time in ms, or distance", type: "number",
      hint: "Only where it goes to one of these." },
    { name: "partition", label: "Partition", type: "number", min: 0, hint: "Empty: all." },
  ],
  request: (given) => {
    const body = { topic: given.topic, to: given.to };
    if (given.offset !== "") body.offset = Number(given.offset);
    if (given.partition !== "") body.partition = Number(given.partition);
    return [`/${path("groups", name, "reset")}`, body];
  },
  done: again,
});

function trend(name) {
  const points = series(`group ${name}`);
  if (points.length < 2) return "–";
  const [from, to] = [points[Math.max(0, points.length - 10)], points.at(-1)];
  const grows = ((to.value - from.value) * 1000) / (to.at - from.at);
  if (Math.abs(grows) < 0.5) return to.value ? "stays" : "none";
  return grows > 0 ? `+${short(grows)}/s` : `−${short(-grows)}/s`;
}

// Of samelog's own subscribers, or of Kafka's consumers.
const isNative = (each) => each.protocol_type === "native";

const groupRow = (each) => ({
  key: each.group,
  cells: [
    link(path("group", each.group), each.group),
    state(each.state),
    isNative(each) ? "subscribers" : "Kafka",
    number(count(each.members)),
    each.protocol || "–",
    list(Object.keys(each.lags)),
    number(each.elsewhere ? `≥ ${short(each.lag)}` : short(each.lag)),
    number(trend(each.group)),
    spark(series(`group ${each.group}`), "lag"),
  ],
});

export const groups = {
  title: () => "Groups",
  view: ({ redraw }) => {
    const sorted = [...rows("groups")].sort((a, b) => b.lag - a.lag);
    const [input, found] = filtered("groups", sorted, (each) => each.group, redraw);
    const columns = ["Group", "State", "Of", "Members#", "Protocol", "Topics", "Lag#", "Changes#", "Lag over time"];
    return [head("Groups", input),
      table("Consumer groups", columns, found.map(groupRow), "There are no consumer groups.")];
  },
};

// --- one group ------------------------------------------------------------------------------------

// Where a partition ends is known to the nodes that have it.
const spanOf = (each) => [
  number(count(each.begin)),
  number(each.committed < 0 ? "–" : count(each.committed)),
  number(count(each.end)),
  number(count(each.lag)),
];
const committedOf = (each) => [number("–"), number(each.committed < 0 ? "–" : count(each.committed)), number("–"),
  number("–")];

function partitionRow(each) {
  const there = each.end - each.begin;
  const share = there > 0 ? (there - each.lag) / there : 1;
  return {
    key: `${each.topic}/${each.partition}`,
    cells: [
      link(path("topic", each.topic), each.topic),
      number(count(each.partition)),
      ...(each.elsewhere ? committedOf(each) : spanOf(each)),
      each.elsewhere ? `on ${each.elsewhere}` : meter(share, `${count(each.lag)} records behind`),
      ago(now(), each.committed_at_ms),
    ],
  };
}

const memberRow = (each, native) => ({
  key: each.member_id,
  cells: [
    each.instance_id ?? each.member_id,
    each.client_id,
    each.client_host,
    list(each.partitions.map(([topic, part]) => `${topic}/${part}`)),
    ...(native ? lifeOf(each) : []),
  ],
});

const MEMBERS = ["Member", "Client", "Host", "Partitions"];
const LIFE = ["Identity", "Joined", "Partitions changed", "Heard", "Asked for more"];
const since = (at) => (at < 0 ? "–" : ago(now(), at));
const lifeOf = (each) => [each.identity.replace("samelog://", "") || "–",
  ...[each.joined_ms, each.moved_ms, each.heard_ms, each.polled_ms].map(since)];

export const group = {
  title: (params) => params.id,
  live: true,
  load: (params) => get(`/${path("groups", params.id)}`),
  view: ({ params, data, reload }) => {
    const name = params.id;
    const known = live.document.groups?.[name];
    if (!data || !known) return [head(name), empty(data ? "There is no such group." : "Asking the node.")];
    const topics = [...new Set(data.partitions.map((each) => each.topic))];
    const mayReset = topics.length && !known.members;
    return [
      head(name, state(known.state),
        mayReset ? button("Reset offsets", () => reset(name, topics, reload), "danger") : null),
      h("div", { class: "figures" },
        figure("lag", short(known.lag), known.elsewhere
          ? `without ${plural(known.elsewhere, "partition")} on other nodes`
          : trend(name)),
        figure("members", count(known.members), known.protocol || "no protocol"),
        figure("generation", count(known.generation),
          isNative(known) ? "of samelog's subscribers" : known.protocol_type || "–"),
        figure("partitions", count(data.partitions.length), plural(topics.length, "topic"))),
      panel("Lag over time", chart([{ name: "lag", points: series(`group ${name}`) }], "Lag of the group")),
      panel("Partitions", table("Partitions",
        ["Topic", "Partition#", "First#", "Committed#", "End#", "Lag#", "Read", "Committed"],
        data.partitions.map(partitionRow), "It has no partitions.")),
      panel("Members", table("Members", isNative(known) ? [...MEMBERS, ...LIFE] : MEMBERS,
        data.members.map((each) => memberRow(each, isNative(known))), "It has no members now.")),
    ];
  },
};
