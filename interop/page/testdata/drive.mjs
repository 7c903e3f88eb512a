// Drives a real browser over the page: node drive.mjs cases STAGE, bars STAGE, shots STAGE FOLDER, real PAGE TOKEN, journal PAGE TOKEN, journals PLOT TOKEN, hang PAGE TOKEN STAGE, tls PAGE TOKEN, or failover PLOT TOKEN; shots takes PAGE TOKEN of a journal, too. Each case is a line of JSON on stdout.
// Nothing sleeps: everything waits for what the page shows.
const { chromium } = await import(process.env.PLAYWRIGHT);
const [what, stage, folder] = process.argv.slice(2);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu', ...(what === 'tls' ? ['--ignore-certificate-errors'] : [])] });
const patience = Number(process.env.PATIENCE ?? 60_000); // milliseconds, until a case is given up

/** order asks the stage for something. */
async function order(body) {
  const r = await fetch(stage, { method: 'POST', body: JSON.stringify(body) });
  if (!r.ok) throw new Error(await r.text());
  return r.json();
}

/** open makes a job and opens its page. */
async function open(context, scene, ranks, hash = '') {
  const job = await order({ do: 'new', scene, ranks });
  const page = await visit(context, `${job.url}#token=${job.token}${hash}`);
  await cells(page, ranks);
  return { ...job, page };
}

/** visit opens a page, and notes its errors and what it asks for. */
async function visit(context, url) {
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.errors = [];
  page.on('pageerror', (e) => page.errors.push(String(e)));
  page.on('console', (m) => { if (m.type() === 'error' && !/ERR_|Failed to load resource/.test(m.text())) page.errors.push(m.text()); });
  page.requests = [];
  page.on('request', (r) => page.requests.push(r.url()));
  await page.goto(url);
  return page;
}

/** cells waits until the grid has as many cells. */
const cells = (page, n) => page.waitForFunction((n) => document.getElementById('grid').dataset.cells === String(n), n);

/** says waits until an element says something. */
const says = (page, selector, text) => page.waitForFunction(([s, t]) => document.querySelector(s)?.textContent.includes(t), [selector, text]);

function must(holds, text) {
  if (!holds) throw new Error(text);
}

const equal = (got, want, what) => must(JSON.stringify(got) === JSON.stringify(want), `${what}: ${JSON.stringify(got)}; want ${JSON.stringify(want)}`);

/** clean checks that no script has failed. */
const clean = (page) => equal(page.errors, [], 'errors of the page');

/** wrongCells are cells that have not the colour of their state, with the colour that they have: three at most. */
const wrongCells = (page) => page.evaluate(() => {
  const canvas = document.getElementById('grid'), { grid } = canvas, ratio = devicePixelRatio;
  const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const hex = (x, y) => '#' + [0, 1, 2].map((k) => image.data[4 * (Math.floor(y * ratio) * canvas.width + Math.floor(x * ratio)) + k].toString(16).padStart(2, '0')).join('');
  return grid.cells.map((mark, i) => [i, mark, hex(grid.xs[i] + 0.5, grid.ys[i] + 0.5), grid.colours[mark]]).filter(([, , got, want]) => got !== want).slice(0, 3);
});

/** busy lets a tenth of the ranks change ten times, as fast as the page is told of it, and returns milliseconds of script a second. */
async function busy(context, page, job) {
  const devtools = await context.newCDPSession(page);
  await devtools.send('Performance.enable');
  const metrics = async () => Object.fromEntries((await devtools.send('Performance.getMetrics')).metrics.map((m) => [m.name, m.value]));
  const before = await metrics();
  for (let seed = 1; seed <= 10; seed++) {
    const { states } = await order({ do: 'shuffle', job: job.job, seed });
    await page.waitForFunction((want) => document.getElementById('grid').grid.cells.join('') === want, states, { polling: 100 });
  }
  const after = await metrics();
  return 1000 * (after.ScriptDuration - before.ScriptDuration) / (after.Timestamp - before.Timestamp);
}

