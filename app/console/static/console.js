// Updates an open page. The server sends changed parts of it, as rendered and escaped markup, in
// server-sent events: one event per changed item. Without this script pages work, but are static.

const stale = document.getElementById("stale");
const SECOND = 1000;
const SILENCE_MAX = 40 * SECOND; // the stream sends a clock event every 15 seconds

const TIME_UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// The same format as the server's: the two largest units, without a zero.
function formatAge(seconds) {
  for (let i = 0; i < TIME_UNITS.length - 1; i++) {
    const [[large, size], [small, part]] = [TIME_UNITS[i], TIME_UNITS[i + 1]];
    if (seconds < size) continue;
    const rest = Math.floor((seconds % size) / part);
    return `${Math.floor(seconds / size)} ${large}${rest ? ` ${rest} ${small}` : ""} ago`;
  }
  return `${seconds} s ago`;
}

// Ages use the server's clock, because the browser's may be wrong.
let clockAhead = 0;

function refreshAges() {
  const now = Date.now() - clockAhead;
  for (const time of document.querySelectorAll("time[data-age]")) {
    const text = formatAge(Math.max(0, Math.floor((now - Date.parse(time.dateTime)) / SECOND)));
    if (time.textContent !== text) time.textContent = text;
  }
  for (const words of document.querySelectorAll("[data-shown-from]")) words.hidden = Date.parse(words.dataset.shownFrom) > now;
}

// Times are written in UTC, like "2026-11-22 08:04:32" or, within [data-part], a part of that.
// Titles of a plot begin with a time. The reader may choose the zone of the browser.
let isLocal = localStorage.getItem("times") === "local";

function formatTime(iso) {
  const at = new Date(iso);
  const offset = isLocal ? at.getTimezoneOffset() * 60 * SECOND : 0;
  return new Date(at - offset).toISOString().slice(0, 19).replace("T", " ");
}

function refreshTimes() {
  for (const each of document.querySelectorAll("time[datetime], [data-time]")) {
    const text = formatTime(each.dateTime ?? each.dataset.time);
    if ("age" in each.dataset) each.title = text;
    else {
      const [start, end] = (each.closest("[data-part]")?.dataset.part ?? "0 19").split(" ");
      each.textContent = text.slice(start, end) + each.textContent.slice(end - start);
    }
  }
}

function enableZones() {
  const zone = document.getElementById("zone");
  const button = document.getElementById("switch-zone");
  const show = () => {
    const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
    zone.textContent = isLocal ? `Times are local (${name}), except in forms.` : "All times are UTC.";
    button.textContent = isLocal ? "Use UTC" : "Use local times";
    refreshTimes();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    isLocal = !isLocal;
    localStorage.setItem("times", isLocal ? "local" : "UTC");
    show();
  });
  if (isLocal) show();
}

// The latest markup of each part. The document may differ from it: browsers normalize markup, and
// ages and zones of times change.
const shown = new WeakMap();
for (const part of document.querySelectorAll("[data-live]")) shown.set(part, part.innerHTML.trim());

// `parts` are the changed parts of the item that the page shows as `data-live-id`.
function applyChange({ id, version, parts }) {
  for (const item of document.querySelectorAll(`[data-live-id="${CSS.escape(id)}"]`)) {
    item.dataset.version = version;
    for (const [name, markup] of Object.entries(parts)) {
      const part = item.querySelector(`[data-live="${CSS.escape(name)}"]`);
      if (part && shown.get(part) !== markup) replacePart(part, markup);
    }
  }
  if (id === "counters") updateReloadLink();
  if (isLocal) refreshTimes();
  refreshAges();
}

// Rows do not appear or disappear while the list is in use. When the number in the current tab
// differs from the loaded one, a link offers a reload. The tab of jobs with failures has no number.
const currentCount = document.querySelector(".tabs a[aria-current] [data-live]");
const loadedCount = currentCount?.textContent;

function updateReloadLink() {
  const link = document.querySelector("#newer a");
  if (link) link.hidden = currentCount?.textContent === loadedCount;
}

function replacePart(part, markup) {
  shown.set(part, markup);
  part.innerHTML = markup;
  part.classList.remove("changed");
  void part.offsetWidth; // restarts the animation
  part.classList.add("changed");
}

