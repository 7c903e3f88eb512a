// The cases of the panels at the foot of the page. drive.mjs plays them.

/** @param {any} stage what drive.mjs has for cases */
export function panelCases({ browser, open, order, says, must, equal, clean }) {
  const go = (page, hash) => page.evaluate((h) => { location.hash = h; }, hash);
  const shows = (page, id) => page.waitForFunction((id) => !document.getElementById(id).hidden, id);

  return {
    async 'keys and their values'(context) {
      const { page } = await open(context, 'healthy', 4);
      await page.click('#tabs a[href="#/keys"]');
      await shows(page, 'keys');
      await says(page, '#keys-sum', '45 keys');
      await says(page, '#keys-list', 'cpu:gloo/40 keys780 B');
      await page.click('#keys-list a:text-is("ckpt/")');
      await says(page, '#keys-sum', '2 keys');
      must(/#\/keys\?prefix=ckpt%2F/.test(page.url()), `the address of a directory is ${page.url()}`);
      await page.click('#keys-list a:text-is("dir")');
      await says(page, '#value', '/data/ckpt/100\nsecond line');
      await page.click('#keys-path a:text-is("all keys")');
      await page.click('#keys-list a:text-is("wandb_token")');
      await says(page, '#value', 'are not shown');
      await page.click('#keys-list a:text-is("blob")');
      await says(page, '#value', '000000  00 01 ff 78');
      await go(page, '#/keys?prefix=hidden%2F&key=hidden%2Fa');
      await says(page, '#value', '--web-hide hidden/*');
      must(!/hunter2|behind a pattern/.test(await page.evaluate(() => document.body.textContent)), 'a hidden value is on the page');
      await page.fill('#keys-prefix', 'cpu:gloo/3');
      await page.press('#keys-prefix', 'Enter');
      await says(page, '#keys-sum', '11 keys');
      await go(page, '#/keys?key=nothing');
      await says(page, '#tab-error', 'no key "nothing"');
      must(await page.locator('#keys-acts input').count() === 0, 'a viewer can edit keys');
      clean(page);
    },

    async 'the log of a rank'(context) {
      const job = await open(context, 'healthy', 4);
      const { page } = job;
      await go(page, '#/ranks/3');
      await says(page, '#rank-title', 'rank 3');
      await page.click('#rank-read');
      await says(page, '#rank-stack', ', asleep (nanosleep)load_batch  train.py:10');
      await page.click('#rank-logs');
      await says(page, '#log', 'step 18204 loss 2.99');
      await says(page, '#log .stderr', 'Traceback');
      await says(page, '#log', 'ValueError: bad sample 17');
      equal(await page.evaluate(() => document.getElementById('log').textContent.includes('[31m')), false, 'colours of a terminal in the log');
      await order({ do: 'say', job: job.job, scene: 'a new line' });
      await says(page, '#log', 'a new line'); // followed
      await page.fill('#log-find', 'valueerror');
      await page.waitForFunction(() => document.querySelectorAll('#log time').length === 1);
      await says(page, '#log-text', 'rank 3: 1 line of 33');
      await page.fill('#log-rank', '1');
      await page.press('#log-rank', 'Enter');
      await says(page, '#tab-error', 'no launcher has lines of rank 1');
      clean(page);
    },

    async 'barriers with their arrivals'(context) {
      const { page } = await open(context, 'healthy', 64);
      await says(page, '#barrier-list', 'step-18212');
      await says(page, '#barrier-text', '64 of 64 ranks in 1.3s');
      await says(page, '#barrier-last', 'rank 3 came last, 1.1s after the middle one; the last: 3 +1.3s');
      const marked = await page.evaluate(() => {
        const canvas = document.getElementById('arrivals'), p = canvas.getContext('2d'), image = p.getImageData(0, 0, canvas.width, canvas.height).data;
        const wanted = getComputedStyle(document.documentElement).getPropertyValue('--bad').trim(), at = [];
        for (let i = 0; i < image.length; i += 4) if ('#' + [0, 1, 2].map((k) => image[i + k].toString(16).padStart(2, '0')).join('') === wanted) at.push((i / 4) % canvas.width);
        return at.length ? Math.max(...at) / canvas.width : 0;
      });
      must(marked > 0.9, `the last rank is marked at ${marked} of the width`);
      equal(await page.locator('#barrier-list tr.bad').count(), 1, 'barriers that failed');
      await page.click('#barrier-list tr.bad a');
      await says(page, '#barrier-text', 'barrier timed out');
      must(page.url().endsWith('#/barriers/11'), `the address of a barrier is ${page.url()}`);
      await go(page, '#/barriers?class=step-%23');
      await says(page, '#barrier-text', 'step-18212');
      clean(page);
    },

    async 'collectives, transfers, preemption and attempts'(context) {
      const { page } = await open(context, 'restarted', 4);
      await page.click('#tabs a[href="#/collectives"]');
      await says(page, '#collectives', 'operation 41: ranks 0-1 run broadcast; rank 3 has not begun it');
      await says(page, '#collectives tr.bad', '▲ 41');
      await says(page, '#collectives', 'allreduce of 16777216 f32 by sum');
      equal(await page.locator('#collectives tbody tr').count(), 12, 'operations that are shown at first');
      await page.click('#collectives button:text-is("all 41 operations")');
      await page.waitForFunction(() => document.querySelectorAll('#collectives tbody tr').length === 41);
      await page.click('#tabs a[href="#/transfers"]');
      await says(page, '#transfers', '512.0 KiB of 1.0 MiB');
      await says(page, '#transfers', 'waits until worker/3 receives');
      await go(page, '#/ranks/3');
      await page.click('#rank-transfers');
      await says(page, '#transfers', 'rank 3 takes part in 1 of 1 transfers');
      await go(page, '#/transfers?rank=1');
      await says(page, '#transfers', 'rank 1 takes part in 0 of 1 transfers');
      await page.click('#tabs a[href="#/preempt"]');
      await says(page, '#preempt', 'rank 2');
      await says(page, '#preempt', 'step 18,235');
      await says(page, '#preempt', '3/4');
      await says(page, '#preempt', 'signal terminated');
      await page.click('#tabs a[href="#/attempts"]');
      await says(page, '#attempts tr.bad', 'rank 3: signal 9 (KILL)');
      await says(page, '#attempts', 'it runs; 2 restarts left');
      equal(await page.locator('#more img').count(), 0, 'images that the last lines of a rank have put into the page');
      clean(page);
    },

    async 'a part of the timeline'(context) {
      const { page } = await open(context, 'failed', 4);
      await says(page, '#events', 'rank 3 failed');
      equal(await page.locator('#events li').count(), 2, 'events');
      const strip = await page.locator('#strip').boundingBox();
      const x = (share) => strip.x + strip.width * share, y = strip.y + 9;
      await page.mouse.move(x(0.5), y);
      await page.mouse.down();
      await page.mouse.move(x(0.999), y);
      await page.mouse.up();
      await page.waitForFunction(() => document.querySelectorAll('#events li').length === 1);
      await says(page, '#events', 'rank 3 failed');
      must(/#\/events\?from=[^&]+&to=/.test(page.url()), `the address of a part is ${page.url()}`);
      await page.reload(); // as one that a colleague was sent
      await page.waitForFunction(() => document.querySelectorAll('#events li').length === 1 && document.getElementById('events').textContent.includes('rank 3 failed'));
      await page.click('#span-all');
      await page.waitForFunction(() => document.querySelectorAll('#events li').length === 2);
      await page.selectOption('#span', '60');
      await page.waitForFunction(() => document.querySelectorAll('#events li').length === 1);
      await page.selectOption('#kind', 'job'); // of which there was none in that time
      await says(page, '#events', 'nothing happened then');
      await page.dblclick('#strip');
      await says(page, '#events', 'all ranks registered');
      clean(page);
    },

    async 'text of a job is text in the panels'(context) {
      const { page } = await open(context, 'hostile', 4);
      await says(page, '#barrier-list', '<img src=x');
      for (const [tab, where] of [['keys', '#keys-list'], ['logs/3', '#log'], ['collectives', '#collectives'], ['transfers', '#transfers']]) {
        await go(page, `#/${tab}`);
        await says(page, where, '<img src=x');
      }
      await go(page, `#/keys?key=${encodeURIComponent('<img src=x onerror="globalThis.harmed=1">\u001b[31m\u202e')}`);
      await says(page, '#value', 'onerror=');
      equal(await page.locator('img').count(), 0, 'images that a job has put into the page');
      must(await page.evaluate(() => globalThis.harmed === undefined), 'a script of a job has run');
      must(!/[\u001b\u202e]/.test(await page.evaluate(() => document.body.textContent)), 'characters that steer text are in the page');
      clean(page);
    },

    async 'changes of the job'(context) {
      const job = await open(context, 'healthy', 4);
      await go(job.page, '#/ranks/3');
      await says(job.page, '#rank-title', 'rank 3');
      equal(await job.page.locator('button.act').count(), 0, 'buttons of a person who may only look');

      const writer = await browser.newContext();
      const page = await writer.newPage();
      page.setDefaultTimeout(60_000);
      const asked = [];
      page.on('dialog', (d) => { asked.push(d.message()); d.accept(); });
      await page.goto(`${job.url}#token=${job.write}`);
      await says(page, '#job-acts', 'stop the job');
      await go(page, '#/ranks/3');
      await page.click('#rank-acts button:text-is("kill")');
      await says(page, '#acted', 'kill rank 3, from the page, by 127.0.0.1: ending the job');
      await says(job.page, '#events', 'kill rank 3, from the page'); // all viewers are told
      await page.click('#rank-acts button:text-is("restart")');
      await says(page, '#acted', 'no restarts are left');
      await says(page, '#events .bad', 'restart rank 3');
      await go(page, '#/keys?key=ckpt%2Fstep');
      await page.fill('#keys-acts label:last-of-type input', '200');
      await page.click('#keys-acts button:text-is("put")');
      await says(page, '#acted', 'put key "ckpt/step"');
      await go(page, '#/keys?key=blob');
      await page.click('#keys-acts button:text-is("delete")');
      await says(page, '#acted', 'delete key "blob"');
      await says(page, '#keys-sum', '44 keys');
      await page.click('#job-acts button');
      await says(page, '#acted', 'stop job, from the page');
      equal(asked.length, 5, 'questions before changes');
      equal((await order({ do: 'acts', job: job.job })).acts, ['kill worker/3', 'restart worker/3', 'put ckpt/step', 'delete blob', 'stop'], 'changes of the job');
      await page.reload();
      await says(page, '#job-acts', 'stop the job'); // the tab keeps the token

      const second = await writer.newPage(); // which has the cookie, but not the token
      second.setDefaultTimeout(60_000);
      await second.goto(`${job.url}#/ranks/3`);
      await says(second, '#live', 'live ●');
      await says(second, '#rank-title', 'rank 3');
      equal(await second.locator('button.act').count(), 0, 'buttons of a tab without the token');
      const refused = await second.evaluate(() => fetch('api/v1/acts/kill', { method: 'POST', headers: { 'Content-Type': 'application/json', 'Serry-Act': 'yes' }, body: '{"rank":"3"}' }).then(async (r) => [r.status, (await r.json()).error]));
      equal(refused, [403, 'a cookie alone changes nothing: the request does not show the token'], 'a change by the cookie alone');
      await second.click('#read-stacks');
      await second.waitForSelector('#door[open]');
      await second.keyboard.press('Escape');
      await says(second, '#stacks-body', 'this needs the token');
      await second.click('#read-stacks');
      await second.fill('#door-token', job.write);
      await second.click('#door button');
      await says(second, '#stacks-body', 'rank 3: alone');
      await says(second, '#rank-acts', 'kill');
      equal((await order({ do: 'acts', job: job.job })).acts.length, 5, 'changes of the job, those by the cookie included');
      await writer.close();
      clean(job.page);
    },

    async 'keyboard to the panels'(context) {
      const { page } = await open(context, 'healthy', 4);
      for (const [key, tab] of [['k', 'keys'], ['p', 'preempt'], ['x', 'transfers'], ['f', 'collectives'], ['a', 'attempts'], ['b', 'barriers']]) {
        await page.keyboard.press('g');
        await page.keyboard.press(key);
        await shows(page, tab);
        equal(await page.evaluate(() => [document.activeElement?.id, document.querySelector('#tabs a[aria-current]')?.hash]), ['more', `#/${tab}`], `what g ${key} leads to`);
        equal(await page.evaluate(() => [...document.querySelectorAll('#more > div')].filter((d) => !d.hidden).length), 1, 'panels that are shown');
      }
      await page.keyboard.press('g');
      await page.keyboard.press('o');
      await page.waitForFunction(() => document.activeElement?.id === 'log-rank');
      await page.keyboard.type('3');
      await page.keyboard.press('Enter');
      await says(page, '#log', 'Traceback');
      for (const id of ['barrier-list', 'keys-list']) equal(await page.locator(`#${id} th[scope=col]`).count(), id === 'keys-list' ? 3 : 6, `columns of ${id}`);
      clean(page);
    },
  };
}
