import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ClientReadableStream } from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { readContainerStatuses, withResourcesOfStatuses } from '../../../src/runtime/container-status.ts';
import { CriClient, type ReportedContainer } from '../../support/cri/client.ts';
import { createContainer, type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';

const SLEEP = ['sleep', '1000000'];
/** Types of events, and the field number of ContainerEventResponse.containers_statuses. */
const [STARTED, DELETED] = [1, 3];
const STATUSES = 5;

interface ContainerEvent {
  readonly container_id: string;
  readonly container_event_type: number;
  readonly created_at: number;
  readonly pod_sandbox_status: { readonly id: string } | null;
  readonly containers_statuses: readonly ReportedContainer[];
}

interface Heard extends ContainerEvent {
  readonly bytes: Buffer;
}

/** The events that a client gets, in order of arrival. */
class Listener {
  readonly heard: Heard[] = [];
  readonly #stream: ClientReadableStream<Buffer>;
  #wake: () => void = () => undefined;

  constructor(client: CriClient) {
    this.#stream = client.rawStream('GetContainerEvents');
    this.#stream.on('data', (bytes: Buffer) => {
      this.heard.push({ ...(client.decode('GetContainerEvents', bytes) as ContainerEvent), bytes });
      this.#wake();
    });
    this.#stream.on('error', () => undefined);
  }

  /** The event of this type for a container or sandbox, now or when it comes. */
  async event(id: string, type: number): Promise<Heard> {
    for (let at = 0; ; at += 1) {
      while (at >= this.heard.length) await new Promise<void>((resolve) => (this.#wake = resolve));
      const heard = this.heard[at]!;
      if (heard.container_id === id && heard.container_event_type === type) return heard;
    }
  }

  stop(): void {
    this.#stream.cancel();
  }
}

let shim: ShimProcess;
let cri: CriClient;
let direct: CriClient;
let through: Listener;
let past: Listener;
const pods: RunningPod[] = [];

beforeAll(async () => {
  shim = await ShimProcess.start();
  cri = new CriClient(shim.address);
  direct = new CriClient('unix:///run/containerd/containerd.sock');
  through = new Listener(cri);
  past = new Listener(direct);
  // A runtime does not report when it starts to send events to a client: wait until both clients have received one.
  while (through.heard.length === 0 || past.heard.length === 0) await (await pod()).remove();
  pods.length = 0;
});
afterEach(async () => {
  for (const one of pods.splice(0)) await one.remove();
});
afterAll(async () => {
  for (const listener of [through, past]) listener.stop();
  for (const client of [cri, direct]) client.close();
  expect(await shim.stop()).toBe(0);
});

const limits = (mebibytes: number) => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: 10_000,
  cpu_period: 100_000,
  cpu_shares: 102,
});

async function pod(): Promise<RunningPod> {
  const running = await runPod(cri, {
    name: 'web',
    containers: [
      { name: 'a', command: SLEEP, resources: limits(64) },
      { name: 'b', command: SLEEP, resources: limits(128) },
    ],
  });
  pods.push(running);
  return running;
}

/** Starts one more container, which makes an event for the pod. */
async function startAnother(running: RunningPod): Promise<string> {
  const { sandboxId, uid, config } = running;
  const spec = { name: 'later', command: SLEEP, resources: limits(16) };
  const id = await createContainer(cri, { sandboxId, uid, config }, spec);
  await cri.call('StartContainer', { container_id: id });
  return id;
}

const memoryOf = ({ containers_statuses }: ContainerEvent, id: string): number | undefined =>
  containers_statuses.find((one) => one.id === id)?.resources?.linux?.memory_limit_in_bytes;

describe('A13: GetContainerEvents', () => {
  test('KEP-1287: an event reports the kernel values of a container that was changed without the runtime, as ContainerStatus does', async () => {
    const running = await pod();
    const [a, b] = [running.id('a'), running.id('b')];
    writeFileSync(join(running.containerCgroup('a'), 'memory.max'), String(48 * MiB));
    const later = await startAnother(running);
    const [amended, original] = await Promise.all([through.event(later, STARTED), past.event(later, STARTED)]);

    // The runtime's event contains the stored values, and ours those of the kernel, like ContainerStatus.
    expect([memoryOf(original, a), memoryOf(original, b)]).toEqual([64 * MiB, 128 * MiB]);
    expect([memoryOf(amended, a), memoryOf(amended, b)]).toEqual([48 * MiB, 128 * MiB]);
    for (const id of [a, b, later])
      expect(amended.containers_statuses.find((one) => one.id === id)).toEqual(await cri.containerStatus(id));

    // Nothing else differs, to the byte.
    const places = readContainerStatuses(original.bytes, STATUSES).filter(({ id }) => id === a);
    const changes = places.map(({ place }) => ({ place, resources: { memory_limit_in_bytes: 48 * MiB } }));
    expect(places).toHaveLength(1);
    expect(amended.bytes).toEqual(withResourcesOfStatuses(original.bytes, changes));
  });

  test('KEP-1287: events are those of the runtime byte for byte if kernel and runtime agree', async () => {
    const running = await pod();
    const later = await startAnother(running);
    await cri.call('StopContainer', { container_id: later, timeout: 0 });
    await cri.call('RemoveContainer', { container_id: later });
    await pods.pop()!.remove();
    const { sandboxId } = running;
    await Promise.all([through.event(sandboxId, DELETED), past.event(sandboxId, DELETED)]);
    const ids = [sandboxId, later, ...running.containers.values()];
    const ofPod = ({ heard }: Listener): Buffer[] =>
      heard.filter(({ container_id }) => ids.includes(container_id)).map(({ bytes }) => bytes);
    expect(ofPod(through)).toEqual(ofPod(past));
    // Each container is created, started, stopped and removed. The sandbox is at least started and removed.
    expect(ofPod(past).length).toBeGreaterThanOrEqual(3 * 4 + 2);
  });

  test('no event was forwarded without amendment because of an error', () => {
    const skipped = shim.log.filter(({ msg }) => /without amendment|forwarded unchanged/.test(msg));
    expect(skipped).toEqual([]);
    expect(through.heard.length).toBeGreaterThan(10);
  });
});

describe('A13: PodSandboxStatus', () => {
  test('A13: a PodSandboxStatus response without container statuses is forwarded byte for byte', async () => {
    const running = await pod();
    writeFileSync(join(running.containerCgroup('a'), 'memory.max'), String(48 * MiB));
    const request = encode('PodSandboxStatusRequest', { pod_sandbox_id: running.sandboxId });
    const [amended, original] = await Promise.all([cri, direct].map((one) => one.raw('PodSandboxStatus', request)));
    expect(amended).toEqual(original);
    const { containers_statuses } = direct.decode('PodSandboxStatus', original!) as Partial<ContainerEvent>;
    expect(containers_statuses ?? []).toEqual([]);
    expect(direct.decode('PodSandboxStatus', original!)).toMatchObject({
      status: { id: running.sandboxId },
      timestamp: 0,
    });
  });
});
