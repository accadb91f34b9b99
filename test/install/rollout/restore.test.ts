import { describe, expect, test } from 'vitest';
import type { CommandResult } from '../../../src/install/rollout/host.ts';
import { type RestoreContext, restore } from '../../../src/install/rollout/restore.ts';
import { SimulatedFleet } from '../../support/kubernetes/simulated-fleet.ts';

/** Tests the command that the chart runs before it is deleted, on a cluster in virtual time. */

const MINUTE = 60_000;
const LABEL = 'cri-resize-shim.io/install';

function restoring(
  fleet: SimulatedFleet,
  key = LABEL,
  portion = 20,
): { readonly lines: string[]; readonly code: Promise<0 | 1> } {
  const lines: string[] = [];
  const context: RestoreContext = {
    ...fleet.outside,
    ...{ namespace: 'cri-resize-shim', label: { key, value: 'true' }, portion, random: () => 0 },
    say: (line) => void lines.push(line),
  };
  return { lines, code: restore(context, new AbortController().signal) };
}

/** Waits in virtual time. */
async function ended<Value>(fleet: SimulatedFleet, work: Promise<Value>): Promise<Value> {
  let isOver = false;
  void work.finally(() => (isOver = true));
  await fleet.clock.until(() => isOver, 60 * MINUTE);
  return work;
}

test('the command removes the label of every node, and waits until all nodes have removed the shim', async () => {
  const fleet = new SimulatedFleet();
  const nodes = ['a', 'b', 'c'].map((name) => fleet.node(name, { flags: ['--parallel=2'] }).start());
  await fleet.installed(nodes, 5 * MINUTE);
  for (const { name } of nodes) fleet.api.pods.add(name);
  const { lines, code } = restoring(fleet);
  await fleet.clock.until(() => lines.some((line) => line.startsWith('waiting for 3 pods')), MINUTE);
  // The controller of the DaemonSet ends the pods of nodes without the label.
  for (const node of nodes) void node.terminate().then(() => fleet.api.pods.delete(node.name));
  expect(await ended(fleet, code)).toBe(0);
  expect(nodes.map(({ isInstalled }) => isInstalled)).toEqual([false, false, false]);
  expect(lines.at(-1)).toBe('the shim is removed from all nodes');
});

test('the command finds 1,200 nodes, more than one page of the API server', async () => {
  const fleet = new SimulatedFleet();
  for (let index = 0; index < 1200; index += 1) fleet.api.set(`node-${index}`, { labels: { [LABEL]: 'true' } });
  fleet.api.set('other', { labels: { [LABEL]: 'false' } });
  const { code } = restoring(fleet);
  expect(await ended(fleet, code)).toBe(0);
  const labels = [...fleet.api.nodes.values()].map((node) => node.labels[LABEL]);
  expect(labels.filter((value) => value !== undefined)).toEqual(['false']);
});

test('labels are removed in portions, so that no pod waits longer for its turn than its grace period', async () => {
  const fleet = new SimulatedFleet();
  const ending = new Map<string, number>();
  let longest = 0;
  const names = Array.from({ length: 100 }, (_, index) => `node-${index}`);
  const nodes = names.map((name) => {
    // The restarted kubelet terminates the pod, which no longer matches its node.
    const uninstall = (): CommandResult => {
      longest = Math.max(longest, fleet.clock.passed - (ending.get(name) ?? 0));
      node.vanish();
      fleet.api.pods.delete(name);
      return { code: 0, lines: [] };
    };
    const node = fleet.node(name, { flags: ['--parallel=2'], uninstall });
    return node;
  });
  for (const node of nodes) {
    node.isInstalled = true;
    fleet.api.pods.add(node.name);
    node.start();
  }
  await fleet.installed(nodes, 5 * MINUTE);
  let most = 0;
  const { code } = restoring(fleet, LABEL, 10);
  const work = { isOver: false };
  void code.finally(() => (work.isOver = true));
  while (!work.isOver) {
    // Runs the controller of the DaemonSet once per second.
    for (const node of nodes) {
      const begun = ending.get(node.name);
      if (begun !== undefined || fleet.api.nodes.get(node.name)?.labels[LABEL] !== undefined) continue;
      ending.set(node.name, fleet.clock.passed);
      void node.terminate();
    }
    most = Math.max(most, nodes.filter(({ name }) => ending.has(name) && fleet.api.pods.has(name)).length);
    await fleet.clock.elapse(1000);
  }
  expect(await code).toBe(0);
  expect([most, nodes.filter(({ isInstalled }) => isInstalled)]).toEqual([10, []]);
  expect(longest).toBeLessThan(10 * MINUTE);
  // If all labels were removed at once, the last pods would wait for this whole time.
  expect(fleet.clock.passed).toBeGreaterThan(60 * MINUTE);
  // docs/kubernetes.md: some 90 s for each node.
  expect(fleet.clock.passed).toBeLessThan((names.length / 2) * 95_000);
}, 600_000);

