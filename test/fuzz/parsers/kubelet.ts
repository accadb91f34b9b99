import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isSameEntry, readCheckpoint } from '../../../src/kubelet/checkpoint.ts';
import { KubeletFiles } from '../../../src/kubelet/checkpoints.ts';
import { ManagerFiles, readCpuState, readMemoryState } from '../../../src/kubelet/resource-managers.ts';
import { podOf, podSchema } from '../../../src/kubernetes/pods/pod.ts';
import { noCounters } from '../../../src/core/observe/counters.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { memoryFolder } from '../memory-folder.ts';
import { mutateBytes } from '../mutations/bytes.ts';
import { mutateJson } from '../mutations/json.ts';
import type { Random } from '../random.ts';
import { apiPod, checkpointEntries, cpuState, memoryState, podUid } from '../seeds/kubelet.ts';
import type { Target } from '../target.ts';
import { type Parser, oftenInMemory, parserTarget } from './parser.ts';

/** kubelet writes JSON in a string of JSON. */
function checkpointText(random: Random): string {
  const text = JSON.stringify({ data: mutateJson({ entries: checkpointEntries }, random), checksum: 1 });
  return random.chance(8) ? mutateBytes(Buffer.from(text), random).toString() : text;
}

/** None of these parsers throws. */
const isDocumented = (): boolean => false;

/** kubelet's state files, as text and on the disk, and pods of the API server. */
export function kubeletTarget(): Target {
  const folder = memoryFolder('fuzz-kubelet-');
  const parts = { log: noLog, counters: noCounters };
  // A clock that stands still: without timers, and files are read again at once.
  const clock = { now: () => 0, wallTime: () => 0, after: () => () => undefined };
  const checkpoints = new KubeletFiles({ kubeletRoot: folder, clock, ...parts });
  const managers = new ManagerFiles(folder, parts);
  const parsers: readonly Parser[] = [
    {
      name: 'allocated_pods_state',
      make: checkpointText,
      parse: (text) => {
        const read = readCheckpoint(String(text));
        if (read.kind === 'read') for (const entry of read.pods.values()) isSameEntry(entry, entry);
      },
      isDocumented,
    },
    {
      name: 'cpu_manager_state',
      make: (random) => mutateJson(cpuState, random),
      parse: (text) => {
        const read = readCpuState(String(text));
        if (typeof read !== 'string')
          [read.of(podUid, 'web'), read.of('__proto__', 'constructor')].forEach(assertShort);
      },
      isDocumented,
    },
    {
      name: 'memory_manager_state',
      make: (random) => mutateJson(memoryState, random),
      parse: (text) => {
        const read = readMemoryState(String(text));
        if (typeof read !== 'string')
          [read.of(podUid, 'web'), read.of('__proto__', 'constructor')].forEach(assertShort);
      },
      isDocumented,
    },
    {
      name: 'pod of the API server',
      make: (random) => mutateJson(apiPod, random),
      parse: (text) => {
        const parsed = podSchema.safeParse(jsonOrUndefined(String(text)));
        if (parsed.success) podOf(parsed.data, 'this-node');
      },
      isDocumented,
    },
    {
      name: 'state files on the disk',
      make: (random) => (random.chance(2) ? checkpointText(random) : mutateJson(cpuState, random)),
      parse: (text) => {
        for (const name of ['allocated_pods_state', 'actuated_pods_state', 'cpu_manager_state'])
          writeFileSync(join(folder, name), text);
        checkpoints.refresh();
        checkpoints.allocated(podUid);
        managers.exclusiveCpus(podUid, 'web');
      },
      isDocumented,
    },
  ];
  return parserTarget('kubelet', oftenInMemory(parsers), () => {
    checkpoints.close();
    rmSync(folder, { recursive: true });
  });
}

function assertShort(list: string | undefined): void {
  if (list !== undefined && list.length > 100) throw new Error(`a list of ${list.length} characters`);
}

function jsonOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
