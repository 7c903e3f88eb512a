// @ts-check
// How messages reach this tab: by the shared worker of all tabs, or by a stream of its own where there is none.
import { Stream } from './stream.js';

const hiddenFor = 10_000; // milliseconds, until a hidden tab gives its stream back

/**
 * follow hands every message to take, from now on.
 * @param {(message: import('./stream.js').Message) => void} take
 * @returns {{again: () => void}} again tries at once to connect
 */
export function follow(take) {
  if ('SharedWorker' in globalThis) {
    const worker = new SharedWorker('worker.js', { type: 'module', name: 'serry' });
    worker.port.onmessage = (m) => take(m.data);
    addEventListener('pagehide', () => worker.port.postMessage('bye'));
    addEventListener('pageshow', (e) => { if (e.persisted) location.reload(); });
    return { again: () => worker.port.postMessage('again') };
  }
  const stream = new Stream(take);
  /** @type {any} */
  let timer = null;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => stream.close(), hiddenFor);
    else stream.open();
  });
  stream.open();
  return { again: () => stream.open() };
}
