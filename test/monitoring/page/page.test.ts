import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { chromium } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createCounters } from '../../../src/core/observe/counters.ts';
import type { ReadinessReport } from '../../../src/core/observe/interfaces.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { MONITORING_LIMITS } from '../../../src/monitoring/limits.ts';
import { script } from '../../../src/monitoring/page/assets.ts';
import type { PageOptions, PageQuery } from '../../../src/monitoring/page/page.ts';
import { NodePage } from '../../../src/monitoring/page/page.ts';
import type { MonitoringServer } from '../../../src/monitoring/server.ts';
import { createMonitoringServer } from '../../../src/monitoring/server.ts';
import type { HistoryEntry } from '../../../src/sandbox/history/history-entry.ts';
import type { RecentResize } from '../../../src/sandbox/history/recent-resizes.ts';
import type { Overview } from '../../../src/sandbox/report/overview.ts';
import { prepareChromium, screenshot } from '../../support/browser/chromium.ts';
import { colourOf, firstRise, lowContrast, overflowing, strokesOf, widthOf } from '../../support/browser/in-page.ts';
import { fakeOverview, fullNode, typicalOverview } from '../../support/fake-node-readings.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const cpu = { quota: 'max' as const, period: microseconds(100_000) };
const limits = (memory: number, used: number) => ({
  memory: bytes(memory * MiB),
  memoryUsed: bytes(used * MiB),
  cpu,
  weight: undefined,
});
const identity = { sandboxId: 'aaaa1111bbbb2222', uid: 'u', namespace: 'default', name: 'web' };

const resize: RecentResize = {
  ...{
    namespace: 'default',
    name: 'web',
    sandboxId: identity.sandboxId,
    at: 0,
    ms: 20,
    outcome: 'done',
    message: undefined,
  },
  before: {
    ...{ memory: bytes(100 * MiB), cpu, weight: undefined, overhead: { memory: bytes(0), cpu } },
    containers: [{ id: 'c1', memory: 'max', cpu }],
    volumes: [{ name: 'cache', size: bytes(50 * MiB) }],
  },
  usedBefore: bytes(25 * MiB),
  names: new Map([['c1', 'app']]),
  steps: [
    {
      step: { kind: 'pod-memory', from: bytes(100 * MiB), to: bytes(200 * MiB) },
      doneAt: 5,
      ms: 5,
      used: bytes(25 * MiB),
    },
    {
      step: { kind: 'container', id: 'c1', memory: { from: 'max', to: bytes(150 * MiB) } },
      doneAt: 10,
      ms: 5,
      used: bytes(25 * MiB),
    },
    {
      step: { kind: 'volume', volume: 'cache', from: bytes(50 * MiB), to: bytes(100 * MiB) },
      doneAt: 15,
      ms: 5,
      used: undefined,
    },
  ],
};

const refused = (reason: string, message: string): HistoryEntry => ({
  id: 'f00',
  pod: identity,
  requester: { kind: 'kubelet', process: { pid: 812, name: 'kubelet' } },
  state: 'Deferred',
  changes: [{ value: 'pod memory', from: '100Mi', to: '64Mi' }],
  ...{ reason, message, isRolledBack: false, createdAt: 0, changedAt: 0, count: 3 },
});

const overview: Overview = {
  pods: [
    {
      pod: identity,
      view: {
        limits: limits(200, 100),
        containers: [{ id: 'c1', name: 'app', limits: limits(100, 99) }],
        volumes: [{ name: 'cache', size: bytes(100 * MiB), used: bytes(25 * MiB), policy: { kind: 'fixed' } }],
        outcome: { desired: {}, allocated: {}, actuated: {}, volumeErrors: new Map() },
        lastError: undefined,
      },
      history: [],
    },
  ],
  recent: [resize],
  history: [],
};

