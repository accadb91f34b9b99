import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HALTED } from '../../../src/install/rollout/lease.ts';
import { FakeCluster, type FakeNode, done } from '../../support/fake-nodes.ts';

/** Which node does what when. What resizectl does on a host, in a container's pod, is in test/e2e/install/installer.test.ts. */

let cluster: FakeCluster;
beforeEach(async () => (cluster = await new FakeCluster().start()));
afterEach(() => cluster.stop());

const until = (holds: () => boolean): Promise<void> => expect.poll(holds, { timeout: 30_000, interval: 20 }).toBe(true);
const installed = (...nodes: readonly FakeNode[]): Promise<void> => until(() => nodes.every(({ isReady }) => isReady));
const haltedBy = (): string | undefined => cluster.api.lease?.metadata.annotations?.[HALTED];
/** As an operator does it, by `kubectl annotate lease ... cri-resize-shim.io/halted-`. */
const goOn = (): void =>
  cluster.api.writeLease(({ metadata, spec }) => ({ metadata: { ...metadata, annotations: {} }, spec }));
const held = (holder: string): void =>
  cluster.api.writeLease(({ metadata, spec }) => ({ metadata, spec: { ...spec, holderIdentity: holder } }));
const failed = { code: 3, lines: ['failed: enable and start cri-resize-shim.service: no', 'rolled back: write'] };

describe('installing', () => {
  test('three nodes at once: one after the other, each told, the Lease free in the end', async () => {
    const slowly = { install: () => delay(200, done) };
    const nodes = ['a', 'b', 'c'].map((name) => cluster.node(name, slowly).start());
    await installed(...nodes);
    expect(cluster.work).toHaveLength(6);
    for (const at of [0, 2, 4]) expect(cluster.work[at + 1]).toBe(`${cluster.work[at]!} 0`);
    expect(cluster.api.eventReasons().toSorted()).toEqual(['a', 'b', 'c'].map((name) => `${name}: ShimInstalled`));
    const holders = cluster.api.holders.filter((holder) => holder !== undefined);
    expect(holders.toSorted()).toEqual(['a', 'b', 'c']);
    expect(cluster.api.lease?.spec.holderIdentity).toBeUndefined();
  });

  test('what is in place already asks for no turn, and waits for nobody: also while all others are halted', async () => {
    cluster.api.writeLease(({ metadata, spec }) => ({
      metadata: { ...metadata, annotations: { [HALTED]: 'b: x' } },
      spec,
    }));
    const node = cluster.node('a');
    node.isInstalled = true;
    await installed(node.start());
    expect(cluster.work).toEqual([]);
    expect(cluster.api.calls.map(({ verb, resource }) => `${verb} ${resource}`)).toEqual(['get leases']);
  });

  test('a failure halts the nodes after it, until an operator says that it may go on', async () => {
    let isBad = true;
    const first = cluster.node('a', { install: () => (isBad ? failed : done) }).start();
    await until(() => haltedBy() !== undefined);
    expect(haltedBy()).toBe('a: failed: enable and start cri-resize-shim.service: no');
    const second = cluster.node('b').start();
    await until(() => second.said.some((line) => line.startsWith('waiting: halted: a: failed: enable and start')));
    expect(cluster.work).toEqual(['a: install', 'a: install 3']);
    expect([first.isReady, second.isReady]).toEqual([false, false]);
    await until(() => cluster.api.events.length > 0);
    expect(cluster.api.events).toMatchObject([
      { type: 'Warning', reason: 'ShimInstallFailed', regarding: { name: 'a' } },
    ]);
    isBad = false;
    goOn();
    await installed(first, second);
    expect(haltedBy()).toBeUndefined();
  });

  test('a node that is not fit is told why, holds up nobody, and is not touched', async () => {
    const look = { code: 2, lines: ['CHECK RESULT', 'resizectl: nothing was changed: cgroup v1; what to do: boot'] };
    const unfit = cluster.node('a', { look }).start();
    await until(() => cluster.api.events.length > 0);
    await installed(cluster.node('b').start());
    expect(cluster.work).toEqual(['b: install', 'b: install 0']);
    expect(cluster.api.eventReasons()).toEqual(['a: ShimInstallRefused', 'b: ShimInstalled']);
    expect(cluster.api.events[0]?.note).toBe('resizectl: nothing was changed: cgroup v1; what to do: boot');
    expect([unfit.isReady, haltedBy()]).toEqual([false, undefined]);
  });

  test('a node that is not Ready is not begun with; it is once it is', async () => {
    const node = cluster.node('a');
    cluster.api.set('a', { ready: 'False' });
    node.start();
    await until(() => node.said.includes('waiting: this node is not Ready'));
    expect([cluster.work, cluster.api.holders]).toEqual([[], []]);
    cluster.api.set('a', { ready: 'True' });
    await installed(node);
  });

  test.each([
    ['is not Ready again', { ready: 'False' }, 'this node is not Ready again after 2 s'],
    // What the kubelet before has said stays in the API for a while.
    [
      'has not been heard of',
      { heartbeat: '2020-01-01T00:00:00Z' },
      'kubelet has not reported its status again after 2 s',
    ],
  ] as const)('a node that afterwards %s halts the others', async (_, state, why) => {
    const restarted = Date.now();
    const install = (): typeof done => (cluster.api.set('a', state), done);
    cluster.node('a', { install, kubeletStart: () => restarted }).start();
    await until(() => haltedBy() !== undefined);
    expect(haltedBy()).toBe(`a: ${why}`);
    await until(() => cluster.api.eventReasons().includes('a: ShimInstallFailed'));
  });

  test('an API server that goes away in the middle: its turn ends when it is back', async () => {
    const node = cluster.node('a', { install: () => (cluster.api.away(true), done) }).start();
    await until(() => node.said.some((line) => /cannot be read: .*; trying again/.test(line)));
    expect(node.isReady).toBe(false);
    cluster.api.away(false);
    await installed(node);
    expect(cluster.api.lease?.spec.holderIdentity).toBeUndefined();
  });
});

