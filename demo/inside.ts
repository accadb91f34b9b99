import { once } from 'node:events';
import { type FSWatcher, readFileSync, watch } from 'node:fs';
import { execa } from 'execa';
import { MiB } from '../src/core/quantities/sizes.ts';
import { CriClient } from '../test/support/cri/client.ts';
import { type RunningPod, runPod } from '../test/support/cri/pod.ts';
import { ShimProcess } from '../test/support/cri/shim.ts';
import { type ContainerSnapshot, type DemoReport, type ReportedStep, renderReport, type Snapshot } from './report.ts';

/**
 * The main use case on a node: the writer of a pod needs more space than its volume and its limit allow, and gets it
 * while it runs. Needs containerd and cgroup v2; demo/main.ts provides the node.
 */

const VOLUME = 'scratch';
const NEED_MI = 128;
const started = Date.now();

/** Progress goes to stderr, because stdout is for the result. */
const say = (text: string): void => {
  process.stderr.write(`demo: ${((Date.now() - started) / 1000).toFixed(1).padStart(5)} s  ${text}\n`);
};

/** Writes one MiB at a time, and retries if there is no space for it. */
const WRITER = `
i=0
while [ $i -lt ${NEED_MI} ]; do
  if error=$(dd if=/dev/zero of=/scratch/part.$i bs=1M count=1 2>&1); then
    i=$((i+1))
  else
    echo "after $i MiB: $(echo "$error" | grep dd:)"
    sleep 0.2
  fi
done
echo "finished: $i MiB written by process $$"
exec sleep 1000000`;

async function main(): Promise<void> {
  const json = process.argv.includes('--json');
  const endpoint = process.env.CONTAINER_RUNTIME_ENDPOINT ?? 'unix:///run/containerd/containerd.sock';
  await importImages();
  say('starting the shim in front of containerd');
  const isKept = process.argv.includes('--keep');
  // The default socket of resizectl.
  const args = isKept ? ['--resize-listen', '/run/cri-resize-shim/resize.sock'] : [];
  const shim = await ShimProcess.start({ endpoint, args });
  const cri = new CriClient(shim.address);
  const { runtime_name, runtime_version } = await cri.version();
  say(`${runtime_name} ${runtime_version} answers through ${shim.address}`);

  say('creating a pod of two containers with a memory-backed volume of half its memory limit');
  const pod = await makePod(cri);
  const log = new ContainerLog(pod.uid, 'writer');
  say(`the writer needs ${NEED_MI} MiB in a volume of ${pod.volume(VOLUME).size / MiB} MiB`);
  say(`the writer reports: ${await log.line('No space left on device')}`);
  const before = await snapshot(cri, pod);

  say('resizing through the shim while it runs: memory 64 to 256 MiB, CPU 200m to 500m');
  await cri.updateContainer(pod.id('writer'), {
    memory_limit_in_bytes: 256 * MiB,
    cpu_quota: 50_000,
    cpu_period: 100_000,
    cpu_shares: 512,
  });
  say(`the writer reports: ${await log.line('finished')}`);
  const after = await snapshot(cri, pod);
  const resized = await shim.waitForLog((line) => line.msg === 'pod resized' && line.pod === pod.sandboxId);
  // Before the resize, the volume was set to its share of the pod limit. The last line belongs to the resize itself.
  const last = shim.log.findLast((line) => line.msg === 'pod resized' && line.pod === pod.sandboxId) ?? resized;
  const report: DemoReport = {
    before,
    after,
    steps: last.steps as ReportedStep[],
    restarts: restarts(before, after),
    oomKills: pod.oomKills(),
  };
  log.close();
  if (isKept) {
    say(`the pod keeps running behind ${shim.address}: resizectl get pods`);
    print(report, json);
    shim.leave();
    cri.close();
    return;
  }
  await pod.remove();
  cri.close();
  const code = await shim.stop();
  print(report, json);
  if (code !== 0) throw new Error(`the shim exited with ${code ?? 'a signal'}`);
  assertDone(report);
}