function streamUrl() {
  const items = [...document.querySelectorAll("[data-live-id]")]
    .map((item) => [item.dataset.liveId, item.dataset.version].filter(Boolean).join(":"));
  const url = new URL("/console/live", location);
  url.searchParams.set("watch", items.join(","));
  if (document.body.dataset.live) url.searchParams.set("page", document.body.dataset.live);
  return url;
}

let stream = null;
let lastEventAt = Date.now();

function showStale() {
  if (!stale.hidden) return;
  const time = stale.querySelector("time");
  time.dateTime = new Date(lastEventAt - clockAhead).toISOString();
  time.textContent = formatTime(time.dateTime).slice(11);
  stale.hidden = false;
}

function connect() {
  stream?.close();
  stream = new EventSource(streamUrl());
  stream.addEventListener("clock", (event) => {
    lastEventAt = Date.now();
    clockAhead = lastEventAt - Number(event.data);
    stale.hidden = true;
  });
  stream.addEventListener("change", (event) => {
    lastEventAt = Date.now();
    applyChange(JSON.parse(event.data));
  });
  stream.addEventListener("error", () => {
    showStale();
    // The browser reconnects by itself, except after an error status.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 5 * SECOND);
  });
}

// A lost network raises no error; the browser may wait for minutes.
function reconnectIfSilent() {
  if (!stream || Date.now() - lastEventAt < SILENCE_MAX) return;
  showStale();
  lastEventAt = Date.now();
  connect();
}

function enableSelectAll() {
  for (const all of document.querySelectorAll("input[data-select-all]")) {
    all.hidden = false;
    all.addEventListener("change", () => {
      for (const box of document.querySelectorAll(`input[name="${all.dataset.selectAll}"]`)) box.checked = all.checked;
    });
  }
}

// Without a secure context there is no clipboard, and the buttons stay hidden.
function enableCopying() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }
}

// Selects hours on a plot into the times of a form, which are UTC: by dragging, or by the first and the
// last hour, with taps or with the arrow keys and Enter.
function enableWindowPicker() {
  const HOUR = 3600 * SECOND;
  const form = document.querySelector("form[data-plot]");
  if (!form) return;
  const { from, to } = form.elements;
  const [start, end, present] = ["start", "end", "present"].map((name) => Number(form.dataset[name]));
  const hours = (end - start) / HOUR;
  const svg = document.getElementById(`${form.dataset.plot}-title`).closest("svg");
  const picker = document.createElement("div");
  const [selected, hourMark] = [document.createElement("div"), document.createElement("div")];
  picker.className = "picker";
  picker.tabIndex = 0;
  for (const [name, value] of Object.entries({ label: "Hour", valuemin: 1, valuemax: hours })) picker.setAttribute(`aria-${name}`, value);
  picker.setAttribute("role", "slider");
  selected.className = "selected";
  hourMark.className = "hour";
  picker.append(selected, hourMark);
  let hour = hours - 1;
  let first = null; // the first of two hours, while the second is to be chosen
  let pressed = null; // the hour under a pressed pointer
  let isDragging = false;

  const isoOf = (time) => new Date(time).toISOString();
  const place = (mark, startMs, endMs) => {
    const [left, right] = [startMs, endMs].map((time) => Math.min(Math.max((time - start) / (end - start), 0), 1) * 100);
    mark.style.left = `${left}%`;
    mark.style.width = `${Math.max(right - left, 0)}%`;
  };
  const showSelected = () => place(selected, Date.parse(`${from.value}Z`) || 0, Date.parse(`${to.value}Z`) || 0);
  const moveTo = (next) => {
    hour = Math.min(Math.max(next, 0), hours - 1);
    const at = start + hour * HOUR;
    const bar = svg.querySelector(`title[data-time^="${isoOf(at).slice(0, 19)}"]`);
    const words = bar?.textContent ?? `${formatTime(at).slice(5, 16)}: none missed`;
    picker.title = words;
    picker.setAttribute("aria-valuenow", hour + 1);
    picker.setAttribute("aria-valuetext", words);
    place(hourMark, at, at + HOUR);
  };
  const select = (one, other) => {
    from.value = isoOf(start + Math.min(one, other) * HOUR).slice(0, 19);
    to.value = isoOf(Math.min(start + (Math.max(one, other) + 1) * HOUR, present)).slice(0, 19);
    showSelected();
  };
  const choose = () => {
    select(first ?? hour, hour);
    first = first === null ? hour : null;
    form.querySelector("output").textContent = first === null ? "Window selected." : "Choose the last hour.";
  };

  const hourAt = (event) => {
    const box = picker.getBoundingClientRect();
    return Math.floor((event.clientX - box.left) / box.width * hours);
  };
  picker.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    picker.setPointerCapture(event.pointerId);
    moveTo(hourAt(event));
    pressed = hour;
    isDragging = false;
  });
  picker.addEventListener("pointermove", (event) => {
    moveTo(hourAt(event));
    if (pressed === null) return;
    isDragging ||= hour !== pressed;
    if (isDragging) select(pressed, hour);
  });
  picker.addEventListener("pointerup", () => {
    if (pressed === null) return;
    if (isDragging) first = pressed;
    choose();
    pressed = null;
  });
  picker.addEventListener("pointercancel", () => { pressed = null; });
  const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageDown: -24, PageUp: 24, Home: -hours, End: hours };
  picker.addEventListener("keydown", (event) => {
    if (event.key in STEPS) moveTo(hour + STEPS[event.key]);
    else if (event.key === "Enter" || event.key === " ") choose();
    else return;
    event.preventDefault();
  });
  for (const field of [from, to]) field.addEventListener("input", showSelected);
  form.querySelector("output").hidden = false;
  moveTo(hour);
  showSelected();
  svg.after(picker);
}

