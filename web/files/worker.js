// @ts-check
// A shared worker holds the one stream of all tabs: a browser has six connections for each origin, and a seventh tab with a stream of its
// own would never load. It keeps the newest message of each topic and the events, for tabs that come later.
import { Stream } from './stream.js';

/** @type {Set<MessagePort>} */
const tabs = new Set();
/** @type {Map<string, any>} */
const newest = new Map();
/** @type {Map<string, any>} */
let events = new Map();
const kept = 1000;

/** @param {any} message */
function send(message) {
  for (const tab of tabs) tab.postMessage(message);
}

const stream = new Stream((message) => {
  if (message.name === 'reset') {
    newest.clear();
    events = new Map();
  } else if (message.name === 'event') {
    events.delete(message.data.key);
    events.set(message.data.key, message);
    if (events.size > kept) events.delete(events.keys().next().value ?? '');
  } else {
    newest.set(message.name, message);
  }
  send(message);
});

/** @param {any} e */
globalThis.onconnect = (e) => {
  const tab = e.ports[0];
  tabs.add(tab);
  tab.onmessage = (/** @type {MessageEvent} */ m) => {
    if (m.data === 'bye') tabs.delete(tab);
    if (m.data === 'again') stream.open();
  };
  for (const message of newest.values()) tab.postMessage(message);
  for (const message of events.values()) tab.postMessage(message);
  stream.open();
};
