import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { NodePage, type PageOptions, type PageQuery } from '../../../src/monitoring/page/page.ts';
import { script } from '../../../src/monitoring/page/assets.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import type { Overview } from '../../../src/sandbox/report/overview.ts';
import type { HistoryEntry } from '../../../src/sandbox/history/history-entry.ts';
import type { RecentResize } from '../../../src/sandbox/history/recent-resizes.ts';

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
    // By the id that crictl prints, too.
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
    // The page has no other tags than its own.
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
