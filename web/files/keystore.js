// @ts-check
// The keys that the ranks share: a directory at a time, and the value of the one that a person chooses.
import { act, allowed, button } from './acts.js';
import { ask } from './rank.js';
import { byId, bytes, clean, el, setText } from './text.js';

const rows = 200, hexRow = 16;

export class KeyStore {
  constructor() {
    this.prefix = '';
    this.after = '';
    byId('keys-form').addEventListener('submit', (/** @type {Event} */ e) => {
      e.preventDefault();
      location.hash = address(byId('keys-prefix').value, '');
    });
    byId('keys-next').addEventListener('click', () => this.list(true).catch((e) => setText(byId('tab-error'), e.message)));
  }

  /** @param {string} _ @param {URLSearchParams} query */
  async load(_, query) {
    this.prefix = query.get('prefix') ?? '';
    byId('keys-prefix').value = this.prefix;
    this.path();
    await this.list(false);
    this.edit(query.get('key') ?? '');
    byId('value').replaceChildren();
    if (query.get('key')) await this.value(query.get('key') ?? '');
  }

  /** path shows the directories above. */
  path() {
    const parts = this.prefix.split('/').slice(0, -1);
    byId('keys-path').replaceChildren(link('all keys', address('', '')), ...parts.flatMap((part, i) => [' / ', link(part, address(`${parts.slice(0, i + 1).join('/')}/`, ''))]));
  }

  /** list shows a page of keys, below those that are there with more. @param {boolean} more */
  async list(more) {
    const l = await ask(`keys?tree=yes&limit=${rows}&prefix=${encodeURIComponent(this.prefix)}${more ? `&after=${encodeURIComponent(this.after)}` : ''}`);
    this.after = l.next ?? '';
    byId('keys-next').hidden = !this.after;
    setText(byId('keys-sum'), `${l.total.toLocaleString()} ${l.total === 1 ? 'key' : 'keys'}, ${bytes(l.bytes)}`);
    const found = [
      ...(l.dirs ?? []).map((/** @type {any} */ d) => el('tr', el('td', link(this.below(d.dir), address(d.dir, ''))), el('td.number', `${d.keys.toLocaleString()} ${d.keys === 1 ? 'key' : 'keys'}`), el('td.number', bytes(d.bytes)))),
      ...l.keys.map((/** @type {any} */ k) => el('tr', el('td', link(this.below(k.key), address(this.prefix, k.key))), el('td'), el('td.number', bytes(k.size)))),
    ];
    const body = byId('keys-list').tBodies[0];
    if (more) body.append(...found);
    else body.replaceChildren(...found);
  }

  /** below is a name without the directory that is shown. @param {string} key */
  below(key) {
    const dir = this.prefix.slice(0, this.prefix.lastIndexOf('/') + 1);
    return key.startsWith(dir) ? key.slice(dir.length) : key;
  }

  /** @param {string} key */
  async value(key) {
    const v = await ask(`keys/value?key=${encodeURIComponent(key)}`);
    byId('value').replaceChildren(
      el('h3', v.key), el('p.faint', [bytes(v.size), v.cut ? 'the beginning' : '', v.base64 ? 'no text, so as bytes' : ''].filter(Boolean).join(', ')),
      v.hidden ? el('p', v.hidden) : block(v.base64 ? hex(v.base64) : lines(v.value)));
  }

  /** edit shows what the token of this tab allows to do with keys. @param {string} key */
  edit(key) {
    const box = byId('keys-acts');
    box.replaceChildren();
    if (!allowed('put')) return;
    const name = input('key', key), value = input('value', '');
    box.append(name.label, value.label, button('put', () => act('put', { key: name.field.value, value: value.field.value }, `Store ${value.field.value.length} characters under ${name.field.value}?`).then(() => this.list(false))));
    if (key) box.append(button('delete', () => act('delete', { key }, `Delete ${key}, and everything below it?`).then(() => this.list(false))));
  }
}

/** @param {string} text @param {string} to */
function link(text, to) {
  const a = /** @type {HTMLAnchorElement} */ (el('a', text));
  a.href = to;
  return a;
}

/** @param {string} prefix @param {string} key */
const address = (prefix, key) => `#/keys?prefix=${encodeURIComponent(prefix)}${key ? `&key=${encodeURIComponent(key)}` : ''}`;

/** @param {string} name @param {string} text */
function input(name, text) {
  const field = /** @type {HTMLInputElement} */ (el('input'));
  field.value = text;
  return { field, label: el('label', `${name} `, field) };
}

/** block is text of several lines, as they are. @param {string} text which is clean */
function block(text) {
  const pre = el('pre.stack');
  pre.textContent = text;
  return pre;
}

/** lines cleans each line of a text. @param {string} text */
const lines = (text) => text.replaceAll('\t', '    ').split(/\r?\n/).map(clean).join('\n');

/** hex shows bytes as programs for that do. @param {string} base64 */
function hex(base64) {
  const all = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)), out = [];
  for (let at = 0; at < all.length; at += hexRow) {
    const row = [...all.subarray(at, at + hexRow)];
    out.push(`${at.toString(16).padStart(6, '0')}  ${row.map((b) => b.toString(16).padStart(2, '0')).join(' ').padEnd(3 * hexRow)} ${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '.')).join('')}`);
  }
  return out.join('\n');
}
