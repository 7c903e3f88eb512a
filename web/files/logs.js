// @ts-check
// What a rank has written last: followed while the box is ticked, searched in what is loaded.
import { ask, rankPath } from './rank.js';
import { byId, clock, el, setText } from './text.js';

const tail = 200, kept = 2000, followed = 2000; // lines, lines, milliseconds

export class Logs {
  constructor() {
    this.rank = '';
    /** @type {any[]} the oldest first */
    this.lines = [];
    this.first = 0;
    /** @type {any} */
    this.timer = null;
    byId('log-form').addEventListener('submit', (/** @type {Event} */ e) => {
      e.preventDefault();
      location.hash = `#/logs/${encodeURIComponent(byId('log-rank').value.trim())}`;
    });
    byId('log-find').addEventListener('input', () => this.show());
    byId('log-follow').addEventListener('change', () => this.follow());
    byId('log-older').addEventListener('click', () => this.get(`before=${this.lines[0]?.number ?? 0}`).catch((e) => setText(byId('tab-error'), e.message)));
  }

  /** @param {string} rest the rank */
  async load(rest) {
    if (!rest) {
      setText(byId('log-text'), 'which rank?');
      byId('log-rank').focus();
      return;
    }
    this.rank = rest;
    this.lines = [];
    byId('log-rank').value = rest;
    byId('log').replaceChildren();
    setText(byId('log-text'), 'asking its launcher');
    try {
      await this.get('');
    } catch (e) {
      setText(byId('log-text'), '');
      throw e;
    }
    this.follow();
  }

  leave() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  /** follow asks for more while the box is ticked and a person looks. */
  follow() {
    this.leave();
    if (!byId('log-follow').checked || !this.rank) return;
    this.timer = setTimeout(async () => {
      if (!document.hidden) await this.get(this.last ? `after=${this.last}` : '').catch(() => {}); // the banner says what is wrong
      if (this.timer) this.follow();
    }, followed);
  }

  get last() {
    return this.lines[this.lines.length - 1]?.number ?? 0;
  }

  /** get adds lines. @param {string} which */
  async get(which) {
    const rank = this.rank, page = await ask(`logs/${rankPath(rank)}?tail=${tail}${which ? `&${which}` : ''}`);
    if (rank !== this.rank) return; // another one meanwhile
    const fresh = page.lines.filter((/** @type {any} */ l) => !this.lines.length || l.number > this.last || l.number < this.lines[0].number);
    this.first = page.first;
    if (!fresh.length && this.lines.length) return;
    this.lines = [...this.lines, ...fresh].sort((a, b) => a.number - b.number).slice(-kept);
    this.show();
  }

  show() {
    const wanted = byId('log-find').value.toLowerCase(), box = byId('log');
    const found = this.lines.filter((l) => !wanted || l.text.toLowerCase().includes(wanted));
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    let life = '', before = 0;
    box.replaceChildren(...found.flatMap((l) => {
      const row = el(l.stream === 'stderr' ? 'div.stderr' : 'div', el('time', clock(l.time)), el('span', l.text.replaceAll('\t', '    ')));
      const now = `attempt ${l.attempt}${l.life > 1 ? `, start ${l.life}` : ''}`, began = now !== life && (life !== '' || l.number > 1 || l.attempt > 1);
      life = now;
      const left = wanted || !before ? 0 : l.number - before - 1; // a rank may write faster than the page asks
      before = l.number;
      return [...(left > 0 ? [el('p.faint', `${left.toLocaleString()} lines left out`)] : []), ...(began ? [el('p.faint', now)] : []), row];
    }));
    byId('log-older').hidden = !this.lines.length || this.lines[0].number <= this.first;
    setText(byId('log-text'), `rank ${this.rank}: ${found.length.toLocaleString()} ${found.length === 1 ? 'line' : 'lines'}${wanted ? ` of ${this.lines.length.toLocaleString()}` : ''}${this.lines.length ? '' : '; it has written nothing'}`);
    if (atEnd) box.scrollTop = box.scrollHeight;
  }
}
