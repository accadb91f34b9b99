import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { bytes } from '../../src/core/quantities/numbers.ts';
import type { PodRecord } from '../../src/sandbox/journal/record.ts';
import { Journal } from '../../src/sandbox/journal/store.ts';
import type { Children } from '../children.ts';
import { amountsAtStart, assertFiles, bytesOf, type FakePod, writePods } from '../fake/pods.ts';
import { type FakePods, startFakePods } from '../fake/start.ts';
import { LogReader } from '../log-reader.ts';
import { spawnShim } from '../shim.ts';
import type { WorkOptions } from './options.ts';
import { resultOf, type WorkResult } from './result.ts';

const PODS = 1000;
const CONTAINERS = 2;
/** Unfinished resizes of the previous shim: as many as a node has when a whole deployment is resized. */
const UNFINISHED = 10;
const STARTS = 7;

/** Milliseconds from the start of the process. */
export interface Recovered {
  /** Until all pods and containers are known. */
  readonly compared: number;
  /** Milliseconds until the unfinished resizes are rolled back too. */
  readonly recovered: number;
  /** Time that calls spent in the fake runtime during the start. */
  readonly inBackend: number;
}

/**
 * Measures a start on a node full of pods after the previous shim was killed: from the start of the process until all
 * pods and containers are known and the unfinished resizes are rolled back.
 */
export async function measureRecovery({ children, profile }: WorkOptions): Promise<WorkResult[]> {
  const fake = await startFakePods(children, 'fake-recovered', { pods: PODS, containers: CONTAINERS });
  const all: Recovered[] = [];
  for (let index = 0; index < STARTS; index += 1)
    all.push(await recoverOnce(children, fake, `recovered-${index}`, profile));
  await fake.stop();
  return [
    resultOf(
      'Recovery of 1,000 pods',
      'ms',
      all.map(({ recovered }) => recovered),
    ),
    resultOf(
      '  until the registry is compared',
      'ms',
      all.map(({ compared }) => compared),
    ),
    resultOf(
      '  of all, in the backend',
      'ms',
      all.map(({ inBackend }) => inBackend),
    ),
  ];
}

/** Starts a shim on a node with unfinished resizes, and stops it. Rejects if it has not recovered all of them. */
export async function recoverOnce(
  children: Children,
  fake: FakePods,
  name: string,
  profile?: string,
): Promise<Recovered> {
  const stateFolder = join(children.folderOnDisk(), 'state');
  const unfinished = fake.pods.slice(0, UNFINISHED);
  await writeUnfinished(fake, unfinished, stateFolder);
  const before = await fake.backendTime();
  const begin = performance.now();
  const { child } = spawnShim(children, name, { ...fake, profile, stateFolder });
  const log = new LogReader(child.logFile);
  const known = await child.until(log.line('registry compared with the backend'));
  const compared = performance.now() - begin;
  for (let count = 0; count < unfinished.length; count += 1) await child.until(log.line('unfinished resize recovered'));
  const recovered = performance.now() - begin;
  const inBackend = ((await fake.backendTime()) - before) / 1000;
  log.close();
  await child.stop();
  const containers = fake.pods.reduce((sum, pod) => sum + pod.containers.length, 0);
  if (known.pods !== fake.pods.length || known.containers !== containers)
    throw new Error(`${String(known.pods)} pods and ${String(known.containers)} containers were found`);
  for (const pod of unfinished)
    assertFiles(
      fake.cgroupRoot,
      pod,
      pod.containers.map((_, order) => amountsAtStart(order)),
    );
  if (readdirSync(stateFolder).length > 0) throw new Error('the journal has records left');
  return { compared, recovered, inBackend };
}

/** Creates the state that a killed shim leaves after it raised the limits of these pods but not of their containers. */
async function writeUnfinished({ cgroupRoot }: FakePods, pods: readonly FakePod[], stateFolder: string): Promise<void> {
  const journal = await Journal.open(stateFolder);
  for (const pod of pods) await journal.write(recordOf(pod));
  await journal.close();
  await writePods(cgroupRoot, pods, { podMoreMi: MORE_MI });
}

const MORE_MI = 64;

function recordOf({ pod, containers }: FakePod): PodRecord {
  const sum = containers.reduce((all, _, index) => all + bytesOf(amountsAtStart(index).memoryMi), 0);
  const container = containers.map(({ id }, index) => {
    const from = bytesOf(amountsAtStart(index).memoryMi);
    return { kind: 'container', id, memory: { from: bytes(from), to: bytes(from + bytesOf(MORE_MI)) } } as const;
  });
  const podMemory = { kind: 'pod-memory', from: bytes(sum), to: bytes(sum + bytesOf(MORE_MI)) } as const;
  const transaction = { id: `of ${pod.uid}`, startedAt: Date.now(), undoing: false, highs: [] };
  return {
    podUid: pod.uid,
    sandboxId: pod.id,
    volumes: new Map(),
    transaction: { ...transaction, steps: [podMemory, ...container.slice(0, 1)] },
  };
}
