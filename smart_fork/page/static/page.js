// The results follow the typing, keys lead through them, commands can be copied, a fork is started once.
// Without this the page works by its forms and links.
"use strict";

const form = document.querySelector("form.search");
const field = document.getElementById("q");
const results = document.getElementById("results");
const TYPING_MS = 250, COPIED_MS = 2000;

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
    .filter(([, value]) => value !== "");
  return new URLSearchParams(given).toString();
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

function search() {
  const query = question();
  keepInHistory(query);
  return ask(query);
}

function fill(query) {
  for (const input of form.elements) {
    if (input.name) input.value = query.getAll(input.name).join("\n");
  }
}

form?.addEventListener("input", (event) => {
  clearTimeout(waiting);
  const typed = event.target.matches("input, textarea");
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

// Keys: / to the search, arrows through what can be opened, Escape back.
function rows() {
  return [...document.querySelectorAll("[data-arrows] a.row, .more a.row")];
}

function move(event, step) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  if (!all.length || (at < 0 && document.activeElement !== field && document.activeElement !== document.body)) return;
  event.preventDefault();
  if (at + step < 0) (field ?? all[0]).focus();
  else all[Math.min(at + step, all.length - 1)].focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const writing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !writing) {
    event.preventDefault();
    if (field) field.select();
    else document.getElementById("back")?.click();
  } else if (event.key === "ArrowDown" && (!writing || event.target === field)) {
    move(event, 1);
  } else if (event.key === "ArrowUp" && !writing) {
    move(event, -1);
  } else if (event.key === "Escape" && field && event.target !== field) {
    field.focus();
  }
});

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
  button.textContent = "Copied";
  say("Copied");
  setTimeout(() => { button.textContent = "Copy"; }, COPIED_MS);
});

// A form that starts something is sent once. The service would start nothing twice either.
const forking = document.querySelector("form.fork");
const starts = forking?.querySelector("button");
const label = starts?.textContent;
forking?.addEventListener("submit", (event) => {
  if (starts.disabled) event.preventDefault();
  starts.disabled = true;
  starts.textContent = starts.dataset.busy;
  say(starts.dataset.busy);
});
addEventListener("pageshow", () => {
  if (!starts) return;
  starts.disabled = false;
  starts.textContent = label;
});
