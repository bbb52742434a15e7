// The roofline as SVG, drawn anew for each view; what is active is marked without drawing.

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const MARK_RADIUS = 6;
const HOVER_PIXELS = 26;
const LABEL_CHARACTERS = 40;
const LEVEL_TAGS = { requested: "req", l1: "L1", l2: "L2", dram: "DRAM", compulsory: "min" };
const LEAST_SPAN = 0.04; // decades
const LEAST_WIDTH = 260;

class Chart {
  // `options.shows(run)`, `options.roofShown(roof)` and `options.level()` tell what to draw;
  // `options.viewChanged()` is called when the user moves the view, `options.go(key)` opens a run.
  constructor(data, host, card, note, options) {
    Object.assign(this, { data, host, card, note, options, view: null, active: null, width: 0 });
    this.places = new Map(data.runs.map((run, place) => [run.key, place]));
    new ResizeObserver(() => {
      if (Math.round(host.clientWidth) !== this.width) this.draw();
    }).observe(host);
    this.listen();
  }

  get device() {
    return this.data.devices[this.options.device()];
  }

  get roofs() {
    return this.device.roofs.filter((roof) => this.options.roofShown(roof));
  }

  get levels() {
    const level = this.options.level();
    return level === "all" ? this.data.levels.map((each) => each.key) : [level];
  }

  // The shown runs of the device, with their points.
  runs() {
    return this.data.runs
      .filter((run) => run.device === this.options.device() && this.options.shows(run))
      .map((run) => ({
        run,
        points: this.levels
          .map((level) => ({ level, x: run.levels[level]?.x, y: run.flops }))
          .filter((point) => point.x > 0 && point.y > 0),
      }));
  }

  // The whole chart's domains: from a decade below the first ridge's to a decade above the last one's,
  // and four decades below the highest peak; wider where a run is beyond them.
  wholeView() {
    const known = this.device.roofs.filter((roof) => roof.shown || this.options.roofShown(roof));
    const peaks = known.filter((roof) => roof.kind !== "bandwidth").map((roof) => roof.value);
    const bandwidths = known.filter((roof) => roof.kind === "bandwidth").map((roof) => roof.value);
    const runs = this.data.runs.filter((run) => run.device === this.options.device() && run.flops);
    const rates = runs.map((run) => run.flops);
    const places = runs.flatMap((run) => Object.values(run.levels).map((level) => level.x))
      .filter((x) => x > 0);
    const highest = Math.max(...peaks, ...rates, 1e9);
    const base = peaks.length ? Math.min(...peaks) : highest;
    const ridges = bandwidths.map((value) => base / value);
    const decade = Math.ceil(Math.log10(highest));
    const top = Math.max(decade, Math.log10(highest) + 0.2); // with room for the label of the peak
    const bottom = Math.min(decade - 4, Math.floor(Math.log10(Math.min(...rates, highest)) - 0.2));
    const left = Math.min(
      Math.floor(Math.log10(Math.min(...ridges, 10))) - 1,
      Math.floor(Math.log10(Math.min(...places, 1)) - 0.1),
    );
    const right = Math.max(
      Math.ceil(Math.log10(Math.max(...ridges.map((ridge) => (ridge * highest) / base), 10))) + 1,
      Math.ceil(Math.log10(Math.max(...places, 1)) + 0.1),
    );
    return { x: [left, right], y: [bottom, top] };
  }

