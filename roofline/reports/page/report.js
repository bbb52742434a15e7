// The page: what is selected, its place in the address, and the controls that change it.

const data = JSON.parse(byId("memlab-data").textContent);
const DEFAULT_LEVEL = data.runs.length <= 6 ? "all" : "dram";
const state = { level: DEFAULT_LEVEL, device: 0, roofs: null, hidden: new Set(), filter: "", at: "" };

document.documentElement.classList.add("script");

function matchesFilter(run) {
  const text = `${run.label} ${run.kernel} ${run.parameters} ${run.bound} ${data.devices[run.device].name}`.toLowerCase();
  return state.filter.toLowerCase().split(/\s+/).every((word) => {
    if (!/^\d/.test(word)) return text.includes(word);
    // A number starts where it is found: 8 is no part of 2048.
    return text.split(/[^\w.]+/).some((each) => each.startsWith(word));
  });
}

const chart = new Chart(data, byId("plot"), byId("card"), byId("note"), {
  device: () => state.device,
  level: () => state.level,
  shows: (run) => !state.hidden.has(run.key) && matchesFilter(run),
  roofShown: (roof) => (state.roofs ? state.roofs.has(roof.key) : roof.shown),
  viewChanged: writeAddress,
  go: (key) => jump(`run-${key}`),
  marked: (key) => {
    for (const row of all("#runs tbody tr[data-key]")) {
      row.classList.toggle("active", row.dataset.key === key);
    }
  },
});

// ---- the address

function writeAddress() {
  const words = [];
  const add = (name, value) => words.push(`${name}=${encodeURIComponent(value).replace(/%2C/g, ",").replace(/%20/g, "+")}`);
  const short = (range) => range.map((power) => power.toFixed(3)).join(",");
  if (state.level !== DEFAULT_LEVEL) add("level", state.level);
  if (state.device) add("device", data.devices[state.device].key);
  if (state.roofs) add("roofs", [...state.roofs].join(","));
  if (state.hidden.size) add("hide", [...state.hidden].join(","));
  if (state.filter) add("filter", state.filter);
  if (chart.view) {
    add("x", short(chart.view.x));
    add("y", short(chart.view.y));
  }
  if (state.at) add("at", state.at);
  setAddress(words.join("&"), false);
}

function setAddress(words, isStep) {
  const address = words ? `#${words}` : `${location.pathname}${location.search}`;
  try {
    if (isStep) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  } catch { /* in a frame without an address, as in a notebook, nothing can be kept */ }
}

function readAddress() {
  const words = location.hash.slice(1);
  const values = words.includes("=") ? new URLSearchParams(words) : new URLSearchParams(words && { at: words });
  const list = (name) => (values.get(name) ?? "").split(",").filter(Boolean);
  const range = (name) => {
    const numbers = list(name).map(Number);
    return numbers.length === 2 && numbers.every(Number.isFinite) && numbers[0] < numbers[1] ? numbers : null;
  };
  const levels = ["all", ...data.levels.map((level) => level.key)];
  state.level = levels.includes(values.get("level")) ? values.get("level") : DEFAULT_LEVEL;
  state.device = Math.max(0, data.devices.findIndex((device) => device.key === values.get("device")));
  state.roofs = values.has("roofs") ? new Set(list("roofs")) : null;
  state.hidden = new Set(list("hide").filter((key) => data.runs.some((run) => run.key === key)));
  state.filter = values.get("filter") ?? "";
  state.at = values.get("at") ?? "";
  const [x, y] = [range("x"), range("y")];
  chart.view = x && y ? { x, y } : null;
}

// ---- showing what is selected

function update() {
  for (const radio of all("input[name=level]")) radio.checked = radio.value === state.level;
  if (byId("device")) byId("device").value = state.device;
  if (byId("filter") && byId("filter").value !== state.filter) byId("filter").value = state.filter;
  showRoofs();
  let shown = 0;
  for (const run of data.runs) {
    const matches = matchesFilter(run);
    const rows = all("#runs tbody tr[data-key]").filter((each) => each.dataset.key === run.key);
    for (const each of rows) each.hidden = !matches;
    const [row] = rows;
    const box = row.querySelector("input");
    if (box) box.checked = !state.hidden.has(run.key);
    row.classList.toggle("off", state.hidden.has(run.key));
    const section = byId(`run-${run.key}`);
    if (section) section.hidden = !matches;
    shown += matches && !state.hidden.has(run.key) ? 1 : 0;
  }
  if (byId("shown")) byId("shown").textContent = `${shown} of ${data.runs.length} shown`;
  chart.draw();
}

function change(work) {
  work();
  update();
  writeAddress();
}

let moreRoofs = false; // whether the roofs of pipes that no run used can be chosen

function showRoofs() {
  const roofs = data.devices[state.device].roofs;
  const on = (roof) => (state.roofs ? state.roofs.has(roof.key) : roof.shown);
  const focused = document.activeElement?.dataset?.focus;
  byId("roofs").replaceChildren(...roofs.map((roof) => {
    const toggle = html("button", { type: "button", "aria-pressed": String(on(roof)), "data-focus": `roof-${roof.key}`,
      title: `${roof.label}: ${roof.text}, ${roof.provenance}` }, roof.label);
    const only = html("button", { type: "button", class: "only", "data-focus": `only-${roof.key}`,
      "aria-label": `Show the roof of ${roof.label} only` }, "only");
    toggle.addEventListener("click", () => change(() => {
      const shown = new Set(roofs.filter(on).map((each) => each.key));
      if (!shown.delete(roof.key)) shown.add(roof.key);
      setRoofs(roofs, shown);
    }));
    only.addEventListener("click", () => change(() => {
      const alone = state.roofs?.size === 1 && state.roofs.has(roof.key);
      setRoofs(roofs, alone ? null : new Set([roof.key]));
    }));
    return html("span", { class: "chip", hidden: roof.shown || on(roof) || moreRoofs ? null : "" }, toggle, only);
  }));
  const others = roofs.filter((roof) => !roof.shown && !on(roof)).length;
  if (others && !moreRoofs) {
    const more = html("button", { type: "button", "data-focus": "more" }, `${others} more`);
    more.addEventListener("click", () => {
      moreRoofs = true;
      showRoofs();
      all(".chip:last-child button", byId("roofs"))[0].focus();
    });
    byId("roofs").append(more);
  }
  byId("roofs").closest("fieldset").hidden = !roofs.length;
  if (focused) all("[data-focus]").find((each) => each.dataset.focus === focused)?.focus();
}

