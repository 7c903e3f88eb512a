// @ts-check
// The barriers that have ended, and a plot of when the ranks came to one of them: over time, a row for each rank, the last one marked.
import { ask } from './rank.js';
import { ago, byId, clock, el, setText } from './text.js';

const listed = 20, latest = 5;

/** brief is a short time as people say it. @param {number} seconds */
const brief = (seconds) => (seconds < 1 ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : 0)} ms` : ago(seconds));

export class Barriers {
  live = true;
  constructor() {
    /** @type {any} the one that is drawn */
    this.one = null;
    new ResizeObserver(() => this.draw()).observe(byId('arrivals'));
  }

  /** @param {string} rest the number of a barrier; empty: the newest @param {URLSearchParams} query */
  async load(rest, query) {
    const kind = query.get('class') ?? '';
    const list = await ask(`barriers?limit=${listed}${kind ? `&class=${encodeURIComponent(kind)}` : ''}`);
    byId('barrier-list').tBodies[0].replaceChildren(...list.barriers.map((/** @type {any} */ b) => row(b)));
    const number = rest || list.barriers[0]?.number;
    if (!number) {
      this.one = null;
      setText(byId('barrier-text'), 'no barrier has ended since this server leads');
    } else if (String(this.one?.number) !== String(number) || this.one.began !== list.barriers.find((/** @type {any} */ b) => b.number === this.one.number)?.began) {
      this.one = await ask(`barriers/${encodeURIComponent(number)}`);
    }
    this.show();
  }

  show() {
    const b = this.one;
    byId('arrivals').hidden = !b?.arrivals;
    if (!b) return;
    const came = this.order().slice(-latest).reverse();
    const last = came.map(([rank, at]) => `${this.name(rank)} +${brief(at)}`).join(', ');
    setText(byId('barrier-text'), `${b.place}, ${clock(b.began)}: ${b.arrived} of ${b.members} ranks in ${brief(b.seconds)}${b.error ? `, ${b.error}` : ''}`);
    setText(byId('barrier-last'), b.late ? `rank ${b.late} came last, ${brief(b.lag_seconds)} after the middle one; the last: ${last}` : 'when ranks came to it was not seen');
    this.draw();
  }

  /** order are ranks that came and when, the first of them first. @returns {[number, number][]} */
  order() {
    const all = /** @type {number[]} */ (this.one?.arrivals ?? []);
    return all.map((at, i) => /** @type {[number, number]} */ ([i, at])).filter(([, at]) => at >= 0).sort((a, b) => a[1] - b[1]);
  }

  /** name is what people call a task. @param {number} i its number */
  name(i) {
    for (const j of this.one.jobs) {
      if (i < j.tasks) return this.one.jobs.length === 1 ? String(i) : `${j.name}/${i}`;
      i -= j.tasks;
    }
    return String(i);
  }

  draw() {
    const canvas = byId('arrivals'), ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    const came = this.order();
    if (!width || !came.length) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const p = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name);
    p.setTransform(ratio, 0, 0, ratio, 0, 0);
    const left = 8, bottom = height - 14, [lastRank, longest] = came[came.length - 1], ranks = this.one.arrivals.length;
    const x = (/** @type {number} */ at) => left + (width - left - 12) * at / Math.max(longest, 1e-6);
    const y = (/** @type {number} */ rank) => 4 + (bottom - 10) * (rank + 0.5) / ranks;
    const size = Math.max(2, Math.min(6, 2 * (bottom - 10) / ranks));
    p.strokeStyle = colour('--line');
    p.beginPath(); p.moveTo(left, bottom); p.lineTo(width - 12, bottom); p.stroke();
    p.fillStyle = colour('--mark-work');
    for (const [rank, at] of came) p.fillRect(x(at) - size / 2, y(rank) - size / 2, size, size);
    const lx = x(longest), ly = y(lastRank);
    p.fillStyle = colour('--bad');
    p.beginPath(); p.moveTo(lx, ly - 5); p.lineTo(lx + 5, ly + 4); p.lineTo(lx - 5, ly + 4); p.fill();
    p.font = '11px system-ui, sans-serif';
    const name = `rank ${this.name(lastRank)}`;
    p.fillText(name, lx - 8 - p.measureText(name).width, Math.min(bottom - 2, ly + 4));
    p.fillStyle = colour('--faint');
    p.fillText('0', left, height - 3);
    const end = `+${brief(longest)}`;
    p.fillText(end, width - 12 - p.measureText(end).width, height - 3);
  }
}

/** @param {any} b */
function row(b) {
  const a = /** @type {HTMLAnchorElement} */ (el('a', b.place));
  a.href = `#/barriers/${b.number}`;
  return el(b.error ? 'tr.bad' : 'tr', el('td', clock(b.began)), el('td', a), el('td.number', `${b.arrived}/${b.members}`), el('td.number', brief(b.seconds)), el('td', b.late ? `rank ${b.late} +${brief(b.lag_seconds)}` : ''), el('td', b.error ?? ''));
}
