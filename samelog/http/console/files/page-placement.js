// Placement: which member has which group, and the tasks that change it.

import { h } from "./dom.js";
import { now, rows } from "./live.js";
import { get } from "./api.js";
import { ago, count, plural, short, sum } from "./format.js";
import { empty, figure, head, list, none, number, panel, state, table, text } from "./parts.js";
import { ask, button } from "./actions.js";

const NOT_BEGUN = -1;
const TONES = { running: "good", done: "good", waiting: "", paused: "warn", cancelling: "warn", blocked: "bad" };

// --- what administrators do ------------------------------------------------------------------------

const change = (title, text, confirm, request, reload) => ask({ title, text, confirm, request, done: reload });

const pause = (task, reload) => change(`Pause task ${task}`, "It keeps what it has made so far.", "Pause",
  () => ["/tasks/pause", { task }], reload);
const resume = (task, reload) => change(`Resume task ${task}`, "It goes on where it was.", "Resume",
  () => ["/tasks/resume", { task }], reload);
const cancel = (task, reload) => change(`Cancel task ${task}`, "It is undone, or ends where that is too late.",
  "Cancel the task", () => ["/tasks/cancel", { task }], reload);
const pauseAll = (reload) => change("Begin no tasks", "Those that run go on.", "Begin none",
  () => ["/tasks/pause", {}], reload);
const resumeAll = (reload) => change("Begin tasks again", "Also those that were cancelled.", "Begin tasks",
  () => ["/tasks/resume", {}], reload);
const balance = (reload) => change("Balance the cluster", "Replicas and leaders are evened out, task by task.",
  "Balance", () => ["/balance", {}], reload);
const drain = (name, reload) => change(`Drain ${name}`,
  "All its replicas of data groups move to other nodes. Drain a node before it is removed.", "Drain",
  () => [`/nodes/${encodeURIComponent(name)}/drain`, {}], reload);
const fill = (name, reload) => change(`Let ${name} have replicas`, "It may get replicas again.", "Let it",
  () => [`/nodes/${encodeURIComponent(name)}/drain`, { ends: true }], reload);

// --- tasks ----------------------------------------------------------------------------------------

const TASKS = ["Task", "State", "What", "Group#", "To", "From", "Begun", "Why", "Waits for", ""];

const buttons = (each, reload) => h("span", { class: "buttons" },
  each.state === "running" ? button("Pause", () => pause(each.number, reload)) : null,
  each.state === "paused" ? button("Resume", () => resume(each.number, reload)) : null,
  ["running", "paused"].includes(each.state) ? button("Cancel", () => cancel(each.number, reload), "danger") : null);

const taskRow = (each, index, reload) => ({
  key: each.number === NOT_BEGUN ? `next ${index}` : String(each.number),
  cells: [
    each.number === NOT_BEGUN ? "next" : count(each.number),
    state(each.state, TONES[each.state]),
    each.kind,
    number(count(each.group)),
    each.gets ?? "–",
    each.loses ?? "–",
    each.began_ms < 0 ? "–" : ago(now(), each.began_ms),
    each.reason ? text(each.reason) : "–",
    each.waits_for ? text(each.waits_for) : "–",
    buttons(each, reload),
  ],
});

function tasks({ tasks: found, problem }, reload) {
  if (!found) return panel("Tasks", none(problem));
  const all = [...found.running, ...found.waiting, ...found.ended];
  return [
    found.are_paused ? h("p", { class: "banner warn" }, "No task is begun until an administrator says so.") : null,
    panel("Tasks that run, wait and ended", table("Tasks", TASKS,
      all.map((each, index) => taskRow(each, index, reload)), "Nothing moves: all is where it should be.")),
  ];
}

// --- who has what ---------------------------------------------------------------------------------

const GROUPS = ["Group", "Leader", "Replicas", "Copies", "Partitions#", "Entries that are lacked"];
const readers = (each) => each.readers ?? [];
const holders = (each) => [...each.members, ...readers(each)];
const lacks = (each) => Math.max(0, each.copies - each.members.length);

function figures({ groups, partitions }, found) {
  const placed = groups.filter((each) => each.group > 0);
  const missing = sum(placed.map(lacks));
  const leaderless = groups.filter((each) => !each.leader).length;
  return h("div", { class: "figures" },
    figure("data groups", count(placed.length), plural(partitions.length, "partition")),
    figure("replicas missing", count(missing), missing ? "fewer copies than wanted" : "all copies are there"),
    figure("without a leader", count(leaderless), leaderless ? "that this node knows of" : "each has one"),
    figure("tasks", found ? count(found.running.length) : "–",
      found ? `${count(found.waiting.length)} wait` : "the leader knows"));
}

const memberRow = (name, { groups, drained = [] }, reload) => {
  const isDrained = drained.includes(name);
  const own = groups.filter((each) => each.group > 0 && holders(each).includes(name));
  return {
    key: name,
    cells: [
      name,
      isDrained ? state(own.length ? "is drained" : "drained", "warn") : state("may have replicas", "good"),
      number(count(own.length)),
      number(count(own.filter((each) => each.leader === name).length)),
      isDrained ? button("Let it have replicas", () => fill(name, reload)) : button("Drain", () => drain(name, reload)),
    ],
  };
};

const lagging = (found) => list(Object.entries(found).filter(([, lag]) => lag > 0)
  .map(([name, lag]) => `${name} ${short(lag)}`));

function copies(each) {
  if (each.is_resetting) return state("resetting", "warn");
  return lacks(each) ? state(`${each.members.length} of ${each.copies}`, "warn") : count(each.copies);
}

const groupRow = (each, partitions) => ({
  key: String(each.group),
  cells: [
    each.group ? count(each.group) : "0, of all nodes",
    each.leader ?? state("none", "bad"),
    list([...each.members, ...readers(each).map((name) => `${name} (only reads)`)]),
    copies(each),
    number(count(partitions.filter((one) => one.group === each.group).length)),
    lagging(each.lag),
  ],
});

async function load() {
  const placement = await get("/placement");
  try {
    return { placement, tasks: await get("/tasks") };
  } catch (error) {
    return { placement, tasks: null, problem: error.message };
  }
}

export default {
  title: () => "Placement",
  live: true,
  load,
  view: ({ data, reload }) => {
    if (!data) return [head("Placement"), empty("The node has not said what is where.")];
    const { groups, partitions } = data.placement;
    const names = rows("nodes").map((each) => each.name);
    const paused = data.tasks?.are_paused;
    return [
      head("Placement", data.tasks ? h("span", { class: "buttons" },
        button("Balance", () => balance(reload)),
        paused ? button("Begin tasks", () => resumeAll(reload))
          : button("Begin no tasks", () => pauseAll(reload))) : null),
      figures(data.placement, data.tasks),
      tasks(data, reload),
      panel("Replicas by node", table("Replicas by node", ["Node", "State", "Replicas#", "Leads#", ""],
        names.map((name) => memberRow(name, data.placement, reload)))),
      panel("Groups", table("Groups", GROUPS, groups.map((each) => groupRow(each, partitions)))),
    ];
  },
};