async function page(parts: Partial<PageOptions> = {}, query: Partial<PageQuery> = {}) {
  const all = { version: '1.2.3', readiness: { ready: true, checks: [] }, overview, now: new Date(0), ...parts };
  const answer = (await NodePage.of(all)).answer({ pod: '', filter: '', ...query });
  return { ...answer, body: String(answer.body) };
}

/** Returns the content of a part of the page. */
const sectionOf = (body: string, id: string): string | undefined =>
  new RegExp(`<div id="${id}">(.*?)</div>\n`, 's').exec(body)?.[1];

describe('the status page', () => {
  test('shows usage and limits of pods', async () => {
    const { status, type, body } = await page();
    expect([status, type]).toEqual([200, 'text/html; charset=utf-8']);
    expect(body).toMatch(/<td>100 MiB of 200 MiB<div class="bar memory">.*?aria-label="50 %"/);
    expect(body).toContain('<td class="more">cache 25 %</td>');
    expect(body).not.toContain('<dt>app</dt>');
  });

  test('shows the details of one pod, with only its own resizes', async () => {
    const other = { ...resize, sandboxId: 'other', name: 'other' };
    const { body } = await page({ overview: { ...overview, recent: [other, resize] } }, { pod: identity.sandboxId });
    expect(body).toContain('<dt>pod</dt><dd>100 MiB of 200 MiB</dd>');
    expect(body).toMatch(/<dt>app<\/dt><dd>99 MiB of 100 MiB<\/dd><dd><div class="bar memory full">/);
    expect(body).toMatch(/<dt>volume cache<\/dt><dd>25 MiB of 100 MiB<\/dd>.*?width="25"/s);
    expect(body).toContain('<h3>default/web</h3>');
    expect(body).not.toContain('<h3>default/other</h3>');
    expect((await page({}, { pod: 'gone' })).body).toContain('the pod is not on this node, or no longer');
  });

  test('shows the stored resizes of a pod that are not among the last ones of the node', async () => {
    const stored = refused('MEMORY_NOT_RECLAIMABLE', '90Mi are in use');
    const other = { ...refused('MEMORY_NOT_RECLAIMABLE', 'of another pod'), pod: { ...identity, sandboxId: 'other' } };
    const pods = overview.pods.map((pod) => ({ ...pod, history: [stored] }));
    const busy = { ...overview, pods, history: [other], recent: [{ ...resize, sandboxId: 'other' }] };
    const { body } = await page({ overview: busy }, { pod: identity.sandboxId });
    expect(sectionOf(body, 'history')).toContain('90Mi are in use');
    expect(sectionOf(body, 'history')).not.toContain('of another pod');
    expect(sectionOf(body, 'resizes')).toBe('<p>none among the last resizes of the node</p>');
    const gone = await page({ overview: busy }, { pod: 'gone' });
    expect(sectionOf(gone.body, 'history')).toBe('<p>none among the last resizes of the node</p>');
    expect(sectionOf((await page({ overview: busy }, { pod: 'other' })).body, 'history')).toContain('of another pod');
  });

  test('sorts the pods by pressure, and hides those that the filter excludes', async () => {
    const load = { cpuTime: undefined, cpuStalled: undefined };
    const podOf = (name: string, share: number, memoryStalled?: number): Overview['pods'][number] => ({
      pod: { ...identity, name, sandboxId: name.repeat(8) },
      view: {
        limits: { ...limits(100, 90), load: { ...load, unreclaimable: bytes(share * MiB), memoryStalled } },
        ...{ containers: [], volumes: [], lastError: undefined },
        outcome: { desired: {}, allocated: {}, actuated: {}, volumeErrors: new Map() },
      },
      history: [],
    });
    const unreadable = {
      history: [],
      pod: { ...identity, name: 'gone' },
      view: { reason: 'CGROUP_UNAVAILABLE', message: 'no file' },
    };
    const pods = [unreadable, podOf('low', 10), podOf('high', 97), podOf('waits', 1, 50)];
    const rows = async (query: Partial<PageQuery>) =>
      [
        ...(await page({ overview: { ...overview, pods } }, query)).body.matchAll(
          /<tr data-name="default\/(\w+) [^>]*>/g,
        ),
      ].map(([tag, name]) => `${name}${tag.includes('hidden') ? ' hidden' : ''}`);
    expect(await rows({})).toEqual(['high', 'waits', 'low', 'gone']);
    expect(await rows({ filter: ' DEFAULT/Lo' })).toEqual(['high hidden', 'waits hidden', 'low', 'gone hidden']);
    // Also filters by the id that crictl prints.
    expect((await rows({ filter: 'highhigh' }))[0]).toBe('high');
    const { body } = await page({ overview: { ...overview, pods } });
    expect(body).toContain('<td class="bad">97 %</td>');
    expect(body).toContain('<td class="more">?, 50 %</td>');
  });

  test('shows limits, usage and volume sizes over the steps of a resize', async () => {
    const { body } = await page();
    // The axis ends at 256 MiB. The pod's limit goes from 100 to 200 MiB after a quarter of the time.
    expect(body).toContain(
      '<path class="pod" d="M0 60.9L100 60.9L100 21.9L200 21.9L200 21.9L300 21.9L300 21.9L400 21.9"/>',
    );
    expect(body).toContain('<span>256 MiB</span><span>128 MiB</span><span>0 B</span>');
    expect(body).toContain('<span>0.0 ms</span><span>10 ms</span><span>20 ms</span>');
    // No line is drawn where no limit exists.
    expect(body).toContain('<path class="c0" d="M200 41.4L300 41.4L300 41.4L400 41.4"/>');
    expect(body).toContain(
      '<path class="size" d="M0 80.5L100 80.5L100 80.5L200 80.5L200 80.5L300 80.5L300 60.9L400 60.9"/>',
    );
    // Usage that could not be read is drawn with its previous value.
    expect(body).toContain(
      '<path class="area" d="M0 90.2L100 90.2L100 90.2L200 90.2L200 90.2L300 90.2L300 90.2L400 90.2L400 100L0 100Z"/>',
    );
    expect(body).toContain('<li>app memory.max: no limit → 150 MiB ');
    expect(body).toContain('limit of the pod: 100 MiB → 200 MiB');
    expect(body).toContain('limit of app: no limit → 150 MiB');
    expect(body).toContain('size of volume cache: 50 MiB → 100 MiB');
    expect(body).toMatch(/<li>pod memory\.max: 100 MiB → 200 MiB <span class="dim">5\.0 ms<\/span><\/li>/);
  });

  test('shows failed checks, unreadable pods and failed resizes', async () => {
    const { body } = await page({
      readiness: { ready: false, checks: [{ name: 'journal', ready: false, says: 'resizes are rejected: EROFS' }] },
      overview: {
        pods: [{ pod: identity, view: { reason: 'CGROUP_UNAVAILABLE', message: 'no file' }, history: [] }],
        recent: [{ ...resize, outcome: 'undone', message: 'EBUSY' }],
        history: [refused('MEMORY_NOT_RECLAIMABLE', '90Mi are in use')],
      },
    });
    expect(body).toContain('<p class="bad">journal: resizes are rejected: EROFS</p>');
    expect(body).toContain('<td class="bad">CGROUP_UNAVAILABLE</td>');
    expect(body).toContain('<p class="bad">undone: EBUSY</p>');
    expect(body).toContain(
      '<td>kubelet (812)</td><td>pod memory 100Mi → 64Mi</td><td class="bad">Deferred, 3 times: MEMORY_NOT_RECLAIMABLE: 90Mi are in use</td>',
    );
    // The rolled back limit ends at its initial value.
    expect(body).toContain(
      '<path class="pod" d="M0 60.9L100 60.9L100 21.9L200 21.9L200 21.9L300 21.9L300 21.9L400 21.9L400 60.9L400 60.9"/>',
    );
    expect(body).toContain('limit of the pod: 100 MiB</li>');
    expect((await page({ overview: { pods: [], recent: [], history: [] } })).body).toContain(
      'none since the start of the shim',
    );
  });

  test('escapes markup in names of pods, containers and volumes and in errors', async () => {
    const markup = `"><script>alert('x')</script>&`;
    const malicious: Overview = {
      pods: [
        {
          pod: { ...identity, namespace: markup, name: markup, sandboxId: markup },
          view: { reason: markup, message: markup },
          history: [],
        },
        {
          pod: identity,
          view: {
            limits: limits(1, 1),
            containers: [{ id: markup, name: markup, limits: limits(1, 1) }],
            volumes: [{ name: markup, size: bytes(1), used: bytes(1), policy: { kind: 'fixed' } }],
            outcome: { desired: {}, allocated: {}, actuated: {}, volumeErrors: new Map() },
            lastError: { reason: markup, message: markup },
          },
          history: [{ ...refused(markup, markup), changes: [{ value: markup, from: markup, to: markup }] }],
        },
      ],
      recent: [
        {
          ...resize,
          ...{ namespace: markup, name: markup, outcome: 'undone', message: markup, names: new Map([['c1', markup]]) },
          before: { ...resize.before, volumes: [{ name: markup, size: bytes(1) }] },
          steps: [
            { step: { kind: 'pod-unified', key: markup, from: markup, to: markup }, doneAt: 1, ms: 1, used: undefined },
          ],
        },
      ],
      history: [{ ...refused(markup, markup), changes: [{ value: markup, from: markup, to: markup }] }],
    };
    const all = {
      version: markup,
      overview: malicious,
      readiness: { ready: false, checks: [{ name: markup, ready: false, says: markup }] },
    };
    const of = async (query: Partial<PageQuery>): Promise<string> =>
      (await page(all, query)).body.replace(`<script>${script}</script>`, '');
    const body = (await of({ filter: markup })) + (await of({ pod: identity.sandboxId })) + (await of({ pod: markup }));
    expect(body.split('&lt;script&gt;alert(&#39;x&#39;)').length).toBeGreaterThan(30);
    expect(body).not.toContain('<script');
    expect(body).not.toContain(`alert('x')`);
    // The page contains no other tags than its own.
    const tags = new Set([...body.matchAll(/<\/?([a-z0-9]+)/g)].map(([, tag]) => tag));
    const ours =
      'html head meta title style body header h1 h2 h3 p main div article dl dt dd svg path rect ul li ol span table thead tbody tr th td a form label input'.split(
        ' ',
      );
    expect([...tags].filter((tag) => !ours.includes(tag!))).toEqual([]);
  });

  test('needs no external resource, and its content security policy forbids external resources', async () => {
    const { body, headers = {} } = await page();
    expect(body).not.toMatch(/https?:|src=|href="[^?]|url\(|@import|style=| on[a-z]+=|import\(|fetch\(/);
    const [, code = ''] = /<script>([^]*)<\/script>/.exec(body) ?? [];
    const codeHash = createHash('sha256').update(code).digest('base64');
    const [, style = ''] = /<style>([^]*)<\/style>/.exec(body) ?? [];
    const hash = createHash('sha256').update(style).digest('base64');
    expect(headers['content-security-policy']).toBe(
      `default-src 'none'; style-src 'sha256-${hash}'; script-src 'sha256-${codeHash}'; connect-src 'self'; ` +
        `base-uri 'none'; form-action 'self'; frame-ancestors 'none'`,
    );
    expect(style).toContain('prefers-color-scheme: dark');
    expect(body).toContain('<meta name="viewport" content="width=device-width, initial-scale=1">');
  });
});

describe('status page in a browser', () => {
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
});