// Shortcuts of single keys can be turned off: they disturb people who dictate (WCAG 2.1.4).
const shortcuts = document.getElementById("shortcuts");
const PAGES = { d: "deliveries", o: "overview", j: "jobs", w: "webhooks", l: "log" };
let isAfterG = false;

function enableShortcuts() {
  const isOn = document.getElementById("shortcuts-on");
  isOn.checked = localStorage.getItem("shortcuts") !== "off";
  isOn.addEventListener("change", () => localStorage.setItem("shortcuts", isOn.checked ? "on" : "off"));
  const opener = document.getElementById("show-shortcuts");
  opener.hidden = false;
  opener.addEventListener("click", () => shortcuts.showModal());
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, dialog");
    if (isOn.checked && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) onShortcut(event);
  });
}

function onShortcut(event) {
  const isSecond = isAfterG;
  isAfterG = event.key === "g";
  if (isSecond && event.key in PAGES) {
    document.querySelector(`header nav a[href="/console/${PAGES[event.key]}"]`)?.click();
  } else if (event.key === "?") shortcuts.showModal();
  else if (event.key === "j") moveBy(1);
  else if (event.key === "k") moveBy(-1);
  else if (event.key === "/") document.querySelector('[role="search"] :is(input, select):not([type="hidden"])')?.focus();
  else return;
  event.preventDefault();
}

// The pages of the deliveries in the last list of this tab, so that the page of one leads to the others.
function rememberList() {
  const rows = [...document.querySelectorAll("table[data-list] th a")];
  if (rows.length) sessionStorage.setItem("deliveries", JSON.stringify(rows.map((link) => link.href)));
}

function enableNeighbours() {
  const neighbours = document.getElementById("neighbours");
  const pages = JSON.parse(sessionStorage.getItem("deliveries") ?? "[]");
  const at = pages.findIndex((page) => new URL(page).pathname === location.pathname);
  if (!neighbours || at < 0) return;
  for (const [rel, page] of [["prev", pages[at - 1]], ["next", pages[at + 1]]]) {
    const link = neighbours.querySelector(`[rel="${rel}"]`);
    link.hidden = !page;
    if (page) link.href = page;
  }
  neighbours.hidden = false;
}

// Leads to the next or the previous delivery, or moves the focus between the first links of rows.
function moveBy(step) {
  const neighbours = document.getElementById("neighbours");
  if (neighbours && !neighbours.hidden) {
    neighbours.querySelector(step < 0 ? '[rel="prev"]:not([hidden])' : '[rel="next"]:not([hidden])')?.click();
    return;
  }
  const links = [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? 0 : Math.min(Math.max(at + step, 0), links.length - 1)]?.focus();
}

if (stale) {
  enableSelectAll();
  setInterval(refreshAges, SECOND);
  setInterval(reconnectIfSilent, SECOND);
  // Hidden pages close their stream: a browser allows six connections per host.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      stream?.close();
      stream = null;
    } else if (!stream) connect();
  });
  if (!document.hidden) connect();
  enableCopying();
  enableWindowPicker();
  enableZones();
  enableShortcuts();
  rememberList();
  enableNeighbours();
}