  draw() {
    const focused = this.host.contains(document.activeElement)
      ? document.activeElement.dataset?.key : undefined;
    this.width = Math.round(this.host.clientWidth);
    if (this.width < LEAST_WIDTH) this.width = LEAST_WIDTH; // the page is not laid out yet
    const narrow = this.width < 560;
    this.height = Math.round(Math.max(330, Math.min(590, this.width * 0.56)));
    this.margin = { left: narrow ? 42 : 56, right: narrow ? 16 : 26, top: 26, bottom: 46 };
    this.frame = [this.margin.left, this.margin.top,
      this.width - this.margin.left - this.margin.right,
      this.height - this.margin.top - this.margin.bottom];
    const [left, top, width, height] = this.frame;
    const view = this.view ?? this.wholeView();
    this.shownView = view;
    this.x = logScale(view.x, [left, left + width]);
    this.y = logScale(view.y, [top + height, top]);
    this.fontSize = narrow ? 11.5 : 12.5;

    const root = svg("svg", {
      class: "roofline", viewBox: `0 0 ${this.width} ${this.height}`, width: this.width,
      height: this.height, role: "group", "aria-label": `Roofline of ${this.device.name}`,
      "font-family": FONT, "font-size": this.fontSize,
    });
    root.append(svg("defs", {}, svg("clipPath", { id: "frame" },
      svg("rect", { x: left, y: top, width, height }))));
    const layers = Object.fromEntries(["grid", "roofs", "arrows", "guide", "runs", "texts"].map((name) => {
      const clip = name === "texts" || name === "grid" ? null : "url(#frame)";
      return [name, root.appendChild(svg("g", { class: name, "clip-path": clip }))];
    }));
    this.drawAxes(layers.grid);
    const drawn = this.runs();
    const lines = this.drawRoofs(layers.roofs);
    const taken = this.drawRuns(layers.runs, drawn);
    this.drawArrows(layers.arrows, drawn);
    this.labelRoofs(layers.texts, lines, taken);
    this.labelRuns(layers.texts, drawn, taken, lines.flatMap((line) => line.boxes));
    this.layers = layers;
    this.host.replaceChildren(root);
    this.writeNote(drawn);
    if (focused !== undefined) this.link(focused)?.focus({ preventScroll: true });
    this.mark(this.link(this.active) ? this.active : null);
  }

  drawAxes(group) {
    const [left, top, width, height] = this.frame;
    const [bottom, right] = [top + height, left + width];
    for (const tick of logTicks(this.shownView.x, width)) {
      const x = this.x(tick.value);
      group.append(svg("line", { class: tick.major ? "major" : "minor", x1: x, x2: x, y1: top, y2: bottom }));
      if (tick.label) group.append(svg("text", { x, y: bottom + 17, "text-anchor": "middle" }, plainNumber(tick.value)));
    }
    for (const tick of logTicks(this.shownView.y, height)) {
      const y = this.y(tick.value);
      group.append(svg("line", { class: tick.major ? "major" : "minor", x1: left, x2: right, y1: y, y2: y }));
      if (tick.label) group.append(svg("text", { x: left - 7, y: y + 4, "text-anchor": "end" }, siNumber(tick.value)));
    }
    group.append(svg("path", { class: "axis", d: `M${left},${top}V${bottom}H${right}` }));
    const level = this.options.level();
    const label = this.data.levels.find((each) => each.key === level)?.label;
    const integers = this.data.runs.some((run) => run.device === this.options.device() && run.operation === "OP");
    const which = level === "all" ? "bytes of each level"
      : level === "requested" || level === "compulsory" ? `${label} bytes` : `bytes at ${label}`;
    group.append(svg("text", { class: "title", x: left + width / 2, y: this.height - 8, "text-anchor": "middle" },
      `Arithmetic intensity, FLOP/B${integers ? ", of integers OP/B" : ""} (${which})`));
    group.append(svg("text", { class: "title", x: 4, y: 14 },
      `Performance, FLOP/s${integers ? ", of integers OP/s" : ""}`));
  }

  // Draws the roofs; returns the line of each, in pixels, with boxes along it.
  drawRoofs(group) {
    const level = this.options.level();
    const bandwidths = this.roofs.filter((roof) => roof.kind === "bandwidth");
    const peaks = this.roofs.filter((roof) => roof.kind !== "bandwidth");
    const fastest = Math.max(...bandwidths.map((roof) => roof.value));
    const highest = Math.max(...peaks.map((roof) => roof.value));
    const ends = (roof, value) => {
      const [x0, x1] = this.shownView.x.map((power) => 10 ** power);
      const [y0, y1] = this.shownView.y.map((power) => 10 ** power);
      if (roof.kind !== "bandwidth") {
        const from = bandwidths.length ? Math.max(x0, value / fastest) : x0;
        return [[from, value], [x1, value], from < x1 && value >= y0 && value <= y1];
      }
      const to = Math.min(x1, (peaks.length ? Math.min(highest, y1) : y1) / value);
      const from = Math.max(x0, y0 / value);
      return [[from, from * value], [to, to * value], from < to];
    };
    const lines = [];
    for (const roof of [...peaks, ...bandwidths]) {
      const plain = level === "all" || roof.kind !== "bandwidth" || roof.key === level;
      const looks = plain ? "roof" : "roof other";
      if (roof.reached) {
        const [[x1, y1], [x2, y2], seen] = ends(roof, roof.reached);
        if (seen) group.append(svg("line", { class: `${looks} reached`, x1: this.x(x1), y1: this.y(y1), x2: this.x(x2), y2: this.y(y2) }));
      }
      const [from, to, seen] = ends(roof, roof.value);
      if (!seen) continue;
      const [a, b] = [from, to].map(([x, y]) => [this.x(x), this.y(y)]);
      group.append(svg("line", { class: looks, "data-roof": roof.key, x1: a[0], y1: a[1], x2: b[0], y2: b[1] }));
      lines.push({ roof, a, b, faded: !plain, boxes: lineBoxes(a, b) });
    }
    return lines;
  }

