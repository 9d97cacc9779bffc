// The shell: which page is shown, who looks at what, and light or dark.

import { h, link, render } from "./dom.js";
import { live, one, rows, start, watch } from "./live.js";
import { get } from "./api.js";
import { me } from "./actions.js";
import { count, plural } from "./format.js";
import flow from "./page-flow.js";
import { topic, topics } from "./page-topics.js";
import records from "./page-records.js";
import { group, groups } from "./page-groups.js";
import sessions from "./page-sessions.js";
import nodes from "./page-nodes.js";
import merge from "./page-merge.js";
import archive from "./page-archive.js";
import alarms from "./page-alarms.js";
import access from "./page-access.js";

const PAGES = { flow, topics, topic, records, groups, group, sessions, nodes, merge, archive, alarms, access };
const MENU = [
  ["Data", ["flow", "topics", "records", "merge"]],
  ["Clients", ["sessions", "groups"]],
  ["Cluster", ["nodes", "archive", "alarms", "access"]],
];
const PARENTS = { topic: "topics", group: "groups" };
const THEMES = ["auto", "light", "dark"];

let shown = { page: flow, params: {}, name: "flow", data: null, problem: "", loading: false, loads: 0 };

// #/topic/flights?partition=2 is the page `topic`, of "flights", with a partition.
function parse() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", id = ""] = where.split("/").map(decodeURIComponent);
  const page = Object.hasOwn(PAGES, name) ? name : "flow";
  return { name: page, page: PAGES[page], params: { id, ...Object.fromEntries(new URLSearchParams(query)) } };
}

async function load() {
  const mine = shown;
  if (!mine.page.load || mine.loading) return;
  mine.loading = true;
  try {
    mine.data = await mine.page.load(mine.params, mine.data);
    mine.problem = "";
  } catch (error) {
    mine.problem = error.message;
  }
  mine.loading = false;
  mine.loads += 1;
  if (mine === shown) draw();
}

function navigate() {
  const before = shown.name;
  shown = { ...parse(), data: null, problem: "", loading: false, loads: 0, ticks: 0 };
  closeMenu();
  draw();
  load();
  if (before !== shown.name) {
    scrollTo(0, 0);
    document.getElementById("main").focus({ preventScroll: true });
  }
}

function draw() {
  const main = document.getElementById("main");
  const { page, params, data, problem } = shown;
  const title = page.title(params);
  document.title = `${title} – ${one("cluster").cluster ?? "samelog"}`;
  main.setAttribute("aria-label", title);
  render(document.getElementById("top"), header());
  render(document.getElementById("nav"), menu());
  main.dataset.page = shown.name;
  main.dataset.at = String(one("cluster").now_ms ?? 0);
  main.dataset.ready = String(Boolean(live.document) && (!page.load || shown.loads > 0));
  if (!live.document) {
    render(main, h("p", { class: "empty" }, live.connected === false && live.asked ? "The node does not answer. Asking again." : "Asking the node."));
    return;
  }
  render(main, [
    problem ? h("p", { class: "banner bad", "data-key": "problem" }, problem) : null,
    h("div", { class: "page", "data-key": `${shown.name} ${params.id}` }, page.view({ params, data, redraw: draw, reload: load, again: navigate })),
  ]);
}

function header() {
  const cluster = one("cluster");
  const troubles = rows("alarms");
  const bad = troubles.some((each) => each.severity === "critical");
  const lost = live.document && !live.connected;
  return [
    h("button", { type: "button", class: "menu", "aria-expanded": String(document.body.classList.contains("open")), "aria-controls": "nav", onclick: toggleMenu }, "Menu"),
    h("a", { class: "brand", href: "#/flow" }, "samelog"),
    h("span", { class: "where" }, cluster.cluster ? [h("b", {}, cluster.cluster), h("span", { class: "from" }, ` as ${cluster.node} sees it`)] : ""),
    h("span", { class: "leader" }, cluster.cluster ? (cluster.leader ? ["leader ", h("b", {}, cluster.leader), h("span", { class: "term" }, `, term ${count(cluster.term)}`)] : h("b", { class: "bad" }, "no leader")) : ""),
    h("a", { class: `alarms ${troubles.length ? (bad ? "bad" : "warn") : "good"}`, href: "#/alarms" }, troubles.length ? plural(troubles.length, "alarm") : "no alarms"),
    h("span", { class: `live ${lost ? "bad" : live.connected ? "good" : ""}`, role: "status" }, lost ? "connection lost" : live.connected ? "live" : "connecting"),
    h("label", { class: "theme" }, h("span", { class: "hidden" }, "Colours"),
      h("select", { onchange: (event) => setTheme(event.target.value) },
        THEMES.map((each) => h("option", { value: each, selected: each === theme() }, each)))),
  ];
}

function menu() {
  const active = PARENTS[shown.name] ?? shown.name;
  return MENU.map(([title, names]) => h("div", { class: "part" }, h("h2", {}, title), h("ul", {}, names.map((name) => h("li", {},
    h("a", { href: `#/${name}`, "aria-current": name === active ? "page" : null }, PAGES[name].title({}), badge(name)))))));
}

function badge(name) {
  const found = { topics: "topics", groups: "groups", sessions: "sessions", nodes: "nodes", alarms: "alarms" }[name];
  if (!found || !live.document) return null;
  const many = rows(found).length;
  return name === "alarms" && !many ? null : h("span", { class: `badge ${name === "alarms" ? "bad" : ""}` }, count(many));
}

// --- light and dark, the menu of small screens ----------------------------------------------------

const theme = () => localStorage.getItem("samelog-theme") ?? "auto";

function setTheme(name) {
  localStorage.setItem("samelog-theme", name);
  document.documentElement.dataset.theme = name;
}

function toggleMenu() {
  document.body.classList.toggle("open");
  draw();
}

function closeMenu() {
  document.body.classList.remove("open");
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.classList.contains("open")) toggleMenu();
});

// --- beginning ------------------------------------------------------------------------------------

async function introduce() {
  try {
    Object.assign(me, await get("/whoami"));
    draw();
  } catch {
    setTimeout(introduce, 2000);
  }
}

const EVERY = 3; // of events: pages that ask for more ask for it again

setTheme(theme());
addEventListener("hashchange", navigate);
watch(() => {
  live.asked = true;
  shown.ticks = (shown.ticks ?? 0) + 1;
  if (live.connected && shown.page.live && shown.ticks % EVERY === 0 && !document.hidden) load();
  draw();
});
start();
introduce();
navigate();