function setRoofs(roofs, shown) {
  const usual = shown && roofs.every((roof) => roof.shown === shown.has(roof.key));
  state.roofs = usual ? null : shown;
}

// ---- jumps to runs, lines and instructions

function reveal(anchor, isSmooth) {
  const target = byId(anchor);
  if (!target) return;
  for (let part = target; part; part = part.parentElement) {
    if (part instanceof HTMLDetailsElement) part.open = true;
    part.hidden = false;
  }
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches || !isSmooth;
  target.scrollIntoView({ block: target instanceof HTMLDetailsElement ? "start" : "center", behavior: calm ? "auto" : "smooth" });
  const focus = target.querySelector(":scope > summary") ?? target;
  if (focus === target) target.setAttribute("tabindex", "-1");
  focus.focus({ preventScroll: true });
  for (const before of all(".target")) before.classList.remove("target");
  target.classList.add("target");
}

function jump(anchor) {
  writeAddress();
  setAddress(location.hash.slice(1), true); // so that Back returns here
  state.at = anchor;
  writeAddress();
  reveal(anchor, true);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  jump(decodeURIComponent(link.getAttribute("href").slice(1)));
});

// ---- controls

for (const radio of all("input[name=level]")) {
  radio.addEventListener("change", () => change(() => { state.level = radio.value; }));
}
byId("device")?.addEventListener("change", (event) => change(() => {
  state.device = Number(event.target.value);
  state.roofs = null;
  chart.view = null;
}));
byId("filter")?.addEventListener("input", (event) => change(() => { state.filter = event.target.value; }));
byId("show-all")?.addEventListener("click", () => change(() => {
  state.hidden.clear();
  state.filter = "";
}));

for (const row of all("#runs tbody tr[data-key]")) {
  const { key } = row.dataset;
  const run = data.runs.find((each) => each.key === key);
  row.querySelector("input")?.addEventListener("change", (event) => change(() => {
    if (event.target.checked) state.hidden.delete(key);
    else state.hidden.add(key);
  }));
  row.querySelector(".only")?.addEventListener("click", () => change(() => {
    const others = data.runs.filter((each) => each.key !== key).map((each) => each.key);
    const alone = !state.hidden.has(key) && others.every((each) => state.hidden.has(each));
    state.hidden = new Set(alone ? [] : others);
    state.device = run.device;
  }));
  row.addEventListener("pointerenter", () => chart.mark(key));
  row.addEventListener("pointerleave", () => chart.mark(null));
  row.addEventListener("focusin", () => chart.mark(key));
  row.addEventListener("focusout", () => chart.mark(null));
}

for (const button of all("button.sort")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const column = [...heading.parentElement.children].indexOf(heading);
    const down = heading.getAttribute("aria-sort") === "ascending";
    const value = (row) => row.children[column].dataset.value;
    const compare = (one, other) => {
      const [a, b] = [Number(one), Number(other)];
      return Number.isFinite(a) && Number.isFinite(b) ? a - b : one.localeCompare(other, "en", { numeric: true });
    };
    for (const each of all("th", heading.parentElement)) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    body.append(...[...body.rows].sort((one, other) => sign * compare(value(one), value(other))));
  });
}

for (const place of all(".key[data-key]")) {
  const index = data.runs.findIndex((run) => run.key === place.dataset.key);
  place.append(keyPicture(data.runs[index], index));
}

byId("unfold")?.addEventListener("click", () => all("details.run").forEach((part) => { part.open = true; }));
byId("fold")?.addEventListener("click", () => all("details.run").forEach((part) => { part.open = false; }));
byId("print").addEventListener("click", () => window.print());
for (const button of all("[data-do=svg]")) button.addEventListener("click", () => downloadSvg(chart, data.title));
for (const button of all("[data-do=png]")) button.addEventListener("click", () => downloadPng(chart, data.title));

// ---- the theme

const THEME_KEY = "memlab-theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : prefersDark.matches;
}

function showTheme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
  byId("theme").textContent = isDark() ? "Light theme" : "Dark theme";
}

function storedTheme() {
  try {
    const stored = localStorage.getItem(THEME_KEY);
    return stored === "dark" || stored === "light" ? stored : null;
  } catch {
    return null;
  }
}

byId("theme").addEventListener("click", () => {
  const chosen = isDark() ? "light" : "dark";
  showTheme(chosen);
  try {
    localStorage.setItem(THEME_KEY, chosen);
  } catch { /* then it lasts as long as the page */ }
});
prefersDark.addEventListener("change", () => showTheme(null));

// ---- the start

function restore(isFirst) {
  readAddress();
  update();
  if (state.at) reveal(state.at, !isFirst);
}

showTheme(storedTheme());
restore(true);
window.addEventListener("hashchange", () => restore(false));