function makePod(cri: CriClient): Promise<RunningPod> {
  const cpu = { cpu_period: 100_000, cpu_quota: 20_000, cpu_shares: 204 };
  return runPod(cri, {
    name: 'demo',
    annotations: { [`volume.cri-resize-shim.io/${VOLUME}`]: '50%' },
    volumes: [{ name: VOLUME, size: 96 * MiB }],
    containers: [
      {
        name: 'writer',
        command: ['sh', '-c', WRITER],
        resources: { ...cpu, memory_limit_in_bytes: 64 * MiB },
        mounts: { [VOLUME]: '/scratch' },
      },
      { name: 'sidecar', command: ['sleep', '1000000'], resources: { ...cpu, memory_limit_in_bytes: 32 * MiB } },
    ],
  });
}

async function snapshot(cri: CriClient, pod: RunningPod): Promise<Snapshot> {
  const containers: Record<string, ContainerSnapshot> = {};
  for (const [name, id] of pod.containers) {
    const linux = (await cri.containerStatus(id)).resources?.linux;
    if (linux === undefined || linux === null) throw new Error(`ContainerStatus of ${name} has no resources`);
    containers[name] = {
      memoryMax: limit(pod.read('memory.max', name)),
      cpuMax: pod.read('cpu.max', name),
      status: { memoryLimit: linux.memory_limit_in_bytes, cpuQuota: linux.cpu_quota, cpuShares: linux.cpu_shares },
      pid: await cri.pidOf(id),
    };
  }
  return {
    podMemoryMax: limit(pod.read('memory.max')),
    podCpuMax: pod.read('cpu.max'),
    containers,
    volume: { name: VOLUME, ...pod.volume(VOLUME) },
  };
}

const limit = (text: string): number | 'max' => (text === 'max' ? 'max' : Number(text));

const restarts = (before: Snapshot, after: Snapshot): number =>
  Object.entries(before.containers).filter(([name, { pid }]) => after.containers[name]?.pid !== pid).length;

function print(report: DemoReport, json: boolean): void {
  process.stdout.write(json ? `${JSON.stringify(report)}\n` : `\n${renderReport(report)}`);
}

/** The demo fails if its result differs from what it promises. */
function assertDone({ after, restarts: restarted, oomKills }: DemoReport): void {
  if (after.volume.used < NEED_MI * MiB) throw new Error(`only ${after.volume.used} bytes were written`);
  if (restarted !== 0 || oomKills !== 0) throw new Error(`restarts: ${restarted}, OOM kills: ${oomKills}`);
}

/** Imports the demo's image on a node that does not have it yet. */
async function importImages(): Promise<void> {
  const archive = process.env.DEMO_IMAGES;
  if (archive === undefined) return;
  say('importing the images');
  const address = process.env.CONTAINERD_ADDRESS ?? '/run/containerd/containerd.sock';
  await execa('ctr', ['--address', address, '-n', 'k8s.io', 'images', 'import', archive]);
}

/** The output of a container in CRI's log format, line by line: time, stream, tag, text. */
class ContainerLog {
  readonly #file: string;
  readonly #watcher: FSWatcher;

  constructor(podUid: string, container: string) {
    this.#file = `/tmp/pod-logs/${podUid}/${container}.log`;
    this.#watcher = watch(this.#file);
  }

  /** Returns the first line with this text, now or when it is written. */
  async line(text: string): Promise<string> {
    const deadline = AbortSignal.timeout(30_000);
    for (;;) {
      const changed = once(this.#watcher, 'change', { signal: deadline });
      const lines = readFileSync(this.#file, 'utf8').split('\n');
      const found = lines.map((line) => line.split(' ').slice(3).join(' ')).find((line) => line.includes(text));
      if (found !== undefined) {
        changed.catch(() => undefined);
        return found;
      }
      await changed;
    }
  }

  close(): void {
    this.#watcher.close();
  }
}

await main();
