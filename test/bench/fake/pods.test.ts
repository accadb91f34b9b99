import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FakePod, amountsAtStart, assertFiles, cgroupOf, makeNode, writePods } from '../../../bench/fake/pods.ts';
import { podsRuntime } from '../../../bench/fake/pods-runtime.ts';
import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { describeContainer, describePod } from '../../../src/runtime/description.ts';
import { criMi } from '../../support/quantities/mebibytes.ts';

type Method = 'PodSandboxStatus' | 'ContainerStatus' | 'ListContainers' | 'ListPodSandbox';

let root: string;
let pods: FakePod[];
let ask: <Name extends Method>(
  method: Name,
  request: Partially<Messages[`${Name}Request`]>,
) => Messages[`${Name}Response`];
let update: (request: Partially<Messages['UpdateContainerResourcesRequest']>) => void;

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'fake-pods-'));
  pods = makeNode(2, 3);
  await writePods(root, pods);
  const runtime = podsRuntime(root, pods);
  const call = (method: string, request: Buffer): Buffer => runtime.get(method)!(request) as Buffer;
  ask = <Name extends Method>(method: Name, request: object) => {
    const requestType: keyof Messages = `${method}Request`;
    const responseType: keyof Messages = `${method}Response`;
    return decode(responseType, call(method, encode(requestType, request))) as Messages[`${Name}Response`];
  };
  update = (request) => void call('UpdateContainerResources', encode('UpdateContainerResourcesRequest', request));
});
afterEach(() => rmSync(root, { recursive: true }));

const start = () => [0, 1, 2].map(amountsAtStart);

describe('the fake runtime of pods', () => {
  test('returns the fields of pods and containers that the shim reads', () => {
    const [{ pod, containers }] = pods as [FakePod];
    expect(ask('ListPodSandbox', {}).items.map(({ id }) => id)).toEqual(pods.map((one) => one.pod.id));
    expect(ask('ListContainers', {}).containers).toHaveLength(6);
    expect(ask('ListContainers', { filter: { pod_sandbox_id: pod.id } }).containers.map(({ id }) => id)).toEqual(
      containers.map(({ id }) => id),
    );
    const described = describePod(ask('PodSandboxStatus', { pod_sandbox_id: pod.id, verbose: true }));
    expect(described).toMatchObject({ sandboxId: pod.id, cgroupParent: pod.cgroupParent, metadata: { uid: pod.uid } });
    const container = describeContainer(ask('ContainerStatus', { container_id: containers[1]!.id, verbose: true }));
    expect(container).toMatchObject({ sandboxId: pod.id, name: 'sidecar-1', state: 1, pid: process.pid });
    expect(container?.resources?.memory_limit_in_bytes).toBe(criMi(192));
  });

  test('writes requested values to the cgroup, keeps the others, and reports all of them', () => {
    const [pod] = pods as [FakePod];
    const [first] = pod.containers;
    update({ container_id: first!.id, linux: { memory_limit_in_bytes: criMi(1), cpu_shares: 512n } });
    const read = (file: string): string => readFileSync(join(root, cgroupOf(first!), file), 'utf8');
    expect([read('memory.max'), read('cpu.max')]).toEqual(['1048576\n', '10000 100000\n']);
    expect(read('cpu.weight')).toBe('59\n');
    const { status } = ask('ContainerStatus', { container_id: first!.id });
    expect(status?.resources?.linux).toMatchObject({
      memory_limit_in_bytes: criMi(1),
      cpu_quota: 10000n,
      cpu_shares: 512n,
    });
  });

  test('assertFiles rejects cgroup files of the fake runtime that differ from the expected values', () => {
    const [pod] = pods as [FakePod];
    assertFiles(root, pod, start());
    writeFileSync(join(root, pod.pod.cgroupParent, 'memory.max'), 'max\n');
    expect(() => assertFiles(root, pod, start())).toThrow(/memory\.max is max, and should be 603979776/);
  });
});
