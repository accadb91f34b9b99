import { expect, test } from 'vitest';
import { type RestoreContext, restore } from '../../../../src/install/rollout/restore/restore.ts';
import type { CommandResult } from '../../../../src/install/rollout/host.ts';
import { SimulatedFleet } from '../../../support/kubernetes/simulated-fleet.ts';

/** Tests the command that the chart runs before it is deleted, on a cluster in virtual time. */

const MINUTE = 60_000;
const LABEL = 'cri-resize-shim.io/install';

function restoring(fleet: SimulatedFleet, key = LABEL): { readonly lines: string[]; readonly code: Promise<0 | 1> } {
  const lines: string[] = [];
  const context: RestoreContext = {
    ...fleet.outside,
    ...{ namespace: 'cri-resize-shim', label: { key, value: 'true' }, random: () => 0 },
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

test('every node loses its label, and then the shim, and the command waits for that', async () => {
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

test('1,200 nodes are found, which is more than one page of the API server', async () => {
  const fleet = new SimulatedFleet();
  for (let index = 0; index < 1200; index += 1) fleet.api.set(`node-${index}`, { labels: { [LABEL]: 'true' } });
  fleet.api.set('other', { labels: { [LABEL]: 'false' } });
  const { code } = restoring(fleet);
  expect(await ended(fleet, code)).toBe(0);
  const labels = [...fleet.api.nodes.values()].map((node) => node.labels[LABEL]);
  expect(labels.filter((value) => value !== undefined)).toEqual(['false']);
});

test('a node that still has the shim is named, and the command fails', async () => {
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

test('a node whose pod ends during the removal is named, because nobody has seen the end, and loses its labels', async () => {
  const fleet = new SimulatedFleet();
  const uninstall = (): CommandResult => {
    // kubelet ends the pod: nothing that it does afterwards happens.
    void node.kill();
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

test('a node that is down is not waited for, is named, and the command fails', async () => {
  const fleet = new SimulatedFleet();
  fleet.api.set('dead', { ready: 'Unknown', labels: { [LABEL]: 'true', 'cri-resize-shim.io/version': '0.2.0' } });
  fleet.api.pods.add('dead');
  const { lines, code } = restoring(fleet);
  expect(await ended(fleet, code)).toBe(1);
  expect(fleet.clock.passed).toBeLessThan(6 * MINUTE);
  expect(lines).toContain('not waited for, because the node is not Ready or gone: dead');
  expect(lines.at(-1)).toContain('kubectl label node dead cri-resize-shim.io/version-');
});

test('a label that others use is left alone, and the command fails before it changes anything', async () => {
  const fleet = new SimulatedFleet();
  fleet.api.set('a', { labels: { 'node-pool': 'true' } });
  const { lines, code } = restoring(fleet, 'node-pool');
  expect(await code).toBe(1);
  expect([fleet.requests, fleet.api.nodes.get('a')?.labels]).toEqual([[], { 'node-pool': 'true' }]);
  expect(lines[0]).toContain('restore.enabled=false');
});
