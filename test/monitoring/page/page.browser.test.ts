import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type Browser, type Page, chromium } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createCounters } from '../../../src/core/observe/counters.ts';
import { type ReadinessReport, noLog } from '../../../src/core/observe/interfaces.ts';
import { type MonitoringServer, createMonitoringServer } from '../../../src/monitoring/server.ts';
import { prepareChromium } from '../../support/browser/chromium.ts';
import { screenshot } from '../../support/browser/screenshot.ts';
import { colourOf, lowContrast, firstRise, overflowing, strokesOf, widthOf } from '../../support/browser/in-page.ts';
import { fakeOverview, fullNode, typicalOverview } from '../../support/fake-node-readings.ts';
import type { Overview } from '../../../src/sandbox/report/overview.ts';

/** Screenshots of the page, from Debian's Chromium. */
const SCREENSHOTS = 'reports/page';
/** The screenshot that the README shows. */
const README_SCREENSHOT = 'docs/images/page.png';

const ready: ReadinessReport = { ready: true, checks: [] };
const notReady: ReadinessReport = {
  ready: false,
  checks: [{ name: 'journal', ready: false, says: 'resizes are rejected: /var/lib/cri-resize-shim/journal: ENOSPC' }],
};

let readiness: ReadinessReport;
let overview: Overview;
let resized: () => void;
let server: MonitoringServer;
let address: string;
let browser: Browser;

beforeAll(async () => {
  const { program, env } = await prepareChromium((line) => void process.stderr.write(`chromium: ${line}\n`));
  browser = await chromium.launch({
    executablePath: program,
    timeout: 300_000,
    env: { ...(process.env as Record<string, string>), ...env },
    // playwright's defaults add a new profile, no sandbox (root has none) and no first run.
    args: [
      '--disable-gpu',
      '--disable-quic',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  server = createMonitoringServer(
    {
      version: '1.2.3',
      counted: createCounters().families,
      readiness: () => Promise.resolve(readiness),
      bypass: () => ({ start: 1000, end: undefined }),
      endpoint: () => 'shim',
      node: () => ({ pods: 5, volumes: { count: 3, size: 0, used: 0 }, unfinished: [], foresight: true }),
      connections: () => 1,
      watchResizes: (onResize) => {
        resized = onResize;
        return () => undefined;
      },
      refused: () => undefined,
      overview: () => Promise.resolve(overview),
      log: noLog,
    },
    { isTcp: true },
    { ...MONITORING_LIMITS, pageMs: 0, streamMs: 3_600_000, streamPauseMs: 1 },
  );
  server.http.listen({ host: '127.0.0.1', port: 0 });
  await once(server.http, 'listening');
  address = `http://127.0.0.1:${(server.http.address() as AddressInfo).port}/`;
  mkdirSync(SCREENSHOTS, { recursive: true });
}, 600_000);
afterAll(async () => {
  await browser.close();
  server.close();
});

interface Look {
  readonly scheme: 'light' | 'dark';
  readonly width: number;
}

/** The page with all requests of the browser and all messages of its console. */
interface OpenedPage {
  readonly page: Page;
  readonly requested: readonly string[];
  readonly messages: readonly string[];
}

async function open({ scheme, width }: Look, name: string, query = ''): Promise<OpenedPage> {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: 800 } });
  context.setDefaultTimeout(120_000);
  const page = await context.newPage();
  const requested: string[] = [];
  const messages: string[] = [];
  page.on('request', (request) => void requested.push(request.url()));
  page.on('console', (message) => void messages.push(message.text()));
  page.on('pageerror', (error) => void messages.push(error.message));
  const answer = await page.goto(`${address}${query}`, { waitUntil: 'load' });
  expect(answer?.status()).toBe(200);
  await page.locator('#live:text-is("live")').waitFor();
  await screenshot(page, { path: join(SCREENSHOTS, `${name}-${scheme}-${width}.png`), fullPage: true });
  return { page, requested, messages };
}

/** Width and height, from the header chunk (PNG specification, 11.2.2). */
const sizeOfPng = (png: Buffer): readonly number[] => [png.readUInt32BE(16), png.readUInt32BE(20)];

const looks: readonly Look[] = [
  { scheme: 'light', width: 1280 },
  { scheme: 'dark', width: 1280 },
  { scheme: 'light', width: 320 },
  { scheme: 'dark', width: 320 },
];

