// @ts-check
// The panels at the foot of the page, of which one is shown. Each is asked for only while a person looks at it.
import { Sometimes } from './rank.js';
import { byId, el, setText } from './text.js';

/**
 * A Tab loads what its panel shows: the rest of the address behind its name, and the query.
 * @typedef {{load: (rest: string, query: URLSearchParams) => Promise<void>, live?: boolean, leave?: () => void}} Tab
 */

/** @type {Record<string, string>} names in addresses, and in words */
const words = { barriers: 'barriers', keys: 'keys', logs: 'log', preempt: 'preemption', transfers: 'transfers', collectives: 'collectives', attempts: 'attempts' };

export class Tabs {
  /** @param {Record<string, Tab>} tabs */
  constructor(tabs) {
    this.tabs = tabs;
    this.name = 'barriers';
    this.rest = '';
    this.query = new URLSearchParams();
    this.sometimes = new Sometimes(() => this.load());
    this.links = Object.fromEntries(Object.keys(words).map((name) => {
      const a = /** @type {HTMLAnchorElement} */ (el('a', words[name]));
      a.href = `#/${name}`;
      return [name, a];
    }));
    byId('tabs').replaceChildren(...Object.values(this.links));
    this.mark();
  }

  /** offer shows the tabs that the server has. @param {string[]} names */
  offer(names) {
    for (const [name, link] of Object.entries(this.links)) link.hidden = !(names.includes(name) || name === 'preempt' || name === 'attempts');
    if (this.links[this.name].hidden) this.name = 'attempts';
    this.mark();
    this.changed();
  }

  /** route shows the tab of an address, and says whether there is one. @param {string} path @param {string} query */
  route(path, query) {
    const [, name, rest] = /^\/(\w+)(?:\/(.*))?$/.exec(path) ?? [];
    if (!words[name]) return false;
    if (name !== this.name) this.tabs[this.name]?.leave?.();
    this.name = name;
    this.rest = decodeURIComponent(rest ?? '');
    this.query = new URLSearchParams(query);
    this.mark();
    byId('more').scrollIntoView({ block: 'nearest' });
    this.load();
    return true;
  }

  mark() {
    for (const [name, link] of Object.entries(this.links)) {
      if (name === this.name) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
      byId(name).hidden = name !== this.name;
    }
  }

  /** changed loads the tab again soon, if what it shows changes with the job. */
  changed() {
    if (this.tabs[this.name].live) this.sometimes.want();
  }

  /** moved loads the tab again: what is shown is of another time. */
  moved() {
    this.sometimes.want();
  }

  async load() {
    const name = this.name;
    try {
      await this.tabs[name].load(this.rest, this.query);
      setText(byId('tab-error'), '');
    } catch (e) {
      if (name === this.name) setText(byId('tab-error'), String(/** @type {Error} */ (e).message));
    }
  }
}