const cases = {
  async 'verdict, waits and ranks of each scene'(context) {
    const job = await open(context, 'healthy', 4);
    const { page } = job;
    await says(page, '#verdict-text', 'nothing is wrong: 4 of 4 ranks are connected');
    await says(page, '#title', 'attempt 2');
    await says(page, '#title', 'goodput 93 %');
    await says(page, '#counts', '4: 4 at work');
    await says(page, '#waits-body', 'no rank waits for another');
    await says(page, '#lost-body', 'checkpoint');
    must(await page.locator('body.well').count() === 1, 'a healthy job is shown as one that is not');
    await order({ do: 'scene', job: job.job, scene: 'stuck', ranks: 4 });
    await says(page, '#verdict-text', 'STUCK');
    await says(page, '#verdict-text', 'rank 3 is st');
    await says(page, '#evidence', 'load_batch (train.py:10)');
    await says(page, '#waits-body', 'barrier "save-100"');
    await says(page, '#waits-body', '3/4');
    await says(page, '#counts', '1 keeps the others waiting');
    await says(page, '#twin tbody tr:first-child', 'keeps the others waiting');
    await page.click('#waits-body a');
    await says(page, '#rank-title', 'rank 3');
    await says(page, '#rank-facts', 'save-100');
    await says(page, '#rank-facts', '18233, 1 behind');
    await page.click('#read-stacks');
    await says(page, '#stacks-body', 'rank 3: alone, asleep (nanosleep)');
    await says(page, '#stacks-body', 'ranks 0-2: 3 ranks, equal');
    await says(page, '#rank-stack', 'load_batch  train.py:10');
    await order({ do: 'scene', job: job.job, scene: 'failed', ranks: 4 });
    await says(page, '#verdict-text', 'rank 3');
    await says(page, '#counts', '1 failed');
    await says(page, '#events', 'rank 3 failed');
    await page.selectOption('#kind', 'job');
    await page.waitForFunction(() => location.hash === '#/events?kind=job' && !document.getElementById('events').textContent.includes('rank 3 failed'));
    await order({ do: 'scene', job: job.job, scene: 'failover', ranks: 4 });
    await says(page, '#coordinator-facts', '10.0.0.2:8476, term 2');
    await says(page, '#coordinator-facts', 'from 10.0.0.1:8476');
    await page.selectOption('#kind', 'service');
    await says(page, '#events', 'coordinator failed over from 10.0.0.1:8476 to 10.0.0.2:8476');
    await says(page, '#servers', 'c1 stands by, 3 entries behind, this page');
    clean(page);
  },

  async 'the server is killed and comes back'(context) {
    const job = await open(context, 'missing', 4);
    const { page } = job;
    await says(page, '#live', 'live ●');
    await order({ do: 'kill', job: job.job });
    await says(page, '#away', 'connection lost');
    await says(page, '#away', 'ago, showing');
    await says(page, '#live', 'not live');
    await says(page, '#counts', '4: ');
    await order({ do: 'scene', job: job.job, scene: 'failed', ranks: 4 });
    await order({ do: 'back', job: job.job });
    await says(page, '#live', 'live ●');
    await says(page, '#counts', '1 failed');
    await page.waitForFunction(() => document.getElementById('away').hidden);
    equal(await page.locator('#events li').count(), 2, 'events after the server came back');
    clean(page);
  },

  async '10,000 ranks, and no other host'(context) {
    const began = Date.now();
    const job = await open(context, 'stuck', 10_000);
    const { page, url } = job;
    const painted = Date.now() - began;
    await says(page, '#counts', '9,999 waiting for others');
    const foreign = page.requests.filter((r) => !r.startsWith(url));
    equal(foreign, [], 'requests to other hosts');
    const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
    const redraw = await page.evaluate(() => {
      const { grid } = document.getElementById('grid');
      const began = performance.now();
      grid.drawn = [];
      grid.paint();
      return performance.now() - began;
    });
    const script = await busy(context, page, job);
    clean(page);
    return `first paint ${Math.round(paint)} ms, all cells ${painted} ms after the order, a full redraw ${redraw.toFixed(1)} ms, script ${script.toFixed(0)} ms a second while a tenth of the ranks change twice a second`;
  },

  async 'every cell has the colour of its state'(context) {
    const job = await open(context, 'healthy', 1000);
    const { page } = job;
    for (let seed = 1; seed <= 10; seed++) {
      const { states } = await order({ do: 'shuffle', job: job.job, seed });
      await page.waitForFunction((want) => document.getElementById('grid').grid.cells.join('') === want, states);
      equal(await wrongCells(page), [], `cells with another colour, seed ${seed}`);
    }
    clean(page);
  },

  async 'ten tabs on one stream'(context) {
    const job = await open(context, 'missing', 4);
    const tabs = [job.page];
    while (tabs.length < 10) {
      const tab = await context.newPage();
      tab.setDefaultTimeout(patience);
      await tab.goto(job.url);
      tabs.push(tab);
    }
    for (const tab of tabs) {
      await cells(tab, 4);
      await says(tab, '#live', 'live ●');
    }
    equal((await order({ do: 'streams', job: job.job })).streams, 1, 'streams of ten tabs');
    await order({ do: 'scene', job: job.job, scene: 'failed', ranks: 4 });
    for (const tab of tabs) await says(tab, '#counts', '1 failed');
    clean(job.page);
  },

  async 'text of a job is text'(context) {
    const { page } = await open(context, 'hostile', 4, '');
    await says(page, '#waits-body', '<img src=x');
    await says(page, '#events', '<img src=x');
    await says(page, '#twin tbody', '<img src=x');
    await page.evaluate(() => { location.hash = '#/ranks/3'; });
    await says(page, '#rank-facts', '<img src=x');
    equal(await page.locator('img').count(), 0, 'images that a job has put into the page');
    must(await page.evaluate(() => globalThis.harmed === undefined), 'a script of a job has run');
    must(!/[\u001b\u202e]/.test(await page.evaluate(() => document.body.textContent)), 'characters that steer text are in the page');
    clean(page);
  },

  async 'the token leaves the address'(context) {
    const job = await open(context, 'healthy', 4);
    must(!job.page.url().includes('token'), `the address is still ${job.page.url()}`);
    equal(await job.page.evaluate(() => document.cookie), '', 'cookies that a script can read');
    const stranger = await browser.newContext();
    const page = await stranger.newPage();
    page.setDefaultTimeout(patience);
    await page.goto(job.url);
    await page.waitForSelector('#door[open]');
    await page.fill('#door-token', 'wrong');
    await page.click('#door button');
    await says(page, '#door-error', 'not the token');
    await page.fill('#door-token', job.token);
    await page.click('#door button');
    await cells(page, 4);
    await stranger.close();
    const other = await browser.newContext(), late = await other.newPage();
    late.setDefaultTimeout(patience);
    await late.goto(job.url);
    await late.waitForSelector('#door[open]');
    await late.evaluate((token) => { location.hash = `#token=${token}`; }, job.token); // as a person who pastes the whole address does
    await cells(late, 4);
    must(!late.url().includes('token'), `the address is still ${late.url()}`);
    await other.close();
    clean(job.page);
  },

  async 'keyboard, themes and the table'(context) {
    const { page } = await open(context, 'failed', 40);
    await says(page, '#counts', '1 failed');
    await page.keyboard.press('n');
    await says(page, '#pointed', 'rank 3 on 10.0.0.1: failed');
    await page.keyboard.press('ArrowRight');
    await says(page, '#pointed', 'rank 4');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    await says(page, '#rank-title', 'rank 3');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.getElementById('rank').hidden);
    for (const [key, panel] of [['w', 'waits'], ['t', 'timeline'], ['c', 'coordinator'], ['l', 'lost'], ['v', 'verdict'], ['r', 'grid']]) {
      await page.keyboard.press('g');
      await page.keyboard.press(key);
      equal(await page.evaluate(() => document.activeElement?.id), panel, `the panel that g ${key} leads to`);
    }
    await page.keyboard.press('?');
    await page.waitForSelector('#help[open]');
    await page.keyboard.press('Escape');
    await page.keyboard.press('/');
    equal(await page.evaluate(() => document.activeElement?.id), 'filter', 'what / leads to');
    await page.keyboard.type('failed');
    await page.waitForFunction(() => document.querySelectorAll('#twin tbody tr').length === 1);
    await page.focus('#twin tbody tr');
    await page.keyboard.press('Enter');
    await says(page, '#rank-title', 'rank 3');
    await page.keyboard.press('Escape');
    const theme = () => page.evaluate(() => [document.documentElement.dataset.theme, getComputedStyle(document.documentElement).backgroundColor, document.getElementById('grid').grid.colours['.']]);
    const before = await theme();
    await page.keyboard.press('d');
    const after = await theme();
    must(before[0] !== after[0] && before[1] !== after[1] && before[2] !== after[2], `d changes ${before} to ${after}`);
    await page.reload();
    await cells(page, 40);
    equal(await theme(), after, 'the theme after the page was loaded again');
    equal(await page.locator('#verdict [aria-live=polite]').count(), 1, 'regions that are read aloud');
    equal(await page.locator('table#twin th[scope=col]').count(), 6, 'columns of the table');
    clean(page);
  },

  async 'without JavaScript'() {
    const job = await order({ do: 'new', scene: 'stuck', ranks: 4 });
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    page.setDefaultTimeout(patience);
    await page.goto(job.url);
    await page.waitForURL(`${job.url}plain`);
    await page.fill('input[name=token]', job.token);
    await page.click('button');
    await page.waitForSelector('h2:has-text("Verdict")');
    const text = await page.textContent('main');
    for (const part of ['rank 3 is st', 'load_batch (train.py:10)', 'barrier "save-100"', '3/4']) must(text.includes(part), `the plain page has no ${part}: ${text}`);
    await context.close();
  },
};

