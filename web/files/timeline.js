// @ts-check
// What happened: a strip over time, and a list, the newest first.
import { byId, clock, el, fill } from './text.js';

const kept = 1000, listed = 200;

export class Timeline {
  constructor() {
    /** @type {Map<string, any>} by key, the oldest first */
    this.events = new Map();
    this.kind = '';
    this.stale = false;
    byId('kind').addEventListener('change', () => {
      location.hash = byId('kind').value ? `#/events?kind=${byId('kind').value}` : '#/events';
    });
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

  /** @param {string} kind; empty: all */
  only(kind) {
    this.kind = kind;
    byId('kind').value = kind;
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
    return [...this.events.values()].filter((e) => !this.kind || e.kind === this.kind);
  }

  list() {
    const rows = this.shown().reverse().slice(0, listed).map((e) => {
      const time = /** @type {HTMLTimeElement} */ (el('time', clock(e.time)));
      time.dateTime = e.time;
      return el(e.bad ? 'li.bad' : 'li', time, el('span', e.text));
    });
    fill(byId('events'), rows.length ? rows : [el('li.faint', 'nothing yet')]);
  }

  strip() {
    const canvas = byId('strip'), ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const p = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    p.setTransform(ratio, 0, 0, ratio, 0, 0);
    const all = this.shown();
    if (!all.length || !width) return;
    const times = all.map((e) => Date.parse(e.time));
    const first = Math.min(...times), last = Math.max(first + 1000, ...times);
    const at = (/** @type {number} */ t) => 6 + (width - 12) * (t - first) / (last - first);
    p.strokeStyle = style.getPropertyValue('--line');
    p.beginPath(); p.moveTo(6, 9); p.lineTo(width - 6, 9); p.stroke();
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
