// @ts-check
// The stream of the server, in a tab or in the shared worker.

/** @typedef {{name: string, id: string, data: any, at: number, past?: boolean}} Message */

const topics = ['hello', 'job', 'grid', 'hosts', 'waits', 'why', 'event', 'ping', 'reset', 'past', 'servers'];
const comesBack = 3000; // milliseconds, where the browser has given up
const silence = 40_000; // milliseconds without a message, of which the server sends one each 15 s; a host that is dead closes no connection

/** A Stream hands messages on, and says by "link" whether it is connected. It goes on after the last message that it had. */
export class Stream {
  /** @param {(message: Message) => void} take */
  constructor(take) {
    this.take = take;
    this.last = '';
    /** @type {EventSource|null} */
    this.source = null;
    /** @type {any} */
    this.timer = null;
    /** @type {any} */
    this.watch = null;
  }

  open() {
    if (this.source && this.source.readyState !== EventSource.CLOSED) return;
    clearTimeout(this.timer);
    this.source?.close();
    const at = this.last ? `?last=${encodeURIComponent(this.last)}` : '';
    const source = new EventSource(`api/v1/stream${at}`);
    this.source = source;
    this.heard();
    source.onopen = () => { this.heard(); this.link('on'); };
    source.onerror = () => {
      const gone = source.readyState === EventSource.CLOSED;
      this.link(gone ? 'refused' : 'away');
      if (gone) this.timer = setTimeout(() => this.open(), comesBack);
    };
    for (const name of topics) {
      source.addEventListener(name, (e) => {
        const id = /** @type {MessageEvent} */ (e).lastEventId;
        if (id) this.last = id;
        this.heard();
        this.take({ name, id, data: JSON.parse(/** @type {MessageEvent} */ (e).data), at: Date.now() });
      });
    }
  }

  /** heard takes the connection for lost, and makes another, unless something comes soon. */
  heard() {
    clearTimeout(this.watch);
    this.watch = setTimeout(() => {
      this.close();
      this.link('away');
      this.open();
    }, silence);
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    this.source?.close();
    this.source = null;
  }

  /** @param {string} state */
  link(state) {
    this.take({ name: 'link', id: this.last, data: state, at: Date.now() });
  }
}
