// @ts-check
// Preemptions and attempts: what the job has been through.
import { ask } from './rank.js';
import { ago, byId, clock, el } from './text.js';

/** table is one with a head. @param {string[]} head @param {Node[]} rows */
export function table(head, rows) {
  return el('table', el('thead', el('tr', ...head.map((h) => el('th', h)))), el('tbody', ...rows));
}

/** @param {(task: string) => string} rankOf @param {(tasks: string[]) => string} ranksOf */
export function preemption(rankOf, ranksOf) {
  return {
    live: true,
    async load() {
      const p = await ask('preempt');
      const rounds = p.rounds.map((/** @type {any} */ r) => el('tr',
        el('td', r.round ? String(r.round) : 'jax'), el('td', r.by ? `rank ${rankOf(r.by)}, ${clock(r.at)}` : 'not known'), el('td', r.source ?? ''),
        el('td', r.steps.length === 1 ? `step ${r.steps[0].toLocaleString()}` : r.steps.length ? `different steps: ${r.steps.slice(0, 5).join(', ')}` : 'none yet'),
        el('td.number', `${r.saved}/${r.of}`), el('td', r.missing.length && r.saved ? ranksOf(r.missing) + (r.more ? ` and ${r.more.toLocaleString()} more` : '') : ''), el('td.number', r.took_seconds ? ago(r.took_seconds) : '')));
      const notices = p.notices.map((/** @type {any} */ n) => el('li', el('time', clock(n.time)), el('span', `rank ${rankOf(n.task)} was told to go by ${clock(n.deadline)}: ${n.source}`)));
      byId('preempt').replaceChildren(...(rounds.length
        ? [table(['round', 'told to go', 'by', 'saved at', 'ranks', 'without a receipt', 'took'], rounds), el('ol.list', ...notices)]
        : [el('p.faint', 'no rank was told to go, as far as the service knows')]));
    },
  };
}

export const attempts = {
  live: true,
  async load() {
    const { attempts: all, clock: now } = await ask('attempts');
    byId('attempts').replaceChildren(table(['attempt', 'began', 'lasted', 'ended by'], all.map((/** @type {any} */ a, /** @type {number} */ i) => {
      const lasted = (Date.parse(a.ended ?? now) - Date.parse(a.began)) / 1000;
      const runs = i === all.length - 1, how = a.failed ? `rank ${a.rank ?? 0}: ${a.how}` : runs ? 'it runs' : 'all ranks were started again';
      const restarts = a.restarts ? `; ${a.restarts} restarts of single ranks` : '', left = runs && all.length > 1 ? `; ${a.restarts_left ?? 0} restarts left` : '';
      return el(a.failed ? 'tr.bad' : 'tr', el('td.number', String(a.attempt)), el('td', clock(a.began)), el('td.number', ago(lasted)),
        el('td', how + restarts + left, ...(a.last_lines ?? []).map((/** @type {string} */ l) => el('div.stack', l))));
    })));
  },
};
