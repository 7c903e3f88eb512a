// @ts-check
// What the token of this tab allows to change. Without the one for changes there is no button.
import { shown } from './door.js';
import { ask } from './rank.js';
import { byId, el, setText } from './text.js';

/** @type {string[]} */
let acts = [];

/** allow notes what may be changed. @param {string[]} names */
export function allow(names) {
  acts = names;
  byId('job-acts').replaceChildren(...(allowed('stop') ? [button('stop the job', () => act('stop', {}, 'End the job, for all its ranks?'))] : []));
}

/** @param {string} name */
export const allowed = (name) => acts.includes(name);

/** @param {string} text @param {() => Promise<any>} press */
export function button(text, press) {
  const b = el('button.act', text);
  b.addEventListener('click', () => press().catch((e) => setText(byId('acted'), e.message)));
  return b;
}

/** act changes the job, once the question is answered with yes. @param {string} name @param {object} body @param {string} question */
export async function act(name, body, question) {
  if (!confirm(question)) return;
  setText(byId('acted'), `${name}: under way`);
  const done = await ask(`acts/${name}`, { method: 'POST', headers: { ...shown(), 'Content-Type': 'application/json', 'Serry-Act': 'yes' }, body: JSON.stringify(body) });
  setText(byId('acted'), done.said);
}

/** rankActs are the buttons for a rank. @param {string} rank */
export function rankActs(rank) {
  const all = [];
  if (allowed('restart')) all.push(button('restart', () => act('restart', { rank }, `End rank ${rank}, to be started again?`)));
  if (allowed('kill')) all.push(button('kill', () => act('kill', { rank }, `End rank ${rank}? serry run then does what --restart says.`)));
  return all;
}
