// @ts-check
// The page: it hands messages of the server, and what a viewer does, to the panels.
import { allow, rankActs } from './acts.js';
import { Barriers } from './barriers.js';
import { knock, shown, trade } from './door.js';
import { collectives, transfers } from './flights.js';
import { Grid } from './grid.js';
import { listen } from './keys.js';
import { KeyStore } from './keystore.js';
import { follow } from './live.js';
import { Logs } from './logs.js';
import { marks } from './marks.js';
import { showCounts, showJob, showLegend, showWaits, showWhy } from './panels.js';
import { Detail, Stacks, Table } from './rank.js';
import { attempts, preemption } from './records.js';
import { lead, showServers } from './servers.js';
import { Slider } from './slider.js';
import { Tabs } from './tabs.js';
import { ago, byId, clock, setText, tick } from './text.js';
import { Timeline } from './timeline.js';

/** @type {Record<string, import('./stream.js').Message|undefined>} the newest of each topic */
const newest = {};
let jobs = 1; // how many: with one, the number of a rank names it

const timeline = new Timeline();
const stacks = new Stacks();
const detail = new Detail(timeline, stacks);
const table = new Table(openRank);
const slider = new Slider(showMoment);
const barriers = new Barriers();
const tabs = new Tabs({ barriers, keys: new KeyStore(), logs: new Logs(), preempt: preemption(rankOf, ranksOf), transfers: transfers(rankOf), collectives, attempts });
const grid = new Grid(byId('grid'), (cell) => openRank(nameOf(cell)), point);

/** rankOf is what people call a task. @param {string} task */
function rankOf(task) {
  return jobs === 1 ? task.slice(task.indexOf('/') + 1) : task;
}

/** ranksOf names tasks, with runs drawn together. @param {string[]} tasks */
function ranksOf(tasks) {
  if (jobs !== 1) return tasks.length > 12 ? `${tasks.slice(0, 12).join(' ')} and ${tasks.length - 12} more` : tasks.join(' ');
  const numbers = tasks.map((t) => Number(rankOf(t))).sort((a, b) => a - b), runs = [];
  for (let i = 0, j; i < numbers.length; i = j) {
    for (j = i + 1; numbers[j] === numbers[j - 1] + 1; j++);
    runs.push(j - i > 1 ? `${numbers[i]}-${numbers[j - 1]}` : `${numbers[i]}`);
  }
  return `rank${tasks.length > 1 ? 's' : ''} ${runs.slice(0, 12).join(',')}${runs.length > 12 ? ',...' : ''}`;
}

/** nameOf is the rank of a cell, as an address has it. @param {number} cell */
function nameOf(cell) {
  let rank = grid.rankOf(cell);
  if (jobs === 1) return String(rank);
  for (const j of newest.grid?.data.jobs ?? []) {
    if (rank < j.tasks) return `${j.name}/${rank}`;
    rank -= j.tasks;
  }
  return String(rank);
}

/** cellOf is the cell of a rank, or -1. @param {string} name */
function cellOf(name) {
  if (grid.byHost) return -1;
  if (jobs === 1) return /^\d+$/.test(name) && Number(name) < grid.cells.length ? Number(name) : -1;
  let before = 0;
  for (const j of newest.grid?.data.jobs ?? []) {
    if (name.startsWith(`${j.name}/`)) return before + Number(name.slice(j.name.length + 1));
    before += j.tasks;
  }
  return -1;
}

/** @param {number} cell */
function point(cell) {
  if (cell < 0) return;
  const host = grid.hostOf(grid.rankOf(cell));
  setText(byId('pointed'), grid.byHost ? `host ${grid.hosts[cell].host}: ${marks[grid.cells[cell]].word}` : `rank ${nameOf(cell)}${host ? ` on ${host}` : ''}: ${marks[grid.cells[cell]]?.word}`);
}

/** @param {string} rank */
function openRank(rank) {
  location.hash = `#/ranks/${encodeURIComponent(rank)}`;
}

/** route shows what the address says. */
function route() {
  const [path, query] = location.hash.slice(1).split('?');
  if (tabs.route(path, query ?? '')) return; // the rank that is open stays open
  const rank = /^\/ranks\/(.+)$/.exec(path);
  const name = rank ? decodeURIComponent(rank[1]) : '';
  detail.show(name);
  byId('rank-acts').replaceChildren(...(name ? rankActs(name) : []));
  grid.choose(name ? cellOf(name) : -1);
  timeline.only(new URLSearchParams(path === '/events' ? query : ''));
  if (/^\/(ranks|waits|timeline|coordinator|lost|verdict|stacks)$/.test(path)) byId(path.slice(1)).scrollIntoView();
}

/** take shows a message. @param {import('./stream.js').Message} m */
function take(m) {
  if (m.name === 'reset') {
    timeline.clear();
  } else if (m.name === 'event') {
    timeline.add(m.data);
    detail.changed();
  } else {
    newest[m.name] = m;
    shows[m.name]?.(m);
    if (m.name === 'waits' || m.name === 'why') tabs.changed();
  }
  if (m.id) document.body.dataset.revision = m.id;
}

