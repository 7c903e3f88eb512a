// @ts-check
// The keyboard.
import { byId } from './text.js';

const panels = { r: 'ranks', w: 'waits', t: 'timeline', c: 'coordinator', l: 'lost', v: 'verdict' };
const tabs = { b: 'barriers', k: 'keys', o: 'logs', p: 'preempt', x: 'transfers', f: 'collectives', a: 'attempts' };

/**
 * listen does what keys stand for.
 * @param {import('./grid.js').Grid} grid
 * @param {{open: (cell: number) => void, back: () => void, theme: () => void, point: (cell: number) => void}} acts
 */
export function listen(grid, acts) {
  let afterG = false;
  addEventListener('keydown', (e) => {
    const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
    if (e.key === 'Escape') {
      if (typing) /** @type {HTMLElement} */ (e.target).blur();
      else acts.back();
      return;
    }
    if (typing) return;
    const panel = afterG ? panels[/** @type {'r'} */ (e.key)] : undefined, tab = afterG ? tabs[/** @type {'b'} */ (e.key)] : undefined;
    afterG = e.key === 'g' && !afterG;
    if (panel) {
      const target = panel === 'ranks' ? byId('grid') : byId(panel);
      byId(panel).scrollIntoView({ block: 'nearest' });
      target.focus();
    } else if (tab) {
      location.hash = `#/${tab}`;
      byId('more').focus();
    } else if (e.key === '?') {
      byId('help').showModal();
    } else if (e.key === '/') {
      byId('filter').focus();
    } else if (e.key === 'd') {
      acts.theme();
    } else if (e.key === 'n') {
      choose(grid.next());
    } else if (e.target === grid.canvas && e.key.startsWith('Arrow')) {
      choose(grid.beside(e.key));
    } else if (e.target === grid.canvas && e.key === 'Enter' && grid.chosen >= 0) {
      acts.open(grid.chosen);
    } else {
      return;
    }
    e.preventDefault();
  });

  /** @param {number} cell */
  function choose(cell) {
    if (cell < 0) return;
    grid.choose(cell);
    acts.point(cell);
    grid.canvas.focus({ preventScroll: true });
  }
}
