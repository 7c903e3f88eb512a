// @ts-check
// One rank, the table of ranks, and where ranks are in their code. They are asked for when they are looked at.
import { wanted } from './door.js';
import { marks } from './marks.js';
import { asOf } from './slider.js';
import { age, byId, clock, el, facts, fill, setText } from './text.js';

const rows = 100; // of the table
const pause = 2000; // milliseconds between two questions
const patience = 30_000; // milliseconds for an answer: a host that is dead gives none
const longest = 32; // pauses, between two questions of which the first failed
const pastPause = 100; // the same, of a journal, whose slider moves

/** ask gets a document, or throws what the server says. @param {string} path @param {RequestInit} [options] */
export async function ask(path, options) {
  const r = await fetch(`api/v1/${asOf(path)}`, { signal: AbortSignal.timeout(patience), ...options });
  const body = await r.json();
  if (!r.ok) throw new Error(body.error ?? r.statusText);
  return body;
}

/** rankPath is the name of a rank in an address. @param {string} rank */
export const rankPath = (rank) => rank.split('/').map(encodeURIComponent).join('/');

/** A Sometimes does something soon after it is wanted, and not more often than every pause. What fails is done again, more and more seldom. */
export class Sometimes {
  /** @param {() => Promise<void>} act */
  constructor(act) {
    this.act = act;
    this.last = -Infinity;
    /** @type {any} */
    this.timer = null;
    this.acts = false;
    this.again = false; // it was wanted while it was done
    this.failed = 0; // how often in a row
  }

  want() {
    this.again = this.acts;
    if (this.timer !== null || document.hidden) return;
    this.timer = setTimeout(async () => {
      this.last = performance.now();
      this.acts = true;
      await this.act().then(() => { this.failed = 0; }, () => { this.failed++; }); // the banner says that the server does not answer
      this.acts = false;
      this.timer = null;
      if (this.again || this.failed) this.want();
    }, Math.max(0, this.last + (asOf('') ? pastPause : pause) * Math.min(longest, 2 ** this.failed) - performance.now()));
  }
}

/** A Table is the twin of the grid: the same in words, ranks in trouble first. */
export class Table {
  /** @param {(rank: string) => void} open */
  constructor(open) {
    this.open = open;
    this.filter = '';
    this.sometimes = new Sometimes(() => this.load());
    byId('filter').addEventListener('input', () => {
      this.filter = byId('filter').value.trim().toLowerCase();
      this.sometimes.want();
    });
    document.addEventListener('visibilitychange', () => this.changed());
  }

  changed() {
    this.sometimes.want();
  }

  async load() {
    const list = await ask(`ranks?sort=trouble&limit=${this.filter ? 1000 : rows}`);
    const found = list.rows.filter((/** @type {any} */ r) => !this.filter || `${r.rank} ${r.host ?? ''} ${r.doing ?? ''} ${marks[r.mark]?.word}`.toLowerCase().includes(this.filter)).slice(0, rows);
    fill(byId('twin').tBodies[0], found.map((/** @type {any} */ r) => this.row(r)));
    const left = list.total - found.length;
    setText(byId('twin-more'), this.filter ? `${found.length} of the first ${Math.min(1000, list.total).toLocaleString()} ranks` : left > 0 ? `and ${left.toLocaleString()} more` : '');
  }

  /** @param {any} r */
  row(r) {
    const mark = marks[r.mark], key = el('span.key', mark?.sign || '\u00a0');
    key.style.background = `var(${mark?.colour})`;
    const row = el('tr', el('td', key, mark?.word ?? r.mark), el('td', r.rank), el('td', r.host ?? ''), el('td.number', String(r.step ?? '')), el('td.number', String(r.lag ?? '')), el('td', r.doing ?? ''));
    row.tabIndex = 0;
    row.dataset.rank = r.rank;
    row.addEventListener('click', () => this.open(r.rank));
    row.addEventListener('keydown', (e) => { if (e.key === 'Enter') this.open(r.rank); });
    return row;
  }
}

/** A Detail is the panel of one rank. */
export class Detail {
  /** @param {import('./timeline.js').Timeline} timeline @param {Stacks} stacks */
  constructor(timeline, stacks) {
    this.timeline = timeline;
    this.stacks = stacks;
    this.rank = '';
    /** @type {any} the stack of this rank alone, or null */
    this.own = null;
    this.sometimes = new Sometimes(() => this.load());
  }

