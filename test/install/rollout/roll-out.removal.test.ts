import { beforeEach, describe, expect, test } from 'vitest';
import { NoSystemd } from '../../../src/install/rollout/host.ts';
import { version } from '../../../src/core/config/version.ts';
import { FAILED, HALTED } from '../../../src/install/rollout/lease.ts';
import { type Behaviour, type FakeNode, done } from '../../support/kubernetes/fake-nodes.ts';
import { SimulatedFleet } from '../../support/kubernetes/simulated-fleet.ts';

/** Tests turns of removals in virtual time: the restarted kubelet ends the pod, which cannot end its turn. */

const MINUTE = 60_000;

let fleet: SimulatedFleet;
beforeEach(() => (fleet = new SimulatedFleet()));

/** Nodes with the shim, of which one after the other may be changed, and whose label is removed. */
async function removals(names: readonly string[], behaviour: (node: () => FakeNode) => Behaviour): Promise<void> {
  const nodes = names.map((name) => {
    const node: FakeNode = fleet.node(
      name,
      behaviour(() => node),
    );
    node.isInstalled = true;
    return node.start();
  });
  await fleet.installed(nodes, 5 * MINUTE);
  for (const node of nodes) {
    fleet.api.set(node.name, { labels: {} });
    void node.terminate();
    await fleet.clock.until(() => fleet.cluster.work.length > 0, MINUTE);
  }
}

const removed = (): readonly string[] => fleet.cluster.work.filter((line) => line.endsWith(': uninstall 0'));
const halts = (): readonly unknown[] => [FAILED, HALTED].map((name) => fleet.api.lease?.metadata.annotations?.[name]);

describe('the turn of a node whose kubelet has ended the pod', () => {
  test('the turn of a pod that kubelet has ended is over after a minute if the node is Ready', async () => {
    await removals(['a', 'b', 'c', 'd'], (node) => ({ uninstall: () => (node().vanish(), done) }));
    await fleet.clock.until(() => removed().length === 4, 6 * MINUTE);
    expect([fleet.most, halts()]).toEqual([1, [undefined, undefined]]);
  });

  test('the turn of a pod that kubelet has ended is not over before the node is Ready, which may take minutes', async () => {
    const uninstall = (node: () => FakeNode): typeof done => {
      if (node().name === 'a') fleet.api.set('a', { ready: 'False' });
      node().vanish();
      return done;
    };
    await removals(['a', 'b'], (node) => ({ uninstall: () => uninstall(node) }));
    await fleet.clock.pass(4 * MINUTE);
    expect(fleet.cluster.work).toEqual(['a: uninstall', 'a: uninstall 0']);
    fleet.api.set('a', { ready: 'True' });
    await fleet.clock.until(() => removed().length === 2, MINUTE);
    expect(halts()).toEqual([undefined, undefined]);
  });
});

test('a long removal keeps its turn as long as its pod runs', async () => {
  const uninstall = async (): Promise<typeof done> => (await fleet.clock.sleep(10 * MINUTE), done);
  await removals(['a', 'b'], () => ({ uninstall }));
  await fleet.clock.until(() => removed().length === 2, 25 * MINUTE);
  expect(fleet.most).toBe(1);
});