describe('a turn', () => {
  test('is given signs of life for as long as it takes: nobody else comes in between', async () => {
    // More than twice what the Lease is for.
    const first = cluster.node('a', { install: () => delay(4500, done) }).start();
    await until(() => cluster.work.length === 1);
    const second = cluster.node('b').start();
    await installed(first, second);
    expect(cluster.work).toEqual(['a: install', 'a: install 0', 'b: install', 'b: install 0']);
  });

  test('of a node whose pod was killed goes on with that node, at once', async () => {
    cluster.node('a');
    held('a');
    await installed(cluster.nodes[0]!.start());
  });

  test('of a node whose pod was killed when all was done ends as soon as there is a pod again', async () => {
    const node = cluster.node('a');
    node.isInstalled = true;
    held('a');
    await installed(node.start());
    expect([cluster.work, cluster.api.lease?.spec.holderIdentity]).toEqual([[], undefined]);
    expect(cluster.api.eventReasons()).toEqual(['a: ShimInstalled']);
  });

  test('that is lost passes on, when the node that had it is Ready, or has left', async () => {
    cluster.api.set('gone-silent');
    held('gone-silent');
    await installed(cluster.node('a').start());
    held('was-removed');
    await installed(cluster.node('b').start());
    expect(haltedBy()).toBeUndefined();
  });

  test('that is lost with its node halts the others', async () => {
    cluster.api.set('broken', { ready: 'Unknown' });
    held('broken');
    const node = cluster.node('a').start();
    await until(() => node.said.some((line) => line.startsWith('waiting: halted')));
    expect(haltedBy()).toBe('broken: lost during its turn, and not Ready');
    expect(cluster.work).toEqual([]);
  });
});

