import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { SoakStage } from '../soak/stage.ts';
import { checkpointText } from '../support/checkpoint-text.ts';
import { KUBELET_ROOT } from '../support/cri/pod.ts';
import { durationsOf, figuresOf, type Measured } from './figures.ts';

const resizes = Number(process.env['BLOCKING_RESIZES']);
const metrics = '127.0.0.1:9467';
const out = join(process.env['NODE_OUT'] ?? '.', 'blocking.json');
/** About one in this many resizes is followed by calls of kubelet, Prometheus and a browser. */
const EVERY = 10;
/** About one in this many resizes is followed by the replacement of a pod. */
const REPLACE_EVERY = 100;
const LONGEST_MS = 24 * 3_600_000;
/** Pods in kubelet's state file, as on a large node. The runtime does not know them, so no resize waits. */
const PODS = 250;
const BAR_MS = 10;

process.env['BLOCKING_OUT'] = out;
const stage = new SoakStage({
  nodeArgs: [`--import=${join(process.cwd(), 'dist/tools/blocking-preload.js')}`],
  args: ['--metrics-bind', metrics],
});
const state = join(KUBELET_ROOT, 'allocated_pods_state');

/** Writes kubelet's state file, with different values each time. */
function writeState(number: number): void {
  const resources = {
    limits: { memory: `${64 + (number % 64)}Mi`, cpu: '500m' },
    requests: { memory: '64Mi', cpu: '100m' },
  };
  const uid = (pod: number): string => `3f2504e0-4f89-11d3-9a0c-${String(pod).padStart(12, '0')}`;
  const pods = Array.from({ length: PODS }, (_, pod) => uid(pod));
  mkdirSync(KUBELET_ROOT, { recursive: true });
  writeFileSync(
    `${state}.new`,
    checkpointText(
      Object.fromEntries(pods.map((pod) => [pod, { ContainerResources: { a: resources, b: resources } }])),
    ),
  );
  renameSync(`${state}.new`, state);
}

async function others(number: number): Promise<void> {
  writeState(number);
  const containers = (await stage.call('ListContainers', {})) as {
    readonly containers: readonly { readonly id: string }[];
  };
  for (const { id } of containers.containers) await stage.call('ContainerStatus', { container_id: id, verbose: true });
  for (const path of ['metrics', '']) expect((await fetch(`http://${metrics}/${path}`)).status).toBe(200);
}

const measured = (): Measured => JSON.parse(readFileSync(out, 'utf8')) as Measured;

beforeAll(() => {
  writeState(0);
  return stage.begin();
});
afterAll(() => rmSync(state));

test(
  `${resizes} resizes through all interfaces succeed while kubelet files change and metrics are read`,
  async () => {
    stage.signal('SIGUSR2');
    for (let number = 0; number < resizes; number += 1) {
      await stage.resize(number);
      if (number % EVERY === 0) await others(number);
      if (number % REPLACE_EVERY === REPLACE_EVERY - 1) await stage.replacePod();
    }
    await stage.end();
  },
  LONGEST_MS,
);

test('docs/limits.md names the target of every synchronous call', () => {
  const { start, service } = measured();
  expect([...start.unknown, ...service.unknown]).toEqual([]);
});

test(`after the start, the 99.9th percentile of all synchronous calls is below ${BAR_MS} ms`, () => {
  const figures = figuresOf(durationsOf(measured().service));
  expect(figures.calls).toBeGreaterThan(resizes);
  expect(figures.p999).toBeLessThan(BAR_MS);
});
