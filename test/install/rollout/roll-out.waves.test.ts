import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { version } from '../../../src/core/config/version.ts';
import type { CommandResult, ShimRun } from '../../../src/install/rollout/host.ts';
import { FAILED, HALTED, PAUSED, VOUCHED } from '../../../src/install/rollout/lease.ts';
import { done, type FakeNode } from '../../support/kubernetes/fake-nodes.ts';
import { SimulatedFleet } from '../../support/kubernetes/simulated-fleet.ts';

/** Tests waves in virtual time: how many nodes at once, canaries, pause, halt, rollback. */

let fleet: SimulatedFleet;
beforeEach(() => (fleet = new SimulatedFleet()));
// Virtual time only: nothing waits in real time.
afterEach(() => fleet.clock.until(() => true, 0));

const MINUTE = 60_000;
const annotation = (name: string): string | undefined => fleet.api.lease?.metadata.annotations?.[name];
/** Does what an operator does with `kubectl annotate lease`. undefined removes an annotation. */
const annotate = (changes: Record<string, string | undefined>): void =>
  fleet.api.writeLease(({ metadata, spec }) => ({
    metadata: {
      ...metadata,
      annotations: JSON.parse(JSON.stringify({ ...metadata.annotations, ...changes })) as object,
    },
    spec,
  }));
const failures = (): Record<string, string> => JSON.parse(annotation(FAILED) ?? '{}') as Record<string, string>;
const installing = (): readonly string[] => fleet.cluster.work.filter((line) => line.endsWith(': install'));
const canary = { 'cri-resize-shim.io/canary': 'true' };
const failing = { code: 3, lines: ['failed: enable and start cri-resize-shim.service: no'] };
const started = (nodes: readonly FakeNode[]): readonly FakeNode[] => nodes.map((node) => node.start());

/** Values of --parallel: PARALLEL=10,25,100 prints the other rows of the table in docs/kubernetes.md. */
/** Value of --spread: SPREAD=0s shows what it is good for. */
const spread = process.env['SPREAD'] ?? '10s';
const parallel = (process.env['PARALLEL'] ?? '50').split(',').map(Number);

test.each(parallel)(
  '1,000 nodes get the shim, %i concurrently (within 10 minutes if 50), without flooding the API server',
  async (count) => {
    const names = Array.from({ length: 1000 }, (_, index) => `node-${index}`);
    const nodes = started(
      names.map((name) => fleet.node(name, { flags: [`--parallel=${count}`, `--spread=${spread}`] })),
    );
    // Each takes 20 s. The remaining nodes wait longer for their turn.
    await fleet.installed(nodes, (1.15 * 1000 * 20_000) / count + 100_000);
    expect(fleet.most).toBe(count);
    expect(fleet.cluster.work).toHaveLength(2000);
    const labels = nodes.map(({ name }) => fleet.api.nodes.get(name)?.labels['cri-resize-shim.io/version']);
    expect(new Set(labels)).toEqual(new Set([version]));
    expect(annotation('cri-resize-shim.io/turns')).toBeUndefined();
    // The pods start at the same moment, and each one waits for a random time.
    const [first, later] = [fleet.busiest(1000, 0), fleet.busiest(10_000, MINUTE)];
    if (process.env['PARALLEL'] !== undefined)
      process.stdout.write(
        `${count} at once: ${Math.round(fleet.clock.passed / 1000)} s, ${first} requests in the busiest second, ${later / 10} per second after the first minute\n`,
      );
    expect(first).toBeLessThan(600);
    expect(later / 10).toBeLessThan(100);
  },
  900_000,
);

