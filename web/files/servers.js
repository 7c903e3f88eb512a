// @ts-check
// The servers of the service, and the way to their pages when the one of this page is gone.
import { byId, el } from './text.js';

/** @type {any[]} */
let servers = [];

/** Where the two lists are: below the coordinator, and below the banner that says that the connection is lost. */
const list = el('ul.servers'), others = el('p.banner.others');
others.id = 'others';
list.id = 'servers';
others.hidden = true;

/** showServers shows the list. @param {{data: any}} m */
export function showServers(m) {
  servers = m.data.servers;
  if (!list.parentNode) byId('coordinator').append(list);
  list.replaceChildren(...servers.map((s) => el(s.state === 'down' ? 'li.bad' : 'li', `${s.name || s.address} ${s.state}${s.lag ? `, ${s.lag.toLocaleString()} entries behind` : ''}${s.here ? ', this page' : ''}`, ...way(s))));
  list.hidden = servers.length < 2;
}

/** way is a link to the page of another server. The view is the same there. @param {any} s @returns {(Node|string)[]} */
function way(s) {
  if (s.here || !s.page || s.state === 'down') return [];
  if (s.local) return [', with a page on its own host'];
  const a = /** @type {HTMLAnchorElement} */ (el('a', 'its page'));
  try {
    const url = new URL(s.page);
    if (!/^https?:$/.test(url.protocol)) return [];
    a.href = url.href;
  } catch {
    return [];
  }
  a.addEventListener('click', () => { a.hash = location.hash; });
  return [', ', a];
}

/** lead shows the way to the others while this page is cut off. @param {boolean} lost */
export function lead(lost) {
  const there = lost ? servers.filter((s) => !s.here && way(s).length) : [];
  if (!others.parentNode) byId('away').after(others);
  if (others.hidden === !there.length) return;
  others.hidden = !there.length;
  others.replaceChildren('the other servers of the job: ', ...there.flatMap((s, i) => [i ? '; ' : '', s.name || s.address, ...way(s)]));
}
