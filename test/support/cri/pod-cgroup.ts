import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execaSync } from 'execa';

/** The cgroups of pods as kubelet manages them: names, creation, writes and removal, with either cgroup driver. */

export type QosClass = 'guaranteed' | 'burstable' | 'besteffort';

/** The initial values of a pod's cgroup, in the format of the files. */
export interface PodCgroupFiles {
  readonly 'memory.max': string;
  readonly 'cpu.max': string;
  readonly 'cpu.weight': string;
}

interface Driver {
  /**
   * Returns CRI's cgroup_parent, which is also the path of the pod's cgroup. Guaranteed pods have no folder of their
   * class.
   */
  parent(uid: string, qos: QosClass): string;
  /** Returns the name of a container's cgroup below its pod's. */
  containerName(id: string): string;
  /** @param folder of the cgroup on the node, which may already exist */
  make(folder: string, files: PodCgroupFiles): void;
  write(folder: string, files: Partial<PodCgroupFiles>): void;
  remove(folder: string): void;
}

const CGROUP_ROOT = '/sys/fs/cgroup';

const cgroupfs: Driver = {
  parent: (uid, qos) => (qos === 'guaranteed' ? `/kubepods/pod${uid}` : `/kubepods/${qos}/pod${uid}`),
  containerName: (id) => id,
  make(folder, files) {
    mkdirSync(folder, { recursive: true });
    // Enables all controllers of kubelet's cgroups, including cpuset and hugetlb if the kernel supports them.
    const controllers = readFileSync(join(folder, 'cgroup.controllers'), 'utf8').trim().split(' ');
    writeFileSync(join(folder, 'cgroup.subtree_control'), controllers.map((name) => `+${name}`).join(' '));
    writeFiles(folder, files);
  },
  write: writeFiles,
  remove: rmdirSync,
};

/** A property of a unit in busctl's form: name, type and value. */
type Property = readonly [name: string, type: 'b' | 't', value: string];

const systemd: Driver = {
  parent(uid, qos) {
    const above = qos === 'guaranteed' ? ['kubepods'] : ['kubepods', `kubepods-${qos}`];
    // A dash would create another level.
    const own = `${above.at(-1)}-pod${uid.replaceAll('-', '_')}`;
    return [...above, own].map((slice) => `/${slice}.slice`).join('');
  },
  containerName: (id) => `cri-containerd-${id}.scope`,
  make(folder, files) {
    const accounting = ['CPU', 'IO', 'Memory', 'Tasks'].map((what): Property => [`${what}Accounting`, 'b', 'true']);
    const properties = [...accounting, ...Object.entries(files).flatMap(propertiesOf)];
    callManager('StartTransientUnit', 'ssa(sv)a(sa(sv))', [unitOf(folder), 'replace', ...array(properties), '0']);
    // Waits for the job that this command starts.
    execaSync('systemctl', ['start', unitOf(folder)]);
    writeFiles(folder, files);
  },
  // Writes the unit first and then the files, as libcontainer does for kubelet.
  write(folder, files) {
    setProperties(unitOf(folder), Object.entries(files).flatMap(propertiesOf));
    writeFiles(folder, files);
  },
  remove: (folder) => void execaSync('systemctl', ['stop', unitOf(folder)]),
};

/** Whether systemd is the first process of this node and owns the cgroups. */
export const isSystemdNode = process.env['NODE_INIT'] === 'systemd';
const driver = isSystemdNode ? systemd : cgroupfs;

export const podCgroupParent = (uid: string, qos: QosClass): string => driver.parent(uid, qos);
export const podCgroupFolder = (uid: string, qos: QosClass): string => join(CGROUP_ROOT, podCgroupParent(uid, qos));
export const containerFolder = (podFolder: string, id: string): string => join(podFolder, driver.containerName(id));
export const makePodCgroup = (folder: string, files: PodCgroupFiles): void => driver.make(folder, files);
export const writePodCgroup = (folder: string, files: Partial<PodCgroupFiles>): void => driver.write(folder, files);
export const removePodCgroup = (folder: string): void => driver.remove(folder);

/** Returns the unit of a cgroup's folder. */
export const unitOf = (folder: string): string => folder.slice(folder.lastIndexOf('/') + 1);

/** Does the same as `systemctl set-property --runtime`. */
export function setProperties(unit: string, properties: readonly Property[]): void {
  callManager('SetUnitProperties', 'sba(sv)', [unit, 'true', ...array(properties)]);
}

/** Cgroup settings that the simulated kubelet does not set, and their properties. */
const SETTINGS = {
  'memory.low': 'MemoryLow',
  'memory.min': 'MemoryMin',
  'memory.high': 'MemoryHigh',
  'memory.swap.max': 'MemorySwapMax',
} as const;

/** Changes a setting of a cgroup as another program does: on its unit as well where systemd owns it. */
export function writeSetting(folder: string, file: keyof typeof SETTINGS, value: number | 'max'): void {
  const property = value === 'max' ? NO_LIMIT : String(value);
  if (isSystemdNode) setProperties(unitOf(folder), [[SETTINGS[file], 't', property]]);
  writeFileSync(join(folder, file), String(value));
}

const array = (properties: readonly Property[]): string[] => [String(properties.length), ...properties.flat()];

function callManager(method: string, signature: string, values: readonly string[]): void {
  const manager = ['org.freedesktop.systemd1', '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager'];
  execaSync('busctl', ['call', ...manager, method, signature, '--', ...values]);
}

const NO_LIMIT = String(2n ** 64n - 1n);

function propertiesOf([file, value]: readonly [file: string, value: string]): Property[] {
  const [first = '', period = ''] = value.split(' ');
  const number = first === 'max' ? NO_LIMIT : first;
  switch (file) {
    case 'memory.max':
      return [['MemoryMax', 't', number]];
    case 'cpu.weight':
      return [['CPUWeight', 't', number]];
    case 'cpu.max': {
      // systemd stores whole percents of a CPU.
      const quota = first === 'max' ? NO_LIMIT : String(Math.ceil((Number(first) * 100) / Number(period)) * 10_000);
      return [
        ['CPUQuotaPerSecUSec', 't', quota],
        ['CPUQuotaPeriodUSec', 't', period],
      ];
    }
    default:
      throw new Error(`kubelet does not set ${file}`);
  }
}

function writeFiles(folder: string, files: Partial<PodCgroupFiles>): void {
  for (const [file, value] of Object.entries(files)) writeFileSync(join(folder, file), value);
}
