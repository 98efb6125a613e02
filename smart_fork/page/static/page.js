// The results follow the typing, keys lead through the views, commands can be copied, what is sent is sent once, and
// what the workers do is shown as they do it.
// Without this the page works by its forms and links.
"use strict";

const form = document.querySelector("form.search");
const field = document.getElementById("q");
const results = document.getElementById("results");
const TYPING_MS = 250, COPIED_MS = 2000, CHORD_MS = 1200, AGAIN_MS = 5000;
const EVERYWHERE = "*";

function say(text) {
  document.getElementById("said").textContent = text;
}

// Search as you type. Only the latest question may show its answer.
let asking = null;
let waiting = 0;
let pushes = true; // whether the next question is a new step of the history, or goes on with the one before

function question() {
  const given = [...new FormData(form)]
    .flatMap(([name, value]) => name === "also" ? value.split("\n").map((line) => [name, line.trim()]) : [[name, value]])
    .filter(([name, value]) => value !== "" && !(name === "project" && value === EVERYWHERE && !remembers()));
  return new URLSearchParams(given).toString();
}

// All projects is what an address means that names none, unless the browser remembers one.
function remembers() {
  return document.getElementById("project")?.dataset.remembered || new URLSearchParams(location.search).has("project");
}

function keepInHistory(query) {
  const address = query ? `/?${query}` : "/";
  if (address === location.pathname + location.search) return;
  if (pushes) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  pushes = false;
}

async function ask(query) {
  clearTimeout(waiting);
  asking?.abort();
  const mine = asking = new AbortController();
  results.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(`${results.dataset.live}?${query}`, { signal: mine.signal });
    const text = await answer.text();
    if (mine !== asking) return;
    if (!answer.ok && answer.status !== 400) throw new Error(answer.status === 401 ? "Open the page again: smart-fork open" : text);
    results.innerHTML = text; // rendered and escaped by the service
    choose();
    document.title = (field.value.trim() ? `${field.value.trim()} · ` : "") + "smart-fork";
    say(results.querySelector("[data-count]")?.textContent ?? "");
  } catch (error) {
    if (mine !== asking || error.name === "AbortError") return;
    say(error instanceof TypeError ? "The service does not answer. Start it: smart-fork serve" : error.message);
    const note = document.createElement("p");
    note.className = "note bad";
    note.textContent = document.getElementById("said").textContent;
    results.replaceChildren(note);
  } finally {
    if (mine === asking) results.removeAttribute("aria-busy");
  }
}

// Beside the results: the exchange that answers of the one that is chosen, where there is room for it.
const peek = document.getElementById("peek");
const room = matchMedia("(min-width: 68.75rem)");
let peeking = null;

function dress() { // what a session looks like is asked for by whoever looks into one
  const style = peek.dataset.style;
  if (!style) return;
  delete peek.dataset.style;
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: style }));
}

async function choose(hit = results.querySelector(".hits:not(.unlikely) [data-peek]")) {
  peek.hidden = !hit;
  if (!room.matches || !hit || hit.classList.contains("chosen")) return;
  results.querySelector(".chosen[data-peek]")?.classList.remove("chosen");
  hit.classList.add("chosen");
  dress();
  peeking?.abort();
  const mine = peeking = new AbortController();
  peek.setAttribute("aria-busy", "true");
  try {
    const answer = hit.dataset.peek && await fetch(hit.dataset.peek, { signal: mine.signal });
    const text = answer?.ok ? await answer.text() : "<p>Open the session to read it.</p>";
    if (mine !== peeking) return;
    peek.innerHTML = text; // rendered and escaped by the service
    peek.scrollTop = 0;
  } catch {
    return; // another is chosen by now, or nobody answers, which is said elsewhere
  }
  peek.removeAttribute("aria-busy");
}

if (peek) {
  choose();
  room.addEventListener("change", () => choose(results.querySelector(".chosen[data-peek]") ?? undefined));
  results.addEventListener("focusin", (event) => {
    const hit = event.target.closest("[data-peek]");
    if (hit) choose(hit);
  });
}

function search() {
  const query = question();
  keepInHistory(query);
  return ask(query);
}

function fill(query) {
  for (const input of form.elements) {
    if (input.id === "project" && !query.has("project")) input.value = input.dataset.remembered || EVERYWHERE;
    else if (input.type === "checkbox") input.checked = query.has(input.name);
    else if (input.name) input.value = query.getAll(input.name).join("\n");
  }
}

