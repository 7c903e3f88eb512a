// @ts-check
// The token. It is traded for a cookie, which is enough to look. A browser sends a cookie to every port of a host, though, so what changes
// something needs the token itself. This tab keeps it, where no other origin can read it.
import { byId, setText } from './text.js';

const place = `serry-token ${location.pathname}`; // behind a proxy several pages may have one origin
let token = '';
try { token = sessionStorage.getItem(place) ?? ''; } catch { /* then it is kept until the page is loaded again */ }

/** trade sends a token, and says whether it is the right one. @param {string} given */
export async function trade(given) {
  const r = await fetch('api/v1/session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token: given }) });
  if (!r.ok) return false;
  token = given;
  try { sessionStorage.setItem(place, token); } catch { /* as above */ }
  return true;
}

/** shown are the headers of a request that has the token of this tab, if there is one. @returns {Record<string, string>} */
export const shown = () => (token ? { Authorization: `Bearer ${token}` } : {});

/** wanted asks for the token where this tab has none. */
export async function wanted() {
  if (!token) {
    await knock();
    dispatchEvent(new Event('token')); // it may allow more than to look
  }
  return shown();
}

/** knock asks for a token until it is the right one, or the dialog is closed. */
export function knock() {
  const door = byId('door'), form = byId('door-form');
  setText(byId('door-error'), '');
  door.showModal();
  return new Promise((done, gone) => {
    form.onsubmit = async (/** @type {Event} */ e) => {
      e.preventDefault();
      if (await trade(byId('door-token').value.trim()).catch(() => false)) {
        door.onclose = null;
        door.close();
        done(null);
      } else setText(byId('door-error'), 'that is not the token');
    };
    door.onclose = () => gone(new Error('this needs the token'));
  });
}
