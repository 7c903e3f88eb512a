// The cases of hostile names, of people who do not see the grid or want no motion, and of screens and jobs of other sizes. drive.mjs plays them.

/** @param {any} stage what drive.mjs has for cases */
export function accessCases({ browser, open, order, cells, wrongCells, says, must, equal, clean }) {
  return {
    async 'names and frames of a job are text'(context) {
      const { page } = await open(context, 'hostile names', 4);
      await says(page, '#title', '<img src=x');
      await says(page, '#twin tbody', '<img src=x');
      await page.click('#twin tbody tr:first-child');
      await says(page, '#rank-title', '<img src=x');
      await says(page, '#rank-facts', 'save-100');
      await page.click('#read-stacks');
      await says(page, '#stacks-body', '<img src=x');
      await says(page, '#stacks-body .stack', '<img src=x');
      await says(page, '#rank-stack', '<img src=x');
      must((await page.title()).includes('<img src=x'), `the title is ${await page.title()}`);
      equal(await page.locator('img').count(), 0, 'images that a job has put into the page');
      must(await page.evaluate(() => globalThis.harmed === undefined), 'a script of a job has run');
      must(!/[\u001b\u202e]/.test(await page.evaluate(() => document.title + document.body.textContent)), 'characters that steer text are in the page');
      clean(page);
    },

    async 'what a screen reader is told'(context) {
      const { page } = await open(context, 'stuck', 40);
      await says(page, '#twin tbody', 'keeps the others waiting');
      await page.evaluate(() => { location.hash = '#/ranks/3'; });
      await says(page, '#rank-facts', 'save-100');
      const tree = await page.locator('body').ariaSnapshot();
      for (const part of [
        'heading "serry"', 'region "Verdict"', 'rank 3 is stalled|stuck since', 'region "ranks"', 'img "One cell for each rank; the table below says the same"',
        'table "Ranks, those in trouble first"', 'columnheader "state"', 'row "▲ keeps the others waiting 3 ', 'searchbox "filter"', 'region "waiting now"', 'link "3"', 'region "rank 3"',
        'region "timeline"', 'img "Events over time; the list below says the same"', 'combobox "show"', 'region "coordinator"', 'region "lost time"', 'navigation "More panels"', 'button "stacks"',
      ]) must(part.split('|').some((p) => tree.includes(p)), `the tree has no ${part}:\n${tree}`);
      clean(page);
    },

    async 'no motion where none is wanted'() {
      for (const reducedMotion of ['reduce', 'no-preference']) {
        const context = await browser.newContext({ reducedMotion });
        const { page } = await open(context, 'stuck', 40);
        await says(page, '#twin tbody', 'keeps the others waiting');
        await page.click('#waits-body a');
        await says(page, '#rank-facts', 'save-100');
        const moves = await page.evaluate(() => [...document.querySelectorAll('*')].filter((e) => {
          const s = getComputedStyle(e);
          return s.animationName !== 'none' || s.transitionDuration !== '0s' || s.scrollBehavior !== 'auto';
        }).map((e) => e.id || e.tagName));
        equal(moves, [], `elements that move under ${reducedMotion}`);
        equal(await page.evaluate(() => document.getAnimations().length), 0, 'animations');
        await context.close();
      }
    },

    async 'a screen with two pixels for one'() {
      const context = await browser.newContext({ deviceScaleFactor: 2 });
      const job = await open(context, 'stuck', 1000);
      const { page } = job;
      equal(await page.evaluate(() => { const c = document.getElementById('grid'); return [devicePixelRatio, c.width / parseFloat(c.style.width)]; }), [2, 2], 'pixels of the grid for one of the page');
      await order({ do: 'shuffle', job: job.job, seed: 7 });
      await says(page, '#counts', 'failed');
      equal(await wrongCells(page), [], 'cells with another colour');
      clean(page);
      await context.close();
    },

    async 'above 40,000 ranks a cell is a host'(context) {
      const job = await order({ do: 'new', scene: 'failed', ranks: 40_008 });
      const page = await context.newPage();
      page.setDefaultTimeout(60_000);
      await page.goto(`${job.url}#token=${job.token}`);
      await cells(page, 5001);
      await says(page, '#counts', '40,008: 1 failed · 40,007 at work');
      equal(await wrongCells(page), [], 'cells with another colour');
      await page.keyboard.press('n');
      await says(page, '#pointed', 'host 10.0.0.1: failed');
      equal(await page.evaluate(() => document.getElementById('grid').grid.cells.join('').replace(/\.+/, (dots) => dots.length)), 'F5000', 'marks of the hosts');
      await page.keyboard.press('ArrowRight');
      await says(page, '#pointed', 'host 10.0.0.2: at work');
      await page.keyboard.press('Enter');
      await says(page, '#rank-title', 'rank 8'); // the first one there
    },
  };
}
