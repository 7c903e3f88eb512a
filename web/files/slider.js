// @ts-check
// The page of a journal: a slider over the times of its records. Everything is shown as of the time that it stands at.
import { ago, byId, clock, dial, el, setText } from './text.js';

let at = ''; // seconds since the service began; empty: the page is live

/** asOf makes a question one about the time that the slider stands at. @param {string} path */
export function asOf(path) {
  return at === '' ? path : `${path}${path.includes('?') ? '&' : '?'}at=${at}`;
}

/** exact is a number of seconds by which records can be told from each other. @param {number} seconds */
const exact = (seconds) => (seconds < 600 ? `${seconds.toFixed(3)}s` : ago(seconds));

/** The time that the address of the page names, or empty. */
const named = () => /[?&]at=([\d.]+)/.exec(location.hash)?.[1] ?? '';

export class Slider {
  /** @param {(moment: any) => void} show */
  constructor(show) {
    this.show = show;
    /** @type {any} */
    this.line = null;
    this.asking = false;
    this.range = /** @type {HTMLInputElement} */ (el('input'));
    this.range.type = 'range';
    this.range.ariaLabel = 'time';
    this.says = el('p');
    this.range.addEventListener('input', () => this.seek(this.near(Number(this.range.value) / 1000)));
    this.range.addEventListener('keydown', (e) => {
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[e.key];
      if (!by) return;
      e.preventDefault();
      this.step(by);
    });
  }

  /** begin shows the slider. @param {any} line what the server says of the times */
  begin(line) {
    if (this.line) {
      if (line.end_seconds !== this.line.end_seconds || line.records !== this.line.records) location.reload(); // it is another journal now
      return;
    }
    this.line = line;
    dial.service = !line.wall;
    this.range.min = String(Math.round(line.begin_seconds * 1000));
    this.range.max = String(Math.round(line.end_seconds * 1000));
    const before = this.button('‹', 'the record before', -1), after = this.button('›', 'the next record', 1);
    byId('past').replaceChildren(before, this.range, after, this.says);
    byId('past').hidden = false;
    byId('read-stacks').hidden = byId('rank-read').hidden = true; // a journal has none
    this.seek(Number(named() || line.end_seconds));
  }

  /** @param {string} text @param {string} title @param {number} by */
  button(text, title, by) {
    const b = /** @type {HTMLButtonElement} */ (el('button', text));
    b.title = title;
    b.ariaLabel = title;
    b.addEventListener('click', () => this.step(by));
    return b;
  }

  /** route goes to the time that the address names. A new address without one is of the same time. */
  route() {
    if (!this.line) return;
    if (named() && named() !== at) this.seek(Number(named()));
    else this.mark();
  }

  /** near is the record within a pixel of a time, or that time. @param {number} seconds */
  near(seconds) {
    const pixel = (this.line.end_seconds - this.line.begin_seconds) / Math.max(1, this.range.clientWidth);
    let best = seconds, off = pixel;
    for (const m of this.line.moments) {
      if (Math.abs(m - seconds) <= off) [best, off] = [m, Math.abs(m - seconds)];
    }
    return best;
  }

  /** step goes to another record, half a millisecond away at least. @param {number} by */
  step(by) {
    const now = Number(at), { moments } = this.line, near = 0.0005;
    const next = by > 0 ? moments.find((/** @type {number} */ m) => m > now + near) : moments.findLast((/** @type {number} */ m) => m < now - near);
    this.seek(next ?? (by > 0 ? this.line.end_seconds : this.line.begin_seconds));
  }

  /** seek goes to a time. Of those that are wanted while the server answers only the last one is asked for. @param {number} seconds */
  async seek(seconds) {
    const { begin_seconds: begin, end_seconds: end, records, zero } = this.line;
    seconds = Math.min(Math.max(seconds, begin), end);
    at = String(Math.round(seconds * 1e9) / 1e9);
    this.range.value = String(Math.round(seconds * 1000));
    setText(this.says, `${dial.service ? '' : `${clock(Date.parse(zero) + seconds * 1000)}, `}${exact(seconds)} of ${exact(end)}, ${records.toLocaleString()} records`);
    this.range.setAttribute('aria-valuetext', this.says.textContent ?? '');
    this.mark();
    if (this.asking) return;
    this.asking = true;
    for (let asked = ''; asked !== at;) {
      asked = at;
      try {
        const r = await fetch(`api/v1/${asOf('moment')}`), moment = await r.json();
        if (!r.ok) throw new Error(moment.error);
        if (asked === at) this.show(moment);
      } catch (e) {
        setText(this.says, String(/** @type {Error} */ (e).message));
      }
    }
    this.asking = false;
  }

  /** mark puts the time into the address of the page, so that it can be sent to a colleague. */
  mark() {
    const [path, query] = location.hash.slice(1).split('?'), values = new URLSearchParams(query);
    values.set('at', at);
    history.replaceState(null, '', `#${path || '/'}?${values}`);
  }
}
