import { status } from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { Reason } from '../../../src/core/errors.ts';
import { Metadata } from '../../../src/core/grpc.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { figuresOf, top, topTable } from '../../../src/resizectl/commands/top.ts';
import type { Messages } from '../../../src/server/api/messages.ts';
import { encodeStatusDetails } from '../../../src/server/unary/status.ts';

const values = (
  limit: number | 'max',
  unreclaimable: number,
  cpuMs: number,
  more: object = {},
): Messages['Values'] => ({
  limits: { cpu: '500m', memory: limit === 'max' ? 'max' : String(limit * MiB) },
  requests: { cpu: '', memory: '' },
  ...{ cpu_max: '50000 100000', memory_max: limit === 'max' ? 'max' : String(limit * MiB) },
  ...{ cpu_shares: 0, cpu_weight: 0, memory_used_bytes: (unreclaimable + 10) * MiB },
  memory_unreclaimable_bytes: unreclaimable * MiB,
  cpu_time: { seconds: Math.floor(cpuMs / 1000), nanos: (cpuMs % 1000) * 1e6 },
  ...more,
});

const podOf = (
  name: string,
  own: Messages['Values'],
  more: Partial<NonNullable<Messages['Pod']['values']>> = {},
): Messages['Pod'] => ({
  identity: { sandbox_id: `id-${name}`, uid: `uid-${name}`, namespace: 'default', name },
  values: { pod: own, containers: [], volumes: [], ...more },
});

/** By pressure: full 90 %, waiting 60 %, volume 50 %, quiet 10 %. */
const podsAt = (cpuMs: number): Messages['Pod'][] => [
  podOf('quiet', values(100, 10, cpuMs)),
  podOf('full', values('max', 90, 0), {
    containers: [
      { id: 'c1', name: 'side', values: values(100, 1, 0) },
      { id: 'c2', name: 'app', values: values(100, 90, cpuMs / 2) },
    ],
  }),
  podOf('waiting', values(100, 10, 0, { memory_stalled_percent: 60, cpu_stalled_percent: 0.5 })),
  podOf('volume', values(100, 10, 0), {
    volumes: [{ name: 'cache', size_bytes: 100, used_bytes: 50, policy: 'fixed' }],
  }),
  {
    identity: { sandbox_id: 'id-gone', uid: 'u', namespace: 'default', name: 'gone' },
    unreadable: { reason: 'CGROUP_UNAVAILABLE', message: 'gone' },
  },
];

/** The shim's error for a pod that has ended. */
function unknownPod(): Error {
  const details = 'no pod on this node has uid x';
  const info = { reason: Reason.UNKNOWN_POD, metadata: {} };
  const metadata = new Metadata();
  metadata.add('grpc-status-details-bin', encodeStatusDetails(status.NOT_FOUND, details, info).toString('base64'));
  return Object.assign(new Error(details), { code: status.NOT_FOUND, details, metadata });
}

const before = { pods: podsAt(1000), at: 5000 };
const now = { pods: podsAt(1500), at: 7000 };

describe('the figures', () => {
  test('top sorts pods by pressure, and pods that cannot be read last', () => {
    const figures = figuresOf(before, now, 'pressure');
    expect(figures.map(({ identity, own }) => [identity.name, own && Math.round(own.pressure)])).toEqual([
      ['full', 90],
      ['waiting', 60],
      ['volume', 50],
      ['quiet', 10],
      ['gone', undefined],
    ]);
    expect(figures[0]?.containers.map(({ name }) => name)).toEqual(['app', 'side']);
  });

  test('top shows the CPUs in use between two readings, and none for a pod that started in between', () => {
    const quiet = (earlier: typeof before) =>
      figuresOf(earlier, now, 'cpu').find(({ identity }) => identity.name === 'quiet');
    // Half a second of CPU time in two seconds.
    expect(quiet(before)?.own?.cpu).toBeCloseTo(0.25, 6);
    expect(quiet({ ...before, pods: [] })?.own?.cpu).toBeUndefined();
    expect(figuresOf(before, now, 'cpu').map(({ identity }) => identity.name)[0]).toBe('quiet');
  });

  test('top sorts pods by name', () => {
    const names = figuresOf(before, now, 'name').map(({ identity }) => identity.name);
    expect(names).toEqual(['full', 'gone', 'quiet', 'volume', 'waiting']);
  });
});