  // Draws lines and markers of the runs; returns the boxes of the markers in view.
  drawRuns(group, drawn) {
    const taken = [];
    for (const { run, points } of drawn) {
      if (!points.length) continue;
      const place = this.places.get(run.key);
      const link = svg("a", {
        class: "run", href: `#run-${run.key}`, "data-key": run.key, style: runColor(place),
        "aria-label": this.description(run),
      });
      const at = points.map((point) => ({ ...point, px: this.x(point.x), py: this.y(point.y) }));
      if (at.length > 1) {
        const xs = at.map((point) => point.px);
        link.append(svg("line", { class: "span", x1: Math.min(...xs), x2: Math.max(...xs), y1: at[0].py, y2: at[0].py }));
      }
      for (const point of at) {
        link.append(svg("g", { class: "point", "data-level": point.level, transform: `translate(${point.px.toFixed(1)},${point.py.toFixed(1)})` },
          svg("circle", { class: "halo", r: MARK_RADIUS + 5 }), marker(run, place, MARK_RADIUS),
          run.verified === "failed" ? svg("path", { class: "wrong", d: "M-9,-9L9,9M-9,9L9,-9" }) : null));
        const box = [point.px - MARK_RADIUS - 1, point.py - MARK_RADIUS - 1, 2 * MARK_RADIUS + 2, 2 * MARK_RADIUS + 2];
        if (overlap(box, this.frame)) taken.push(box);
      }
      group.append(link);
    }
    return taken;
  }

  // Draws an arrow from run A to run B of each comparison at every shown level.
  drawArrows(group, drawn) {
    const points = new Map(drawn.map(({ run, points: each }) => [run.key, each]));
    for (const [from, to] of this.data.arrows) {
      for (const a of points.get(from) ?? []) {
        const b = (points.get(to) ?? []).find((point) => point.level === a.level);
        if (!b) continue;
        const [x1, y1, x2, y2] = [this.x(a.x), this.y(a.y), this.x(b.x), this.y(b.y)];
        const length = Math.hypot(x2 - x1, y2 - y1);
        if (length < 3 * MARK_RADIUS) continue; // the markers touch
        const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
        const tip = [x2 - dx * (MARK_RADIUS + 4), y2 - dy * (MARK_RADIUS + 4)];
        const base = [tip[0] - dx * 8, tip[1] - dy * 8];
        group.append(
          svg("line", { class: "arrow", x1: x1 + dx * (MARK_RADIUS + 3), y1: y1 + dy * (MARK_RADIUS + 3), x2: base[0], y2: base[1] }),
          svg("path", { class: "arrow-head", d: `M${tip}L${base[0] - dy * 4},${base[1] + dx * 4}L${base[0] + dy * 4},${base[1] - dx * 4}z` }),
        );
      }
    }
  }