  /** @param {string} rank; empty: none */
  show(rank) {
    const other = rank !== this.rank;
    this.rank = rank;
    byId('rank').hidden = !rank;
    if (rank && other) {
      setText(byId('rank-title'), `rank ${rank}`);
      byId('rank-facts').replaceChildren();
      byId('rank-stack').replaceChildren();
      this.own = null;
      byId('rank-logs').href = `#/logs/${encodeURIComponent(rank)}`;
      byId('rank-transfers').href = `#/transfers?rank=${encodeURIComponent(rank)}`;
      this.load().catch((e) => setText(byId('rank-facts'), e.message));
    }
  }

  changed() {
    if (this.rank) this.sometimes.want();
  }

  async load() {
    const rank = this.rank, r = await ask(`ranks/${rankPath(rank)}`);
    if (rank !== this.rank) return; // another one meanwhile
    facts(byId('rank-facts'), [
      ['state', el('span', `${marks[r.mark]?.word ?? r.state} (${r.state}) for `, age(r.for_seconds))],
      ['host', r.host],
      ['heard', r.heard_seconds === undefined ? undefined : el('span', age(r.heard_seconds), ' ago')],
      ['incarnation', r.incarnation ? BigInt(r.incarnation).toString(16).padStart(16, '0') : undefined],
      ['step', r.step === undefined ? undefined : `${r.step}, ${r.lag} behind`],
      ['missing at', (r.missing ?? []).join(', ')],
      ['does', r.doing],
      ['error', r.error],
      ['events', this.events(r.task)],
    ]);
    this.stack(r.task);
  }

  /** stack shows where in its code the rank is, as far as that was read. @param {string} task */
  stack(task) {
    const group = this.own ? this.own.groups[0] : this.stacks.of(task);
    const when = this.own ? [el('p.faint', group ? [`at ${clock(this.own.time)}`, ...(group.doing ?? [])].join(', ') : 'nothing is known of its stack')] : [];
    fill(byId('rank-stack'), group ? [...when, stackText(group)] : when);
  }

  /** read reads the stack of this rank alone. */
  async read() {
    const rank = this.rank, box = byId('rank-stack');
    setText(box, 'reading');
    try {
      const got = await ask(`stacks?ranks=${encodeURIComponent(rank)}`, { method: 'POST', headers: await wanted() });
      if (rank !== this.rank) return;
      this.own = got;
      this.stack('');
    } catch (e) {
      setText(box, String(/** @type {Error} */ (e).message));
    }
  }

  /** @param {string} task */
  events(task) {
    const all = this.timeline.of(task).slice(0, 5);
    return all.length ? el('span', ...all.flatMap((e) => [`${clock(e.time)} ${e.text}`, el('br')])) : undefined;
  }
}

/** @param {any} group */
function stackText(group) {
  const lines = (group.frames ?? []).slice(0, 40).map((/** @type {any} */ f) => `${f.function}  ${String(f.file).split('/').pop()}:${f.line}`);
  if (group.error) lines.unshift(group.error);
  const pre = document.createElement('div');
  pre.className = 'stack';
  pre.append(...lines.map((/** @type {string} */ l) => el('div', l)));
  return pre;
}

/** Stacks are read when a person wants them. */
export class Stacks {
  constructor() {
    /** @type {any} */
    this.last = null;
  }

  /** of is the group of a task, or undefined. @param {string} task */
  of(task) {
    return this.last?.groups.find((/** @type {any} */ g) => g.tasks.includes(task));
  }

  /** @param {(tasks: string[]) => string} ranksOf */
  async read(ranksOf) {
    const body = byId('stacks-body');
    byId('stacks').hidden = false;
    setText(body, 'reading');
    try {
      this.last = await ask('stacks', { method: 'POST', headers: await wanted() });
    } catch (e) {
      setText(body, String(/** @type {Error} */ (e).message));
      return;
    }
    body.replaceChildren(...this.last.groups.map((/** @type {any} */ g) => {
      const d = /** @type {HTMLDetailsElement} */ (el('details', el('summary', `${ranksOf(g.tasks)}: ${g.tasks.length === 1 ? 'alone' : `${g.tasks.length} ranks, equal`}${g.doing?.length ? `, ${g.doing.join(' or ')}` : ''}`), stackText(g)));
      d.open = this.last.groups.length <= 3 || g === this.last.groups[0];
      return d;
    }), ...(this.last.elsewhere.length ? [el('p.faint', `nothing is known of ${ranksOf(this.last.elsewhere)}`)] : []));
    setText(byId('stacks-title'), `stacks at ${clock(this.last.time)}`);
  }
}
