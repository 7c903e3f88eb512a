// @ts-check
// Collectives and transfers, as serry why --collectives and --transfers tell of them: the processes are asked when a person looks.
import { ask } from './rank.js';
import { table } from './records.js';
import { ago, byId, bytes, clock, el } from './text.js';

const operations = 12, ranksShown = 16; // operations of a clique that are shown until a person wants all
/** @type {Set<string>} cliques of which all are shown */
const whole = new Set();

/** ranks are numbers with runs drawn together. @param {number[]} all in order */
function ranks(all) {
  const runs = [];
  for (let i = 0, j; i < all.length; i = j) {
    for (j = i + 1; all[j] === all[j - 1] + 1; j++);
    runs.push(j - i > 1 ? `${all[i]}-${all[j - 1]}` : `${all[i]}`);
  }
  return `rank${all.length > 1 ? 's' : ''} ${runs.slice(0, ranksShown).join(',')}${runs.length > ranksShown ? ',...' : ''}`;
}

/** variants are what ranks did under each number, ranks that did the same together, the newest first. @param {any} clique */
function variants(clique) {
  /** @type {Map<number, Map<string, {ranks: number[], first: number, last: number, op: string, outcome: string}>>} */
  const all = new Map();
  for (const t of clique.tracks) {
    for (const r of t.records ?? []) {
      if (!r.all) continue;
      const of = all.get(r.seq) ?? all.set(r.seq, new Map()).get(r.seq), what = `${r.op}, ${r.outcome}`, at = Date.parse(r.began);
      const v = of?.get(what);
      if (v) Object.assign(v, { first: Math.min(v.first, at), last: Math.max(v.last, at) }).ranks.push(t.rank);
      else of?.set(what, { ranks: [t.rank], first: at, last: at, op: r.op, outcome: r.outcome });
    }
  }
  return [...all].sort((a, b) => b[0] - a[0]);
}

/** @param {any} c */
function clique(c) {
  const d = c.divergence, rows = variants(c);
  const from = d ? Math.max(0, rows.findIndex(([seq]) => seq === d.seq) - 2) : 0;
  const all = whole.has(c.clique), shown = rows.slice(all ? 0 : from, all ? rows.length : from + operations).flatMap(([seq, of]) => [...of.values()].map((v) => el(d?.seq === seq ? 'tr.bad' : 'tr',
    el('td.number', `${d?.seq === seq ? '▲ ' : ''}${seq}`), el('td', v.op), el('td', v.outcome), el('td', ranks(v.ranks)), el('td', clock(v.first)), el('td.number', v.last > v.first ? `+${v.last - v.first} ms` : ''))));
  const out = [el('h3', `clique ${c.clique}`)];
  if (c.err) out.push(el('p.bad', `it has failed: ${c.err}`));
  if (d) out.push(el('p.bad', `operation ${d.seq}: ${d.ops.map((/** @type {any} */ o) => `${ranks(o.ranks)} run ${o.op}`).join('; ')}${d.missing?.length ? `; ${ranks(d.missing)} ${d.missing.length > 1 ? 'have' : 'has'} not begun it` : ''}`));
  const silent = c.tracks.filter((/** @type {any} */ t) => t.silent).map((/** @type {any} */ t) => t.rank);
  if (silent.length) out.push(el('p.faint', `nothing is known of ${ranks(silent)}`));
  const body = table(['operation', 'what', 'outcome', 'ranks', 'began', 'last'], shown);
  if (all || rows.length <= operations) return [...out, body];
  const more = el('button', `all ${rows.length} operations`);
  more.addEventListener('click', () => {
    whole.add(c.clique);
    const fresh = clique(c);
    body.replaceWith(/** @type {Node} */ (fresh[fresh.length - 1]));
    more.remove();
  });
  return [...out, body, more];
}

export const collectives = {
  async load() {
    const page = await ask('collectives');
    byId('collectives').replaceChildren(el('p', page.verdict), ...page.cliques.flatMap(clique), ...silent(page));
  },
};

/** @param {(task: string) => string} rankOf */
export function transfers(rankOf) {
  return {
    live: true,
    /** @param {string} _ @param {URLSearchParams} query */
    async load(_, query) {
      const page = await ask('transfers'), of = query.get('rank');
      const all = page.transfers.filter((/** @type {any} */ t) => !of || rankOf(t.from) === of || rankOf(t.to) === of);
      const rows = all.slice(0, 200).map((/** @type {any} */ t) => el('tr', el('td', rankOf(t.from)), el('td', rankOf(t.to)), el('td', t.text), el('td.number', ago(t.seconds)), el('td.number', `${bytes(t.done)} of ${bytes(t.bytes)}`), el('td', t.key)));
      byId('transfers').replaceChildren(el('p', of ? `rank ${of} takes part in ${all.length} of ${page.transfers.length} transfers` : page.verdict), ...(rows.length ? [table(['from', 'to', 'waits for', 'for', 'done', 'key'], rows)] : []), ...silent(page));
    },
  };
}

/** silent says which processes have not answered. @param {any} page */
const silent = (page) => (page.missing ? [el('p.faint', `no answer from ${page.missing}: ${page.silent.join(', ')}`)] : []);
