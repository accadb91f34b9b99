import { appendFileSync, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Cluster, POD_ON_NODE, until } from '../../test/real-kubelet/cluster.ts';
import { anonymous } from '../load/anonymous.ts';
import { Recorder } from '../load/recorder.ts';
import { type About, writeRecording } from '../load/recording.ts';
import { Yardstick } from '../load/yardstick.ts';
import { cpuMicroseconds } from '../process-use.ts';
import { nodeState } from './node-state.ts';
import { FILE, type RecordOptions } from './options.ts';

/**
 * Runs in the test node as `record-load-inside OPTIONS`. Starts a real kubelet whose calls pass the recorder, makes its
 * pods, and records their calls once all pods are ready. Writes the recording and progress to $NODE_OUT.
 */

const options = JSON.parse(process.argv[2] ?? '{}') as RecordOptions;
const out = process.env['NODE_OUT'] ?? '/tmp';
const RUNTIME = '/run/containerd/containerd.sock';
const FOLDER = '/run/record';
const PODS = '/api/v1/namespaces/default/pods';
const CONTAINERS = 2;
/** Number of pods that start at the same time. The node has one processor, and kubelet's start timeouts are limited. */
const AT_ONCE = 3;
const POD_SECONDS = 300;
const READY_SECONDS = 300;
/** As metrics-server does by default. */
const STATS_SECONDS = 15;
const YARDSTICK_MS = 2000;
/** The recording begins when no container has started for this time. */
const QUIET_MS = 10_000;

const started = performance.now();
const say = (text: string): void =>
  appendFileSync(join(out, 'progress'), `${((performance.now() - started) / 1000).toFixed(0)} s: ${text}\n`);

interface PodList {
  readonly items: readonly {
    readonly status: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
  }[];
}

async function main(): Promise<void> {
  await mkdir(FOLDER, { recursive: true });
  const cluster = await Cluster.start('/run/kubernetes');
  say('the API server is ready');
  const recorder = await Recorder.start(join(FOLDER, 'cri.sock'), RUNTIME);
  try {
    // Uses kubelet's default interval. Other tests set it to 5 s.
    await cluster.startKubelet(`unix://${FOLDER}/cri.sock`, { syncFrequency: '1m' });
    say('kubelet is ready');
    await makePods(cluster, recorder);
    const { calls, left, ...measured } = await record(cluster, recorder);
    const { seconds, containerdCpuMs } = measured;
    say(`${calls.length} calls in ${seconds} s, ${left} left out; CPU time of containerd: ${containerdCpuMs} ms`);
    const { answers, cgroups } = await nodeState(RUNTIME);
    const { names, ...about } = options;
    const all = { ...about, containers: CONTAINERS, statsSeconds: STATS_SECONDS, ...measured };
    writeRecording(join(out, FILE), anonymous({ about: all, calls, answers, cgroups }, names));
    say('the recording is written');
  } finally {
    recorder.close();
    await cluster.stop();
  }
}

interface Pod {
  readonly status: { readonly phase: string };
}

/** Makes the pods, few at a time, and waits until all of them are ready and nothing starts any more. */
async function makePods(cluster: Cluster, recorder: Recorder): Promise<void> {
  const numbers = Array.from({ length: options.pods }, (_, number) => number).values();
  const worker = async (): Promise<void> => {
    for (const number of numbers) {
      await cluster.api.create(PODS, podOf(number));
      const runs = async (): Promise<boolean> =>
        (await cluster.api.get<Pod>(`${PODS}/${nameOf(number)}`)).status.phase === 'Running';
      await until(runs, `${nameOf(number)} to run`, POD_SECONDS);
      if ((number + 1) % 10 === 0) say(`${nameOf(number)} runs`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  const areReady = async (): Promise<boolean> => {
    const { items } = await cluster.api.get<PodList>(PODS);
    return items.every(({ status }) =>
      status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True'),
    );
  };
  await until(areReady, 'all pods to be ready', READY_SECONDS, 5000);
  say('all pods are ready');
  const starting = ['RunPodSandbox', 'CreateContainer', 'StartContainer'];
  await until(() => recorder.quietFor(starting) > QUIET_MS, 'kubelet to have nothing to start', READY_SECONDS);
}

const nameOf = (number: number): string => `pod-${number}`;

/** Ordinary pods: every second pod is Burstable with limits, and the others have only requests. */
function podOf(number: number): object {
  const names = ['server', 'sidecar'];
  return {
    metadata: { name: nameOf(number), labels: { app: `app-${number % 20}` } },
    spec: {
      ...POD_ON_NODE,
      containers: names.map((name, order) => ({
        name,
        image: 'localhost/busybox:1',
        imagePullPolicy: 'Never',
        command: ['sleep', '1000000'],
        resources: {
          requests: { cpu: '1m', memory: '4Mi' },
          // A container with a small CPU limit takes seconds to start.
          ...(number % 2 === 0 && { limits: { cpu: '1', memory: '16Mi' } }),
        },
        ...(order === 0 &&
          number < options.probes && {
            readinessProbe: {
              exec: { command: ['true'] },
              periodSeconds: options.probeSeconds,
              timeoutSeconds: 10,
            },
          }),
      })),
    },
  };
}

async function record(
  cluster: Cluster,
  recorder: Recorder,
): Promise<ReturnType<Recorder['end']> & Pick<About, 'containerdCpuMs' | 'seconds' | 'yardstickMs'>> {
  const pid = Number(readFileSync('/run/node/containerd.pid', 'utf8'));
  const yardstick = new Yardstick();
  const measuring = setInterval(() => yardstick.measure(), YARDSTICK_MS);
  const before = cpuMicroseconds(pid);
  recorder.begin();
  const begin = performance.now();
  say('recording');
  const scrape = setInterval(() => {
    // The answer is not used. A busy kubelet may need longer than the interval to answer.
    cluster.kubelet.get('/metrics/resource').catch((error: unknown) => say(`no metrics: ${String(error)}`));
  }, STATS_SECONDS * 1000);
  await new Promise((resolve) => setTimeout(resolve, options.seconds * 1000));
  clearInterval(scrape);
  clearInterval(measuring);
  yardstick.measure();
  const containerdCpuMs = (cpuMicroseconds(pid) - before) / 1000;
  const seconds = Math.round((performance.now() - begin) / 1000);
  return { ...recorder.end(), containerdCpuMs, seconds, yardstickMs: yardstick.result() };
}

await main();
