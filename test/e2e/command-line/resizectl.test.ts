import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { readMetrics } from '../../support/metrics-text.ts';

/** Runs the shipped resizectl on real pods, and reads the resulting Prometheus metrics. */

const RESIZE = '/run/resizectl-test/resize.sock';
const METRICS = '/run/resizectl-test/metrics.sock';
const PROGRAM = 'dist/resizectl.js';

let folder: string;
let shim: ShimProcess;
let cri: CriClient;
let web: RunningPod;
let db: RunningPod;

async function run(name: string): Promise<RunningPod> {
  const resources = { memory_limit_in_bytes: 64 * MiB, cpu_quota: 20_000, cpu_period: 100_000, cpu_shares: 102 };
  return runPod(cri, {
    name,
    containers: [
      { name: 'app', command: ['sleep', '1000000'], resources, mounts: { cache: '/cache' } },
      { name: 'side', command: ['sleep', '1000000'], resources },
    ],
    volumes: [{ name: 'cache', size: 32 * MiB }],
  });
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'resizectl-'));
  const args = [
    '--resize-listen',
    RESIZE,
    '--state-folder',
    join(folder, 'state'),
    '--metrics-bind',
    `unix://${METRICS}`,
  ];
  shim = await ShimProcess.start({ listen: 'unix:///run/resizectl-test/cri.sock', args });
  cri = new CriClient(shim.address);
  [web, db] = [await run('web'), await run('db')];
});
afterAll(async () => {
  for (const pod of [web, db]) await pod.remove();
  cri.close();
  expect(await shim.stop()).toBe(0);
  rmSync(folder, { recursive: true });
});

interface Ran {
  readonly code: number | undefined;
  readonly out: string;
  readonly err: string;
}

async function resizectl(...args: string[]): Promise<Ran> {
  const options = { reject: false, stripFinalNewline: false } as const;
  const { exitCode, stdout, stderr } = await execa(
    process.execPath,
    [PROGRAM, '--endpoint', `unix://${RESIZE}`, ...args],
    options,
  );
  return { code: exitCode, out: stdout, err: stderr };
}

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
});

/** A command that runs until the test kills it. */
class RunningCommand {
  readonly #child: ChildProcess;
  #out = '';

  constructor(...args: string[]) {
    this.#child = spawn(process.execPath, [PROGRAM, '--endpoint', RESIZE, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.#out += text;
      this.#child.emit('more');
    });
    running.push(this.#child);
  }

  /** The position after the last complete line. A later wait starts here. */
  get end(): number {
    return this.#out.lastIndexOf('\n') + 1;
  }

  /** Waits until the complete lines after a position match, and returns them. Earlier output never counts. */
  async until(start: number, fit: (lines: readonly string[]) => boolean): Promise<readonly string[]> {
    const timeout = AbortSignal.timeout(120_000);
    for (;;) {
      const lines = this.#out.slice(start, this.end).split('\n').slice(0, -1);
      if (fit(lines)) return lines;
      await once(this.#child, 'more', { signal: timeout }).catch(() => {
        throw new Error(`no such lines within 120 s: ${lines.join('\n')}`);
      });
    }
  }
}

/** A line of `events -o json`. Steps have no state. */
interface StateEvent {
  readonly resize_id: string;
  readonly time: string;
  readonly state?: { readonly state: string };
  readonly requester: { readonly kind: string };
}

/** Number of resizes that changed nothing. */
let unchanged = 0;

const cell = (line: string | undefined): string[] => (line ?? '').split(/ {3,}/);

