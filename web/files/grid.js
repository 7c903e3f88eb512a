// @ts-check
// The grid of ranks: one canvas, a cell for each rank, ranks of one host together. Above 40,000 ranks a cell is a host.
import { marks, unfold } from './marks.js';

const largest = 16, smallest = 4; // pixels of a cell
const edge = 3; // pixels around the grid, for the frame of a chosen cell
const perHostAbove = 40_000;
const order = Object.keys(marks); // the worst first

export class Grid {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(cell: number) => void} choose is told of the cell that a person chooses
   * @param {(cell: number) => void} point is told of the cell under the pointer, -1: none
   */
  constructor(canvas, choose, point) {
    this.canvas = canvas;
    /** @type {any} */ (canvas).grid = this; // for the console, and for tests
    this.paper = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false }));
    /** @type {string[]} marks of the ranks */
    this.ranks = [];
    /** @type {string[]} marks of the cells */
    this.cells = [];
    /** @type {{host: string, ranks: number}[]} */
    this.hosts = [];
    /** @type {string[]} marks as they are drawn; empty: nothing is */
    this.drawn = [];
    /** @type {number[]} ranks before each cell, where a cell is a host */
    this.first = [];
    this.chosen = -1;
    this.size = largest;
    this.xs = new Float32Array(0);
    this.ys = new Float32Array(0);
    /** @type {Record<string, string>} by mark */
    this.colours = {};
    this.layoutOf = ''; // which cells have their places; empty: none
    canvas.addEventListener('click', (e) => { const i = this.at(e); if (i >= 0) choose(i); });
    canvas.addEventListener('pointermove', (e) => point(this.at(e)));
    canvas.addEventListener('pointerleave', () => point(-1));
    new ResizeObserver(() => this.layout()).observe(/** @type {Element} */ (canvas.parentElement));
    this.recolour();
  }

  /** @param {string} states */
  setStates(states) {
    this.ranks = unfold(states);
    this.update();
  }

  /** @param {{host: string, ranks: number}[]} hosts */
  setHosts(hosts) {
    this.hosts = hosts;
    this.layoutOf = '';
    this.update();
  }

  /** byHost says whether a cell is a host. */
  get byHost() {
    return this.ranks.length > perHostAbove && this.hosts.length > 0;
  }

  update() {
    const { ranks } = this;
    if (this.byHost) {
      let at = 0;
      this.first = [];
      this.cells = this.hosts.map((h) => {
        this.first.push(at);
        let worst = order.length - 1;
        for (const end = at + h.ranks; at < end; at++) worst = Math.min(worst, order.indexOf(ranks[at]));
        return order[Math.max(0, worst)];
      });
    } else {
      this.cells = ranks;
    }
    const shape = `${this.cells.length} ${this.byHost}`;
    if (shape !== this.layoutOf) {
      this.layoutOf = shape;
      this.layout();
    } else {
      this.paint();
    }
  }

  /** rankOf is the first rank of a cell. @param {number} cell */
  rankOf(cell) {
    return this.byHost ? this.first[cell] : cell;
  }

  /** hostOf is the host of a rank, or empty. @param {number} rank */
  hostOf(rank) {
    for (const h of this.hosts) {
      if (rank < h.ranks) return h.host;
      rank -= h.ranks;
    }
    return '';
  }

  /** layout finds a place for each cell: as large as fits into half a screen, hosts with gaps between them. */
  layout() {
    const width = Math.max(100, /** @type {HTMLElement} */ (this.canvas.parentElement).clientWidth);
    const n = this.cells.length;
    const groups = this.byHost || this.hosts.length === 0 ? [n] : this.hosts.map((h) => h.ranks);
    this.size = largest;
    while (this.size > smallest && n * (this.size + 1) ** 2 > width * innerHeight * 0.4) this.size--;
    const pitch = this.size + 1, gap = Math.max(2, this.size >> 1);
    const xs = new Float32Array(n), ys = new Float32Array(n);
    let x = edge, y = edge, i = 0;
    for (const group of groups) {
      if (x > edge && x + group * pitch > width && group * pitch <= width) { x = edge; y += pitch; }
      for (let end = Math.min(n, i + group); i < end; i++) {
        if (x + pitch > width) { x = edge; y += pitch; }
        xs[i] = x; ys[i] = y;
        x += pitch;
      }
      if (groups.length > 1) x += gap;
    }
    this.xs = xs; this.ys = ys;
    const ratio = devicePixelRatio || 1, height = n ? y + pitch + edge : 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawn = [];
    this.paint();
  }

  /** recolour reads the colours of the theme again. */
  recolour() {
    const style = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    this.page = colour('--panel');
    this.text = colour('--text');
    this.colours = Object.fromEntries(order.map((m) => [m, colour(marks[m].colour)]));
    this.drawn = [];
    this.paint();
  }

  /** paint draws the cells that have changed. */
  paint() {
    const p = this.paper, all = this.drawn.length !== this.cells.length;
    if (all) {
      p.fillStyle = /** @type {string} */ (this.page);
      p.fillRect(0, 0, this.canvas.width, this.canvas.height);
    }
    for (let i = 0; i < this.cells.length; i++) {
      if (all || this.cells[i] !== this.drawn[i]) this.cell(i);
    }
    this.drawn = this.cells.slice();
    if (this.chosen >= 0 && this.chosen < this.cells.length) this.ring(this.chosen);
    this.canvas.dataset.cells = String(this.cells.length);
  }

  /** cell draws one cell: its colour, and the sign that says the same. @param {number} i */
  cell(i) {
    const p = this.paper, s = this.size, x = this.xs[i], y = this.ys[i], mark = this.cells[i];
    p.fillStyle = /** @type {string} */ (this.page);
    p.fillRect(x, y, s + 1, s + 1);
    p.fillStyle = this.colours[mark] ?? this.colours['.'];
    p.fillRect(x, y, s, s);
    p.fillStyle = p.strokeStyle = /** @type {string} */ (this.page);
    p.lineWidth = Math.max(1, s / 7);
    const m = s / 4, e = s - m, c = s / 2;
    p.beginPath();
    switch (mark) {
      case 'F': p.moveTo(x + m, y + m); p.lineTo(x + e, y + e); p.moveTo(x + e, y + m); p.lineTo(x + m, y + e); p.stroke(); break;
      case '!': p.moveTo(x + c, y + m); p.lineTo(x + e, y + e); p.lineTo(x + m, y + e); p.fill(); break;
      case '-': p.fillRect(x + 1, y + 1, s - 2, s - 2); p.fillStyle = this.colours[mark]; p.fillRect(x + m, y + c - 0.5, s - 2 * m, 1); break;
      case 'r': p.arc(x + c, y + c, c - m + 0.5, 0, 2 * Math.PI); p.stroke(); break;
      case 'm': p.moveTo(x + c, y + m); p.lineTo(x + e, y + c); p.lineTo(x + c, y + e); p.lineTo(x + m, y + c); p.closePath(); p.stroke(); break;
      case 'w': if (s > 2 * smallest) p.arc(x + c, y + c, Math.max(1, s / 8), 0, 2 * Math.PI); p.fill(); break;
      case 's': p.moveTo(x + m, y + m); p.lineTo(x + e, y + m); p.lineTo(x + c, y + e); p.fill(); break;
    }
  }

  /** ring draws a frame around a cell, over its neighbours, so that its own sign stays visible. @param {number} i */
  ring(i) {
    const p = this.paper;
    p.strokeStyle = /** @type {string} */ (this.text);
    p.lineWidth = 2;
    p.strokeRect(this.xs[i] - 2, this.ys[i] - 2, this.size + 4, this.size + 4); // with a gap, so that it does not hide a small cell
  }

  /** choose marks a cell, and shows it. @param {number} i; -1: none */
  choose(i) {
    if (i === this.chosen) return;
    this.chosen = i;
    this.drawn = []; // the ring of the former one lies over its neighbours
    this.paint();
    const box = /** @type {HTMLElement} */ (this.canvas.parentElement);
    if (i >= 0 && i < this.cells.length && (this.ys[i] < box.scrollTop || this.ys[i] > box.scrollTop + box.clientHeight - this.size)) box.scrollTop = this.ys[i] - 40;
  }

  /** at is the cell at a place, or -1. @param {MouseEvent} e */
  at(e) {
    const x = e.offsetX, y = e.offsetY, s = this.size + 1;
    for (let i = 0; i < this.cells.length; i++) {
      if (x >= this.xs[i] && x < this.xs[i] + s && y >= this.ys[i] && y < this.ys[i] + s) return i;
    }
    return -1;
  }

  /** beside is the cell that an arrow leads to from the chosen one. @param {string} key */
  beside(key) {
    const n = this.cells.length, i = this.chosen;
    if (i < 0) return n ? 0 : -1;
    if (key === 'ArrowLeft') return Math.max(0, i - 1);
    if (key === 'ArrowRight') return Math.min(n - 1, i + 1);
    const down = key === 'ArrowDown', y = this.ys[i];
    let best = i, distance = Infinity;
    for (let j = i; down ? j < n : j >= 0; j += down ? 1 : -1) {
      if (down ? this.ys[j] <= y : this.ys[j] >= y) continue;
      const d = Math.abs(this.ys[j] - y) * 1e4 + Math.abs(this.xs[j] - this.xs[i]);
      if (d < distance) { distance = d; best = j; } else break;
    }
    return best;
  }

  /** next is the next cell in trouble after the chosen one, or -1. */
  next() {
    const n = this.cells.length;
    for (let k = 1; k <= n; k++) {
      const i = (this.chosen + k + n) % n;
      if (marks[this.cells[i]]?.trouble) return i;
    }
    return -1;
  }
}
