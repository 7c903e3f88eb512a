// The cases of how messages reach the page, without a shared worker, hidden, and from a host that has died; and of what they leave alone.
// drive.mjs plays them.

const hiddenFor = 10_000, silence = 40_000; // as web/files/live.js and stream.js have them

/** @param {any} stage what drive.mjs has for cases */
export function linkCases({ open, order, says, must, equal, clean }) {
  /** alone makes a browser that has no shared worker, and whose time can be moved. */
  async function alone(context) {
    await context.addInitScript(() => { delete globalThis.SharedWorker; });
    await context.clock.install();
  }

  /** hide puts a page into the background, or back. */
  const hide = (page, hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);

  /** streams waits until a job has so many streams. */
  async function streams(job, n) {
    while ((await order({ do: 'streams', job: job.job })).streams !== n) await new Promise((again) => { setImmediate(again); });
  }

  return {
    async 'a tab without a shared worker'(context) {
      await alone(context);
      const job = await open(context, 'healthy', 4);
      const { page } = job;
      await says(page, '#live', 'live ●');
      const second = await context.newPage();
      await second.goto(job.url);
      await says(second, '#live', 'live ●');
      await streams(job, 2);
      await second.close();
      await streams(job, 1);
      await page.evaluate(() => { document.getElementById('events').dataset.kept = 'yes'; });
      await hide(page, true);
      await page.clock.fastForward(hiddenFor - 1000);
      await hide(page, false); // a short look at another tab costs nothing
      await hide(page, true);
      await page.clock.fastForward(hiddenFor - 1000);
      equal((await order({ do: 'streams', job: job.job })).streams, 1, 'streams of a tab that was hidden for less than 10 s');
      await page.clock.fastForward(2000);
      await streams(job, 0);
      await order({ do: 'scene', job: job.job, scene: 'failed', ranks: 4 });
      const again = page.waitForRequest((r) => r.url().includes('/stream'));
      await hide(page, false);
      must(/\/stream\?last=\w+-\d+$/.test((await again).url()), `the tab comes back with ${(await again).url()}`);
      await says(page, '#counts', '1 failed');
      await says(page, '#events', 'rank 3 failed');
      equal(await page.locator('#events li').count(), 2, 'events, of which one came while the tab was hidden');
      await streams(job, 1);
      clean(page);
    },

    async 'nothing moves unless something has changed'(context) {
      const { page } = await open(context, 'stuck', 40);
      await says(page, '#twin tbody', 'keeps the others waiting');
      for (const where of ['#waits-body a', '#twin tbody tr:nth-child(2)']) {
        await page.focus(where);
        await page.evaluate((where) => {
          globalThis.focused = document.querySelector(where);
          globalThis.removed = [];
          const seen = (all) => { for (const m of all) for (const n of m.removedNodes) if (n.nodeType === Node.ELEMENT_NODE) globalThis.removed.push(n.outerHTML); };
          for (const id of ['verdict', 'waits', 'ranks', 'timeline']) new MutationObserver(seen).observe(document.getElementById(id), { childList: true, subtree: true });
        }, where);
        for (let i = 0; i < 3; i++) { // the age in the verdict makes it another message each second
          const was = await page.textContent('#verdict-text');
          await page.waitForFunction((was) => document.getElementById('verdict-text').textContent !== was, was);
        }
        must(await page.evaluate(() => document.activeElement === globalThis.focused), `${where} has lost the focus`);
        equal(await page.evaluate(() => globalThis.removed), [], 'elements that were taken out of the page');
      }
      clean(page);
    },

    async 'a question that failed is asked again'(context) {
      let failed = 0;
      await context.route(/api\/v1\/ranks\?/, (route) => (failed++ < 2 ? route.abort() : route.continue()));
      const { page } = await open(context, 'failed', 4); // of which nothing changes
      await says(page, '#twin tbody tr:first-child', 'failed');
      must(failed >= 3, `the table was asked for ${failed} times`);
      clean(page);
    },

    async 'the host of the page dies'(context) {
      await alone(context);
      const job = await open(context, 'failover', 4);
      const { page } = job;
      await says(page, '#live', 'live ●');
      await says(page, '#servers', 'c2 leads');
      await order({ do: 'mute', job: job.job });
      await page.clock.fastForward(silence + 1000);
      await says(page, '#live', 'not live');
      await says(page, '#away', 'connection lost');
      await says(page, '#away', 'ago, showing');
      await says(page, '#others', 'c2, its page');
      await says(page, '#counts', '4: 4 at work');
      await order({ do: 'unmute', job: job.job });
      await page.clock.fastForward(silence + 1000); // the connection that was made meanwhile is dead, too
      await says(page, '#live', 'live ●');
      await page.waitForFunction(() => document.getElementById('away').hidden && document.getElementById('others').hidden);
      equal(await page.locator('#events li').count(), 2, 'events after the host came back');
      clean(page);
    },
  };
}
