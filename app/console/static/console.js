// Keeps an open page true: the parts of it that change come as Server-Sent Events, one event for
// each thing that has changed. All markup is made, and escaped, by the server. Without this script
// the pages work all the same, and show what was true when they were loaded.

const stale = document.getElementById("stale");
const SECOND = 1000;
const SILENT = 40 * SECOND; // the stream tells the time every 15 seconds

const SPANS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// As the server writes it: in the two largest units, without one that is nothing.
function ago(seconds) {
  for (let i = 0; i < SPANS.length - 1; i++) {
    const [[large, size], [small, part]] = [SPANS[i], SPANS[i + 1]];
    if (seconds < size) continue;
    const rest = Math.floor((seconds % size) / part);
    return `${Math.floor(seconds / size)} ${large}${rest ? ` ${rest} ${small}` : ""} ago`;
  }
  return `${seconds} s ago`;
}

// The reader's clock may be wrong: ages are counted by the server's, as the stream tells it.
let clockAhead = 0;

function refreshAges() {
  const now = Date.now() - clockAhead;
  for (const time of document.querySelectorAll("time[data-age]")) {
    const text = ago(Math.max(0, Math.floor((now - Date.parse(time.dateTime)) / SECOND)));
    if (time.textContent !== text) time.textContent = text;
  }
  for (const words of document.querySelectorAll("[data-shown-from]")) words.hidden = Date.parse(words.dataset.shownFrom) > now;
}

// What each part was last told to show: a browser writes markup in a way of its own.
const shown = new WeakMap();

// `parts` is what has changed of the thing that the page shows as `data-live-id`.
function show({ id, version, parts }) {
  for (const thing of document.querySelectorAll(`[data-live-id="${CSS.escape(id)}"]`)) {
    thing.dataset.version = version;
    for (const [name, markup] of Object.entries(parts)) {
      const part = thing.querySelector(`[data-live="${CSS.escape(name)}"]`);
      if (part && (shown.get(part) ?? part.innerHTML.trim()) !== markup) replace(part, markup);
    }
  }
  if (id === "counters") tellOfNewRows();
  refreshAges();
}

// Rows are kept true, and none is added under the reader's hand: a link does that. What the server
// counted when it made the page stands in the tab that is shown.
const counted = document.querySelector(".tabs a[aria-current] [data-live]");
const atFirst = counted?.textContent;

function tellOfNewRows() {
  const link = document.querySelector("#newer a");
  if (link) link.hidden = counted.textContent === atFirst;
}

function replace(part, markup) {
  shown.set(part, markup);
  part.innerHTML = markup;
  part.classList.remove("changed");
  void part.offsetWidth; // so that the mark is shown anew
  part.classList.add("changed");
}

function address() {
  const watched = [...document.querySelectorAll("[data-live-id]")]
    .map((thing) => [thing.dataset.liveId, thing.dataset.version].filter(Boolean).join(":"));
  const url = new URL("/console/live", location);
  url.searchParams.set("watch", watched.join(","));
  if (document.body.dataset.live) url.searchParams.set("page", document.body.dataset.live);
  return url;
}

let stream = null;
let heard = Date.now();

function sinceHeard() {
  if (!stale.hidden) return;
  const time = stale.querySelector("time");
  time.dateTime = new Date(heard - clockAhead).toISOString();
  time.textContent = time.dateTime.slice(11, 19);
  stale.hidden = false;
}

function listen() {
  stream?.close();
  stream = new EventSource(address());
  stream.addEventListener("clock", (event) => {
    heard = Date.now();
    clockAhead = heard - Number(event.data);
    stale.hidden = true;
  });
  stream.addEventListener("change", (event) => {
    heard = Date.now();
    show(JSON.parse(event.data));
  });
  stream.addEventListener("error", () => {
    sinceHeard();
    // The browser tries again by itself, unless the answer was a refusal.
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 5 * SECOND);
  });
}

// A network that is gone says nothing, and the browser may wait for minutes.
function doubtSilence() {
  if (!stream || Date.now() - heard < SILENT) return;
  sinceHeard();
  heard = Date.now();
  listen();
}

function selectAll() {
  for (const all of document.querySelectorAll("input[data-select-all]")) {
    all.hidden = false;
    all.addEventListener("change", () => {
      for (const box of document.querySelectorAll(`input[name="${all.dataset.selectAll}"]`)) box.checked = all.checked;
    });
  }
}

if (stale) {
  selectAll();
  setInterval(refreshAges, SECOND);
  setInterval(doubtSilence, SECOND);
  // A page that nobody looks at needs no stream; a browser has six connections to a host.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      stream?.close();
      stream = null;
    } else if (!stream) listen();
  });
  if (!document.hidden) listen();
}
