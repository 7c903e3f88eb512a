// @ts-check
// Texts. Whatever comes from the job is shown by textContent, and without the characters that change the direction of text.

/** @param {unknown} value */
export function clean(value) {
  return String(value ?? '').replace(/[\p{Cc}\p{Cf}]/gu, '');
}

/**
 * el makes an element with text or children.
 * @param {string} name, with classes behind dots: "td.number"
 * @param {...(string|Node)} children
 */
export function el(name, ...children) {
  const [tag, ...classes] = name.split('.');
  const e = document.createElement(tag);
  if (classes.length) e.className = classes.join(' ');
  e.append(...children.map((c) => (typeof c === 'string' ? clean(c) : c)));
  return e;
}

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** setText changes a text only if it is another one: nothing moves unless something has changed. @param {Element} e @param {string} text */
export function setText(e, text) {
  const wanted = clean(text);
  if (e.textContent !== wanted) e.textContent = wanted;
}

/** ago is a number of seconds as people say it, as the commands print it. @param {number} seconds */
export function ago(seconds) {
  const n = Math.floor(Math.max(0, seconds));
  const two = (/** @type {number} */ x) => String(x).padStart(2, '0');
  if (n < 10) return `${Math.max(0, seconds).toFixed(1)}s`;
  if (n < 60) return `${n}s`;
  if (n < 3600) return `${Math.floor(n / 60)}m${two(n % 60)}s`;
  if (n < 86400) return `${Math.floor(n / 3600)}h${two(Math.floor(n / 60) % 60)}m`;
  return `${Math.floor(n / 86400)}d${two(Math.floor(n / 3600) % 24)}h`;
}

/** age makes an element whose text is how long ago something was; tick keeps it true. @param {number} seconds */
export function age(seconds) {
  const e = el('span', ago(seconds));
  e.dataset.since = String(performance.now() - seconds * 1000);
  return e;
}

/** tick brings all ages up to date. */
export function tick() {
  for (const e of document.querySelectorAll('[data-since]')) {
    const since = Number(/** @type {HTMLElement} */ (e).dataset.since);
    setText(e, ago((performance.now() - since) / 1000));
  }
}

/** The page of a journal that does not tell the time of day says how long after its beginning something was. */
export const dial = { service: false };

/** @param {string|number|Date} when */
export function clock(when) {
  if (dial.service) return `+${ago(new Date(when).getTime() / 1000)}`;
  return new Date(when).toLocaleTimeString([], { hour12: false });
}

/** @param {number} n */
export function bytes(n) {
  let i = 0;
  for (; n >= 1024 && i < 4; i++) n /= 1024;
  return i === 0 ? `${n} B` : `${n.toFixed(1)} ${' KMGT'[i]}iB`;
}

/**
 * fill puts children into an element. What says the same as what is there stays, and with it the focus and what a person has marked. Of a row
 * in which only a word is another one that word is changed. Rows of different ranks are different rows.
 * @param {Element} parent @param {Node[]} fresh
 */
export function fill(parent, fresh) {
  fresh.forEach((node, i) => {
    const had = parent.childNodes[i];
    if (!had) parent.append(node);
    else if (!(had instanceof HTMLElement && node instanceof HTMLElement && had.tagName === node.tagName && had.dataset.rank === node.dataset.rank)) {
      if (!had.isEqualNode(node)) had.replaceWith(node);
    } else {
      for (const a of [...had.attributes]) if (!node.hasAttribute(a.name)) had.removeAttribute(a.name);
      for (const a of node.attributes) {
        if (had.getAttribute(a.name) === a.value) continue;
        if (a.name === 'style') had.style.cssText = node.style.cssText; // the policy of the page forbids styles as attributes
        else had.setAttribute(a.name, a.value);
      }
      fill(had, [...node.childNodes]);
    }
  });
  while (parent.childNodes.length > fresh.length) parent.lastChild?.remove();
}

/** facts fills a list of words and what they say; those that say nothing are left out. @param {Element} list @param {[string, string|Node|undefined][]} all */
export function facts(list, all) {
  fill(list, all.filter(([, what]) => what).flatMap(([word, what]) => [el('dt', word), el('dd', /** @type {any} */ (what))]));
}