const scenes = [['healthy', 1024, 'light'], ['missing', 1024, 'light'], ['stuck', 1024, 'light'], ['failover', 1024, 'light'], ['stuck', 10_000, 'light'], ['stuck', 1024, 'dark']];

async function shoot([scene, ranks, colorScheme]) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme });
  const { page } = await open(context, scene, ranks, '');
  await says(page, '#live', 'live ●');
  await says(page, '#twin tbody', '10.0.');
  if (scene === 'stuck') {
    await page.click('#waits-body a');
    await says(page, '#rank-facts', 'save-100');
  }
  const file = `${folder}/${scene}-${ranks}-${colorScheme}.png`;
  await page.screenshot({ path: file });
  await context.close();
  return file;
}

/** shootJournal shows a journal at the last record before its rank is lost. */
async function shootJournal() {
  const [journalAt, token] = process.argv.slice(5);
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light' });
  const page = await visit(context, `${journalAt}#token=${token}`);
  await says(page, '#counts', '1 failed');
  await page.click('#past button[title="the record before"]');
  await says(page, '#counts', '1 missing');
  await says(page, '#twin tbody', 'missing at a barrier');
  await says(page, '#live', 'a journal');
  const file = `${folder}/journal.png`;
  await page.screenshot({ path: file });
  await context.close();
  return file;
}