describe('nodes that are changed at the same time', () => {
  test('as many nodes are changed concurrently as --parallel says, and all removals are completed', async () => {
    const flags = ['--parallel=3'];
    const nodes = started(['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => fleet.node(name, { flags })));
    await fleet.installed(nodes, 5 * MINUTE);
    expect(fleet.most).toBe(3);
    for (const { name } of nodes) fleet.api.set(name, { labels: {} });
    const ended = Promise.all(nodes.map((node) => node.terminate()));
    let areGone = false;
    void ended.then(() => (areGone = true));
    await fleet.clock.until(() => areGone, 5 * MINUTE);
    expect(nodes.map(({ isInstalled }) => isInstalled)).toEqual(nodes.map(() => false));
  });

  test('concurrent installations finish when one of them fails, and no other installation begins', async () => {
    const flags = ['--parallel=2', '--revision=r1'];
    const bad = fleet.node('a', { flags, install: () => failing }).start();
    await fleet.clock.until(() => installing().length === 1, MINUTE);
    const others = started(['b', 'c', 'd'].map((name) => fleet.node(name, { flags })));
    await fleet.clock.elapse(20 * MINUTE);
    expect(installing()).toHaveLength(2);
    expect(others.filter(({ isReady }) => isReady)).toHaveLength(1);
    expect(bad.isReady).toBe(false);
    expect(failures()).toEqual({ r1: 'a: failed: enable and start cri-resize-shim.service: no' });
  });

  test('a node that is lost during its turn and is not Ready halts the others until the halt is removed', async () => {
    fleet.api.set('lost', { ready: 'Unknown' });
    const turns = { 'cri-resize-shim.io/turns': '{"lost":"2026-01-01T00:00:00Z"}' };
    fleet.api.writeLease(({ metadata }) => ({
      metadata: { ...metadata, annotations: turns },
      spec: { holderIdentity: 'lost', renewTime: '2026-01-01T00:00:00Z' },
    }));
    const node = fleet.node('a', { flags: ['--parallel=1'] }).start();
    await fleet.clock.until(() => annotation(HALTED) !== undefined, 10 * MINUTE);
    expect(annotation(HALTED)).toBe('lost: lost during its turn, and not Ready');
    annotate({ [HALTED]: undefined });
    await fleet.installed([node], 5 * MINUTE);
  });
});

test('a node that is deleted during its turn halts no other one', async () => {
  const install = (): CommandResult => (fleet.api.nodes.delete('a'), done);
  fleet.node('a', { flags: ['--revision=r1'], install }).start();
  const other = fleet.node('b', { flags: ['--revision=r1'] }).start();
  await fleet.installed([other], 5 * MINUTE);
  await fleet.clock.elapse(10 * MINUTE);
  expect([failures(), fleet.api.eventReasons()]).toEqual([{}, ['b: ShimInstalled']]);
});

describe('a pause', () => {
  test('a pause lets no node begin until it is removed', async () => {
    annotate({ [PAUSED]: 'change freeze' });
    const node = fleet.node('a').start();
    await fleet.clock.elapse(30 * MINUTE);
    expect([installing(), node.messages.at(-1)]).toEqual([[], 'waiting: paused: change freeze']);
    annotate({ [PAUSED]: undefined });
    await fleet.installed([node], 2 * MINUTE);
  });
});

describe('canary nodes', () => {
  const flags = ['--canaries=1', '--parallel=10', '--revision=r1'];

  test('the other nodes wait until a canary node has worked for the time of --soak', async () => {
    const others = started(['b', 'c', 'd'].map((name) => fleet.node(name, { flags })));
    await fleet.clock.elapse(10 * MINUTE);
    expect(installing()).toEqual([]);
    expect(others[0]?.messages.at(-1)).toBe('waiting: 0 of 1 canary nodes have passed with this release');
    const node = fleet.node('a', { flags, labels: canary }).start();
    await fleet.installed([node], 2 * MINUTE);
    await fleet.clock.elapse(4 * MINUTE);
    expect(installing()).toEqual(['a: install']);
    await fleet.clock.until(() => annotation(VOUCHED) === '{"r1":["a"]}', 2 * MINUTE);
    await fleet.installed(others, 3 * MINUTE);
    expect(fleet.api.eventReasons()).toContain('a: ShimCanaryPassed');
  });

  test('a node that gets the canary label while it waits does not wait for canaries', async () => {
    const node = fleet.node('a', { flags }).start();
    await fleet.clock.elapse(5 * MINUTE);
    fleet.api.set('a', { labels: { 'cri-resize-shim.io/install': 'true', ...canary } });
    await fleet.installed([node], 3 * MINUTE);
  });

  test.each([
    ['the shim does not run', { shim: () => ({ isActive: false, run: '1' }) }, 'the shim does not run'],
    [
      'kubelet bypasses the shim',
      { drift: () => ({ state: 'past', note: 'kubelet uses unix:///c.sock' }) as const },
      'kubelet uses unix:///c.sock',
    ],
  ])('a canary node halts its release if %s', async (_, behaviour, why) => {
    const other = fleet.node('b', { flags }).start();
    const node = fleet.node('a', { flags, labels: canary, ...behaviour }).start();
    await fleet.clock.until(() => fleet.api.eventReasons().includes('a: ShimCanaryFailed'), 5 * MINUTE);
    await fleet.clock.elapse(10 * MINUTE);
    expect([failures(), annotation(HALTED)]).toEqual([{ r1: `a: canary: ${why}` }, undefined]);
    expect(fleet.api.eventReasons().filter((reason) => reason === 'a: ShimCanaryFailed')).toHaveLength(1);
    expect([node.isReady, other.isReady, installing()]).toEqual([true, false, ['a: install']]);
  });

  describe('a canary node with --repair-drift', () => {
    const past = { state: 'past', note: 'kubelet uses unix:///c.sock' } as const;
    const shim = { state: 'shim', note: 'kubelet uses the shim' } as const;
    let drift: typeof past | typeof shim;
    /** Another program writes the endpoint of kubelet. */
    const overwrite = (node: FakeNode): void => {
      node.isInstalled = false;
      drift = past;
    };
    const start = async (): Promise<FakeNode> => {
      drift = shim;
      const install = (): CommandResult => ((drift = shim), done);
      const node = fleet.node('a', { flags, labels: canary, drift: () => drift, install, repairsDrift: true }).start();
      await fleet.installed([node], 2 * MINUTE);
      await fleet.clock.elapse(MINUTE);
      overwrite(node);
      await fleet.clock.until(() => installing().length === 2, 2 * MINUTE);
      return node;
    };

    test('with --repair-drift, the shim is installed again on a canary node that drifted, and the soak begins again', async () => {
      const node = await start();
      await fleet.installed([node], 2 * MINUTE);
      await fleet.clock.elapse(4 * MINUTE);
      expect(annotation(VOUCHED)).toBeUndefined();
      await fleet.clock.until(() => fleet.api.eventReasons().includes('a: ShimCanaryPassed'), 2 * MINUTE);
      expect(annotation(VOUCHED)).toBe('{"r1":["a"]}');
      expect([failures(), fleet.api.eventReasons()]).toEqual([
        {},
        [...['a: ShimInstalled', 'a: ShimDrift', 'a: ShimInstalled', 'a: ShimDriftEnded'], 'a: ShimCanaryPassed'],
      ]);
    });

    test('with --repair-drift, a second drift of a canary node halts the release, and the repair waits for the end of the halt', async () => {
      const node = await start();
      await fleet.installed([node], 2 * MINUTE);
      overwrite(node);
      await fleet.clock.until(() => annotation(FAILED) !== undefined, 2 * MINUTE);
      expect(failures()).toEqual({ r1: 'a: canary: kubelet uses unix:///c.sock' });
      await fleet.clock.elapse(20 * MINUTE);
      expect(installing()).toHaveLength(2);
      expect(node.messages.at(-1)).toMatch(/^waiting: halted: a: canary: kubelet uses unix/);
      annotate({ [FAILED]: undefined });
      await fleet.clock.until(() => annotation(VOUCHED) === '{"r1":["a"]}', 10 * MINUTE);
      expect(installing()).toHaveLength(3);
    });
  });

  test('a release is halted if the shim of a canary node was started again, and continues after another soak', async () => {
    let run = 'first';
    const other = fleet.node('b', { flags }).start();
    const node = fleet.node('a', { flags, labels: canary, shim: () => ({ isActive: true, run }) }).start();
    await fleet.installed([node], 2 * MINUTE);
    await fleet.clock.elapse(3 * MINUTE);
    run = 'second';
    await fleet.clock.until(() => annotation(FAILED) !== undefined, MINUTE);
    expect(failures()).toEqual({ r1: 'a: canary: the shim has ended and was started again' });
    annotate({ [FAILED]: undefined });
    await fleet.clock.elapse(4 * MINUTE);
    expect(other.isReady).toBe(false);
    await fleet.installed([other], 4 * MINUTE);
  });

  test('a release is halted if the shim of a canary node is started again while systemd does not answer', async () => {
    let looks = 0;
    const shim = (): ShimRun => {
      looks += 1;
      if (looks === 4) throw new Error('systemctl: timed out');
      return { isActive: true, run: looks > 4 ? 'second' : 'first' };
    };
    fleet.node('a', { flags, labels: canary, shim }).start();
    await fleet.clock.until(() => annotation(FAILED) !== undefined, 4 * MINUTE);
    expect(failures()).toEqual({ r1: 'a: canary: the shim has ended and was started again' });
  });

  test('one look that finds drift on a canary node is not a failure', async () => {
    let looks = 0;
    const drift = (): { state: 'past' | 'shim'; note: string } => ({
      state: (looks += 1) === 5 ? 'past' : 'shim',
      note: '',
    });
    fleet.node('a', { flags, labels: canary, drift }).start();
    await fleet.clock.until(() => annotation(VOUCHED) !== undefined, 10 * MINUTE);
    expect(looks).toBeGreaterThan(15);
    expect(annotation(FAILED)).toBeUndefined();
  });
});

describe('a rollback to the revision before', () => {
  const of = (revision: string): readonly string[] => ['--canaries=1', '--parallel=5', `--revision=${revision}`];

  test('a rollback to the revision before is not bound by the halt of the failed revision, and waits for no canary', async () => {
    annotate({ [FAILED]: '{"r2":"a: failed"}', [VOUCHED]: '{"r1":["a"],"r2":["a"]}' });
    const newer = started(['b', 'e', 'f'].map((name) => fleet.node(name, { flags: of('r2') })));
    await fleet.clock.elapse(5 * MINUTE);
    expect(newer[0]?.messages.at(-1)).toMatch(/^waiting: halted: a: failed/);
    const nodes = started(['a', 'c', 'd'].map((name) => fleet.node(name, { flags: of('r1') })));
    await fleet.installed(nodes, 3 * MINUTE);
    // The pods of the failed revision have not been replaced yet.
    await fleet.clock.elapse(5 * MINUTE);
    expect(newer.map(({ isReady }) => isReady)).toEqual([false, false, false]);
    expect([installing().length, failures()]).toEqual([3, { r2: 'a: failed' }]);
  });

  test('a rollback that fails too leaves both revisions halted', async () => {
    annotate({ [FAILED]: '{"r2":"a: failed"}', [VOUCHED]: '{"r1":["a"]}' });
    const newer = fleet.node('b', { flags: of('r2') }).start();
    fleet.node('a', { flags: of('r1'), install: () => failing }).start();
    await fleet.clock.until(() => Object.keys(failures()).length === 2, 3 * MINUTE);
    await fleet.clock.elapse(5 * MINUTE);
    expect([newer.isReady, Object.keys(failures()), installing()]).toEqual([false, ['r2', 'r1'], ['a: install']]);
  });

  test.each([
    ['an installation', 'install'],
    ['a removal', 'uninstall'],
  ] as const)(
    'nodes of another revision are not halted by a node that %s of the failed revision has broken',
    async (_, work) => {
      const breaks = (): CommandResult => {
        fleet.api.set('x', { ready: 'Unknown', labels: {} });
        broken.vanish();
        return done;
      };
      const broken: FakeNode = fleet.node('x', { flags: ['--revision=r1'], [work]: breaks });
      broken.isInstalled = work === 'uninstall';
      broken.start();
      if (work === 'uninstall') {
        await fleet.installed([broken], MINUTE);
        fleet.api.set('x', { labels: {} });
        void broken.terminate();
      }
      await fleet.clock.until(() => fleet.cluster.work.includes(`x: ${work} 0`), 2 * MINUTE);
      const nodes = started(['b', 'c'].map((name) => fleet.node(name, { flags: ['--revision=r2'] })));
      await fleet.clock.until(() => annotation(FAILED) !== undefined, 10 * MINUTE);
      expect(failures()).toEqual({ r1: 'x: lost during its turn, and not Ready' });
      await fleet.installed(nodes, 5 * MINUTE);
    },
  );

  test('an installation of any revision waits while a halt without a revision is set, as by an operator', async () => {
    annotate({ [HALTED]: 'by hand' });
    const node = fleet.node('a', { flags: ['--revision=r1'] }).start();
    await fleet.clock.elapse(5 * MINUTE);
    expect([installing(), node.isReady]).toEqual([[], false]);
  });
});