  labelRoofs(group, lines, taken) {
    const height = this.fontSize + 2;
    for (const { roof, a, b, faded } of lines) {
      const reached = roof.reached ? `, ${siNumber(Number(roof.reached.toPrecision(3)))}${roof.unit} measured` : "";
      const text = `${roof.label} ${roof.text}${reached}`;
      const width = measureText(text, `500 ${this.fontSize}px ${FONT}`) + 4;
      const angle = Math.atan2(b[1] - a[1], b[0] - a[0]);
      const length = Math.hypot(b[0] - a[0], b[1] - a[1]);
      const room = length - width - 6;
      if (room < 0) continue;
      const steps = Array.from({ length: Math.floor(room / 8) + 1 }, (_, index) => index * 8 + 4);
      if (roof.kind !== "bandwidth") steps.reverse();
      for (const [step, offset] of [-5, height + 3].flatMap((each) => steps.map((step) => [step, each]))) {
        const corner = [
          a[0] + step * Math.cos(angle) - offset * Math.sin(angle),
          a[1] + step * Math.sin(angle) + offset * Math.cos(angle),
        ];
        const boxes = turnedBoxes(corner, [width, height], angle);
        if (boxes.some((box) => !inside(box, this.frame) || taken.some((other) => overlap(box, other)))) continue;
        taken.push(...boxes);
        group.append(svg("text", {
          class: faded ? "roof-label other" : "roof-label",
          transform: `translate(${corner[0].toFixed(1)},${corner[1].toFixed(1)}) rotate(${(angle * 180 / Math.PI).toFixed(2)})`,
        }, svg("title", {}, `${roof.label}: ${roof.text}, ${roof.provenance}`), text));
        break;
      }
    }
  }

  // Names the runs next to their last point; where a name has no room, by their place in the table.
  labelRuns(group, drawn, taken, lines) {
    const height = this.fontSize + 3;
    const named = drawn.filter(({ points }) => points.length).map((entry) => {
      const last = entry.points.reduce((best, point) => (point.x > best.x ? point : best));
      return { ...entry, at: [this.x(last.x), this.y(last.y)] };
    }).filter(({ at }) => overlap([...at, 0.1, 0.1], this.frame));
    const spans = drawn.filter(({ points }) => points.length > 1).flatMap(({ points }) => {
      const xs = points.map((point) => this.x(point.x));
      const y = this.y(points[0].y);
      return lineBoxes([Math.min(...xs), y], [Math.max(...xs), y]);
    });
    const avoided = [...lines, ...spans];
    const names = named.map(({ run }) => elided(run.label, LABEL_CHARACTERS));
    for (const { run, at } of named.sort((one, other) => one.at[1] - other.at[1])) {
      const name = elided(run.label, LABEL_CHARACTERS);
      const wrong = run.verified === "failed" ? " ✗ wrong" : "";
      const isClear = names.filter((other) => other === name).length === 1;
      for (const text of [...(isClear ? [name + wrong] : []), `#${this.places.get(run.key) + 1}${wrong}`]) {
        const size = [measureText(text, `600 ${this.fontSize}px ${FONT}`) + 2, height];
        const found = placeAround(at, size, this.frame, taken, avoided);
        if (found === null) continue;
        taken.push(found.box);
        avoided.push(...leaderBoxes(at, found.box, found.distance));
        const [x, y] = found.box;
        const label = svg("g", { class: "label", "data-key": run.key, style: runColor(this.places.get(run.key)) });
        if (found.distance > LEADER_DISTANCE) {
          const near = leaderEnd(at, found.box);
          label.append(svg("line", { class: "leader", x1: at[0], y1: at[1], x2: near[0], y2: near[1] }));
        }
        label.append(svg("text", { x: x + 1, y: y + height - 4 }, text));
        group.append(label);
        break;
      }
    }
    this.tagLevels(group, drawn, taken);
  }

  // Names the level of each point where all levels are drawn and there is room.
  tagLevels(group, drawn, taken) {
    if (this.levels.length < 2) return;
    const size = this.fontSize - 2.5;
    for (const { run, points } of drawn) {
      for (const { level, x, y } of points) {
        const width = measureText(LEVEL_TAGS[level], `${size}px ${FONT}`);
        const at = [this.x(x), this.y(y)];
        for (const below of [false, true]) {
          const box = [at[0] - width / 2, below ? at[1] + 9 : at[1] - 9 - size, width, size];
          if (!inside(box, this.frame) || taken.some((other) => overlap(box, other))) continue;
          taken.push(box);
          group.append(svg("text", {
            class: "tag", "data-key": run.key, "font-size": size, "text-anchor": "middle",
            x: at[0], y: box[1] + size - 1.5,
          }, LEVEL_TAGS[level]));
          break;
        }
      }
    }
  }

