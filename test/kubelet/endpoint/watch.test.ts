import { existsSync, rmSync, symlinkSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { LogFields } from '../../../src/core/observe/interfaces.ts';
import { USED_FILE } from '../../../src/kubelet/endpoint/paths.ts';
import { EndpointWatch } from '../../../src/kubelet/endpoint/watch.ts';
import { eventually, FakeClock } from '../../support/fake-clock.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

const CONTAINERD = 'unix:///run/containerd/containerd.sock';
let fake: FakeInstallNode;
let watch: EndpointWatch;
let peers: Set<number> | undefined;
let isBypassed: boolean;
let drifts: (readonly [boolean, string])[];
let lines: string[];
let clock: FakeClock;

beforeEach(() => {
  fake = new FakeInstallNode();
  [peers, isBypassed, drifts, lines, clock] = [new Set([42]), false, [], [], new FakeClock({ endsWaits: true })];
  fake.put('state/x', '');
  const line = (_fields: LogFields, message: string): void => void lines.push(message);
  watch = new EndpointWatch({
    procRoot: fake.node.procRoot,
    listen: fake.node.listen,
    stateFolder: fake.at('state'),
    peers: () => peers,
    isBypassed: () => isBypassed,
    onDrift: (isDrift, note) => drifts.push([isDrift, note]),
    clock,
    log: { debug: line, info: line, warn: line, error: line },
  });
  kubelet(`unix://${fake.node.listen}`);
});
afterEach(() => {
  watch.close();
  fake.remove();
});

/** Sets the configuration of kubelet, and its process. */
function kubelet(endpoint: string, startTime = 1000): void {
  fake.process(42, 'kubelet', { startTime });
  fake.put('proc/42/cmdline', 'kubelet\0--config=/k.yaml\0');
  configure(endpoint);
}
const configure = (endpoint: string): void =>
  fake.put(
    'proc/42/root/k.yaml',
    `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${endpoint}\n`,
  );

async function looks(count: number): Promise<string> {
  for (let look = 0; look < count; look += 1) await watch.look();
  return watch.state;
}

describe('state of a kubelet', () => {
  test('a connected kubelet uses the shim, and a file records this for a later shim', async () => {
    expect(await looks(1)).toBe('shim');
    expect(watch.check()).toEqual({
      ...{ name: 'kubelet', ready: true, isOptional: true },
      says: 'uses the shim, set by /k.yaml',
    });
    expect(existsSync(fake.at(`state/${USED_FILE}`))).toBe(true);
    expect([drifts, lines]).toEqual([[], []]);
  });

  test('a kubelet that bypasses the shim after a node upgrade is reported once, at the second look, and so is its return', async () => {
    await looks(1);
    kubelet(CONTAINERD, 2000);
    peers = new Set([7]);
    expect(await looks(1)).toBe('shim');
    expect(drifts).toEqual([]);
    expect(await looks(3)).toBe('past');
    const says = `does not use the shim: ${CONTAINERD}, set by /k.yaml; run resizectl install`;
    expect(watch.check()).toEqual({ name: 'kubelet', ready: false, says, isOptional: true });
    expect(drifts).toEqual([[true, says]]);
    kubelet(`unix://${fake.node.listen}`, 3000);
    peers = new Set([42]);
    expect(await looks(1)).toBe('shim');
    expect(drifts.slice(1)).toEqual([[false, 'uses the shim, set by /k.yaml']]);
    expect(lines).toEqual(['kubelet does not use the shim', 'kubelet uses the shim again']);
  });

  test('a kubelet that would bypass the shim at its next start is reported before that start', async () => {
    configure(CONTAINERD);
    expect(await looks(2)).toBe('next_start');
    expect(drifts).toEqual([
      [true, `uses the shim until its next start: then ${CONTAINERD}, set by /k.yaml; run resizectl install`],
    ]);
  });

  test('a file with the flags of kubelite that is replaced while kubelite runs is reported before its next start', async () => {
    const args = (endpoint: string): void =>
      fake.put('proc/42/root/var/snap/microk8s/1/args/kubelet', `--container-runtime-endpoint=${endpoint}\n`);
    fake.process(42, 'kubelite', { startTime: 4000 });
    fake.put('proc/42/cmdline', 'kubelite\0--kubelet-args-file=/var/snap/microk8s/1/args/kubelet\0');
    args(`unix://${fake.node.listen}`);
    expect(await looks(2)).toBe('shim');
    args(CONTAINERD);
    expect(await looks(2)).toBe('next_start');
  });

  test('a connected kubelet uses the shim even if the shim cannot read its configuration', async () => {
    rmSync(fake.at('proc/42/root/k.yaml'));
    expect(await looks(2)).toBe('shim');
    expect(watch.check()?.says).toMatch(/^uses the shim; its configuration cannot be read: \S+ does not exist/);
    fake.put('proc/42/root/k.yaml', 'kind: [');
    expect(await looks(2)).toBe('shim');
    expect(drifts).toEqual([]);
  });

  test('a kubelet that is configured to use the shim but not connected yet is no drift: it may wait for its certificate', async () => {
    await looks(1);
    kubelet(`unix://${fake.node.listen}`, 2000);
    peers = new Set();
    expect(await looks(3)).toBe('unknown');
    expect(watch.check()).toBeUndefined();
    expect(drifts).toEqual([]);
    peers = new Set([42]);
    expect(await looks(1)).toBe('shim');
  });

  test('a kubelet that has never used the shim is no drift', async () => {
    configure(CONTAINERD);
    peers = new Set();
    expect(await looks(2)).toBe('unused');
    expect(watch.check()).toBeUndefined();
    expect(drifts).toEqual([]);
  });

  test('a kubelet that restarts repeatedly is no drift, and neither is a kubelet that the bypass serves', async () => {
    await looks(1);
    peers = new Set();
    for (const startTime of [2000, 3000, 4000]) {
      kubelet(CONTAINERD, startTime);
      expect(await looks(1)).toBe('shim');
    }
    isBypassed = true;
    expect(await looks(3)).toBe('unknown');
    expect(watch.check()).toBeUndefined();
    expect(drifts).toEqual([]);
  });

  test('a kubelet that names the socket through a link to its folder uses the shim', async () => {
    symlinkSync(fake.folder, fake.at('link'));
    fake.put('shim.sock', '');
    configure(`unix:${fake.at('link/shim.sock')}`);
    expect(await looks(1)).toBe('shim');
  });
});

test('only the configuration counts if the processes of connections are unknown', async () => {
  peers = undefined;
  expect(await looks(1)).toBe('shim');
  kubelet(CONTAINERD, 2000);
  expect(await looks(2)).toBe('past');
  fake.put('proc/42/root/k.yaml', '');
  expect(await looks(2)).toBe('unknown');
});

test('the state is unknown and no check is reported if no kubelet runs', async () => {
  rmSync(fake.at('proc/42'), { recursive: true });
  expect(await looks(2)).toBe('unknown');
  expect(watch.check()).toBeUndefined();
});

test('repeated failures to read the endpoint are logged once, and the next look works', async () => {
  const { procRoot } = fake.node;
  rmSync(procRoot, { recursive: true });
  await looks(3);
  expect(lines).toEqual(['runtime endpoint of kubelet unknown']);
  kubelet(`unix://${fake.node.listen}`);
  expect(await looks(1)).toBe('shim');
});

test('checks the endpoint of kubelet every 15 s until the watch is closed, and reports drift within a minute', async () => {
  await looks(1);
  kubelet(CONTAINERD, 2000);
  peers = new Set();
  const start = clock.now();
  void watch.run();
  await eventually(() => drifts.length > 0);
  expect(clock.now() - start).toBeLessThanOrEqual(60_000);
  watch.close();
  const count = clock.waits.length;
  expect(new Set(clock.waits)).toEqual(new Set([15_000]));
  await new Promise((resolve) => setImmediate(resolve));
  await looks(1);
  expect(clock.waits).toHaveLength(count);
});