async function run(name, act) {
  const context = await browser.newContext();
  let error = '', said = '';
  try {
    said = (await act(context)) ?? '';
  } catch (e) {
    error = String(e?.message ?? e);
    for (const page of context.pages()) error += `\nthe page: ${(await page.evaluate(() => document.body.innerText).catch(() => '')).slice(0, 1500)}`;
  }
  await context.close();
  console.log(JSON.stringify({ case: name, error, said }));
}

/** fallsAsleep looks at a real job until the page names the rank that sleeps. */
async function fallsAsleep(context) {
  const page = await context.newPage();
  page.setDefaultTimeout(2 * patience);
  await page.goto(`${stage}#token=${folder}`);
  await cells(page, 4);
  await page.evaluate(() => { globalThis.loadedOnce = true; });
  await says(page, '#verdict-text', 'STALLED rank 3 is stalled since ');
  const named = Date.now() / 1000;
  await says(page, '#evidence', 'load_batch (train.py:');
  await says(page, '#counts', '1 keeps the others waiting');
  await page.click('#read-stacks');
  await says(page, '#stacks-body', 'rank 3: alone');
  await says(page, '#stacks-body', 'load_batch  train.py:');
  must(await page.evaluate(() => globalThis.loadedOnce === true), 'the page was loaded again');
  return String(named);
}