  writeNote(drawn) {
    const parts = [];
    const name = ({ run }) => run.label;
    const without = drawn.filter(({ run }) => !(run.flops > 0)).map(name);
    const unplaced = drawn.filter(({ run, points }) => run.flops > 0 && !points.length).map(name);
    if (!this.device.roofs.length) parts.push("The roofs of this device are not known here.");
    if (without.length) parts.push(`Not on the chart, since they do no FLOPs: ${without.join(", ")}.`);
    if (unplaced.length) parts.push(`Not on the chart, since they move no bytes there: ${unplaced.join(", ")}.`);
    const outside = drawn.filter(({ points }) => points.length && !points.some((point) =>
      overlap([this.x(point.x), this.y(point.y), 0.1, 0.1], this.frame))).map(name);
    if (outside.length) parts.push(`Out of view: ${outside.join(", ")}.`);
    if (!drawn.length) parts.push("No run is selected.");
    this.note.textContent = parts.join(" ");
  }

  description(run) {
    const verified = run.verified === "failed" ? ", its output is wrong" : "";
    return `${run.label}: ${run.time} ${run.timeNote}, ${run.rate}, ${run.roofText}, bound by ${run.bound}${verified}`;
  }

  link(key) {
    return key === null ? null : all("a.run", this.host).find((link) => link.dataset.key === key);
  }

  // Marks a run, and unmarks the one before; null marks none.
  mark(key) {
    this.active = key;
    this.host.classList.toggle("has-active", key !== null && this.link(key) !== undefined);
    for (const element of all("[data-key]", this.host)) {
      element.classList.toggle("active", element.dataset.key === key);
    }
    this.layers.guide.replaceChildren();
    const run = this.data.runs.find((each) => each.key === key);
    if (run && this.link(key)) this.drawGuide(run);
    this.options.marked?.(key);
  }

  // A dotted line from a run up to its lowest roof.
  drawGuide(run) {
    const roof = this.device.roofs.find((each) => each.key === run.roof);
    const level = run.levels[run.roof] ? run.roof : this.levels[0];
    const x = run.levels[level]?.x;
    if (!roof || !(x > 0) || !(run.roofFlops > run.flops) || !this.levels.includes(level)) return;
    const [px, from, to] = [this.x(x), this.y(run.flops), this.y(run.roofFlops)];
    this.layers.guide.append(
      svg("line", { class: "gap", style: runColor(this.places.get(run.key)), x1: px, x2: px, y1: from, y2: to }),
    );
  }

  // Shows the figures of a run in a card next to a place of the chart.
  showCard(key, near = null) {
    const run = this.data.runs.find((each) => each.key === key);
    this.mark(key);
    if (!run || !this.link(key)) return this.hideCard();
    const points = all(".point", this.link(key)).map((point) => point.getBoundingClientRect());
    const chosen = this.levels.map((level) => run.levels[level]).filter(Boolean);
    const rows = this.data.levels.filter(({ key: level }) => run.levels[level]).map(({ key: level, label }) =>
      html("tr", { class: chosen.length === 1 && this.options.level() === level ? "chosen" : null },
        html("th", { scope: "row" }, label), html("td", {}, run.levels[level].bytes),
        html("td", {}, run.levels[level].text)));
    this.card.replaceChildren(
      html("p", { class: "name", style: runColor(this.places.get(key)) },
        keyPicture(run, this.places.get(key)), html("strong", {}, run.label)),
      html("p", { class: "quiet" }, run.kernel + (run.parameters ? `, ${run.parameters}` : "")),
      html("dl", {},
        html("dt", {}, "time"), html("dd", {}, `${run.time} `, html("small", {}, run.timeNote)),
        html("dt", {}, "rate"), html("dd", {}, run.rate),
        html("dt", {}, "roof"), html("dd", { class: run.invalid ? "bad" : null }, run.roofText),
        html("dt", {}, "bound by"), html("dd", {}, run.bound),
        html("dt", {}, "output"), html("dd", { class: run.verified === "failed" ? "bad" : null },
          run.verified === "skipped" ? "not verified" : run.verified)),
      rows.length ? html("table", {}, html("thead", {}, html("tr", {}, html("td"),
        html("th", { scope: "col" }, "bytes"), html("th", { scope: "col" }, `${run.operation}/B`))),
      html("tbody", {}, ...rows)) : "",
      html("p", { class: "quiet hint" }, "Enter or click: details"),
    );
    this.card.hidden = false;
    this.placeCard(points, near);
  }

