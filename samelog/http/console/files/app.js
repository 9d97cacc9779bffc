// The shell: which page is shown, who looks at what, and light or dark.

import { h, render } from "./dom.js";
import { live, one, rows, start, watch } from "./live.js";
import { get } from "./api.js";
import { me } from "./actions.js";
import { count, plural } from "./format.js";
import { choices } from "./parts.js";
import flow from "./page-flow.js";
import { topic, topics } from "./page-topics.js";
import records from "./page-records.js";
import { group, groups } from "./page-groups.js";
import sessions from "./page-sessions.js";
import nodes from "./page-nodes.js";
import placement from "./page-placement.js";
import merge from "./page-merge.js";
import archive from "./page-archive.js";
import alarms from "./page-alarms.js";
import access from "./page-access.js";

const PAGES = {
  flow, topics, topic, records, groups, group, sessions, nodes, placement, merge, archive, alarms, access,
};
const MENU = [
  ["Data", ["flow", "topics", "records", "merge"]],
  ["Clients", ["sessions", "groups"]],
  ["Cluster", ["nodes", "placement", "archive", "alarms", "access"]],
];
const PARENTS = { topic: "topics", group: "groups" };
const THEMES = ["auto", "light", "dark"];

// The page that is shown, and what it has asked the node for.
const begun = (name, params) => ({
  name, params, page: PAGES[name], data: null, problem: "", loading: false, loads: 0, ticks: 0,
});
let shown = begun("flow", {});

// #/topic/flights?partition=2 is the page `topic`, of "flights", with a partition.
function parse() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", id = ""] = where.split("/").map(decodeURIComponent);
  return begun(Object.hasOwn(PAGES, name) ? name : "flow", { id, ...Object.fromEntries(new URLSearchParams(query)) });
}

async function load() {
  const mine = shown;
  if (!mine.page.load || mine.loading) return;
  mine.loading = true;
  try {
    mine.data = await mine.page.load(mine.params);
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
  shown = parse();
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
  const title = shown.page.title(shown.params);
  document.title = `${title} – ${one("cluster").cluster ?? "samelog"}`;
  main.setAttribute("aria-label", title);
  main.dataset.page = shown.name;
  main.dataset.at = String(one("cluster").now_ms ?? 0);
  main.dataset.ready = String(Boolean(live.document) && (!shown.page.load || shown.loads > 0));
  render(document.getElementById("top"), header());
  render(document.getElementById("nav"), menu());
  render(main, live.document ? content() : h("p", { class: "empty" }, waiting()));
}

const waiting = () => (live.asked ? "The node does not answer. Asking again." : "Asking the node.");

function content() {
  const { name, page, params, data, problem } = shown;
  return [
    problem ? h("p", { class: "banner bad", "data-key": "problem" }, problem) : null,
    h("div", { class: "page", "data-key": `${name} ${params.id}` },
      page.view({ params, data, redraw: draw, reload: load })),
  ];
}

// --- what is around every page --------------------------------------------------------------------

function header() {
  const [cluster, troubles] = [one("cluster"), rows("alarms")];
  return [
    h("button", { type: "button", class: "menu", "aria-expanded": String(isMenuOpen()), "aria-controls": "nav",
      onclick: toggleMenu }, "Menu"),
    h("a", { class: "brand", href: "#/flow" }, "samelog"),
    h("span", { class: "where" }, cluster.cluster
      ? [h("b", {}, cluster.cluster), h("span", { class: "from" }, ` as ${cluster.node} sees it`)] : ""),
    h("span", { class: "leader" }, cluster.cluster ? leader(cluster) : ""),
    h("a", { class: `alarms ${troubles.length ? worst() : "good"}`, href: "#/alarms" },
      troubles.length ? plural(troubles.length, "alarm") : "no alarms"),
    connection(),
    h("label", { class: "theme" }, h("span", { class: "hidden" }, "Colours"),
      h("select", { onchange: (event) => setTheme(event.target.value) }, choices(THEMES, theme()))),
  ];
}

const worst = () => (rows("alarms").some((each) => each.severity === "critical") ? "bad" : "warn");

function leader(cluster) {
  if (!cluster.leader) return h("b", { class: "bad" }, "no leader");
  return ["leader ", h("b", {}, cluster.leader), h("span", { class: "term" }, `, term ${count(cluster.term)}`)];
}

function connection() {
  const lost = live.document && !live.connected;
  const [tone, text] = lost ? ["bad", "connection lost"] : live.connected ? ["good", "live"] : ["", "connecting"];
  return h("span", { class: `live ${tone}`, role: "status" }, text);
}

function menu() {
  const active = PARENTS[shown.name] ?? shown.name;
  const entry = (name) => h("li", {},
    h("a", { href: `#/${name}`, "aria-current": name === active ? "page" : null }, PAGES[name].title({}), badge(name)));
  return MENU.map(([title, names]) => h("div", { class: "part" }, h("h2", {}, title), h("ul", {}, names.map(entry))));
}

const COUNTED = ["topics", "groups", "sessions", "nodes", "alarms"];

function badge(name) {
  if (!COUNTED.includes(name) || !live.document) return null;
  const many = rows(name).length;
  if (name === "alarms") return many ? h("span", { class: `badge ${worst()}` }, count(many)) : null;
  return h("span", { class: "badge" }, count(many));
}

// --- light and dark, the menu of small screens ----------------------------------------------------

const theme = () => localStorage.getItem("samelog-theme") ?? "auto";

function setTheme(name) {
  localStorage.setItem("samelog-theme", name);
  document.documentElement.dataset.theme = name;
}

const isMenuOpen = () => document.body.classList.contains("open");

function toggleMenu() {
  document.body.classList.toggle("open");
  draw();
}

function closeMenu() {
  document.body.classList.remove("open");
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && isMenuOpen()) toggleMenu();
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

// Of events: pages that ask for more ask for it again, and less often what was refused.
const [EVERY, EVERY_REFUSED] = [3, 15];

setTheme(theme());
addEventListener("hashchange", navigate);
watch(() => {
  shown.ticks += 1;
  const isDue = shown.ticks % (shown.problem ? EVERY_REFUSED : EVERY) === 0;
  if (live.connected && shown.page.live && isDue && !document.hidden) load();
  draw();
});
start();
introduce();
navigate();
