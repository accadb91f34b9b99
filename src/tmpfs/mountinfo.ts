/** Parses the kernel's mount table, /proc/<pid>/mountinfo (proc_pid_mountinfo(5)). */

export interface Mount {
  /** Unique among all current mounts, across mount namespaces. */
  readonly id: number;
  readonly parentId: number;
  /** File system, `major:minor`: the st_dev of its files. */
  readonly device: string;
  /** The mounted folder of the file system; `/` for all of it. */
  readonly root: string;
  readonly mountPoint: string;
  /** Options of this mount only: rw or ro, nosuid, nodev, noexec, relatime ... */
  readonly mountOptions: readonly string[];
  readonly fsType: string;
  readonly source: string;
  /** Options of the file system at all its mounts: rw or ro, size=, nr_inodes=, noswap ... */
  readonly superOptions: readonly string[];
}

/**
 * Parses the mount table, oldest mount first. With `device`, only parses the mounts of that file system, which is much
 * faster on a node with many pods. Skips incomplete lines.
 */
export function parseMountinfo(text: string, device?: string): Mount[] {
  const lines = text.split('\n');
  if (device === undefined) return mountsOf(lines);
  return mountsOf(lines.filter((line) => line.includes(` ${device} `))).filter((mount) => mount.device === device);
}

const mountsOf = (lines: readonly string[]): Mount[] => lines.flatMap((line) => parseLine(line) ?? []);

/** Returns the value of an option (`64k` in `size=64k`); undefined if it is absent. */
export function optionOf(options: readonly string[], key: string): string | undefined {
  return options.find((option) => option.startsWith(`${key}=`))?.slice(key.length + 1);
}

// 36 35 98:0 /root /mount/point rw,noatime master:1 ... - tmpfs source rw,size=64k
function parseLine(line: string): Mount | undefined {
  const fields = line.split(' ');
  // Any number of optional fields follows the sixth field, up to a single dash.
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

/** The kernel escapes spaces, tabs, newlines, backslashes and hashes as three octal digits. */
function unescape(field: string): string {
  if (!field.includes('\\')) return field;
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
