import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cgroupOfPid, parseProcCgroup } from '../../../src/cgroups/proc.ts';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import { holdsSetting, isSameList, lastNumber, restoringSetting } from '../../../src/cgroups/values/settings.ts';
import { isSameUnified } from '../../../src/cgroups/values/unified.ts';
import { noCounters } from '../../../src/core/observe/counters.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { isSameEntry, readCheckpoint } from '../../../src/kubelet/checkpoint.ts';
import { KubeletFiles } from '../../../src/kubelet/checkpoints.ts';
import { ManagerFiles, readCpuState, readMemoryState } from '../../../src/kubelet/resource-managers.ts';
import { podOf, podSchema } from '../../../src/kubernetes/pods/pod.ts';
import { parseMountinfo } from '../../../src/tmpfs/mountinfo.ts';
import { readVolumeAnnotations } from '../../../src/tmpfs/sizes.ts';
import { surveyVolumes } from '../../../src/tmpfs/volumes.ts';
import { memoryFolder } from '../memory-folder.ts';
import { hostileText, mutateBytes, mutateJson, mutateText } from '../mutations/values.ts';
import type { Random } from '../random.ts';
import { cgroupFiles, cpuLists, meminfo, mountinfo, procCgroup, volumeAnnotations } from '../seeds/kernel.ts';
import { apiPod, checkpointEntries, cpuState, memoryState, podUid } from '../seeds/kubelet.ts';
import type { Target } from '../target.ts';
import type { Parser } from './parser.ts';
import { oftenInMemory, parserTarget } from './parser.ts';

const never = (): boolean => false;
const CGROUP = '/kubepods/pod1';

/** Files of /proc. */
export function procTarget(): Target {
  const folder = memoryFolder('fuzz-proc-');
  mkdirSync(join(folder, '42'));
  const parsers: readonly Parser[] = [
    {
      name: 'mountinfo',
      make: (random) => mutateText(mountinfo, random),
      parse: (text) => {
        const mounts = parseMountinfo(String(text));
        parseMountinfo(String(text), '0:45');
        surveyVolumes(mounts, '/var/lib/kubelet');
      },
      isDocumented: never,
    },
    {
      name: '/proc/PID/cgroup',
      make: (random) => mutateText(procCgroup, random),
      parse: async (text) => {
        parseProcCgroup(String(text));
        writeFileSync(join(folder, '42/cgroup'), text);
        await cgroupOfPid(42, folder);
      },
    },
    {
      name: 'volume annotations',
      make: (random) => mutateText(random.pick(volumeAnnotations), random),
      parse: (text) => {
        const [name = '', ...value] = String(text).split('=');
        readVolumeAnnotations({ [name]: value.join('='), [`volume.cri-resize-shim.io/${name}`]: value.join('=') });
      },
      isDocumented: never,
    },
  ];
  return parserTarget('proc', parsers, () => rmSync(folder, { recursive: true }));
}

/** Files of cgroup v2, in a folder as the kernel has it. */
export function cgroupTarget(): Target {
  const folder = memoryFolder('fuzz-cgroup-');
  const [root, proc] = [join(folder, 'cgroup'), join(folder, 'proc')];
  const [pod, container] = [join(root, 'kubepods/pod1'), join(root, 'kubepods/pod1/c1')];
  mkdirSync(container, { recursive: true });
  mkdirSync(proc);
  const write = (name: string, text: string): void => {
    for (const place of [pod, container]) writeFileSync(join(place, name), text);
  };
  for (const [name, text] of Object.entries(cgroupFiles)) write(name, text);
  writeFileSync(join(proc, 'meminfo'), meminfo);
  const names = Object.keys(cgroupFiles) as (keyof typeof cgroupFiles)[];
  const tree = new CgroupTree(root, proc);
  const onDisk: Parser = {
    name: 'cgroup files',
    make: (random) => {
      const name = random.pick(names);
      return `${name}\n${mutateText(cgroupFiles[name], random)}`;
    },
    parse: async (content) => {
      const [name = '', ...lines] = String(content).split('\n');
      write(name, lines.join('\n'));
      try {
        await readAll(tree);
      } finally {
        write(name, cgroupFiles[name as keyof typeof cgroupFiles]);
      }
    },
  };
  return parserTarget('cgroups', [onDisk, procFiles(proc, tree), settings, lists], () =>
    rmSync(folder, { recursive: true }),
  );
}

/** Reads all that the shim reads. The first documented error does not hide what the other readers do. */
async function readAll(tree: CgroupTree): Promise<void> {
  const readers: (() => unknown)[] = [
    () => tree.readLimitsNow(CGROUP),
    () => tree.readMemoryUse(CGROUP),
    () => tree.sampleMemory(CGROUP),
    () => tree.readSwapMax(CGROUP),
    () => tree.readHigh(CGROUP),
    () => tree.readOomGroup(CGROUP),
    () => tree.readSetting(CGROUP, 'cpuset.cpus'),
    () => tree.has(CGROUP, { file: 'memory.max', value: bytes(4096) }),
    () => tree.write(CGROUP, { file: 'memory.high', value: 'max' }),
  ];
  const outcomes = await Promise.allSettled(readers.map((read) => new Promise((resolve) => resolve(read()))));
  const errors = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []));
  const unexpected = errors.find((error) => !(error instanceof Error) || error.name !== 'ShimError');
  if (errors.length > 0) throw unexpected ?? errors[0];
}

function procFiles(folder: string, tree: CgroupTree): Parser {
  return {
    name: '/proc/meminfo',
    make: (random) => mutateText(meminfo, random),
    parse: async (content) => {
      writeFileSync(join(folder, 'meminfo'), content);
      try {
        await tree.readMemoryUse(CGROUP);
      } finally {
        writeFileSync(join(folder, 'meminfo'), meminfo);
      }
    },
  };
}

const machine = { pageSize: bytes(4096), lastPossible: (): number => 7 };
const KEYS = [
  'cpuset.cpus',
  'cpu.max',
  'memory.high',
  'io.max',
  'io.weight',
  'pids.max',
  'hugetlb.2MB.max',
  'cpu.idle',
];

const settings: Parser = {
  name: 'settings of unified',
  make: (random) => [random.pick(KEYS), word(random), word(random)].join('\t'),
  parse: (text) => {
    const [key = '', asked = '', found = ''] = String(text).split('\t');
    holdsSetting(key, asked, found, machine);
    restoringSetting(key, asked, found);
    isSameUnified(asked, found);
  },
  isDocumented: never,
};

const word = (random: Random): string =>
  random.chance(3) ? hostileText(random) : mutateText(random.pick(Object.values(cgroupFiles)).slice(0, 60), random);

const lists: Parser = {
  name: 'lists of CPUs',
  make: (random) => `${mutateText(random.pick(cpuLists), random)}\t${mutateText(random.pick(cpuLists), random)}`,
  parse: (text) => {
    const [asked = '', found = ''] = String(text).split('\t');
    lastNumber(found);
    isSameList(asked, found, 7);
  },
  isDocumented: never,
};

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
  // A clock that does not advance: no timers fire, and each read accesses the files again.
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