  // Puts the card beside a marker, where it covers the fewest of the run's other markers.
  placeCard(points, near) {
    const host = this.card.offsetParent.getBoundingClientRect();
    const centres = points.map((box) => [box.x + box.width / 2 - host.x, box.y + box.height / 2 - host.y]);
    const rightmost = centres.reduce((best, each) => (each[0] > best[0] ? each : best));
    const [x, y] = near ? [near[0] - host.x, near[1] - host.y] : rightmost;
    const [width, height, gap] = [this.card.offsetWidth, this.card.offsetHeight, 18];
    const within = (value, most) => Math.max(0, Math.min(value, most));
    const [left, top] = [
      [x + gap, y - height / 2], [x - gap - width, y - height / 2],
      [x - width / 2, y + gap], [x - width / 2, y - gap - height],
    ].map(([wantedLeft, wantedTop]) => {
      const box = [within(wantedLeft, host.width - width), within(wantedTop, host.height - height), width, height];
      const covered = centres.filter(([cx, cy]) => overlap([cx - 7, cy - 7, 14, 14], box)).length;
      const coversThis = overlap([x - 9, y - 9, 18, 18], box) ? 10 : 0;
      return [...box, covered + coversThis];
    }).reduce((best, each) => (each[4] < best[4] ? each : best));
    this.card.style.left = `${left}px`;
    this.card.style.top = `${top}px`;
  }

  hideCard() {
    this.card.hidden = true;
    this.mark(null);
  }

  // The key of the run whose marker is nearest to a place on the screen, within reach.
  nearest(clientX, clientY) {
    let best = [HOVER_PIXELS, null, null];
    for (const point of all("a.run .mark", this.host)) {
      const box = point.getBoundingClientRect();
      const centre = [box.x + box.width / 2, box.y + box.height / 2];
      const distance = Math.hypot(centre[0] - clientX, centre[1] - clientY);
      if (distance < best[0]) best = [distance, point.closest("a").dataset.key, centre];
    }
    return best;
  }

  setView(view) {
    this.view = view;
    this.draw();
    this.options.viewChanged();
  }

  // Zooms around a place, given as shares of the frame; a factor below 1 zooms in.
  zoom(factor, [across, up] = [0.5, 0.5]) {
    const whole = this.wholeView();
    const about = ([low, high], share) => {
      const [centre, span] = [low + share * (high - low), (high - low) * factor];
      return [centre - share * span, centre + (1 - share) * span];
    };
    const view = { x: about(this.shownView.x, across), y: about(this.shownView.y, up) };
    const span = ([low, high]) => high - low;
    if (Math.min(span(view.x), span(view.y)) < LEAST_SPAN) return;
    const isWhole = span(view.x) >= span(whole.x) || span(view.y) >= span(whole.y);
    this.setView(isWhole ? null : view);
  }

  move(across, up) {
    const whole = this.wholeView();
    const by = ([low, high], share, [least, most]) => {
      const span = high - low;
      const start = Math.max(least - span / 2, Math.min(low + share * span, most - span / 2));
      return [start, start + span];
    };
    this.setView({
      x: by(this.shownView.x, across, whole.x), y: by(this.shownView.y, up, whole.y),
    });
  }

  // Zooms to the shown runs.
  fit() {
    const points = this.runs().flatMap(({ points: each }) => each);
    if (!points.length) return this.setView(null);
    const around = (values) => {
      const powers = values.map(Math.log10);
      const [low, high] = [Math.min(...powers), Math.max(...powers)];
      const pad = Math.max(0.25 * (high - low), 0.35);
      return [low - pad, high + pad];
    };
    return this.setView({ x: around(points.map(({ x }) => x)), y: around(points.map(({ y }) => y)) });
  }

  // Moves the focus to the next run in a direction.
  step(key, direction) {
    const axis = direction === "ArrowLeft" || direction === "ArrowRight" ? 0 : 1;
    const sign = direction === "ArrowRight" || direction === "ArrowDown" ? 1 : -1;
    const order = all("a.run", this.host).map((link) => {
      const box = all(".point", link).map((point) => point.getBoundingClientRect())
        .reduce((best, each) => (each.x > best.x ? each : best));
      return { link, at: [box.x, box.y][axis] };
    }).sort((one, other) => one.at - other.at);
    const index = order.findIndex(({ link }) => link.dataset.key === key);
    order[(index + sign + order.length) % order.length]?.link.focus();
  }

