// The results follow the typing, and commands can be copied. Without this the page works by its forms and links.
"use strict";

const form = document.querySelector("form.search");
const results = document.querySelector("[data-live]");
const status = document.getElementById("status");
let asking = null;
let waiting = 0;

async function ask() {
  const query = new URLSearchParams(new FormData(form));
  asking?.abort();
  asking = new AbortController();
  status.textContent = "Searching …";
  try {
    const answer = await fetch(`${results.dataset.live}?${query}`, { signal: asking.signal });
    results.innerHTML = await answer.text();  // rendered and escaped by the service
    status.textContent = results.querySelector("h1")?.textContent ?? "";
    history.replaceState(null, "", `/?${query}`);
  } catch (error) {
    if (error.name !== "AbortError") status.textContent = "The service does not answer.";
  }
}

form?.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(ask, 250);
});
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  ask();
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  await navigator.clipboard.writeText(button.parentElement.querySelector(".command").textContent);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