/** showMoment shows a job as of a time. @param {any} moment */
function showMoment(moment) {
  timeline.clear();
  for (const e of moment.events) timeline.add(e);
  for (const name of ['hosts', 'grid', 'job', 'waits', 'why']) take({ name, id: '', data: moment[name], at: Date.now(), past: true });
  tabs.moved();
  document.body.dataset.revision = `at ${moment.at_seconds}`;
}

/** @type {Record<string, (m: import('./stream.js').Message) => void>} */
const shows = {
  past: (m) => { slider.begin(m.data); showLink(); },
  servers: showServers,
  hello: () => rights().catch(() => {}), // a server that was started again may allow other things
  job: showJob,
  why: (m) => { showWhy(m); showWaits(newest.waits, m, rankOf); detail.changed(); },
  waits: (m) => showWaits(m, newest.why, rankOf),
  hosts: (m) => grid.setHosts(m.data.hosts),
  grid: (m) => {
    jobs = m.data.jobs?.length ?? 1;
    grid.setStates(m.data.states);
    showCounts(grid.ranks);
    grid.choose(detail.rank ? cellOf(detail.rank) : grid.chosen);
    table.changed();
    detail.changed();
  },
  ping: showLink,
  link: showLink,
};

let lostAt = 0; // when the connection was lost; 0: it is there

/** showLink says whether what is shown is true now. */
function showLink() {
  const on = newest.link?.data === 'on', away = newest.ping?.data.away;
  if (on) lostAt = 0;
  else lostAt ||= Date.now();
  const seen = Math.max(newest.job?.at ?? 0, newest.grid?.at ?? 0, newest.ping?.at ?? 0);
  let text = '';
  if (!on && newest.link) text = `connection lost ${ago((Date.now() - lostAt) / 1000)} ago${newest.past ? '' : `, showing ${seen ? clock(seen) : 'nothing'}`}${newest.link.data === 'refused' ? '; the server refuses: it may have another token now' : ''}`;
  else if (away) text = `the service of the job does not answer: ${away}`;
  else if (newest.job?.data.stopped) text = 'the job has ended';
  lead(!on && !!newest.link);
  byId('away').hidden = !text;
  setText(byId('away'), text);
  byId('live').className = newest.past && on ? '' : on && !away ? 'on' : 'away';
  setText(byId('live'), newest.past ? 'a journal' : on && !away ? 'live ●' : 'not live ○');
}

/** dress puts the page in the colours that a person, or the system, prefers. */
function dress() {
  const dark = kept('theme') ? kept('theme') === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  grid.recolour();
  timeline.draw();
  barriers.draw();
}

/** kept is a setting of this browser. @param {string} name */
function kept(name) {
  try { return localStorage.getItem(`serry-${name}`); } catch { return null; }
}

function otherTheme() {
  try { localStorage.setItem('serry-theme', document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'); } catch { return; }
  dress();
}

/** enter trades a token for a cookie, and says whether the server lets this browser in. @param {string} token empty: the browser may have a cookie */
async function enter(token) {
  return (!token || await trade(token)) && rights();
}

/** rights asks what this tab may show and change, and says whether the server lets this browser in. */
async function rights() {
  const r = await fetch('api/v1/rights', { headers: shown() });
  if (r.ok) {
    const may = await r.json();
    allow(may.acts);
    byId('rank-acts').replaceChildren(...(detail.rank ? rankActs(detail.rank) : []));
    tabs.offer(may.panels);
    for (const name of ['logs', 'transfers']) byId(`rank-${name}`).hidden = !may.panels.includes(name);
  }
  return r.status !== 401;
}

/** begin takes the token out of the address, where others could read it, and asks for one where there is none. */
async function begin() {
  const found = /[#&]token=([^&]*)/.exec(location.hash);
  if (found) history.replaceState(null, '', location.pathname + location.search + location.hash.replace(/[#&]token=[^&]*/, ''));
  let inside = await enter(found ? decodeURIComponent(found[1]) : '').catch(() => true); // a server that is away is said to be
  while (!inside) inside = await knock().then(rights).catch(() => false);
  follow(take);
}

showLegend();
dress();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', dress);
byId('theme').addEventListener('click', otherTheme);
byId('help-open').addEventListener('click', () => byId('help').showModal());
byId('rank-close').addEventListener('click', () => { location.hash = '#/'; });
byId('read-stacks').addEventListener('click', () => stacks.read(ranksOf).then(() => {
  detail.own = null;
  detail.changed();
}));
byId('rank-read').addEventListener('click', () => detail.read());
byId('copy').addEventListener('click', async () => {
  const text = [byId('verdict-text').textContent, ...[...byId('evidence').children].map((e) => e.textContent)].join('\n');
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  setText(byId('copied'), done ? 'copied' : 'this browser copies only over https or on localhost');
});
listen(grid, { open: (cell) => openRank(nameOf(cell)), back: () => { location.hash = '#/'; }, theme: otherTheme, point });
addEventListener('token', () => rights().catch(() => {}));
addEventListener('hashchange', () => {
  if (/[#&]token=/.test(location.hash)) { // as where the address for changes is opened: the two addresses differ in nothing else
    location.reload();
    return;
  }
  route();
  slider.route();
});
setInterval(() => { if (!newest.past) tick(); showLink(); }, 1000);
begin().then(route);