test('the command names a node that still has the shim, and fails', async () => {
  const fleet = new SimulatedFleet();
  const bad = { uninstall: () => ({ code: 3, lines: ['failed: set x: no'] }) };
  const node = fleet.node('a', bad).start();
  await fleet.installed([node], 5 * MINUTE);
  fleet.api.pods.add('a');
  const { lines, code } = restoring(fleet);
  await fleet.clock.until(() => lines.length === 2, MINUTE);
  void node.terminate().then(() => fleet.api.pods.delete('a'));
  expect(await ended(fleet, code)).toBe(1);
  expect(lines.slice(-2)).toEqual([
    'the shim is still installed on a: run `resizectl uninstall` there',
    'after that, for each node: kubectl label node a cri-resize-shim.io/version-',
  ]);
});

test('the command names a node if its pod ended before the removal did, and removes the labels of the node', async () => {
  const fleet = new SimulatedFleet();
  const uninstall = (): CommandResult => {
    // kubelet terminates the pod, so the rest of its work does not happen.
    node.vanish();
    return { code: 0, lines: [] };
  };
  const node = fleet.node('a', { uninstall });
  node.isInstalled = true;
  await fleet.installed([node.start()], 5 * MINUTE);
  fleet.api.pods.add('a');
  const { lines, code } = restoring(fleet);
  await fleet.clock.until(() => lines.length === 2, MINUTE);
  void node.terminate();
  await fleet.clock.until(() => fleet.cluster.work.includes('a: uninstall'), 5 * MINUTE);
  fleet.api.pods.delete('a');
  expect(await ended(fleet, code)).toBe(0);
  expect(fleet.api.nodes.get('a')?.labels).toEqual({});
  expect(lines.slice(-2)).toEqual([
    'on a the pod ended before the removal did: `resizectl doctor` there says whether the shim is gone',
    'the shim is removed from all nodes',
  ]);
});

test('install: a node that is down is not waited for and not counted as restored: the command names it and fails', async () => {
  const fleet = new SimulatedFleet();
  fleet.api.set('dead', { ready: 'Unknown', labels: { [LABEL]: 'true', 'cri-resize-shim.io/version': '0.2.0' } });
  fleet.api.pods.add('dead');
  const { lines, code } = restoring(fleet);
  expect(await ended(fleet, code)).toBe(1);
  expect(fleet.clock.passed).toBeLessThan(6 * MINUTE);
  expect(lines).toContain('not waited for, because the node is not Ready or gone: dead');
  expect(lines.at(-1)).toContain('kubectl label node dead cri-resize-shim.io/version-');
});

test('install: a node that dies during its removal is not counted as restored: it is named, keeps its label, and the command fails', async () => {
  const fleet = new SimulatedFleet();
  const VERSION = 'cri-resize-shim.io/version';
  fleet.api.set('dead', { ready: 'Unknown', labels: { [VERSION]: 'removing' } });
  fleet.api.pods.add('dead');
  // Its pod has ended, so its node has completed the removal.
  fleet.api.set('other', { labels: { [VERSION]: 'removing' } });
  const { lines, code } = restoring(fleet);
  expect(await ended(fleet, code)).toBe(1);
  expect(['dead', 'other'].map((name) => fleet.api.nodes.get(name)?.labels)).toEqual([{ [VERSION]: 'removing' }, {}]);
  expect(lines.slice(-5)).toEqual([
    'not waited for, because the node is not Ready or gone: dead',
    'waiting until the nodes are Ready whose pod ended before the removal did: other',
    'on other the pod ended before the removal did: `resizectl doctor` there says whether the shim is gone',
    'on dead the removal has begun, but the node is not Ready, and its kubelet may still use the shim: run `resizectl uninstall` there once it is back',
    'after that, for each node: kubectl label node dead cri-resize-shim.io/version-',
  ]);
});