describe('resizectl get, describe and version', () => {
  test('get pods lists pods with limits, usage and last resize as a table, as names and as JSON', async () => {
    const { code, out } = await resizectl('get', 'pods');
    expect(code).toBe(0);
    const [head, first, second] = out.split('\n');
    expect(cell(head)).toEqual([
      'NAMESPACE',
      'NAME',
      'SANDBOX',
      'CPU',
      'MEMORY',
      'USED',
      'CONTAINERS',
      'VOLUMES',
      'RESIZE',
    ]);
    expect(cell(first).slice(0, 5)).toEqual(['default', 'db', db.sandboxId.slice(0, 13), '400m', '128Mi']);
    expect(cell(second).slice(6)).toEqual(['2', '1']);
    expect((await resizectl('get', 'pods', '-o', 'name')).out.split('\n').sort()).toEqual([
      '',
      'default/db',
      'default/web',
    ]);
    const { pods } = JSON.parse((await resizectl('get', 'pods', '-o', 'json')).out) as { pods: { identity: object }[] };
    expect(pods.map(({ identity }) => identity)).toContainEqual({
      ...{ sandbox_id: web.sandboxId, uid: web.uid, namespace: 'default', name: 'web' },
    });
  });

  test('get and describe select pods by several names, by namespace and by the alias po', async () => {
    const { out } = await resizectl('get', 'po', '-n', 'default', 'web', 'db', '-o', 'wide');
    const [head, ...rows] = out.trimEnd().split('\n');
    expect(cell(head).slice(-3)).toEqual(['BY', 'WHEN', 'CHANGES']);
    expect(rows.map((row) => cell(row)[1])).toEqual(['db', 'web']);
    expect((await resizectl('get', 'pods', '-n', 'none', '-o', 'name')).out).toBe('');
    expect((await resizectl('get', 'pods', '-n', 'none', '-A')).code).toBe(2);
    expect((await resizectl('describe', 'po', 'web', 'db')).out).toMatch(/^default\/web:\n[^]*^default\/db:\n/m);
  });

  test('get, describe and top take the forms of kubectl: get pod without a name, pod/NAME, top pods, --no-headers', async () => {
    const names = async (...args: string[]): Promise<readonly (readonly string[])[]> => {
      const { code, out, err } = await resizectl(...args);
      expect([code, err]).toEqual([0, '']);
      return out
        .trim()
        .split('\n')
        .map((line) => cell(line).slice(0, 2));
    };
    const rows = await names('get', 'pods');
    expect(rows[0]).toEqual(['NAMESPACE', 'NAME']);
    expect(await names('get', 'pod')).toEqual(rows);
    expect(await names('get', 'pod', '--no-headers')).toEqual(rows.slice(1));
    for (const args of [
      ['get', 'pod/web'],
      ['get', 'pods', 'pods/web'],
      ['describe', 'pod/web'],
      ['top', 'pods', 'web'],
    ])
      expect(await names(...args, '-o', 'name')).toEqual([['default/web']]);
    expect(await resizectl('get', 'pods', '-w', 'web', 'db')).toMatchObject({
      code: 2,
      err: expect.stringContaining('--watch: expected one pod or none') as string,
    });
  });

  test('get pod finds a pod by namespace and name, uid, or prefix of its sandbox ID', async () => {
    for (const name of ['default/web', web.uid, web.sandboxId.slice(0, 20)]) {
      const { code, out } = await resizectl('get', 'pod', name, '--output=yaml');
      expect([name, code]).toEqual([name, 0]);
      expect((parse(out) as { pod: { identity: { uid: string } } }).pod.identity.uid).toBe(web.uid);
    }
    const { out } = await resizectl('get', 'pod', 'web');
    expect(out).toMatch(/^pod {3,}400m {3,}/m);
    expect(out).toMatch(/^container app {3,}200m {3,}100m {3,}64Mi/m);
    expect(out).toMatch(/^volume cache {3,}32Mi {3,}0 {3,}fixed$/m);
  });

  test('prints its version with and without a running shim, its manual page and its completions', async () => {
    expect(await resizectl('version')).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^resizectl \d.*\n.*: answers\n$/) as string,
    });
    const alone = await resizectl('--endpoint=/run/none.sock', 'version');
    expect([alone.code, alone.out.split('\n')[1]]).toEqual([
      0,
      expect.stringContaining('/run/none.sock: does not answer'),
    ]);
    expect((await resizectl('man')).out).toMatch(/^\.TH RESIZECTL 1 /);
    expect((await resizectl('completion', 'bash')).out).toContain('complete -F _resizectl resizectl');
  });
});

