/** The kernel's table of mounts, /proc/<pid>/mountinfo (proc_pid_mountinfo(5)). Pure: text in, mounts out. */

export interface Mount {
  /** Unique among the mounts of this moment, in all mount namespaces. */
  readonly id: number;
  readonly parentId: number;
  /** The file system: `major:minor`, the st_dev of its files. */
  readonly device: string;
  /** The folder of the file system that is mounted: `/` for the whole. */
  readonly root: string;
  readonly mountPoint: string;
  /** Of this mount point alone: rw or ro, nosuid, nodev, noexec, relatime ... */
  readonly mountOptions: readonly string[];
  readonly fsType: string;
  readonly source: string;
  /** Of the file system, wherever it is mounted: rw or ro, size=, nr_inodes=, noswap ... */
  readonly superOptions: readonly string[];
}

/**
 * Reads the table, in its order: oldest first. With a device, only the mounts of that file system, which on a node with
 * many pods is a fraction of the work. Lines that are not whole are left out.
 */
export function parseMountinfo(text: string, device?: string): Mount[] {
  const lines = text.split('\n');
  if (device === undefined) return mountsOf(lines);
  return mountsOf(lines.filter((line) => line.includes(` ${device} `))).filter((mount) => mount.device === device);
}

const mountsOf = (lines: readonly string[]): Mount[] => lines.flatMap((line) => parseLine(line) ?? []);

/** The value of an option (`size` in `size=64k`), or undefined when it is not there. */
export function optionOf(options: readonly string[], key: string): string | undefined {
  return options.find((option) => option.startsWith(`${key}=`))?.slice(key.length + 1);
}

// 36 35 98:0 /root /mount/point rw,noatime master:1 ... - tmpfs source rw,size=64k
function parseLine(line: string): Mount | undefined {
  const fields = line.split(' ');
  // Between the sixth field and a lone dash there are any number of optional fields.
  const dash = fields.indexOf('-', 6);
  const head = dash === -1 ? [] : fields.slice(0, 6);
  const tail = fields.slice(dash + 1);
  if (!isHead(head) || !isTail(tail)) return undefined;
  const [id, parentId, device, root, mountPoint, mountOptions] = head;
  const [fsType, source, superOptions = ''] = tail;
  if (!isNumber(id) || !isNumber(parentId)) return undefined;
  return {
    id: Number(id),
    parentId: Number(parentId),
    device,
    root: unescape(root),
    mountPoint: unescape(mountPoint),
    mountOptions: optionList(mountOptions),
    fsType: unescape(fsType),
    source: unescape(source),
    superOptions: optionList(superOptions),
  };
}

type Head = readonly [id: string, parentId: string, device: string, root: string, mountPoint: string, options: string];
const isHead = (fields: readonly string[]): fields is Head => fields.length === 6;

type Tail = readonly [fsType: string, source: string, ...options: string[]];
const isTail = (fields: readonly string[]): fields is Tail => fields.length >= 2;

const isNumber = (field: string): boolean => /^\d+$/.test(field);

function optionList(field: string): string[] {
  return field === '' ? [] : field.split(',').map(unescape);
}

/** The kernel writes blanks, tabs, newlines, backslashes and hashes as three octal digits. */
function unescape(field: string): string {
  if (!field.includes('\\')) return field;
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
