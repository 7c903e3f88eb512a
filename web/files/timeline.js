// @ts-check
// What happened: a strip over time, and a list, the newest first. A part of the strip over which a person draws is shown alone.
import { byId, clock, el, fill } from './text.js';

const kept = 1000, listed = 200;
const margin = 6, least = 4; // pixels beside the strip, and of a part that is drawn over

export class Timeline {
  constructor() {
    /** @type {Map<string, any>} by key, the oldest first */
    this.events = new Map();
    this.kind = '';
    this.stale = false;
    /** @type {[number, number]|null} the times between which events are shown; null: all */
    this.part = null;
    /** @type {[number, number]} the times of the strip */
    this.span = [0, 1];
    byId('kind').addEventListener('change', () => this.go(byId('kind').value, this.part));
    byId('span').addEventListener('change', () => this.go(this.kind, byId('span').value ? [this.newest() - 1000 * byId('span').value, this.newest()] : null));
    byId('span-all').addEventListener('click', () => this.go(this.kind, null));
    this.zoom(byId('strip'));
  }

  /** zoom goes to the part of the strip over which a person draws. @param {HTMLElement} strip */
  zoom(strip) {
    let from = -1;
    strip.addEventListener('pointerdown', (e) => {
      from = e.offsetX;
      strip.setPointerCapture(e.pointerId);
    });
    strip.addEventListener('pointerup', (e) => {
      const [a, b] = [Math.min(from, e.offsetX), Math.max(from, e.offsetX)];
      if (from >= 0 && b - a >= least) this.go(this.kind, [this.timeAt(a), this.timeAt(b)]);
      from = -1;
    });
    strip.addEventListener('dblclick', () => this.go(this.kind, null));
  }

  /** timeAt is the time of a place on the strip. @param {number} x */
  timeAt(x) {
    const [first, last] = this.span;
    return first + (last - first) * (x - margin) / (byId('strip').clientWidth - 2 * margin);
  }

  newest() {
    return Math.max(0, ...[...this.events.values()].map((e) => Date.parse(e.time)));
  }

  /** go shows a choice of events, by its address. @param {string} kind @param {[number, number]|null} part */
  go(kind, part) {
    const query = new URLSearchParams();
    if (kind) query.set('kind', kind);
    if (part) query.set('from', new Date(Math.floor(part[0])).toISOString());
    if (part) query.set('to', new Date(Math.ceil(part[1])).toISOString());
    location.hash = `#/events${query.size ? `?${query}` : ''}`;
  }

  clear() {
    this.events.clear();
    this.draw();
  }

  /** @param {any} event */
  add(event) {
    this.events.delete(event.key);
    this.events.set(event.key, event);
    if (this.events.size > kept) this.events.delete(this.events.keys().next().value ?? '');
    this.draw();
  }

  /** only shows what an address has chosen. @param {URLSearchParams} query */
  only(query) {
    this.kind = query.get('kind') ?? '';
    byId('kind').value = this.kind;
    const from = Date.parse(query.get('from') ?? ''), to = Date.parse(query.get('to') ?? '');
    this.part = from < to ? [from, to] : null;
    byId('span-all').hidden = !this.part;
    if (!this.part) byId('span').value = '';
    this.draw();
  }

  /** of are the events of a rank, the newest first. @param {string} task */
  of(task) {
    return [...this.events.values()].filter((e) => e.task === task).reverse();
  }

  /** draw draws once for all changes before the next frame. */
  draw() {
    if (this.stale) return;
    this.stale = true;
    requestAnimationFrame(() => {
      this.stale = false;
      this.list();
      this.strip();
    });
  }

  shown() {
    const [from, to] = this.part ?? [-Infinity, Infinity];
    return [...this.events.values()].filter((e) => (!this.kind || e.kind === this.kind) && Date.parse(e.time) >= from && Date.parse(e.time) <= to);
  }

  list() {
    const rows = this.shown().reverse().slice(0, listed).map((e) => {
      const time = /** @type {HTMLTimeElement} */ (el('time', clock(e.time)));
      time.dateTime = e.time;
      return el(e.bad ? 'li.bad' : 'li', time, el('span', e.text));
    });
    fill(byId('events'), rows.length ? rows : [el('li.faint', this.part ? 'nothing happened then' : 'nothing yet')]);
  }

  strip() {
    const canvas = byId('strip'), ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const p = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    p.setTransform(ratio, 0, 0, ratio, 0, 0);
    const all = this.shown();
    if (!width || !all.length && !this.part) return;
    const times = all.map((e) => Date.parse(e.time));
    const oldest = Math.min(...times), [first, last] = this.span = this.part ?? [oldest, Math.max(oldest + 1000, ...times)];
    const at = (/** @type {number} */ t) => margin + (width - 2 * margin) * (t - first) / (last - first);
    p.strokeStyle = style.getPropertyValue('--line');
    p.beginPath(); p.moveTo(margin, 9); p.lineTo(width - margin, 9); p.stroke();
    all.forEach((e, i) => {
      p.fillStyle = style.getPropertyValue(e.bad ? '--bad' : '--faint');
      p.beginPath();
      if (e.bad) { p.moveTo(at(times[i]), 3); p.lineTo(at(times[i]) + 5, 13); p.lineTo(at(times[i]) - 5, 13); } else p.arc(at(times[i]), 9, 3, 0, 2 * Math.PI);
      p.fill();
    });
    p.fillStyle = style.getPropertyValue('--faint');
    p.font = '10px system-ui, sans-serif';
    p.fillText(clock(first), 0, height - 2);
    const end = clock(last);
    p.fillText(end, width - p.measureText(end).width, height - 2);
  }
}