form?.addEventListener("input", (event) => {
  clearTimeout(waiting);
  const typed = event.target.matches("input:not([type=checkbox]), textarea");
  if (!typed) pushes = true;
  waiting = setTimeout(search, typed ? TYPING_MS : 0);
});
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
  pushes = true;
});
if (form) {
  addEventListener("popstate", () => {
    const query = new URLSearchParams(location.search);
    fill(query);
    pushes = true;
    ask(query.toString());
  });
}

// Keys: each is written in the list that ? opens, and none is the only way.
function rows() {
  const all = document.querySelectorAll("[data-arrows] a.row, .more a.row, .cards .worker");
  return [...all].filter((row) => row.checkVisibility());
}

// Where among the rows what has the focus stands: at one of them, else at the session that is read, else behind the last
// one that is before it.
function placeAmong(all) {
  const active = document.activeElement;
  const read = all.findIndex((row) => row.getAttribute("aria-current") === "page");
  if (read >= 0 && !all.includes(active)) return read;
  if (!active || active === document.body || active === field) return -1;
  const at = all.indexOf(active);
  if (at >= 0) return at;
  return all.findLastIndex((row) => row.compareDocumentPosition(active) & Node.DOCUMENT_POSITION_FOLLOWING);
}

function move(event, step) {
  const all = rows();
  if (!all.length) return;
  event.preventDefault();
  const next = placeAmong(all) + step;
  if (next < 0) (field ?? all[0]).focus();
  else all[Math.min(next, all.length - 1)].focus();
}

// Arrows are for the rows where one of them, the question or nothing has the focus: elsewhere, and in a session, they scroll.
function arrows() {
  const active = document.activeElement;
  return rows().includes(active) || !beside && (!active || active === document.body || active === field);
}

function toTheQuestion() {
  if (field) field.select();
  else location.assign(`${document.getElementById("back")?.href ?? "/"}#q`);
}

// Fork here: opens the form of the result that has the focus, else of the first.
function forkHere() {
  const hit = document.activeElement?.closest(".hit") ?? document.querySelector(".hit");
  const details = hit?.querySelector("details.fork-here");
  if (!details) return false;
  details.open = true;
  details.querySelector("textarea")?.focus();
  return true;
}

// Sessions of another list, in short: beside a session that is read, and where a question is asked from everywhere.
const MOST_SHORT = 30;

async function fillFrom(address, list, signal) {
  const answer = await fetch(address, { signal });
  if (!answer.ok) return;
  const there = new DOMParser().parseFromString(await answer.text(), "text/html"); // rendered and escaped by the service
  const links = [...there.querySelectorAll("a.row[href^='/session/'], a.row[href^='/shared/']")];
  list.replaceChildren(...links.slice(0, MOST_SHORT).map(inShort));
}

function inShort(link) {
  const facts = Object.assign(document.createElement("span"), { className: "facts" });
  for (const fact of link.closest("li").querySelectorAll(".chance strong, .agent, time")) facts.append(document.adoptNode(fact), " ");
  const line = document.createElement("li");
  line.append(document.adoptNode(link));
  link.append(facts);
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  return line;
}

// Beside a session: the list that led here, else the sessions of its project.
const beside = document.getElementById("sessions");
const wide = matchMedia("(min-width: 75rem)");
const CAME_FROM = /^\/(sessions)?(\?|$)/;

async function fillBeside() {
  const list = beside.querySelector("ol"), link = beside.querySelector("h2 a");
  if (list.childElementCount || !wide.matches && location.hash !== "#sessions") return;
  const from = sessionStorage.getItem("list") ?? "";
  if (CAME_FROM.test(from)) link.href = from;
  const { pathname, search, searchParams } = new URL(link.href);
  if (searchParams.get("q")) link.textContent = `Results for “${searchParams.get("q")}”`;
  await fillFrom(pathname === "/" ? `/results${search}` : link.href, list).catch(() => {}); // the service is away, which is said elsewhere
  const here = list.querySelector("[aria-current]");
  if (here) beside.scrollTop = here.offsetTop - beside.offsetTop - beside.clientHeight / 3;
}

if (beside) {
  fillBeside();
  wide.addEventListener("change", fillBeside);
  addEventListener("hashchange", fillBeside);
} else if (CAME_FROM.test(location.pathname)) {
  addEventListener("pagehide", () => sessionStorage.setItem("list", location.pathname + location.search));
}

