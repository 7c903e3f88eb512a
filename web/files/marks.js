// @ts-check
// The marks of ranks: the letters that serry top has, with a word, a colour of the style sheet and a sign for each.

/** @typedef {{word: string, colour: string, sign: string, trouble: boolean}} Mark */

/** The worst first, as diagnose.Mark has them. @type {Record<string, Mark>} */
export const marks = {
  'F': { word: 'failed', colour: '--mark-failed', sign: '✕', trouble: true },
  '!': { word: 'keeps the others waiting', colour: '--mark-blamed', sign: '▲', trouble: true },
  '-': { word: 'not here', colour: '--mark-absent', sign: '–', trouble: true },
  'r': { word: 'registering', colour: '--mark-registering', sign: '○', trouble: true },
  'm': { word: 'missing at a barrier', colour: '--mark-missing', sign: '◇', trouble: true },
  's': { word: 'slow', colour: '--mark-slow', sign: '▾', trouble: true },
  'w': { word: 'waiting for others', colour: '--mark-waiting', sign: '·', trouble: false },
  '.': { word: 'at work', colour: '--mark-work', sign: '', trouble: false },
  'x': { word: 'has left', colour: '--mark-left', sign: '', trouble: false },
};

/**
 * unfold reads run-length coded states: ".996!1" are 996 dots and one exclamation mark.
 * @param {string} states
 * @returns {string[]} runs as [mark, count] would cost more: one letter a rank
 */
export function unfold(states) {
  const all = [];
  for (const [, mark, count] of states.matchAll(/(\D)(\d+)/g)) {
    for (let i = Number(count); i > 0; i--) all.push(mark);
  }
  return all;
}