describe('a removal that is not completed', () => {
  const VERSION = 'cri-resize-shim.io/version';
  const busy = { code: 7, lines: ['resizectl: nothing was changed: another installation runs (pid 7)'] };
  const noSpace = (): never => {
    throw new Error('ENOSPC: no space left on device');
  };

  /** Waits until the pod of a node without the label has ended. Returns what is left of the removal. */
  async function ended(node: FakeNode, meanwhile: () => Promise<void> = () => Promise.resolve()): Promise<object> {
    fleet.api.set(node.name, { labels: { [VERSION]: version } });
    let isOver = false;
    const ending = node.terminate().finally(() => (isOver = true));
    await meanwhile();
    await fleet.clock.until(() => isOver, 30 * MINUTE);
    await ending;
    return {
      events: fleet.api.events.map(({ reason, note }) => `${reason}: ${note}`),
      version: fleet.api.nodes.get(node.name)?.labels[VERSION],
      turns: fleet.api.lease?.spec.holderIdentity,
      isHalted: halts().some((halt) => halt !== undefined),
    };
  }

  async function start(behaviour: Behaviour): Promise<FakeNode> {
    const node = fleet.node('a', behaviour);
    node.isInstalled = true;
    await fleet.installed([node.start()], MINUTE);
    return node;
  }

  test.each([
    ['again after another installation', 3],
    ['in either attempt', 2],
  ])('a removal is reported and ends its turn if the program cannot be copied %s', async (_, last) => {
    let copies = 0;
    const stage = (): void => ((copies += 1) >= last ? noSpace() : undefined);
    expect(await ended(await start({ stage, uninstall: () => busy }))).toEqual({
      events: [
        'ShimUninstalling: the label was removed: kubelet is about to restart',
        'ShimUninstallFailed: ENOSPC: no space left on device',
      ],
      ...{ version, turns: undefined, isHalted: true },
    });
  });

  test('a removal continues if the program could not be copied once', async () => {
    let copies = 0;
    const stage = (): void => ((copies += 1) === 2 ? noSpace() : undefined);
    expect(await ended(await start({ stage }))).toMatchObject({
      version: undefined,
      turns: undefined,
      isHalted: false,
    });
    expect([copies, removed()]).toEqual([3, ['a: uninstall 0']]);
  });

  test('a removal is reported and ends its turn if another installation runs until the grace period of the pod is over', async () => {
    const node = await start({ uninstall: () => busy });
    const meanwhile = async (): Promise<void> => {
      await fleet.clock.until(() => fleet.cluster.work.length > 4, 5 * MINUTE);
      node.timeUp();
    };
    expect(await ended(node, meanwhile)).toEqual({
      events: [
        'ShimUninstalling: the label was removed: kubelet is about to restart',
        'ShimLeftInstalled: the grace period of the pod ended before the removal could begin',
      ],
      ...{ version, turns: undefined, isHalted: false },
    });
  });

  test('a removal that fails when the grace period of the pod is over is reported, and halts installing', async () => {
    const node = await start({ uninstall: () => (node.timeUp(), { code: 3, lines: ['failed: set x: no'] }) });
    expect(await ended(node)).toMatchObject({
      events: [expect.stringMatching(/^ShimUninstalling: /), 'ShimUninstallFailed: failed: set x: no'],
      ...{ version, turns: undefined, isHalted: true },
    });
  });

  test('a removal that fails with any other error is reported', async () => {
    const works = [Promise.resolve(), Promise.reject(new Error('nsenter: no')), Promise.resolve()];
    const idle = (): Promise<void> => works.shift() ?? Promise.resolve();
    for (const work of works) work.catch(() => undefined);
    expect(await ended(await start({ idle }))).toEqual({
      events: ['ShimLeftInstalled: nsenter: no'],
      ...{ version, turns: undefined, isHalted: false },
    });
  });
});

test('a pod of a node without systemd, where nothing was installed, ends at once', async () => {
  const node = fleet.node('a', { idle: () => Promise.reject(new NoSystemd()) }).start();
  await fleet.clock.until(() => fleet.api.events.length > 0, MINUTE);
  fleet.api.set('a', { labels: {} });
  let isEnded = false;
  void node.terminate().then(() => (isEnded = true));
  await fleet.clock.until(() => isEnded, MINUTE);
  expect(node.messages.slice(-1)).toEqual(['the shim is not installed']);
  expect(fleet.api.eventReasons()).toEqual(['a: ShimInstallRefused']);
});

describe('a removal that waits for its turn', () => {
  const LABEL = { 'cri-resize-shim.io/install': 'true' };
  const VERSION = { 'cri-resize-shim.io/version': version };

  test.each([
    [
      'gets the label again',
      { labels: { ...LABEL, ...VERSION } },
      'this node has the label again: the shim stays installed',
    ],
    [
      'is removed from the cluster',
      { labels: VERSION, deletionTimestamp: '2026-01-01T00:00:00Z' },
      'this node is being removed from the cluster: the shim stays installed',
    ],
  ])(
    'a removal that waits for its turn leaves the shim installed if its node %s, and ends its turn',
    async (_, state, message) => {
      const uninstall = async (): Promise<typeof done> => (await fleet.clock.sleep(5 * MINUTE), done);
      const [a, b] = ['a', 'b'].map((name) => fleet.node(name, { uninstall }));
      for (const node of [a!, b!]) {
        node.isInstalled = true;
        node.start();
      }
      await fleet.installed([a!, b!], MINUTE);
      let isOver = false;
      for (const node of [a!, b!]) {
        fleet.api.set(node.name, { labels: VERSION });
        void node.terminate().then(() => (isOver = node === b));
        await fleet.clock.until(() => fleet.cluster.work.length > 0, MINUTE);
      }
      await fleet.clock.until(() => b!.messages.includes('waiting: it is the turn of a'), MINUTE);
      fleet.api.set('b', state);
      await fleet.clock.until(() => isOver, 20 * MINUTE);
      expect(fleet.cluster.work).toEqual(['a: uninstall', 'a: uninstall 0']);
      expect([b!.messages.at(-1), b!.isInstalled]).toEqual([message, true]);
      expect([fleet.api.nodes.get('b')?.labels, fleet.api.lease?.spec.holderIdentity]).toEqual([
        state.labels,
        undefined,
      ]);
      expect(fleet.api.eventReasons()).toEqual(['a: ShimUninstalling', 'a: ShimUninstalled']);
    },
  );
});