// Ctrl-K asks from everywhere. What is found stands below the question; Enter leads to all of it.
const quick = document.getElementById("quick");
const quickField = document.getElementById("quick-q");
let quickly = null;

function askQuickly() {
  if (help?.open || quick?.open) return;
  if (!quick) return toTheQuestion();
  quick.showModal();
  quickField.select();
}

quickField?.addEventListener("input", () => {
  clearTimeout(waiting);
  quickly?.abort();
  quickly = new AbortController();
  const { signal } = quickly, query = new URLSearchParams({ q: quickField.value });
  waiting = setTimeout(() => fillFrom(`/results?${query}`, quick.querySelector("ol"), signal).catch(() => {}), TYPING_MS);
});

quick?.addEventListener("click", (event) => {
  if (event.target.closest("li a")) sessionStorage.setItem("list", `/?${new URLSearchParams({ q: quickField.value })}`);
});

quick?.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const stops = [quickField, ...quick.querySelectorAll("li a")];
  event.preventDefault();
  stops[Math.max(0, Math.min(stops.indexOf(document.activeElement) + step, stops.length - 1))].focus();
});

const help = document.getElementById("help");
document.getElementById("help-open")?.addEventListener("click", () => help.showModal());
let chord = 0;

addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented) return;
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key === "k") {
    event.preventDefault();
    askQuickly();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || help?.open || quick?.open) return;
  const writing = event.target.matches("input, textarea, select");
  if (event.key === "Escape" && field && event.target !== field) {
    field.focus();
  } else if (event.key === "ArrowDown" && (!writing || event.target === field) && arrows()) {
    move(event, 1);
  } else if (event.key === "ArrowUp" && !writing && arrows()) {
    move(event, -1);
  } else if (!writing) {
    letter(event);
  }
});

function letter(event) {
  const home = event.key === "h" && event.timeStamp - chord < CHORD_MS;
  chord = event.key === "g" ? event.timeStamp : -CHORD_MS;
  if (home) location.assign("/");
  else if (event.key === "j") move(event, 1);
  else if (event.key === "k") move(event, -1);
  else if (event.key === "w" && document.body.dataset.live) location.assign("/workers");
  else if (event.key === "/") { event.preventDefault(); toTheQuestion(); }
  else if (event.key === "?" && help) { event.preventDefault(); help.showModal(); }
  else if (event.key === "f" && forkHere()) event.preventDefault();
}

// From a session or a family, "Search" leads back to the search that led there, as it was.
const back = document.getElementById("back");
const asked = sessionStorage.getItem("search");
if (back && asked?.startsWith("/?")) back.href = asked;
if (form) addEventListener("pagehide", () => sessionStorage.setItem("search", location.pathname + location.search));

// Commands are copied; where the browser forbids it, they are marked, to be copied by hand.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    say("Marked. Copy it with the keyboard.");
    return;
  }
  if (button.textContent === "Copied") return;
  const label = button.textContent;
  button.textContent = "Copied";
  say("Copied");
  setTimeout(() => { button.textContent = label; }, COPIED_MS);
});

// What is sent is sent once. The service would do nothing twice either.
document.addEventListener("submit", (event) => {
  const sent = event.target;
  if (sent.method !== "post") return;
  if (sent.dataset.sent) {
    event.preventDefault();
    return;
  }
  sent.dataset.sent = "yes";
  const busy = event.submitter?.dataset.busy;
  if (busy) say(busy);
  setTimeout(() => { // a button that cannot be pressed any more would not be sent with the rest
    for (const button of sent.querySelectorAll("button")) button.disabled = true;
    if (busy) {
      event.submitter.dataset.label = event.submitter.innerHTML;
      event.submitter.textContent = busy;
    }
  });
});
addEventListener("pageshow", () => {
  for (const sent of document.querySelectorAll("form[data-sent]")) {
    delete sent.dataset.sent;
    for (const button of sent.querySelectorAll("button")) {
      button.disabled = false;
      if (button.dataset.label) button.innerHTML = button.dataset.label; // as it was rendered and escaped by the service
    }
  }
});

// Back keeps what was written into the forms of forks, and opens those in which it was.
const FORKS = `forks ${location.pathname}${location.search}`;
const forkForms = () => [...document.querySelectorAll("form.fork:has(textarea)")].map((one) => [one.elements.session.value, one]);