describe.each(looks)('the page in a window of $width pixels, $scheme', (look) => {
  test('the pages of a node with 250 pods and of one pod have no overflow, enough contrast and no console message', async () => {
    [readiness, overview] = [ready, fullNode];
    for (const query of ['', `?pod=${fullNode.pods[6]!.pod.sandboxId}`]) {
      const { page, messages } = await open(look, query === '' ? 'full' : 'pod', query);
      expect(messages).toEqual([]);
      expect(await page.evaluate(overflowing)).toEqual([]);
      expect(await page.evaluate(lowContrast)).toEqual([]);
      await page.context().close();
    }
  });

  test('the page of a busy node has no overflow, enough contrast, no external request and no console message', async () => {
    [readiness, overview] = [notReady, fakeOverview];
    const { page, requested, messages } = await open(look, 'busy');
    expect([requested, messages]).toEqual([[address, `${address}live?pod=`], []]);
    expect(await page.evaluate(overflowing)).toEqual([]);
    expect(await page.evaluate(lowContrast)).toEqual([]);
    await page.context().close();
  });

  test('the page of an idle node has no overflow, enough contrast, no external request and no console message', async () => {
    [readiness, overview] = [ready, { pods: [], recent: [], history: [] }];
    const { page, requested, messages } = await open(look, 'idle');
    expect([requested, messages]).toEqual([[address, `${address}live?pod=`], []]);
    expect(await page.evaluate(overflowing)).toEqual([]);
    expect(await page.evaluate(lowContrast)).toEqual([]);
    expect(await page.locator('main').innerText()).toMatch(
      /none on this node\s+History\s+none since .*\s+Timelines\s+none since/,
    );
    await page.context().close();
  });
});

test('the screenshot in the README has the size of the page of a typical node', async () => {
  [readiness, overview] = [ready, typicalOverview];
  const { page } = await open({ scheme: 'light', width: 1100 }, 'typical');
  const fresh = await screenshot(page, { fullPage: true });
  if (process.env['UPDATE_DOCS'] === '1') writeFileSync(README_SCREENSHOT, fresh);
  expect(readFileSync('README.md', 'utf8')).toContain(`](${README_SCREENSHOT})`);
  expect(sizeOfPng(readFileSync(README_SCREENSHOT)), 'run the test with UPDATE_DOCS=1 to update it').toEqual(
    sizeOfPng(fresh),
  );
  await page.context().close();
});

describe('250 pods', () => {
  let opened: OpenedPage;
  let page: Page;
  const shown = () => page.locator('#pods tbody tr:visible');
  beforeEach(async () => {
    [readiness, overview] = [ready, fullNode];
    opened = await open({ scheme: 'light', width: 1280 }, 'live');
    ({ page } = opened);
  });
  afterEach(() => page.context().close());

  test('the page of 250 pods shows them in one table, with the highest pressure first', async () => {
    const texts = await page.locator('#pods tbody tr td:first-child').allInnerTexts();
    const pressures = texts.map((text) => Number(text.replace(' %', '')));
    expect(pressures).toHaveLength(250);
    expect(pressures).toEqual(pressures.toSorted((one, other) => other - one));
    expect([pressures[0]! > 95, pressures.at(-1)! < 7]).toEqual([true, true]);
  });

  test('the page of 250 pods filters them by name during input, and keeps the filter after an update', async () => {
    await page.getByLabel('filter').fill('batch/');
    expect(await shown().count()).toBe(50);
    expect(await page.locator('#count').innerText()).toBe('50 of 250 pods');
    await page.getByLabel('filter').fill('WEB-10');
    expect(await shown().locator('a').allInnerTexts()).toEqual(
      expect.arrayContaining(['batch/web-10', 'batch/web-100']),
    );
    overview = { ...fullNode, pods: fullNode.pods.slice(0, 100) };
    resized();
    await page.locator('#count:text-is("1 of 100 pods")').waitFor();
    expect(await shown().locator('a').allInnerTexts()).toEqual(['batch/web-10']);
  });

  test('the page of 250 pods shows the live details of a selected pod without loading again', async () => {
    const [name, id] = ['default/db-1', fullNode.pods[1]!.pod.sandboxId];
    await page.getByRole('link', { name, exact: true }).click();
    const card = page.locator('#card article', { has: page.getByRole('heading', { name, exact: true }) });
    await card.waitFor();
    expect(new URL(page.url()).search).toBe(`?pod=${id}`);
    const others = fullNode.pods.filter(({ pod }) => pod.sandboxId !== id);
    overview = { ...fullNode, pods: others };
    resized();
    await page.locator('#card:has-text("not on this node, or no longer")').waitFor();
    await page.goBack();
    await page.locator('#live:text-is("live")').waitFor();
    await expect.poll(() => page.locator('#card').innerText(), LONG_WAIT).toBe('');
    expect(opened.requested.filter((url) => !url.includes('/live?'))).toEqual([address]);
    expect(opened.messages).toEqual([]);
  });

  test('the page of 250 pods filters them and shows the details of a pod without JavaScript', async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    context.setDefaultTimeout(120_000);
    const plain = await context.newPage();
    await plain.goto(`${address}?q=batch/`);
    expect(await plain.locator('#pods tbody tr:visible').count()).toBe(50);
    await plain.locator('#pods tbody tr:visible a').first().click();
    expect(await plain.locator('#card article h3').innerText()).toMatch(/^batch\//);
    await context.close();
  });
});