describe('the table', () => {
  test('the table of top has a row for each pod, and the stalled time if the kernel reports it', () => {
    const rows = topTable(figuresOf(before, now, 'pressure'), false)
      .split('\n')
      .map((line) => line.split(/ {3,}/));
    expect(rows[0]).toEqual([
      ...['NAMESPACE', 'NAME', 'PRESSURE', 'CPU', 'CPU LIMIT', 'MEMORY', 'UNRECLAIMABLE', 'MEMORY LIMIT'],
      ...['CPU STALLED', 'MEMORY STALLED', 'FULLEST VOLUME'],
    ]);
    expect(rows[2]).toEqual([
      ...['default', 'waiting', '60%', '0m', '500m', '20Mi', '10Mi (10%)', '100Mi', '0.5%', '60%'],
    ]);
    expect(rows[3]!.at(-1)).toBe('cache 50%');
    expect(rows[5]).toEqual(['default', 'gone', '?', 'CGROUP_UNAVAILABLE']);
    const withoutStalls = { ...now, pods: now.pods.filter(({ identity }) => identity.name === 'quiet') };
    expect(topTable(figuresOf(before, withoutStalls, 'pressure'), false)).not.toContain('STALLED');
  });

  test('the table of top has the containers below their pod', () => {
    const lines = topTable(figuresOf(before, now, 'pressure'), true).split('\n');
    expect(lines.slice(1, 4).map((line) => line.split(/ {3,}/).slice(0, 4))).toEqual([
      ['default', 'full', '', '90%'].filter((cell) => cell !== '').concat('0m'),
      ['default', 'full', 'app', '90%'],
      ['default', 'full', 'side', '1.0%'],
    ]);
  });
});

describe('the command', () => {
  const contextOf = (output: 'table' | 'json' | 'name', rows?: number) => {
    const printed: string[] = [];
    let calls = 0;
    const client = {
      call: () => Promise.resolve({ pods: podsAt(1000 + (calls += 1)) }),
    };
    const context = {
      client: client as never,
      output,
      namespace: undefined,
      say: () => undefined,
      print: (text: string) => {
        printed.push(text);
        // The effect of a reader that closes its pipe.
        if (printed.length === 3) throw new Error('EPIPE');
      },
      screenRows: () => rows,
    };
    return { context, printed };
  };

  test('top prints the sorted pods as JSON, with only the known values', async () => {
    const { context, printed } = contextOf('json');
    await top(context, [], {});
    const { pods } = JSON.parse(printed.join('')) as { pods: Record<string, unknown>[] };
    expect(pods.map(({ identity }) => (identity as { name: string }).name)[0]).toBe('full');
    expect(pods[0]).not.toHaveProperty('memory_limit_bytes');
    expect(pods[1]).toMatchObject({ pressure_percent: 60, memory_stalled_percent: 60, cpu_limit: '500m' });
    expect(pods[4]).toEqual({
      identity: { sandbox_id: 'id-gone', uid: 'u', namespace: 'default', name: 'gone' },
      ...{ unreadable: 'CGROUP_UNAVAILABLE', containers: [], volumes: [] },
    });
  });

  test('top --watch prints until its output ends, one object per line, or the rows that fit on a terminal', async () => {
    const lines = contextOf('json');
    await expect(top(lines.context, [], { watch: true, interval: '100ms' })).rejects.toThrow('EPIPE');
    expect(lines.printed.map((text) => text.split('\n').length)).toEqual([2, 2, 2]);
    const screen = contextOf('table', 4);
    await expect(top(screen.context, [], { watch: true, interval: '100ms' })).rejects.toThrow('EPIPE');
    expect(screen.printed[0]?.startsWith('\u001b[H\u001b[2JNAMESPACE')).toBe(true);
    expect(screen.printed[0]?.split('\n')).toHaveLength(4);
  });

  test('top --watch reports which of the named pods has ended, and ends after the last of them', async () => {
    const said: string[] = [];
    const printed: string[] = [];
    const lives = new Map([
      ['uid-quiet', 2],
      ['uid-full', 4],
    ]);
    let finds = 0;
    const call = (method: string, { pod }: { readonly pod?: { readonly uid: string } }): Promise<unknown> => {
      if (method === 'ListPods') return Promise.resolve((finds += 1) && { pods: podsAt(1000) });
      const { uid = '' } = pod ?? {};
      const left = lives.get(uid) ?? 0;
      lives.set(uid, left - 1);
      const found = podsAt(1000).find(({ identity }) => identity.uid === uid);
      return left > 0 ? Promise.resolve({ pod: found }) : Promise.reject(unknownPod());
    };
    const context = {
      ...({ client: { call } as never, output: 'name', namespace: undefined, screenRows: () => undefined } as const),
      print: (text: string) => void printed.push(text),
      say: (line: string) => void said.push(line),
    };
    await top(context, ['quiet', 'full'], { watch: true, interval: '100ms' });
    expect(printed).toEqual(['default/full\ndefault/quiet\n', 'default/full\n', 'default/full\n']);
    expect(said).toEqual(['pod quiet has ended', 'pod full has ended']);
    // Names are resolved once, with one list for each.
    expect(finds).toBe(2);
    await expect(top(context, ['uid'.padEnd(8, '0')], { watch: true })).rejects.toThrow('no pod on this node matches');
  });

  test('top rejects an interval below 100 ms', async () => {
    const { context } = contextOf('name');
    await expect(top(context, [], { interval: '5ms' })).rejects.toThrow('--interval: invalid duration "5ms"');
  });
});