addEventListener("pagehide", () => {
  const written = forkForms().filter(([, one]) => one.closest("details")?.open)
    .map(([session, one]) => [session, [...one.elements].filter((field) => field.name && field.type !== "hidden").map((field) => [field.name, field.value, field.checked])]);
  sessionStorage.setItem(FORKS, JSON.stringify(written));
});
addEventListener("pageshow", () => {
  if (performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return;
  const written = new Map(JSON.parse(sessionStorage.getItem(FORKS) ?? "[]"));
  for (const [session, one] of forkForms()) {
    for (const [name, value, checked] of written.get(session) ?? []) {
      const field = one.elements[name];
      if (field.type === "checkbox") field.checked = checked;
      else field.value = value;
      one.closest("details").open = true;
    }
  }
});

// What the workers do: the service tells that something is new, and what is new is fetched. One window listens as long
// as it is seen: a browser has few connections to one place.
const live = document.body.dataset.live;
const badge = document.getElementById("asking");
const gone = document.getElementById("gone");
const GONE = "The service does not answer. The page keeps trying. To start the service: smart-fork serve";
const OUT = "You are signed out. Open the page again: smart-fork open";
let listening = null;
let version = document.querySelector("[data-fragment]")?.dataset.version ?? null; // of what this page was made with
let fetching = null;

function listen() {
  if (!live || document.visibilityState !== "visible" || listening) return;
  listening = new EventSource(live);
  listening.onopen = found;
  listening.onerror = lost;
  listening.onmessage = (event) => follow(JSON.parse(event.data));
}

// A stream that ends is opened again by the browser, one that is refused is not. Which of both it was, and whether
// anybody is there at all, is found out by asking.
async function lost() {
  const status = await fetch("/board", { method: "HEAD" }).then((answer) => answer.status, () => 0);
  if (status !== 200) tell(status === 401 ? OUT : GONE);
  if (listening?.readyState !== EventSource.CLOSED) return;
  hang();
  setTimeout(listen, AGAIN_MS);
}

function found() {
  showLive("Live");
  if (gone.hidden) return;
  gone.hidden = true;
  say("The service is back.");
}

function tell(text) {
  showLive("Not live: the service does not answer.");
  if (!gone.hidden && gone.firstElementChild.textContent === text) return;
  gone.firstElementChild.textContent = text;
  gone.hidden = false;
  say(text);
}

function hang() {
  listening?.close();
  listening = null;
}

function showLive(text) {
  const shown = document.getElementById("live");
  if (shown) shown.textContent = text;
}

function follow(told) {
  const before = Number(document.body.dataset.workers);
  document.body.dataset.workers = told.asks;
  badge.hidden = !told.asks;
  badge.firstElementChild.textContent = told.asks;
  if (told.asks > before) say(told.asks === 1 ? "A worker asks something" : `${told.asks} workers ask something`);
  if (version !== null && version !== told.version) refresh();
  version = told.version;
}

async function refresh() {
  const part = document.querySelector("[data-fragment]");
  if (!part) return;
  fetching?.abort();
  fetching = new AbortController();
  try {
    const answer = await fetch(part.dataset.fragment, { signal: fetching.signal });
    if (answer.ok) merge(part, await answer.text());
  } catch (error) {
    if (error.name !== "AbortError") setTimeout(refresh, AGAIN_MS);
  }
}

// Cards that are as they were stay, and so does a form in which somebody writes, wherever its card goes.
function merge(part, text) {
  const next = document.createElement("template");
  next.innerHTML = text; // rendered and escaped by the service
  const active = document.activeElement;
  const known = new Map([...part.querySelectorAll(".worker")].map((card) => [card.id, card]));
  for (const card of next.content.querySelectorAll(".worker")) {
    const old = known.get(card.id);
    if (!old) continue;
    const written = [...old.querySelectorAll("textarea")].some((area) => area.value !== area.defaultValue);
    if (old.dataset.version === card.dataset.version) {
      card.replaceWith(old);
    } else if (written) {
      old.querySelector(".seen").replaceWith(card.querySelector(".seen"));
      old.className = card.className;
      old.dataset.version = card.dataset.version;
      card.replaceWith(old);
    }
  }
  const from = active && part.contains(active) ? active.id || active.closest("[id]")?.id : "";
  part.replaceChildren(next.content);
  if (active && document.contains(active)) active.focus({ preventScroll: true });
  else if (from) document.getElementById(from)?.focus({ preventScroll: true });
}

document.addEventListener("visibilitychange", () => document.visibilityState === "visible" ? listen() : hang());
addEventListener("pagehide", hang);
addEventListener("pageshow", listen);