test('a refused resize is in the history, with the reason', async () => {
  [readiness, overview] = [ready, fakeOverview];
  const { page } = await open({ scheme: 'light', width: 1280 }, 'refused');
  const bad = await page.locator('#history td.bad').allInnerTexts();
  expect(bad).toEqual([expect.stringContaining('Deferred, 3 times: MEMORY_NOT_RECLAIMABLE: 300Mi are in use')]);
  await page.context().close();
});

test('a bar is as long as the share of usage in the limit, and red if usage is close to the limit', async () => {
  [readiness, overview] = [ready, fakeOverview];
  const bar = async (name: string, row: string): Promise<{ share: number; colour: string }> => {
    const { pod } = fakeOverview.pods.find((one) => `${one.pod.namespace}/${one.pod.name}` === name)!;
    const { page } = await open({ scheme: 'light', width: 1280 }, 'bars', `?pod=${pod.sandboxId}`);
    const drawn = page.locator('#card article').locator(`dt:text-is("${row}") + dd + dd`);
    const [used, track] = [drawn.locator('.used'), drawn.locator('.track')];
    const found = {
      share: (await used.evaluate(widthOf)) / (await track.evaluate(widthOf)),
      colour: await used.evaluate(colourOf),
    };
    await page.context().close();
    return found;
  };
  const half = await bar('default/web', 'pod');
  expect(half.share).toBeCloseTo(0.5, 2);
  expect((await bar('default/web', 'volume cache')).share).toBeCloseTo(0.25, 2);
  expect((await bar('kube-system/no-limits', 'pod')).share).toBe(0);
  const full = await bar('batch/full', 'pod');
  expect(full.share).toBeCloseTo(251 / 256, 2);
  expect([half.colour, full.colour]).toEqual(['rgb(31, 95, 191)', 'rgb(180, 35, 24)']);
});

describe('timelines of the page', () => {
  let page: Page;
  beforeAll(async () => {
    [readiness, overview] = [ready, fakeOverview];
    ({ page } = await open({ scheme: 'light', width: 1280 }, 'drawn'));
  });
  afterAll(() => page.context().close());

  test('a timeline has axes with amounts and times', async () => {
    const card = page.locator('article', { has: page.getByRole('heading', { name: 'default/grown', exact: true }) });
    expect(await card.locator('.y span').allInnerTexts()).toEqual(['1 GiB', '512 MiB', '0 B']);
    expect(await card.locator('.x span').allInnerTexts()).toEqual(['0.0 ms', '31 ms', '63 ms']);
    // The amounts are left of the drawing, and the times below it.
    const boxes = await Promise.all(['.chart > svg', '.y', '.x'].map((part) => card.locator(part).boundingBox()));
    const [drawing, amounts, times] = boxes.map((box) => box!);
    expect(amounts!.x + amounts!.width).toBeLessThanOrEqual(drawing!.x);
    expect(times!.y).toBeGreaterThanOrEqual(drawing!.y + drawing!.height);
  });

  test('a timeline shows that the pod limit rises before the limits of containers, and the volume last', async () => {
    const card = page.locator('article', { has: page.getByRole('heading', { name: 'default/grown', exact: true }) });
    const picture = card.getByRole('img', { name: 'memory over the steps' });
    const box = (await picture.boundingBox())!;
    expect([box.width > 200, box.height > 100]).toEqual([true, true]);
    const rise = (look: string): Promise<number> => picture.locator(`path.${look}`).evaluate(firstRise);
    const rises = [await rise('pod'), await rise('c0'), await rise('c1'), await rise('size')];
    expect(rises.map((share) => Math.round(share * 10) / 10)).toEqual([0.2, 0.4, 0.6, 0.8]);
    expect(await card.locator('ul').innerText()).toContain('limit of the pod: 512 MiB → 1 GiB');
  });

  test('each line of a timeline has its own colour, which its legend repeats', async () => {
    const card = page.locator('article', { has: page.getByRole('heading', { name: 'default/grown', exact: true }) });
    const colours = (place: string): Promise<string[]> =>
      card.locator(`${place} path:not(.area):not(.guide)`).evaluateAll(strokesOf);
    const drawn = await colours('.chart > svg');
    expect(new Set(drawn).size).toBe(4);
    expect(await colours('.timeline li')).toEqual(drawn);
  });

  test('the text of a failed resize is visible', async () => {
    const bad = await page.locator('article p.bad').allInnerTexts();
    expect(bad).toContain('undone: task update failed: EBUSY');
    expect(bad.some((text) => text.startsWith('undo failed: '))).toBe(true);
  });
});
import { MONITORING_LIMITS } from '../../../src/monitoring/limits.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
