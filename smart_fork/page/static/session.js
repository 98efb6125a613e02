// A session: keys lead through exchanges and matches, the outline says where one is, "Fork here" fills the form.
// Without this all of it is links and forms.
"use strict";

const conversation = document.getElementById("conversation");
const exchanges = [...document.querySelectorAll(".exchange")];
const entries = [...document.querySelectorAll(".outline .entry")];
const entryOf = new Map(exchanges.map((one) => {
  const place = one.querySelector("h2 .place")?.textContent;
  return [one, entries.find((entry) => entry.querySelector(".place").textContent === place)];
}));

// The exchange that is read: the one that an address, a key or the focus led to, until a person scrolls by hand;
// from then on the last one whose heading is above the middle of what is seen.
const named = document.getElementById(location.hash.slice(1))?.closest(".exchange");
let current = named ?? document.querySelector(".message.asked")?.closest(".exchange") ?? exchanges[0];
let byHand = false;
let inSight = null;

function mark(exchange) {
  if (!exchange || exchange === current && exchange.classList.contains("current")) return;
  current?.classList.remove("current");
  entryOf.get(current)?.removeAttribute("aria-current");
  current = exchange;
  current.classList.add("current");
  const entry = entryOf.get(current);
  entry?.setAttribute("aria-current", "true");
  entry?.scrollIntoView({ block: "nearest" });
}
mark(current);

function follow() {
  if (byHand) mark(inSight);
}

const seen = new IntersectionObserver((changes) => {
  inSight = changes.findLast((one) => one.isIntersecting)?.target ?? inSight;
  follow();
}, { rootMargin: "-30% 0px -65% 0px" });
for (const one of exchanges) seen.observe(one);
addEventListener("scroll", follow, { passive: true });

const SCROLL_KEYS = [" ", "PageUp", "PageDown", "Home", "End", "ArrowUp", "ArrowDown"];
const BESIDE = ".left, aside, dialog, input, textarea, select";
for (const how of ["wheel", "touchmove", "keydown"]) {
  addEventListener(how, (event) => {
    if (!event.target.closest?.(BESIDE) && (!event.key || SCROLL_KEYS.includes(event.key))) byHand = true;
  }, { passive: true });
}
addEventListener("pointerdown", (event) => { if (event.target === document.documentElement) byHand = true; }); // the scroll bar

function led(exchange) {
  if (!exchange) return;
  byHand = false;
  mark(exchange);
}
conversation?.addEventListener("focusin", (event) => led(event.target.closest(".exchange")));
addEventListener("hashchange", () => led(document.getElementById(location.hash.slice(1))?.closest(".exchange")));

function lead(exchange) {
  if (!exchange) return;
  const message = exchange.querySelector(".message") ?? exchange;
  exchange.scrollIntoView({ block: "start" });
  message.focus({ preventScroll: true });
  led(exchange);
}

function step(by) {
  lead(exchanges[Math.min(Math.max(exchanges.indexOf(current) + by, 0), exchanges.length - 1)]);
}

// Matches: those of this page are gone to, those of other pages are links.
const bar = document.querySelector(".match-bar");
const numbers = (bar?.dataset.matches ?? "").split(" ").filter(Boolean);
const matching = numbers.map((number) => document.getElementById(`message-${number}`)?.closest(".exchange"));

function match(by) {
  if (!matching.some(Boolean)) return;
  const here = exchanges.indexOf(current);
  const places = matching.map((one) => exchanges.indexOf(one));
  let next = by > 0 ? places.findIndex((place) => place > here) : places.findLastIndex((place) => place >= 0 && place < here);
  if (next < 0) next = by > 0 ? places.findIndex((place) => place >= 0) : places.findLastIndex((place) => place >= 0);
  lead(matching[next]);
  const said = `${next + 1} of ${numbers.length}`;
  bar.querySelector("[data-at]").textContent = said;
  document.getElementById("said").textContent = `Match ${said}`;
}

bar?.addEventListener("click", (event) => {
  const link = event.target.closest("[data-step]");
  if (!link || !matching.some(Boolean)) return;
  event.preventDefault();
  match(Number(link.dataset.step));
});

// The filter: what is typed leaves the lines of the outline that have it; sent, it is searched in what was said.
const filter = document.getElementById("within");
filter?.addEventListener("input", () => {
  const wanted = filter.value.trim().toLowerCase();
  for (const entry of entries) entry.parentElement.hidden = !entry.textContent.toLowerCase().includes(wanted);
});

// "Fork here" fills the form that is on the page already.
const at = document.getElementById("at");
const prompt = document.getElementById("prompt");

function fork(number) {
  if (!at || ![...at.options].some((option) => option.value === number)) return false;
  at.value = number;
  at.closest("details").open = true;
  location.hash = "prompt"; // where the card is a sheet, this opens it
  prompt.focus();
  return true;
}

conversation?.addEventListener("click", (event) => {
  const link = event.target.closest("[data-fork]");
  if (link && !event.ctrlKey && !event.metaKey && fork(link.dataset.fork)) event.preventDefault();
});

// While it is looked at, the service is asked whether the session has gone on; what is shown stays as it is until its link
// is followed. What was told once is asked about again: more may come.
const since = document.getElementById("since");

async function askAgain() {
  if (document.visibilityState !== "visible") return;
  try {
    const answer = await fetch(since.dataset.ask);
    const text = answer.status === 200 ? await answer.text() : "";
    if (since.dataset.told !== text) since.innerHTML = text; // rendered and escaped by the service
    since.dataset.told = text;
  } catch { // the service is away: it is asked again
  }
}

if (since) {
  setInterval(askAgain, since.dataset.seconds * 1000);
  document.addEventListener("visibilitychange", askAgain);
}

// Its commits are asked for once the session can be read: git takes a moment.
const commits = document.querySelector("#commits a");

async function fillCommits() {
  const answer = await fetch(commits.href);
  if (!answer.ok) return;
  const there = new DOMParser().parseFromString(await answer.text(), "text/html"); // rendered and escaped by the service
  const made = there.getElementById("made");
  if (made?.querySelector("li")) commits.parentElement.replaceWith(document.adoptNode(made));
}

if (commits) fillCommits().catch(() => {}); // the service is away: the link stays

const KEYS = {
  "[": () => step(-1),
  "]": () => step(1),
  n: () => match(1),
  N: () => match(-1),
  f: () => fork(current?.querySelector("[data-fork]")?.dataset.fork ?? ""),
  o: () => { location.hash = "outline"; (entryOf.get(current) ?? entries[0])?.focus(); },
  e: () => {
    const steps = [...(current?.querySelectorAll("details") ?? [])];
    const open = steps.some((one) => !one.open);
    for (const one of steps) one.open = open;
  },
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) return;
  const does = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
  if (!does) return;
  event.preventDefault();
  does();
});