describe('at the end of its pod', () => {
  const start = async (name = 'a', ...more: readonly Parameters<FakeCluster['node']>[1][]): Promise<FakeNode> => {
    const node = cluster.node(name, ...more);
    node.isInstalled = true;
    await installed(node.start());
    return node;
  };

  test('a node that has the label keeps the shim', async () => {
    const node = await start();
    await node.terminate();
    expect([node.isInstalled, cluster.work]).toEqual([true, []]);
    expect(node.said.at(-1)).toBe('this node has the label: the shim stays installed');
  });

  test.each([{}, { 'cri-resize-shim.io/install': 'false' }])(
    'a node that has lost it (%j) loses the shim',
    async (labels) => {
      const node = await start();
      cluster.api.set('a', { labels });
      await node.terminate();
      expect(cluster.work).toEqual(['a: uninstall', 'a: uninstall 0']);
      expect(cluster.api.eventReasons()).toEqual(['a: ShimUninstalled']);
      expect(cluster.api.lease?.spec.holderIdentity).toBeUndefined();
    },
  );

  test('a node that leaves the cluster keeps it', async () => {
    const node = await start();
    cluster.api.set('a', { labels: {}, deletionTimestamp: '2026-01-01T00:00:00Z' });
    await node.terminate();
    cluster.api.nodes.delete('a');
    await node.terminate();
    expect(cluster.work).toEqual([]);
  });

  test('without an answer from the API server the shim stays, and that is said', async () => {
    const node = await start();
    cluster.api.set('a', { labels: {} });
    cluster.api.away(true);
    await node.terminate();
    expect(cluster.work).toEqual([]);
    expect(node.said.at(-1)).toBe('the API server did not return the labels of this node: the shim stays installed');
  });

  test('two at once: one after the other, also when installing is halted', async () => {
    const nodes = [await start('a'), await start('b')];
    cluster.api.writeLease(({ metadata, spec }) => ({
      metadata: { ...metadata, annotations: { [HALTED]: 'c: x' } },
      spec,
    }));
    for (const { name } of nodes) cluster.api.set(name, { labels: {} });
    await Promise.all(nodes.map((node) => node.terminate()));
    for (const at of [0, 2]) expect(cluster.work[at + 1]).toBe(`${cluster.work[at]!} 0`);
    expect(haltedBy()).toBe('c: x');
  });

  test('taking off that fails is told, and halts what installs', async () => {
    const node = await start('a', { uninstall: () => ({ code: 3, lines: ['failed: set x: no'] }) });
    cluster.api.set('a', { labels: {} });
    await node.terminate();
    expect([cluster.api.eventReasons(), haltedBy()]).toEqual([['a: ShimUninstallFailed'], 'a: failed: set x: no']);
  });

  test('that has no more time before its turn, the shim stays, and the node is told', async () => {
    const [a, b] = [await start('a'), await start('b', { uninstall: () => done })];
    held('a');
    // Its holder gives signs of life.
    const alive = setInterval(
      () =>
        cluster.api.writeLease(({ metadata, spec }) => ({
          metadata,
          spec: { ...spec, renewTime: new Date().toISOString() },
        })),
      100,
    );
    cluster.api.set('b', { labels: {} });
    const ending = b.terminate();
    await until(() => b.said.includes('waiting: it is the turn of a'));
    b.timeUp();
    await ending;
    clearInterval(alive);
    expect(cluster.work).toEqual([]);
    expect(cluster.api.eventReasons()).toEqual(['b: ShimLeftInstalled']);
    expect(a.isInstalled).toBe(true);
  });

  test('in the middle of its turn that is brought to its end first, and then the label is asked for', async () => {
    const node = cluster.node('a', { install: () => delay(500, done) }).start();
    await until(() => cluster.work.length === 1);
    cluster.api.set('a', { labels: {} });
    await node.terminate();
    expect(cluster.work).toEqual(['a: install', 'a: install 0', 'a: uninstall', 'a: uninstall 0']);
  });

  test('where nothing is installed there is no turn to wait for', async () => {
    const node = cluster.node('a');
    cluster.api.set('a', { ready: 'False', labels: {} });
    node.start();
    await node.terminate();
    expect([cluster.work, cluster.api.holders]).toEqual([[], []]);
  });
});
