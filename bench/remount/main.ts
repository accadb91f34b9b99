import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { MemoryVolumes } from '../../src/tmpfs/memory-volumes.ts';
import { chooseRemountMethod, type RemountMethod } from '../../src/tmpfs/remount.ts';
import { type VolumeName, volumeMountPoint } from '../../src/tmpfs/volumes.ts';

/**
 * Remounts volumes of the kernel's tmpfs in a mount namespace of this process (unshare(1)), which ends with it.
 * Arguments: the kubelet root, and the duration in seconds. Prints its times as JSON; see {@link RemountTimes}.
 */

/** The duration of each remount in microseconds, from its call to its answer. */
export interface RemountTimes {
  readonly growing: readonly number[];
  readonly shrinking: readonly number[];
  /** Durations with mount(8), which the shim uses if the system calls are not available. */
  readonly byCommand: readonly number[];
  /** Mean CPU time of one remount by system calls, in this process. */
  readonly cpuUs: number;
  /** The number of mounts. */
  readonly mounts: number;
}

const PODS = 50;
const VOLUMES = 4;
const WARM_UP = 200;
const BY_COMMAND = 100;

const podUid = (index: number): string => `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`;

/** Mounts fifty pods with four volumes and a token each: the mount table of a full node. */
function mountNode(kubeletRoot: string): VolumeName[] {
  const pods = Array.from({ length: PODS }, (_, index) => podUid(index));
  const volumes = pods.flatMap((uid) =>
    Array.from({ length: VOLUMES }, (_, index) => ({ podUid: uid, name: `v${index}` })),
  );
  const tokens = pods.map((uid) => `${kubeletRoot}/pods/${uid}/volumes/kubernetes.io~projected/token`);
  const folders = [...volumes.map((volume) => volumeMountPoint(kubeletRoot, volume)), ...tokens];
  for (const folder of folders) mkdirSync(folder, { recursive: true });
  const script = 'for folder; do mount -t tmpfs -o size=16m,noswap tmpfs "$folder" || exit; done';
  execFileSync('sh', ['-c', script, 'sh', ...folders], { stdio: ['ignore', 'ignore', 'inherit'] });
  return volumes;
}

/** Measures the duration and CPU time of one remount. Rejects if the kernel does not have the new size. */
async function time(
  volumes: MemoryVolumes,
  volume: VolumeName,
  mebibytes: number,
): Promise<{ readonly took: number; readonly cpu: number }> {
  const size = bytes(mebibytes * MiB);
  const cpuBefore = process.cpuUsage();
  const begin = performance.now();
  const { outcome, after } = await volumes.remount(volume, size);
  const took = (performance.now() - begin) * 1000;
  const { user, system } = process.cpuUsage(cpuBefore);
  if (outcome !== 'remounted' || after.size !== size || volumes.measure(volume).size !== size)
    throw new Error(`volume ${volume.name} has ${after.size} bytes, and not ${size}`);
  return { took, cpu: user + system };
}

async function measure(kubeletRoot: string, seconds: number): Promise<RemountTimes> {
  const all = mountNode(kubeletRoot);
  const method = await chooseRemountMethod();
  if (method.kind === 'mount') throw new Error(`no system calls for remounts: ${method.because}`);
  const times = { growing: [] as number[], shrinking: [] as number[], byCommand: [] as number[] };
  const volumes = new MemoryVolumes({ kubeletRoot }, method);
  const until = performance.now() + seconds * 1000;
  let cpuUs = 0;
  // Each volume grows and shrinks at least once, also on a slow machine.
  const least = WARM_UP + 2 * all.length;
  for (let round = 0; round < least || performance.now() < until; round += 1) {
    // A volume grows only when all volumes have shrunk, and vice versa.
    const grows = Math.floor(round / all.length) % 2 === 0;
    const volume = all[round % all.length];
    if (volume === undefined) throw new Error('no volumes');
    const { took, cpu } = await time(volumes, volume, grows ? 32 : 8);
    if (round < WARM_UP) continue;
    (grows ? times.growing : times.shrinking).push(took);
    cpuUs += cpu;
  }
  const byCommand: RemountMethod = { kind: 'mount', because: 'it is measured' };
  const [first] = all;
  if (first === undefined) throw new Error('no volumes');
  const slow = new MemoryVolumes({ kubeletRoot }, byCommand);
  for (let round = 0; round < BY_COMMAND; round += 1)
    times.byCommand.push((await time(slow, first, round % 2 === 0 ? 24 : 12)).took);
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n').length - 1;
  return { ...times, cpuUs: cpuUs / (times.growing.length + times.shrinking.length), mounts };
}

const [, , folder = '', seconds = '1'] = process.argv;
process.stdout.write(`${JSON.stringify(await measure(folder, Number(seconds)))}\n`);