  act(name) {
    if (name === "in") this.zoom(1 / 1.5);
    else if (name === "out") this.zoom(1.5);
    else if (name === "fit") this.fit();
    else if (name === "reset") this.setView(null);
    else return false;
    return true;
  }

  listen() {
    const { host } = this;
    let drag = null;
    let armed = false; // a wheel that scrolls the page past the chart does not zoom
    const share = (event) => {
      const box = host.getBoundingClientRect();
      const [left, top, width, height] = this.frame;
      return [(event.clientX - box.x - left) / width, 1 - (event.clientY - box.y - top) / height];
    };
    window.addEventListener("scroll", () => { armed = false; }, { passive: true });
    host.addEventListener("pointermove", (event) => {
      if (event.movementX || event.movementY) armed = true;
      if (drag) {
        const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
        if (!drag.moved && Math.hypot(dx, dy) < 4) return;
        drag.moved = true;
        this.hideCard();
        host.classList.add("dragging");
        this.move(-dx / this.frame[2], dy / this.frame[3]);
        [drag.x, drag.y] = [event.clientX, event.clientY];
        return;
      }
      if (event.pointerType === "touch") return;
      const [, key, centre] = this.nearest(event.clientX, event.clientY);
      host.classList.toggle("on-point", key !== null);
      if (key === null) { if (!this.card.hidden || this.active !== null) this.hideCard(); } else if (key !== this.active || this.card.hidden) this.showCard(key, centre);
    });
    host.addEventListener("pointerleave", () => {
      armed = false;
      if (!drag && !host.contains(document.activeElement)) this.hideCard();
    });
    host.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, y: event.clientY, moved: false, id: event.pointerId };
    });
    window.addEventListener("pointerup", () => {
      host.classList.remove("dragging");
      if (drag?.moved) setTimeout(() => { drag = null; }); // after the click that follows
      else drag = null;
    });
    window.addEventListener("pointercancel", () => { drag = null; });
    host.addEventListener("dragstart", (event) => event.preventDefault());
    host.addEventListener("click", (event) => {
      const [, key, centre] = this.nearest(event.clientX, event.clientY);
      const link = event.target.closest("a.run")?.dataset.key;
      event.preventDefault();
      event.stopPropagation();
      if (drag?.moved) return;
      const chosen = event.detail === 0 ? link : key ?? link;
      if (chosen === undefined || chosen === null) this.hideCard();
      else if (event.pointerType === "touch" && (this.card.hidden || this.active !== chosen)) this.showCard(chosen, centre);
      else this.options.go(chosen);
    });
    host.addEventListener("wheel", (event) => {
      const out = event.deltaY > 0;
      if (!armed && !event.ctrlKey && !event.metaKey) return;
      if (out && this.view === null) return; // the page scrolls on
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004), share(event));
    }, { passive: false });
    host.addEventListener("dblclick", (event) => {
      if (this.nearest(event.clientX, event.clientY)[1] === null) this.zoom(1 / 2, share(event));
    });
    host.addEventListener("focusin", (event) => {
      const key = event.target.closest("a.run")?.dataset.key;
      if (key !== undefined && event.target.matches(":focus-visible")) this.showCard(key);
    });
    host.addEventListener("focusout", () => this.hideCard());
    const figure = host.closest("figure");
    figure.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const key = event.target.closest?.("a.run")?.dataset.key;
      const action = { "+": "in", "=": "in", "-": "out", _: "out", f: "fit", 0: "reset" }[event.key];
      const pan = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (event.key === "Escape") this.hideCard();
      else if (action) this.act(action);
      else if (pan && event.shiftKey) this.move(...pan);
      else if (pan && key !== undefined) this.step(key, event.key);
      else return;
      event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !this.card.hidden) this.hideCard();
    });
    figure.querySelector(".buttons").addEventListener("click", (event) => {
      this.act(event.target.closest("button")?.dataset.do);
    });
  }
}

// A small picture of a run's marker, for tables and cards.
function keyPicture(run, place) {
  return svg("svg", { class: "key-picture", viewBox: "-10 -10 20 20", width: 18, height: 18, "aria-hidden": "true", style: runColor(place) },
    marker(run, place, MARK_RADIUS + 0.5));
}