describe('a node that dies during its removal, and whose pod is deleted by force', () => {
  const VERSION = 'cri-resize-shim.io/version';

  test.each([
    ['before the command looks at it', 0],
    // The API has the old status of the node for up to 50 s.
    ['right after its last report', 50_000],
  ])(
    'install: a node that dies %s, with its pod deleted by force, is not counted as restored: the command names it and fails',
    async (_, late) => {
      const fleet = new SimulatedFleet();
      fleet.api.set('dead', { labels: { [LABEL]: 'true', [VERSION]: 'removing' } });
      fleet.api.set('other', { labels: { [VERSION]: 'removing' } });
      fleet.api.pods.add('dead');
      const { lines, code } = restoring(fleet);
      await fleet.clock.until(() => lines.some((line) => line.startsWith('waiting for 1 pods')), MINUTE);
      if (late === 0) fleet.api.set('dead', { ready: 'Unknown' });
      fleet.api.pods.delete('dead');
      await fleet.clock.elapse(late);
      fleet.api.set('dead', { ready: 'Unknown' });
      expect(await ended(fleet, code)).toBe(1);
      expect(['dead', 'other'].map((name) => fleet.api.nodes.get(name)?.labels)).toEqual([
        { [VERSION]: 'removing' },
        {},
      ]);
      expect(lines.slice(-3)).toEqual([
        'on other the pod ended before the removal did: `resizectl doctor` there says whether the shim is gone',
        'on dead the removal has begun, but the node is not Ready, and its kubelet may still use the shim: run `resizectl uninstall` there once it is back',
        'after that, for each node: kubectl label node dead cri-resize-shim.io/version-',
      ]);
    },
  );

  test('a node is counted as restored once it is Ready again, even if its restarted kubelet takes minutes', async () => {
    const fleet = new SimulatedFleet();
    fleet.api.set('slow', { ready: 'False', labels: { [VERSION]: 'removing' } });
    const { lines, code } = restoring(fleet);
    await fleet.clock.elapse(4 * MINUTE);
    fleet.api.set('slow', { ready: 'True' });
    expect(await ended(fleet, code)).toBe(0);
    expect(fleet.api.nodes.get('slow')?.labels).toEqual({});
    expect(lines[0]).toBe('waiting until the nodes are Ready whose pod ended before the removal did: slow');
    expect(fleet.clock.passed).toBeLessThan(5 * MINUTE);
  });

  test('a node that dies during its removal is not named if it leaves the cluster', async () => {
    const fleet = new SimulatedFleet();
    fleet.api.set('gone', { ready: 'Unknown', labels: { [VERSION]: 'removing' } });
    const { lines, code } = restoring(fleet);
    await fleet.clock.elapse(2 * MINUTE);
    fleet.api.nodes.delete('gone');
    expect(await ended(fleet, code)).toBe(0);
    expect(lines.at(-1)).toBe('the shim is removed from all nodes');
  });
});

describe('a right that is missing', () => {
  const rights = 'this command needs the rights to get, list and patch nodes, and to list pods in cri-resize-shim';

  test.each(['list nodes', 'patch nodes', 'list pods', 'get nodes'])(
    'a missing right fails the command within a minute, and is named: %s',
    async (right) => {
      const fleet = new SimulatedFleet();
      fleet.api.set('a', { labels: { [LABEL]: 'true', 'cri-resize-shim.io/version': 'removing' } });
      if (right === 'get nodes') fleet.api.pods.add('a');
      fleet.api.forbidden.add(right);
      const { lines, code } = restoring(fleet);
      expect(await ended(fleet, code)).toBe(1);
      const [verb, resource] = right.split(' ');
      expect(lines.at(-1)).toContain(`HTTP 403: ${resource} is forbidden: User`);
      expect(lines.at(-1)).toContain(`cannot ${verb} resource "${resource}"`);
      expect(lines.at(-1)).toContain(rights);
      expect(fleet.clock.passed).toBeLessThan(MINUTE);
    },
  );

  test('a missing right is waited for at first, because its role was created just before the command', async () => {
    const fleet = new SimulatedFleet();
    fleet.api.set('a', { labels: { [LABEL]: 'true' } });
    fleet.api.forbidden.add('list nodes');
    const { code } = restoring(fleet);
    await fleet.clock.elapse(20_000);
    fleet.api.forbidden.clear();
    expect(await ended(fleet, code)).toBe(0);
    expect(fleet.api.nodes.get('a')?.labels).toEqual({});
  });
});

test('after an outage of the API server, the command waits for a node that is not Ready until it had time to report', async () => {
  const fleet = new SimulatedFleet();
  fleet.api.set('slow', { ready: 'False', labels: { [LABEL]: 'true' } });
  fleet.api.pods.add('slow');
  const { lines, code } = restoring(fleet);
  await fleet.clock.elapse(MINUTE);
  fleet.isAway = true;
  await fleet.clock.elapse(10 * MINUTE);
  fleet.isAway = false;
  await fleet.clock.elapse(2 * MINUTE);
  fleet.api.set('slow', { ready: 'True', labels: {} });
  fleet.api.pods.delete('slow');
  expect(await ended(fleet, code)).toBe(0);
  expect(lines.filter((line) => line.startsWith('not waited for'))).toEqual([]);
});

test.each([
  ['label', { 'node-pool': 'true' }],
  ['label of the version', { 'node-pool': 'false', 'cri-resize-shim.io/version': '0.2.0' }],
])('the command keeps a label that others use, and fails if a node has the %s', async (_, labels) => {
  const fleet = new SimulatedFleet();
  fleet.api.set('a', { labels });
  const { lines, code } = restoring(fleet, 'node-pool');
  expect(await ended(fleet, code)).toBe(1);
  expect(fleet.api.nodes.get('a')?.labels).toEqual(labels);
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain('restore.enabled=false');
});

test('with a label that others use, the command succeeds once no node has the shim', async () => {
  const fleet = new SimulatedFleet();
  fleet.api.set('a', { labels: { 'node-pool': 'false' } });
  const { lines, code } = restoring(fleet, 'node-pool');
  expect(await ended(fleet, code)).toBe(0);
  expect(fleet.api.nodes.get('a')?.labels).toEqual({ 'node-pool': 'false' });
  expect(lines).toEqual(['the shim is removed from all nodes']);
});