/** journal looks at an incident after the fact: three ranks, of which one is lost 4.1 s after the beginning. */
async function journal(context) {
  await context.clock.install();
  const page = await visit(context, `${stage}#token=${folder}`);
  await cells(page, 3);
  await says(page, '#live', 'a journal');
  await says(page, '#verdict-text', 'rank 2 died');
  await says(page, '#counts', '3: 1 failed · 2 at work');
  await says(page, '#events', '+4.1srank 2 failed');
  await says(page, '#coordinator-facts', 'a journal does not say');
  await says(page, '#attempts tbody', '1+0.0s4.1sit runs');
  const slider = page.locator('#past input');
  await slider.focus();
  await page.keyboard.press('ArrowLeft');
  await says(page, '#counts', '3: 1 missing at a barrier · 2 waiting for others');
  await says(page, '#waits-body', 'barrier "step"2/34.0s');
  await says(page, '#verdict-text', 'rank 2 is late');
  await page.waitForFunction(() => !document.getElementById('events').textContent.includes('rank 2 failed'));
  await says(page, '#twin tbody', 'waiting for others');
  must(/at=4\.08/.test(page.url()), `the address has no time: ${page.url()}`);

  const colleague = await visit(context, page.url());
  await cells(colleague, 3);
  await says(colleague, '#waits-body', 'barrier "step"2/34.0s');
  await colleague.click('#waits-body a');
  await says(colleague, '#rank-facts', 'missing atstep');
  must(/#\/ranks\/2\?at=4\.08/.test(colleague.url()), `the address of a rank has no time: ${colleague.url()}`);
  await colleague.click('#past button[title="the next record"]');
  await says(colleague, '#rank-facts', 'failed (failed)');
  await says(colleague, '#counts', '1 failed');

  await page.evaluate(() => { location.hash = '#/keys'; });
  await says(page, '#keys-sum', '2 keys, 7 B');
  await page.evaluate(() => { location.hash = '#/keys?prefix=loader%2F&key=loader%2Fshards'; });
  await says(page, '#keys-list', 'shards');
  await says(page, '#value', 'loader/shards');
  await slider.fill('0');
  await says(page, '#counts', '3: 3 not here');
  await says(page, '#keys-sum', '0 keys');
  await says(page, '#waits-body', 'no rank waits');
  await says(page, '#twin tbody', 'not here');
  await slider.fill('1500');
  await says(page, '#waits-body', 'barrier "step"2/31.4s');
  await page.clock.fastForward(60_000);
  await says(page, '#waits-body', 'barrier "step"2/31.4s'); // nothing grows older in a journal
  must(await page.locator('#read-stacks').isHidden(), 'stacks of a journal can be asked for');
  clean(page);
  clean(colleague);
}

/** recorded compares the page of a journal with what serry why says of it. */
async function recorded(context, { page: at, why, counts, waits }) {
  const page = await visit(context, `${at}#token=${folder}`);
  await cells(page, 4);
  await says(page, '#live', 'a journal');
  await says(page, '#verdict-text', why.verdict);
  const stage = why.stage && why.stage !== 'on time' ? `${why.stage.toUpperCase()} ` : '';
  equal(await page.textContent('#verdict-text'), `${why.healthy ? '' : '▲ '}${stage}${why.verdict}${why.grade ? ` (${why.grade})` : ''}`, 'the verdict');
  const shown = await page.evaluate(() => ({
    evidence: [...document.querySelectorAll('#evidence dt')].map((dt) => ({ word: dt.textContent, text: dt.nextElementSibling.textContent })),
    advice: [...document.querySelectorAll('#advice li')].map((li) => li.textContent), counts: document.getElementById('counts').textContent,
    waits: [...document.querySelectorAll('#waits-body tr, #waits-body p')].map((tr) => tr.textContent).join('; '),
  }));
  equal(shown.evidence, why.evidence ?? [], 'what the verdict rests on');
  equal(shown.advice, why.advice ?? [], 'advice');
  equal([shown.counts, shown.waits], [counts, waits], 'the states of the ranks, and what is waited for');
  await says(page, '#twin tbody tr:first-child', counts.split(/[:·] */)[1].replace(/^\d+ (.*\S) *$/, '$1'));
  clean(page);
}

/** failover kills the server that leads while three pages are open. */
async function failover(context) {
  const plot = JSON.parse(stage);
  const pages = {};
  for (const name of ['killed', 'standby', 'relay']) {
    pages[name] = await visit(context, `${plot[name]}#token=${folder}`);
    await cells(pages[name], 2);
    await says(pages[name], '#live', 'live ●');
    await says(pages[name], '#coordinator-facts', `leader${plot.address}`);
    await says(pages[name], '#servers', `${plot.name} leads`);
    await says(pages[name], '#servers', `${plot.standbyName} stands by`);
  }
  await says(pages.killed, '#servers', `${plot.name} leads, this page`);
  await says(pages.standby, '#servers', `${plot.standbyName} stands by, this page`);
  must(await pages.killed.locator('#others').isHidden(), 'a page that is live leads to others');
  await pages.killed.evaluate(() => { location.hash = '#/events?kind=service'; });
  await fetch(plot.stage, { method: 'POST' });

  for (const page of [pages.standby, pages.relay]) {
    await says(page, '#events', `coordinator failed over from ${plot.address} to `);
    await page.waitForFunction((dead) => !document.getElementById('coordinator-facts').textContent.includes(`leader${dead}`), plot.address);
    await says(page, '#live', 'live ●');
    await page.waitForFunction(() => document.getElementById('away').hidden);
    await says(page, '#servers', `${plot.name} down`);
  }
  const dead = pages.killed;
  await says(dead, '#away', 'connection lost');
  await says(dead, '#away', 'ago, showing');
  await says(dead, '#live', 'not live');
  await says(dead, '#counts', '2: 2 not here');
  await says(dead, '#coordinator-facts', `leader${plot.address}`);
  const link = dead.locator('#others a').filter({ hasText: 'its page' });
  equal(await link.count(), 2, 'links to the pages of the others');
  await dead.locator(`#others a[href="${plot.standby}"]`).click();
  await says(dead, '#live', 'live ●');
  await says(dead, '#events', 'coordinator failed over from');
  equal(dead.url(), `${plot.standby}#/events?kind=service`, 'the address that the link leads to');
  for (const page of Object.values(pages)) clean(page);
}

/** hang looks at a journal with the verdict of a launcher, and with the time of day. */
async function hang(context) {
  const page = await visit(context, `${stage}#token=${folder}`);
  await cells(page, 3);
  await says(page, '#live', 'a journal');
  await says(page, '#verdict-text', 'STUCK rank 2 is stuck since ');
  await says(page, '#evidence', 'load_batch (train.py:10)');
  await says(page, '#counts', '3: 1 keeps the others waiting · 2 waiting for others');
  await says(page, '#waits-body', 'barrier "save-100"2/3');
  await says(page, '#twin tbody tr:first-child', 'keeps the others waiting2');
  must(/^\d\d:\d\d:\d\d, \d+\.\d\d\ds of /.test(await page.textContent('#past p')), `the slider says ${await page.textContent('#past p')}`);
  must(/^\d\d:\d\d:\d\d/.test(await page.textContent('#events li')), `an event says ${await page.textContent('#events li')}`);
  await page.focus('#past input');
  await page.keyboard.press('ArrowLeft');
  await says(page, '#verdict-text', 'nothing is wrong: 3 of 3 ranks are connected');
  await says(page, '#waits-body', 'barrier "save-100"2/3');
  const counts = /^3: (3 at work|1 missing at a barrier · 2 waiting for others)$/; // the latter on a busy machine
  await page.waitForFunction((counts) => new RegExp(counts).test(document.getElementById('counts').textContent), counts.source);
  must(await page.locator('#evidence dt').count() === 0, 'evidence of a hang before there was one');
  await fetch(process.argv[5], { method: 'POST' }); // which ends serry replay
  await says(page, '#away', 'connection lost');
  must(counts.test(await page.textContent('#counts')), 'a page that is cut off has lost what it showed');
  must(!(await page.textContent('#away')).includes('showing'), `the banner says ${await page.textContent('#away')}`);
  clean(page);
}

/** measure returns the figures of a page of 10,000 ranks. */
async function measure(context) {
  const paints = [], drawn = [], middle = (all) => all.sort((a, b) => a - b)[all.length >> 1];
  let foreign = 0, job;
  for (let i = 0; i < 5; i++) {
    job = await order({ do: 'new', scene: 'stuck', ranks: 10_000 });
    const page = job.page = await visit(await browser.newContext(), `${job.url}#token=${job.token}`);
    const cellsAt = await page.waitForFunction(() => document.getElementById('grid').dataset.cells === '10000' && performance.now());
    drawn.push(await cellsAt.jsonValue());
    await says(page, '#counts', '9,999 waiting for others');
    paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
    foreign += page.requests.filter((r) => !r.startsWith(job.url)).length;
    if (i < 4) await page.context().close();
  }
  const script = await busy(job.page.context(), job.page, job);
  await job.page.context().close();
  const context2 = await browser.newContext(); // without a shared worker a tab does its work, too, where it is counted
  await context2.addInitScript(() => { delete globalThis.SharedWorker; });
  const alone = await open(context2, 'stuck', 10_000);
  await says(alone.page, '#counts', '9,999 waiting');
  const whole = await busy(context2, alone.page, alone);
  await context2.close();
  const tabs = [], shared = await open(context, 'stuck', 10_000);
  while (tabs.length < 9) tabs.push(await visit(context, shared.url));
  for (const tab of [shared.page, ...tabs]) {
    await cells(tab, 10_000);
    await says(tab, '#live', 'live ●');
  }
  const { streams } = await order({ do: 'streams', job: shared.job });
  return JSON.stringify({ paint: middle(paints), cells: middle(drawn), script, whole, foreign, streams });
}

/** secured opens a page over TLS, whose authority this browser is told to do without. */
async function secured(context) {
  must(stage.startsWith('https://'), `the page is at ${stage}`);
  const page = await visit(context, `${stage}#token=${folder}`);
  await cells(page, 4);
  await says(page, '#live', 'live ●');
  await says(page, '#counts', '4: 4 not here');
  const cookies = (await context.cookies()).map(({ secure, httpOnly, sameSite }) => ({ secure, httpOnly, sameSite }));
  equal(cookies, [{ secure: true, httpOnly: true, sameSite: 'Strict' }], 'the cookie');
  clean(page);
}
const shared = { browser, open, order, visit, cells, wrongCells, says, must, equal, clean };
Object.assign(cases, (await import('./panels.mjs')).panelCases(shared), (await import('./link.mjs')).linkCases(shared), (await import('./access.mjs')).accessCases(shared));

if (what === 'real') await run('a rank falls asleep', fallsAsleep);
else if (what === 'journal') await run('a journal with a slider', journal);
else if (what === 'journals') for (const r of JSON.parse(stage)) await run(r.name, (context) => recorded(context, r));
else if (what === 'hang') await run('a journal of a hang', hang);
else if (what === 'tls') await run('a page over TLS', secured);
else if (what === 'bars') await run('bars', measure);
else if (what === 'failover') await run('the leader is killed', failover);
else if (what === 'shots') {
  for (const s of scenes) await run(s.join(' '), () => shoot(s));
  await run('journal', shootJournal);
}
else for (const [name, act] of Object.entries(cases)) if (!process.env.ONLY || name.includes(process.env.ONLY)) await run(name, act);
await browser.close();
