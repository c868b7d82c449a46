// The strip: every decision of an input a column. One byte each (see journal/overview.py); sums by 16, 256, ... make any zoom quick.
import { h, count, colour, fit, plural, redrawn, share } from "./dom.js";

const FAN = 16, BARS = 84, LANE = 17, RULER = 18;
// Each lane has a shape besides its colour, and a row of its own.
export const LANES = [
  ["flagged", "▲", (byte) => (byte & 16) !== 0],
  ["outvoted", "◆", (byte) => (byte & 32) !== 0],
  ["climbed", "↥", (byte) => byte >> 6 === 2],
  ["settled", "●", (byte) => byte >> 6 === 3],
  ["undecided", "◇", (byte) => byte >> 6 === 1],
];

const WRONG = LANES.length;

export class Strip {
  constructor(host, { label, open, unit = "step", from = null, wrongName = "wrong" }) {
    Object.assign(this, { label, open, unit, wrongName, steps: new Uint8Array(0), wrong: new Uint8Array(0), at: 0, from: 0, to: 1, total: 0 });
    this.wanted = from;
    this.overview = h("canvas", { "aria-hidden": "true" });
    this.canvas = h("canvas", { class: "lens", tabindex: "0", role: "slider", "aria-label": `${unit}s of this run`, "aria-valuemin": "0" });
    this.readout = h("p", { class: "readout" });
    this.legend = h("ul", { class: "legend" });
    const button = (text, name, act) => h("button", { type: "button", title: name, "aria-label": name, onclick: act }, text);
    this.tools = h("div", { class: "tools" }, button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)),
      button("All", "Show all", () => this.show(0, this.n)), this.span = h("span", { class: "soft" }));
    host.append(this.tools, h("div", { class: "strip" }, this.overview, this.canvas), this.readout, this.legend);
    this.listen();
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(host);
    redrawn(this.canvas, () => this.draw());
  }

  // The number of steps, also of those to come.
  get n() { return Math.max(this.steps.length, this.total); }

  set(steps, wrong, total = 0) {
    const atEnd = this.to >= this.n, isFirst = !this.steps.length;
    this.steps = steps;
    this.total = total ?? 0;
    if (wrong) this.mark(wrong);
    if (this.wrong.length < steps.length) { const longer = new Uint8Array(steps.length); longer.set(this.wrong); this.wrong = longer; }
    this.lanes = [...LANES.map(([name, shape, test]) => [name, shape, test]), [this.wrongName, "✕", null]];
    this.build();
    if (isFirst && this.wanted) [this.from, this.to] = this.wanted;
    else if (isFirst || (atEnd && this.from === 0)) [this.from, this.to] = [0, Math.max(1, this.n)];
    else if (atEnd) { const width = this.to - this.from; this.to = this.n; this.from = Math.max(0, this.to - width); }
    this.clamp();
    this.canvas.setAttribute("aria-valuemax", Math.max(0, steps.length - 1));
    this.writeLegend();
    this.point(Math.min(this.at, Math.max(0, steps.length - 1)));
  }

  mark(numbers) {
    this.wrong = new Uint8Array(Math.max(this.steps.length, this.wrong.length));
    for (const each of numbers) this.wrong[each] = 1;
  }

  build() {
    // Level by level: for FAN entries below, the sum and the most of the samples, and how many are in each lane.
    const kinds = this.lanes.length, n = this.steps.length;
    let size = Math.ceil(n / FAN);
    let level = { bin: FAN, sum: new Uint32Array(size), most: new Uint8Array(size), in: this.lanes.map(() => new Uint32Array(size)) };
    const { steps, wrong } = this, inLane = level.in;
    for (let i = 0; i < n; i++) {
      const byte = steps[i], samples = byte & 15, j = i >> 4;
      level.sum[j] += samples;
      if (samples > level.most[j]) level.most[j] = samples;
      if (byte > 15) {
        if (byte & 16) inLane[0][j]++;
        if (byte & 32) inLane[1][j]++;
        const state = byte >> 6;
        if (state) inLane[state === 1 ? 4 : state === 2 ? 2 : 3][j]++;
      }
      if (wrong[i]) inLane[5][j]++;
    }
    this.levels = [level];
    while (size > FAN) {
      const below = level, next = Math.ceil(size / FAN);
      level = { bin: below.bin * FAN, sum: new Uint32Array(next), most: new Uint8Array(next), in: this.lanes.map(() => new Uint32Array(next)) };
      for (let i = 0; i < size; i++) {
        const j = i >> 4;
        level.sum[j] += below.sum[i];
        if (below.most[i] > level.most[j]) level.most[j] = below.most[i];
        for (let kind = 0; kind < kinds; kind++) level.in[kind][j] += below.in[kind][i];
      }
      size = next;
      this.levels.push(level);
    }
    this.totals = this.lanes.map((_, kind) => level.in[kind].reduce((sum, each) => sum + each, 0));
    this.most = Math.max(1, ...level.most);
  }

  // The steps from a to b: sum and most of samples, and how many are in each lane.
  gather(a, b, found) {
    found.fill(0);
    let i = a;
    const step = () => {
      const byte = this.steps[i], samples = byte & 15, state = byte >> 6;
      found[0] += samples;
      if (samples > found[1]) found[1] = samples;
      if (byte & 16) found[2]++;
      if (byte & 32) found[3]++;
      if (state) found[state === 1 ? 6 : state === 2 ? 4 : 5]++;
      if (this.wrong[i]) found[7]++;
      i++;
    };
    while (i < b) {
      let level = null;
      for (const each of this.levels) { if (i % each.bin === 0 && i + each.bin <= b) level = each; else break; }
      if (!level) { step(); continue; }
      const j = i / level.bin;
      found[0] += level.sum[j];
      if (level.most[j] > found[1]) found[1] = level.most[j];
      for (let kind = 0; kind < this.lanes.length; kind++) found[2 + kind] += level.in[kind][j];
      i += level.bin;
    }
  }

  draw() {
    if (this.waits) return;
    this.waits = requestAnimationFrame(() => { this.waits = 0; if (this.canvas.isConnected) this.paint(); });
  }

  paint() {
    const shown = this.lanes?.map((each, index) => [...each, index]).filter((_, index) => this.totals[index]) ?? [];
    const height = BARS + RULER + LANE * shown.length;
    const [c, width] = fit(this.canvas, height);
    this.width = width;
    const n = this.steps.length;
    if (!n) return;
    const inks = { votes: colour("votes"), most: colour("most"), ink: colour("ink"), soft: colour("soft"), line: colour("line"), faint: colour("faint"), accent: colour("accent") };
    c.font = "12px system-ui, sans-serif";
    const perPixel = (this.to - this.from) / width, found = new Float64Array(8), scale = (BARS - 14) / this.most;
    c.fillStyle = inks.faint;
    shown.forEach((_, row) => { if (row % 2 === 0) c.fillRect(0, BARS + RULER + row * LANE, width, LANE); });
    const laneInks = shown.map(([name]) => colour(name) || colour("wrong"));
    let highest = null;
    const cell = (x, w, total) => {
      const gap = w >= 4 ? 1 : 0, mean = total ? (found[0] / total) * scale : 0, top = found[1] * scale;
      c.fillStyle = inks.votes; c.fillRect(x, BARS - mean, w - gap, mean);
      if (top > mean + 0.5) { c.fillStyle = inks.most; c.fillRect(x, BARS - top, w - gap, total === 1 ? top : Math.min(3, top)); }
      shown.forEach(([, shape, , index], row) => {
        if (!found[2 + index]) return;
        const y = BARS + RULER + row * LANE;
        c.fillStyle = laneInks[row];
        if (w >= 10) { c.textAlign = "center"; c.textBaseline = "middle"; c.fillText(shape, x + w / 2, y + LANE / 2); return; }
        // A column of many steps shows their share, beside the highest of all columns: a mark each would be a solid line.
        const part = Math.max(0.12, found[2 + index] / total / (highest?.[row] ?? 1));
        c.fillRect(x, y + (LANE - 3) * (1 - part) + 2, Math.max(1, w - gap), (LANE - 3) * part);
      });
    };
    if (perPixel < 1) {
      const w = 1 / perPixel, last = Math.min(n, Math.ceil(this.to));
      for (let i = Math.max(0, Math.floor(this.from)); i < last; i++) {
        this.gather(i, i + 1, found);
        cell((i - this.from) * w, w, 1);
        if (w >= 18 && found[0]) { c.fillStyle = inks.ink; c.textAlign = "center"; c.textBaseline = "bottom"; c.fillText(found[0] >= 15 ? "15+" : found[0], (i - this.from + 0.5) * w, BARS - found[1] * scale - 1); }
      }
    } else {
      // Aligned to whole entries of the level that fits, so that a column does not flicker while it moves.
      const bin = Math.max(1, ...this.levels.map((each) => each.bin).filter((each) => each <= perPixel));
      const columns = (draw) => {
        for (let x = 0; x < width; x++) {
          const a = Math.floor((this.from + x * perPixel) / bin) * bin, b = Math.min(n, Math.max(a + bin, Math.floor((this.from + (x + 1) * perPixel) / bin) * bin));
          if (a >= n) break;
          this.gather(a, b, found);
          draw(x, b - a);
        }
      };
      const most = shown.map(() => 0);
      columns((_, total) => shown.forEach(([, , , index], row) => { most[row] = Math.max(most[row], found[2 + index] / total); }));
      highest = most;
      columns((x, total) => cell(x, 1, total));
      c.textAlign = "right"; c.textBaseline = "middle"; c.fillStyle = inks.soft;
      shown.forEach((_, row) => { if (most[row] < 1) c.fillText(`≤ ${share(most[row], 1)}`, width - 3, BARS + RULER + row * LANE + LANE / 2); });
    }
    c.fillStyle = inks.line; c.fillRect(0, BARS, width, 1);
    this.ruler(c, width, inks);
    const x = (this.at + 0.5 - this.from) / perPixel;
    if (x >= 0 && x <= width) { c.fillStyle = inks.accent; c.fillRect(Math.round(x) - 0.5, 0, 1, height); c.beginPath(); c.moveTo(x - 5, 0); c.lineTo(x + 5, 0); c.lineTo(x, 6); c.fill(); }
    this.paintOverview(inks);
    this.span.textContent = this.to - this.from >= this.n ? (n < this.n ? `${count(n)} of ${plural(this.n, this.unit)}` : `all ${plural(n, this.unit)}`) : `${this.unit}s ${count(Math.floor(this.from))} to ${count(Math.min(n, Math.ceil(this.to)) - 1)} of ${count(n)}`;
  }

  ruler(c, width, inks) {
    const span = this.to - this.from, wished = span / Math.max(2, width / 110);
    let unit = 10 ** Math.floor(Math.log10(Math.max(1, wished)));
    unit *= [1, 2, 5, 10].find((each) => unit * each >= wished) ?? 10;
    c.fillStyle = inks.soft; c.textBaseline = "top";
    for (let i = Math.ceil(this.from / unit) * unit; i < Math.min(this.to, this.n); i += unit) {
      const x = ((i + (span < width ? 0.5 : 0) - this.from) / span) * width;
      c.fillRect(x, BARS, 1, 4);
      c.textAlign = x < 30 ? "left" : x > width - 30 ? "right" : "center";
      c.fillText(count(i), x, BARS + 5);
    }
  }

  paintOverview(inks) {
    const { n } = this, [c, width] = fit(this.overview, 14);
    c.fillStyle = inks.faint; c.fillRect(0, 4, width, 6);
    const x = (this.from / n) * width, w = Math.max(3, ((Math.min(this.to, n) - this.from) / n) * width);
    c.fillStyle = inks.most; c.fillRect(x, 4, w, 6);
    c.fillStyle = inks.accent; c.fillRect((this.at / n) * width - 0.5, 1, 2, 12);
  }

  writeLegend() {
    const items = [h("li", { class: "soft" }, `bar: mean of samples; line: most (${this.most}${this.most >= 15 ? " or more" : ""})`)];
    this.lanes.forEach(([name, shape], index) => {
      if (!this.totals[index]) return;
      items.push(h("li", null, h("button", { type: "button", class: name, title: `Go to the next one (n, shift+n)`, onclick: () => this.next(index, 1) },
        `${shape} ${name} ${count(this.totals[index])}`), h("span", { class: "soft" }, ` ${share(this.totals[index], this.steps.length)}`)));
    });
    this.legend.replaceChildren(...items);
  }

  describe(i) {
    const byte = this.steps[i];
    if (byte === undefined) return "";
    const marks = this.lanes.filter(([, , test]) => (test ? test(byte) : this.wrong[i])).map(([name, shape]) => `${shape} ${name}`);
    const samples = byte & 15;
    return [samples ? `${samples}${samples === 15 ? " or more samples" : samples === 1 ? " sample" : " samples"}` : "not decided yet", ...marks].join(", ");
  }

  point(i, scroll = false) {
    this.at = Math.max(0, Math.min(this.steps.length - 1, i));
    if (scroll && (this.at < this.from || this.at >= this.to)) { const width = this.to - this.from; this.from = this.at - width / 2; this.to = this.from + width; this.clamp(); }
    const text = this.describe(this.at);
    this.canvas.setAttribute("aria-valuenow", this.at);
    this.canvas.setAttribute("aria-valuetext", `${this.label(this.at)}: ${text}`);
    this.readout.replaceChildren(...(this.steps.length ? [this.open ? h("a", { href: this.open(this.at) }, this.label(this.at)) : this.label(this.at), ` ${text}`] : []));
    this.draw();
  }

  next(kind, way) {
    const test = (i) => (kind === null ? this.steps[i] > 15 || this.wrong[i] : kind === WRONG ? this.wrong[i] : this.lanes[kind][2](this.steps[i]));
    for (let i = this.at + way, left = this.steps.length; left > 0; left--, i += way) {
      i = (i + this.steps.length) % this.steps.length;
      if (test(i)) { if (this.to - this.from > 400) this.show(i - 40, i + 41); this.point(i, true); return; }
    }
  }

  // The lane of the wrong ones, if there are any; else all lanes.
  get mostTelling() { return this.totals[WRONG] ? WRONG : null; }

  show(from, to) { this.from = from; this.to = to; this.clamp(); this.remember(); this.draw(); }

  clamp() {
    const { n } = this, width = Math.max(8, Math.min(this.to - this.from, Math.max(8, n)));
    this.from = Math.max(0, Math.min(this.from, Math.max(0, n - width)));
    this.to = this.from + width;
  }

  zoom(by, around = this.at >= this.from && this.at < this.to ? this.at + 0.5 : (this.from + this.to) / 2) {
    const width = Math.max(8, (this.to - this.from) * by);
    const left = (around - this.from) / (this.to - this.from);
    this.show(around - left * width, around - left * width + width);
  }

  remember() {
    clearTimeout(this.later);
    const all = this.from <= 0 && this.to >= this.n;
    this.later = setTimeout(() => { if (this.canvas.isConnected) history.replaceState(history.state, "", all ? location.pathname + location.search : `#${Math.floor(this.from)}-${Math.ceil(this.to)}`); }, 250);
  }

  listen() {
    const step = (event) => this.from + ((event.clientX - this.canvas.getBoundingClientRect().left) / this.width) * (this.to - this.from);
    const fingers = new Map();
    let moved = 0;
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { const by = (event.deltaX / this.width) * (this.to - this.from); this.show(this.from + by, this.to + by); }
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 200), step(event));
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, event.clientX); moved = 0; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!fingers.size) { if (event.pointerType === "mouse") this.point(Math.floor(step(event))); return; }
      if (!fingers.has(event.pointerId)) return;
      const before = fingers.get(event.pointerId), scale = (this.to - this.from) / this.width;
      if (fingers.size === 1) { moved += Math.abs(event.clientX - before); const by = (before - event.clientX) * scale; this.show(this.from + by, this.to + by); }
      else {
        const other = [...fingers].find(([id]) => id !== event.pointerId)[1], now = Math.abs(event.clientX - other);
        if (now > 4) this.zoom(Math.abs(before - other) / now, step(event));
        moved = 99;
      }
      fingers.set(event.pointerId, event.clientX);
    });
    const up = (event) => { if (fingers.delete(event.pointerId) && event.type === "pointerup" && moved < 4) this.point(Math.floor(step(event))); };
    this.canvas.addEventListener("pointerup", up);
    this.canvas.addEventListener("pointercancel", up);
    this.canvas.addEventListener("dblclick", () => this.go());
    this.canvas.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.floor((this.to - this.from) / 10));
      const keys = {
        ArrowLeft: () => this.point(this.at - (event.shiftKey ? page : 1), true), ArrowRight: () => this.point(this.at + (event.shiftKey ? page : 1), true),
        PageUp: () => this.point(this.at - page, true), PageDown: () => this.point(this.at + page, true), Home: () => this.point(0, true),
        End: () => this.point(this.steps.length - 1, true), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show(0, this.n),
        Enter: () => this.go(), n: () => this.next(this.mostTelling, 1), N: () => this.next(this.mostTelling, -1),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  go() { this.readout.querySelector("a")?.click(); }
}