describe('resizectl resize', () => {
  test('a resize applies the steps that plan lists, in order, and reports the changes', async () => {
    const changes = ['app.memory=96Mi', 'app.cpu=300m', 'volume.cache=50%'];
    const plan = await resizectl('plan', 'web', ...changes);
    expect(plan.code).toBe(0);
    expect(plan.out).toMatch(/^1\. {3}pod memory\.max 128Mi -> 160Mi$/m);
    expect(plan.out).toMatch(/^\d\. {3}volume cache 32Mi -> 80Mi$/m);
    expect(web.read('memory.max', 'app')).toBe(String(64 * MiB));
    const done = await resizectl('resize', 'web', ...changes);
    expect([done.code, done.err]).toEqual([0, '']);
    const steps = [...done.out.matchAll(/ step {2}(.*?) {2}\(/g)].map(([, step]) => step);
    const planned = [...plan.out.matchAll(/^\d+\. {3}(.*)$/gm)].map(([, step]) => step);
    expect(steps).toEqual(planned);
    const by = String.raw` {2}by API \(resizectl, \d+\)`;
    expect(done.out).toMatch(
      new RegExp(String.raw` default/web {2}Proposed${by}\n.* InProgress${by}\n(?:.*\n)*.* Completed${by}  `),
    );
    expect(done.out).toMatch(/^resize [-0-9a-f]{36} of default\/web: Completed: \d steps$/m);
    expect(done.out).toMatch(/^container app memory {3,}64Mi {3,}96Mi$/m);
    expect(done.out).toMatch(/^volume cache {3,}32Mi {3,}80Mi$/m);
    expect(web.read('memory.max', 'app')).toBe(String(96 * MiB));
    expect(web.read('cpu.max', 'app')).toBe('30000 100000');
    expect(web.volume('cache').size).toBe(80 * MiB);
    const described = await resizectl('describe', 'pod', 'web');
    expect(described.out).toMatch(/^Last resize: {3,}[-0-9a-f]{36} \(by API \(resizectl, \d+\)\) Completed$/m);
    expect(described.out).toContain('Last admitted:\n');
    expect((await resizectl('resize', 'web', 'app.memory=96Mi')).out).toContain('nothing changes');
    unchanged += 1;
  });

  test('KEP-1287: a resize that does not fit yet and has no --defer is Canceled, exits with 3, prints reason, figures and remedy', async () => {
    await cri.exec(db.id('app'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
    const { code, out, err } = await resizectl('resize', 'db', 'volume.cache=16Mi');
    expect(code).toBe(3);
    expect(out).toMatch(/^resize .* of default\/db: Canceled$/m);
    // The reason is printed once.
    expect(`${out}${err}`.match(/cannot shrink/g)).toHaveLength(1);
    expect(err).toContain(
      `resizectl: VOLUME_IN_USE: volume cache of pod ${db.uid} cannot shrink from 32Mi to 16Mi: 24Mi are stored in it`,
    );
    expect(err).toContain('resizectl: what to do: remove files, or ask for more than is stored');
    expect(db.volume('cache').size).toBe(32 * MiB);
    const planned = await resizectl('plan', 'db', 'volume.cache=16Mi');
    expect([planned.code, planned.out]).toEqual([3, '']);
    const json = await resizectl('resize', 'db', 'volume.cache=16Mi', '-o', 'json');
    expect(json.code).toBe(3);
    expect(JSON.parse(json.out)).toMatchObject({ resize: { state: 'CANCELED', reason: 'VOLUME_IN_USE' } });
  });

  test('a deferred resize exits with 4, is shown by events and watch, and ends with cancel', async () => {
    const events = new RunningCommand('events', 'db', '-o', 'json');
    const watch = new RunningCommand('watch', 'default/db');
    // The list starts with the state of the rejected resize, which equals the state of the canceled resize at the end.
    const [, row] = await watch.until(0, (lines) => lines.length === 2);
    expect(cell(row).at(-1)).toBe('Canceled');
    // events prints nothing until something happens, so its first event shows that it is connected.
    while (events.end === 0) {
      expect((await resizectl('resize', 'db', 'app.memory=64Mi')).code).toBe(0);
      unchanged += 1;
    }
    const start = { events: events.end, watch: watch.end };
    const { code, out } = await resizectl('resize', 'db', 'volume.cache=16Mi', '--defer', '--timeout=120s');
    expect(code).toBe(4);
    const [, id = ''] =
      /^resize ([-0-9a-f]{36}) of default\/db: Deferred: VOLUME_IN_USE: .*; tried 1 time, next at /m.exec(out) ?? [];
    expect(id).not.toBe('');
    const ended = await resizectl('cancel', id);
    expect([ended.code, ended.out]).toEqual([0, expect.stringContaining('Canceled: CANCELLED') as string]);

    const ofThis = (lines: readonly string[]): StateEvent[] =>
      lines.map((line) => JSON.parse(line) as StateEvent).filter(({ resize_id }) => resize_id === id);
    const seen = ofThis(
      await events.until(start.events, (lines) => ofThis(lines).some(({ state }) => state?.state === 'CANCELED')),
    );
    // On a slow node the resize is retried before the cancellation, or at that moment.
    const states = seen.map(({ state }) => state?.state).join(' ');
    expect(states).toMatch(/^PROPOSED(?: IN_PROGRESS DEFERRED)+(?: IN_PROGRESS)? CANCELED$/);
    expect(seen[0]?.time).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    // A row shows the pod's last resize, which is this one from the moment it is requested.
    const rows = await watch.until(start.watch, (lines) => cell(lines.at(-1)).at(-1) === 'Canceled');
    expect(cell(rows.at(-1)).slice(0, 2)).toEqual(['default', 'db']);
  });

  test.each([
    [['get', 'pod', 'no-such'], 2, /no pod on this node matches "no-such"/],
    [['get', 'pod', 'wep'], 2, /no pod on this node matches "wep": did you mean web\?/],
    [['resize', 'web', 'ap.memory=64Mi'], 3, /has no container ap: did you mean app\? \(it has app, side\)/],
    [['resize', 'web', 'volume.cahce=64Mi'], 3, /has no memory-backed volume cahce: did you mean cache\?/],
    [['get', 'pod', 'default/no-such'], 2, /UNKNOWN_POD: .*\n.*what to do: check crictl pods/],
    [['resize', 'web', 'app.disk=1Gi'], 2, /invalid change "app\.disk=1Gi": expected CONTAINER\.cpu=QUANTITY, /],
    [['resize', 'web', 'none.memory=64Mi'], 3, /UNKNOWN_CONTAINER: .*\n.*what to do: check crictl ps/],
    [
      ['resize', 'web', 'app.memory=1000Ti', 'app.requests.memory=1000Ti'],
      3,
      /EXCEEDS_NODE: .*\n.*what to do: ask for less/,
    ],
    [['resize', 'web', 'volume.cache=half'], 3, /INVALID_(?:ANNOTATION|VALUE): /],
    [['cancel', 'f00'], 2, /no pod on this node is named "f00", and the beginning of an id has at least 8 characters/],
    [['cancel', 'f00f00f00'], 2, /UNKNOWN_RESIZE: /],
    [
      ['get', 'pods', '--endpoint=/run/none.sock'],
      1,
      /\/run\/none\.sock did not answer: UNAVAILABLE: .* connect ENOENT \/run\/none\.sock\n.*what to do: check that/,
    ],
  ])('the command %j exits with %i and prints a remedy', async (args, code, text) => {
    const ran = await resizectl(...args);
    expect([ran.code, ran.err]).toEqual([code, expect.stringMatching(text) as string]);
  });
});

test('metrics count resizes by direction, state and step, without the name of a pod', async () => {
  const { stdout } = await execa('curl', ['-sS', '--unix-socket', METRICS, 'http://localhost/metrics'], {
    stripFinalNewline: false,
  });
  const scraped = readMetrics(stdout);
  const value = (name: string, labels: Record<string, string>): number =>
    scraped
      .get(`cri_resize_shim_${name}`)
      ?.samples.find(
        (sample) =>
          Object.entries(labels).every(([label, wanted]) => sample.labels[label] === wanted) &&
          !sample.name.endsWith('_sum'),
      )?.value ?? 0;
  expect(value('resizes_total', { state: 'Completed', direction: 'up' })).toBe(1);
  expect(value('resizes_total', { state: 'Completed', direction: 'same' })).toBe(unchanged);
  const states = (name: string): number => value('resize_states_total', { state: name });
  expect(states('Proposed')).toBe(states('Completed') + states('Infeasible') + states('Canceled'));
  expect(states('Deferred')).toBeGreaterThanOrEqual(1);
  // Also counts resizes that must not be retried, and possibly the retry during which one was canceled.
  expect([0, 1]).toContain(value('resizes_total', { state: 'Deferred', direction: 'down' }) - states('Deferred'));
  expect(value('step_duration_seconds', { kind: 'volume', le: '+Inf' })).toBe(1);
  expect(value('volumes', {})).toBe(2);
  expect(value('volumes_size_bytes', {})).toBe((80 + 32) * MiB);
  expect(value('pods', {})).toBeGreaterThanOrEqual(2);
  expect(stdout).not.toMatch(new RegExp(`${web.uid}|${web.sandboxId}|default/`));
  expect(scraped.get('cri_resize_shim_event_loop_lag_seconds')?.samples.at(-1)?.value).toBeGreaterThan(0);
});

/** Returns the first event of the stream of the status page, which does not end. */
async function firstUpdate(): Promise<string> {
  const request = get({ socketPath: METRICS, path: '/live' });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  // The end of the loop destroys the response.
  for await (const chunk of response.setEncoding('utf8')) {
    text += chunk as string;
    const end = text.indexOf('\n\n');
    if (end !== -1) return text.slice(0, end);
  }
  throw new Error(`the stream has ended: ${text}`);
}

test('the status page shows pods and the steps of their resizes', async () => {
  const read = async (path: string): Promise<string> =>
    (await execa('curl', ['-sS', '--unix-socket', METRICS, `http://localhost${path}`])).stdout;
  const stdout = await read('/');
  expect(stdout).toMatch(/<tr data-name="default\/db /);
  expect(await read(`/?pod=${db.sandboxId}`)).toContain('<dt>volume cache</dt><dd>24 MiB of 32 MiB</dd>');
  const update = await firstUpdate();
  expect(JSON.parse(update.replace('data: ', ''))).toMatchObject({
    pods: expect.stringContaining('default/db') as string,
  });
  expect(stdout).toContain('limit of app: 64 MiB → 96 MiB');
  expect(stdout).toContain('size of volume cache: 32 MiB → 80 MiB');
});

test('A6: a later update of a container wins over a deferred resize, whose other fields still apply', async () => {
  const pod = await run('order');
  await cri.exec(pod.id('app'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=24');
  const events = new RunningCommand('events', 'order', '-o', 'json');
  const deferred = await resizectl(
    'resize',
    'order',
    'app.memory=72Mi',
    'volume.cache=16Mi',
    '--defer',
    '--timeout=120s',
  );
  expect(deferred.code).toBe(4);
  await cri.updateContainer(pod.id('app'), { memory_limit_in_bytes: 80 * MiB });
  await cri.exec(pod.id('app'), 'rm', '/cache/file');
  const done = (line: string): boolean => {
    const { state, requester } = JSON.parse(line) as StateEvent;
    return state?.state === 'COMPLETED' && requester.kind === 'API';
  };
  await events.until(0, (lines) => lines.some(done));
  expect(pod.volume('cache').size).toBe(16 * MiB);
  expect(pod.read('memory.max', 'app')).toBe(String(80 * MiB));
  await pod.remove();
});

test('top sorts pods by pressure, and shows the figures of the kernel', async () => {
  // The volume of db stores 24 of 32 MiB, which is a larger share than that of any memory limit.
  const { code, out } = await resizectl('top', '--containers', '-o', 'json');
  expect(code).toBe(0);
  interface Shown {
    readonly identity: { readonly name: string };
    readonly pressure_percent: number;
    readonly cpu_cores: number;
    readonly memory_unreclaimable_bytes: number;
    readonly memory_limit_bytes: number;
    readonly containers: readonly { readonly name: string }[];
  }
  const [first, second] = (JSON.parse(out) as { pods: Shown[] }).pods;
  expect([first?.identity.name, second?.identity.name]).toEqual(['db', 'web']);
  expect(first?.pressure_percent).toBeCloseTo(75, 0);
  expect(first?.memory_limit_bytes).toBe(Number(db.read('memory.max')));
  expect(first?.memory_unreclaimable_bytes).toBeGreaterThanOrEqual(24 * MiB);
  expect(first?.cpu_cores).toBeGreaterThanOrEqual(0);
  expect(first?.containers.map(({ name }) => name).toSorted()).toEqual(['app', 'side']);
  const table = (await resizectl('top')).out.split('\n');
  expect(table[0]).toMatch(/^NAMESPACE +NAME +PRESSURE +CPU /);
  expect(table[1]).toMatch(/^default +db +75% .* cache 75%$/);
});
