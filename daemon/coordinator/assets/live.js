// Keeps a page fresh. Everything here is an extra: without it the page is whole, and a reload shows the same.
//
// An event only says that something happened. The page's live part is then fetched anew from the server and the
// sections that changed are exchanged, so that focus, open details and scroll positions elsewhere stay.

const live = document.getElementById("live");
const announce = document.getElementById("announce");
const linkState = document.getElementById("link-state");

const SOON_MS = 300; // events come in bursts; one look serves them all
const TAIL_MS = 3000; // consoles grow without an event

function relativeTimes(root) {
  const words = new Intl.RelativeTimeFormat("en", { style: "long", numeric: "always" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const seconds = Math.round((new Date(time.dateTime) - Date.now()) / 1000);
    if (Number.isNaN(seconds)) continue;
    if (!time.title) time.title = time.textContent;
    const size = Math.abs(seconds);
    time.textContent =
      size < 5 ? "just now"
      : size < 60 ? words.format(seconds, "second")
      : size < 3600 ? words.format(Math.round(seconds / 60), "minute")
      : size < 86400 ? words.format(Math.round(seconds / 3600), "hour")
      : words.format(Math.round(seconds / 86400), "day");
  }
}

// What the server last said of each section: the page itself differs from it by open details and times.
const said = new Map();

function sections(root) {
  return [...root.children].filter((part) => part.id);
}

function exchange(html) {
  const box = document.createElement("template");
  box.innerHTML = html;
  const fresh = sections(box.content);
  const wanted = new Set(fresh.map((part) => part.id));
  let before = null;
  for (const part of fresh) {
    const old = document.getElementById(part.id);
    const text = part.outerHTML;
    if (old && said.get(part.id) === text) {
      before = old;
      continue;
    }
    said.set(part.id, text);
    if (old) {
      keepReader(old, part);
      const focus = old.contains(document.activeElement) ? path(document.activeElement, old) : null;
      old.replaceWith(part);
      if (focus) follow(focus, part)?.focus({ preventScroll: true });
    } else if (before) {
      before.after(part);
    } else {
      live.prepend(part);
    }
    relativeTimes(part);
    before = part;
  }
  for (const old of sections(live)) {
    if (!wanted.has(old.id)) old.remove();
  }
}

// What the reader opened and scrolled stays as it was.
function keepReader(old, part) {
  for (const details of old.querySelectorAll("details[data-key][open]")) {
    const same = part.querySelector(`details[data-key="${CSS.escape(details.dataset.key)}"]`);
    if (same) same.open = true;
  }
  const olds = old.querySelectorAll("[tabindex='0']");
  const news = part.querySelectorAll("[tabindex='0']");
  const places = [...olds].map((box) => box.scrollLeft);
  requestAnimationFrame(() => news.forEach((box, i) => { if (places[i]) box.scrollLeft = places[i]; }));
}

function path(node, root) {
  const steps = [];
  for (let at = node; at !== root; at = at.parentElement) steps.unshift([...at.parentElement.children].indexOf(at));
  return steps;
}

function follow(steps, root) {
  return steps.reduce((at, step) => at?.children[step], root);
}

function watch() {
  const { fragment, events } = live.dataset;
  for (const part of sections(live)) said.set(part.id, part.outerHTML);
  let timer = null;
  let looking = false;
  let again = false;

  async function look() {
    timer = null;
    if (looking) { again = true; return; }
    looking = true;
    try {
      const answer = await fetch(fragment, { cache: "no-cache", headers: { Accept: "text/html" } });
      if (answer.ok) exchange(await answer.text());
      linkState.hidden = answer.ok;
    } catch {
      linkState.hidden = false;
    }
    looking = false;
    if (again) { again = false; soon(); }
    if (document.getElementById("standing") && !document.querySelector("form.cancel")) stop();
  }
  function soon() {
    timer ??= setTimeout(look, SOON_MS);
  }

  const source = new EventSource(events);
  source.onopen = () => { linkState.hidden = true; soon(); };
  source.onerror = () => { linkState.hidden = false; };
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (["concluded", "cancelled", "decided"].includes(event.kind)) announce.textContent = event.text;
    soon();
  };
  const tail = setInterval(() => { if (!document.hidden && document.querySelector(".console, .lamp.live")) soon(); }, TAIL_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
  function stop() {
    source.close();
    clearInterval(tail);
    linkState.hidden = true;
  }
  addEventListener("pagehide", () => source.close());
}

// Only the parameters and metrics of the chosen workload are asked for.
function form() {
  const workload = document.getElementById("workload");
  if (!workload) return;
  const show = () => {
    for (const field of document.querySelectorAll("[data-workload]")) {
      field.hidden = field.dataset.workload !== workload.value;
    }
    const options = [...document.querySelectorAll("#metric option[data-of]")];
    for (const option of options) {
      option.disabled = option.hidden = !option.dataset.of.split(" ").includes(workload.value);
    }
    if (options.some((option) => option.selected && option.disabled)) {
      const first = options.find((option) => !option.disabled);
      if (first) first.selected = true;
    }
  };
  workload.addEventListener("change", show);
  show();
}

if (live?.dataset.events) watch();
relativeTimes(document);
setInterval(() => relativeTimes(document), 10000);
form();
