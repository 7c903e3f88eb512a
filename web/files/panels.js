// @ts-check
// The panels that are drawn from messages alone.
import { marks } from './marks.js';
import { age, ago, byId, bytes, clean, clock, el, facts, fill, setText } from './text.js';

/** since is how old what a message says has become. @param {import('./stream.js').Message} m */
const since = (m) => (Date.now() - m.at) / 1000;

/** @param {import('./stream.js').Message} m */
export function showJob(m) {
  const s = m.data, g = s.goodput;
  const jobs = (s.jobs ?? []).map((/** @type {any} */ j) => clean(j.name)).join(', ');
  const parts = [jobs, `attempt ${s.epoch}`, 'up '];
  const title = [parts.filter(Boolean).join(' · '), age(s.up_seconds + since(m))];
  const rest = [];
  if (g) rest.push(`goodput ${(100 * g.productive_seconds / Math.max(1e-9, g.wall_seconds)).toFixed(0)} %`, `step ${g.step.toLocaleString()}`, g.phase ? `in ${clean(g.phase)}` : '');
  if (s.stopped) rest.push('stopped');
  byId('title').replaceChildren(...title, rest.filter(Boolean).map((r) => ` · ${r}`).join(''));
  document.title = `serry ${jobs}`;
  const t = s.takeover;
  facts(byId('coordinator-facts'), [
    ['leader', s.leader ? `${s.leader}, term ${s.term}` : (m.past ? 'a journal does not say' : 'one server, no standby')],
    ['fail-over', t ? `from ${t.from} at ${clock(t.at)}${t.took_seconds ? `, ${ago(t.took_seconds)}` : ', handed over'}` : undefined],
    ['keys', `${s.keys.toLocaleString()}, ${bytes(s.store_bytes)}`],
    ['waiting', `${s.waiting_calls.toLocaleString()} calls`],
    ['its clock', clock(s.clock)],
  ]);
  showLost(g, s.stragglers ?? []);
}

/** @param {any} g @param {any[]} slow */
function showLost(g, slow) {
  const body = byId('lost-body');
  if (!g) {
    body.replaceChildren(el('p.faint', 'goodput unknown: no steps reported (see serry help steps)'));
    return;
  }
  const rows = [['productive', g.productive_seconds], ...Object.entries(g.lost_seconds ?? {}).sort((a, b) => b[1] - a[1])];
  fill(body, [...rows.filter(([, s]) => s > 0).map(([cause, s]) => {
    const meter = /** @type {HTMLMeterElement} */ (el('meter'));
    meter.max = g.wall_seconds;
    meter.value = s;
    const share = (100 * s / Math.max(1e-9, g.wall_seconds)).toFixed(1);
    meter.title = `${share} %`;
    return el(cause === 'productive' ? 'div.bar' : 'div.bar.lost', el('span', String(cause)), meter, el('span', `${ago(s)}, ${share} %`));
  }), ...slow.map((s) => el('p', `${s.task ?? `host ${s.host}`} cost ${ago(s.cost_seconds)} of ${ago(s.of_seconds)}`))]);
}

let spoken = 0;

/** @param {import('./stream.js').Message} m */
export function showWhy(m) {
  const r = m.data, bad = !r.healthy;
  const stage = r.stage && r.stage !== 'on time' ? `${r.stage.toUpperCase()} ` : '';
  document.body.classList.toggle('well', !bad);
  byId('verdict-text').className = bad ? 'bad' : r.stage ? '' : 'good';
  setText(byId('verdict-text'), (bad ? '▲ ' : '') + stage + r.verdict + (r.grade ? ` (${r.grade})` : ''));
  const lines = [...(r.evidence ?? []).map((/** @type {any} */ l) => [l.word, l.text])];
  facts(byId('evidence'), lines);
  fill(byId('advice'), (r.advice ?? []).map((/** @type {string} */ a) => el('li', a)));
  if (Date.now() - spoken > 5000) { // heard at most once in 5 s
    spoken = Date.now();
    setText(byId('announce'), r.verdict.replace(/\([\d.hms]+\)/g, ''));
  }
}

/**
 * Ranks that a wait is for, with links.
 * @param {any} b @param {(task: string) => string} rankOf
 */
function missing(b, rankOf) {
  const out = [];
  for (const task of (b.missing ?? []).slice(0, 8)) {
    const a = /** @type {HTMLAnchorElement} */ (el('a', rankOf(task)));
    a.href = `#/ranks/${encodeURIComponent(rankOf(task))}`;
    out.push(out.length ? ', ' : '', a);
  }
  const more = b.members - b.arrived - Math.min(8, (b.missing ?? []).length);
  if (more > 0) out.push(` and ${more.toLocaleString()} more`);
  return out;
}

/** count is a number of ranks. @param {number} n */
const count = (n) => `${n.toLocaleString()} ${n === 1 ? 'rank' : 'ranks'}`;

/** @param {import('./stream.js').Message|undefined} waits @param {import('./stream.js').Message|undefined} why @param {(task: string) => string} rankOf */
export function showWaits(waits, why, rankOf) {
  const rows = [];
  for (const [i, b] of (waits?.data.barriers ?? []).entries()) {
    rows.push(el('tr', el('td', waits?.data.places[i] ?? b.id), el('td.number', `${b.arrived.toLocaleString()}/${b.members.toLocaleString()}`), el('td.number', age(b.for_seconds + since(/** @type {any} */ (waits)))), el('td', 'missing ', ...missing(b, rankOf))));
  }
  for (const w of waits?.data.inside ?? []) {
    rows.push(el('tr', el('td', w.place), el('td.number', count(w.ranks)), el('td.number', age(w.for_seconds + since(/** @type {any} */ (waits)))), el('td', 'missing ', ...missing({ missing: w.missing, members: w.missing.length, arrived: 0 }, rankOf))));
  }
  for (const k of why?.data.keys ?? []) {
    rows.push(el('tr', el('td', `key ${k.key}`), el('td.number', count(k.tasks.length)), el('td.number', age(k.for_seconds + since(/** @type {any} */ (why)))), el('td', k.owner ? `of ${rankOf(k.owner)}` : 'owner not known')));
  }
  fill(byId('waits-body'), [rows.length ? el('table', el('tbody', ...rows)) : el('p.faint', 'no rank waits for another')]);
}

/** counts says how many cells have which mark. @param {string[]} ranks */
export function showCounts(ranks) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const m of ranks) counts[m] = (counts[m] ?? 0) + 1;
  setText(byId('counts'), `${ranks.length.toLocaleString()}: ` + Object.keys(marks).filter((m) => counts[m]).map((m) => `${counts[m].toLocaleString()} ${marks[m].word}`).join(' · '));
}

/** The signs of the marks, once. */
export function showLegend() {
  byId('legend').replaceChildren(...Object.values(marks).flatMap((m) => {
    const key = el('span.key', m.sign || '\u00a0');
    key.style.background = `var(${m.colour})`;
    const item = el('span.item', key, m.word);
    return [item, ' '];
  }));
}
